/* host/tools/report/comparison.c: see comparison.h. */
#include "tools/report/comparison.h"

#include "base/alloc.h"
#include "base/text.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

const char *weft_past_phase_name(int32_t phase) {
    if (phase == 0) return "data";
    return phase == WEFT_N_PAST_PHASES - 1 ? "rest" : weft_phase_name(phase - 1);
}

static void add_note(weft_past_run *self, const char *format, ...) WEFT_PRINTF(2, 3);
static void add_note(weft_past_run *self, const char *format, ...) {
    va_list args;
    if (self->n_notes == WEFT_MAX_NOTES) return;
    va_start(args, format);
    (void)vsnprintf(self->notes[self->n_notes++], sizeof self->notes[0], format, args);
    va_end(args);
}

/* ---- fields of a line ---- */

static double number_at(const json_t *object, const char *field) {
    const json_t *value = json_object_get(object, field);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

const json_t *weft_past_start(const weft_past_run *self) {
    const size_t n = json_array_size(self->starts);
    return n == 0 ? NULL : json_array_get(self->starts, n - 1);
}

const char *weft_past_text(const json_t *object, const char *group, const char *field) {
    const json_t *in = group == NULL ? object : json_object_get(object, group);
    const char *text = json_string_value(json_object_get(in, field));
    return text == NULL ? "" : text;
}

double weft_past_number(const json_t *object, const char *group, const char *field) {
    return number_at(group == NULL ? object : json_object_get(object, group), field);
}

static void add_phases(double *to, const json_t *phases) {
    for (int32_t i = 0; i < WEFT_N_PAST_PHASES; i++) {
        const double seconds = number_at(phases, weft_past_phase_name(i));
        if (!isnan(seconds)) to[i] += seconds;
    }
}

/* Appends a zeroed element to an array that grows by doubling. */
static void *grow(void *array, size_t *n, size_t bytes) {
    void **at = array;
    if ((*n & (*n - 1)) == 0) *at = weft_realloc(*at, *n == 0 ? 1 : 2 * *n, bytes);
    return memset((char *)*at + (*n)++ * bytes, 0, bytes);
}

/* ---- lines of each kind ---- */

static void take_step(weft_past_run *self, const json_t *line) {
    weft_past_step *step = grow(&self->steps, &self->n_steps, sizeof *self->steps);
    step->step = number_at(line, "step");
    step->loss = number_at(line, "loss");
    step->lr = number_at(line, "lr");
    step->norm = number_at(line, "grad_norm");
    step->tokens = number_at(line, "tokens");
    step->epoch = number_at(line, "epoch");
    step->speed = number_at(line, "tokens_per_second");
    step->resident = number_at(line, "resident");
    step->seconds = number_at(line, "seconds");
    add_phases(step->phases, json_object_get(line, "phases"));
}

static void take_evaluation(weft_past_run *self, const json_t *line) {
    weft_past_evaluation *one = grow(&self->evaluations, &self->n_evaluations, sizeof *self->evaluations);
    one->step = number_at(line, "step");
    one->loss = number_at(line, "loss");
    one->perplexity = number_at(line, "perplexity");
    one->similarity = number_at(line, "similarity");
    one->took = number_at(line, "took");
    one->seconds = number_at(line, "seconds");
}

static void take_save(weft_past_run *self, const json_t *line) {
    weft_past_save *save = grow(&self->saves, &self->n_saves, sizeof *self->saves);
    save->step = number_at(line, "step");
    save->took = number_at(line, "took");
    save->seconds = number_at(line, "seconds");
    save->best = json_is_true(json_object_get(line, "best"));
    save->is_model = strcmp(weft_past_text(line, NULL, "what"), "model") == 0;
}

static void take_rank(weft_past_rank *rank, const json_t *row) {
    const double peak = number_at(row, "resident_peak");
    const json_t *taken = json_object_get(row, "taken");
    const char *name = NULL;
    json_t *bytes = NULL;
    add_phases(rank->phases, json_object_get(row, "phases"));
    rank->taken = 0;
    json_object_foreach((json_t *)(uintptr_t)taken, name, bytes) rank->taken += json_number_value(bytes);
    rank->live = number_at(row, "live");
    rank->libraries = number_at(row, "libraries");
    rank->resident = number_at(row, "resident");
    if (peak > rank->peak) rank->peak = peak;
}

static void take_phases(weft_past_run *self, const json_t *line) {
    const json_t *rows = json_object_get(line, "ranks");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        if (i == self->n_ranks) (void)grow(&self->ranks, &self->n_ranks, sizeof *self->ranks);
        take_rank(&self->ranks[i], json_array_get(rows, i));
    }
}

static void take_start(weft_past_run *self, const json_t *line) {
    (void)json_array_append(self->starts, (json_t *)(uintptr_t)line);
}

static void take_line(weft_past_run *self, int32_t kind, const json_t *line) {
    static void (*const take[WEFT_N_RECORDS])(weft_past_run *, const json_t *) = {
        [WEFT_RECORD_STARTS] = take_start,           [WEFT_RECORD_METRICS] = take_step,
        [WEFT_RECORD_EVALUATIONS] = take_evaluation, [WEFT_RECORD_CHECKPOINTS] = take_save,
        [WEFT_RECORD_PHASES] = take_phases,
    };
    const double seconds = number_at(line, "seconds"), at = number_at(line, "time");
    if (seconds > self->seconds) self->seconds = seconds;
    if (at > self->last_time) self->last_time = at;
    take[kind](self, line);
}

/* ---- files ---- */

/* Defects found in a file. */
typedef struct found {
    int64_t damaged, first_damaged;
    bool torn; /* the last line has no newline: it is being written, or its writer was killed */
} found;

static void read_lines(weft_past_run *self, int32_t kind, FILE *file, found *out) {
    char *text = NULL;
    size_t capacity = 0;
    ssize_t n = 0;
    for (int64_t number = 1; (n = getline(&text, &capacity, file)) > 0; number++) {
        json_t *line = NULL;
        if (text[n - 1] == '\n') (void)weft_json_parse(&line, text, (size_t)n, 0, "", NULL);
        if (json_is_integer(json_object_get(line, "step"))) take_line(self, kind, line);
        else if (text[n - 1] != '\n') out->torn = true;
        else if (out->damaged++ == 0) out->first_damaged = number;
        json_decref(line);
    }
    free(text);
}

static void report_damage(weft_past_run *self, int32_t kind, const found *what) {
    const char *name = weft_record_name(kind);
    if (what->damaged == 1)
        add_note(self, "%s: line %lld is no complete record and is skipped", name, (long long)what->first_damaged);
    if (what->damaged > 1)
        add_note(self, "%s: %lld lines are no complete records and are skipped; the first is line %lld", name,
                 (long long)what->damaged, (long long)what->first_damaged);
    if (what->torn) add_note(self, "%s: its last line is not finished and is left out", name);
}

static void read_record(weft_past_run *self, int32_t kind) {
    char path[4096];
    found what = {0};
    FILE *file = NULL;
    struct stat about;
    (void)snprintf(path, sizeof path, "%s/%s", self->directory, weft_record_name(kind));
    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode)) {
        add_note(self, "%s is no file, and is left out", weft_record_name(kind));
        return;
    }
    file = fopen(path, "re");
    if (file == NULL) {
        if (errno != ENOENT) add_note(self, "%s cannot be read: %s", weft_record_name(kind), strerror(errno));
        return;
    }
    read_lines(self, kind, file, &what);
    if (ferror(file)) add_note(self, "%s could not be read completely", weft_record_name(kind));
    (void)fclose(file);
    report_damage(self, kind, &what);
}

/* Stores the directory without trailing slashes, and its last component. */
static void take_name(weft_past_run *self, const char *directory) {
    size_t n = strlen(directory);
    const char *slash = NULL;
    while (n > 1 && directory[n - 1] == '/') n--;
    self->directory = weft_text_of("%.*s", (int)n, directory);
    self->starts = json_array();
    slash = strrchr(self->directory, '/');
    self->name = slash == NULL || slash[1] == '\0' ? self->directory : slash + 1;
}

static weft_status check_found(const weft_past_run *self, weft_error *err) {
    struct stat about;
    if (self->n_steps > 0 || json_array_size(self->starts) > 0) return WEFT_OK;
    if (stat(self->directory, &about) != 0)
        return weft_error_set(err, WEFT_E_USER, "%s: %s. Allowed: the directory of a run ([run] out)", self->directory,
                              strerror(errno));
    if (!S_ISDIR(about.st_mode))
        return weft_error_set(err, WEFT_E_USER, "%s is a file. Allowed: the directory of a run ([run] out)",
                              self->directory);
    return weft_error_set(err, WEFT_E_USER,
                          "%s contains no run: metrics.jsonl and starts.jsonl are missing or empty. Allowed: the "
                          "directory of a run ([run] out)",
                          self->directory);
}

/* Adds notes about records that older versions did not write, or that were not copied. */
static void report_missing(weft_past_run *self) {
    if (json_array_size(self->starts) == 0)
        add_note(self, "starts.jsonl is not there: configuration, plan and ranks are not known");
    else if (!json_is_array(json_object_get(weft_past_start(self), "config")))
        add_note(self, "the configuration was not recorded: a value in it is no UTF-8 text");
    if (self->n_steps == 0) add_note(self, "no step was recorded yet");
    else if (self->n_ranks == 0)
        add_note(self, "times and memory of the ranks are recorded at the first save, or at the end");
}

weft_status weft_past_run_read(weft_past_run *out, const char *directory, weft_error *err) {
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    take_name(out, directory);
    for (int32_t kind = 0; kind < WEFT_N_RECORDS; kind++) read_record(out, kind);
    status = check_found(out, err);
    if (status == WEFT_OK) report_missing(out);
    return status;
}

void weft_past_run_free(weft_past_run *self) {
    free(self->directory);
    free(self->steps);
    free(self->evaluations);
    free(self->saves);
    free(self->ranks);
    json_decref(self->starts);
    memset(self, 0, sizeof *self);
}

enum { EXCHANGE = 1 + WEFT_PHASE_EXCHANGE }; /* index among a past run's phases */

static void add_up_times(weft_digest *out, const weft_past_run *run) {
    double steps = 0.0, targets = 0.0, named = 0.0, counted = 0.0;
    for (size_t i = 0; i < run->n_steps; i++) {
        const weft_past_step *line = &run->steps[i];
        double span = 0.0;
        for (int32_t p = 0; p < WEFT_N_PAST_PHASES; p++) span += line->phases[p];
        out->times[WEFT_TIME_COMMUNICATION] += line->phases[EXCHANGE];
        out->times[WEFT_TIME_COMPUTE] += span - line->phases[EXCHANGE];
        steps += span;
        if (!isnan(line->speed)) targets += line->speed * span;
        counted = line->step;
    }
    for (size_t i = 0; i < run->n_evaluations; i++)
        if (!isnan(run->evaluations[i].took)) out->times[WEFT_TIME_EVALUATION] += run->evaluations[i].took;
    for (size_t i = 0; i < run->n_saves; i++)
        if (!isnan(run->saves[i].took)) out->times[WEFT_TIME_CHECKPOINT] += run->saves[i].took;
    for (int32_t t = 0; t < WEFT_TIME_START; t++) named += out->times[t];
    out->seconds = run->seconds > 0.0 ? run->seconds : (double)NAN;
    out->times[WEFT_TIME_START] = run->seconds > named ? run->seconds - named : 0.0;
    out->speed = steps > 0.0 ? targets / steps : (double)NAN;
    out->step_seconds = steps > 0.0 && counted > 0.0 ? steps / counted : (double)NAN;
}

static void sum_up_losses(weft_digest *out, const weft_past_run *run) {
    const size_t n = run->n_steps, tail = n / 10 > 20 ? 20 : n / 10 > 0 ? n / 10 : 1;
    double sum = 0.0, counted = 0.0;
    out->first_loss = n > 0 ? run->steps[0].loss : (double)NAN;
    for (size_t i = n > tail ? n - tail : 0; i < n; i++) {
        if (isnan(run->steps[i].loss)) continue; /* a step skipped because of fp16 overflow */
        sum += run->steps[i].loss;
        counted += 1.0;
    }
    out->last_loss = counted > 0.0 ? sum / counted : (double)NAN;
    out->eval_loss = out->best_loss = out->best_step = out->similarity = (double)NAN;
    for (size_t i = 0; i < run->n_evaluations; i++) {
        out->eval_loss = run->evaluations[i].loss;
        out->similarity = run->evaluations[i].similarity;
        if (!(out->eval_loss >= out->best_loss)) { /* true if best is NaN */
            out->best_loss = out->eval_loss;
            out->best_step = run->evaluations[i].step;
        }
    }
}

static void find_memory(weft_digest *out, const weft_past_run *run) {
    const json_t *planned = json_object_get(weft_past_start(run), "planned");
    out->planned = out->resident = (double)NAN;
    for (size_t i = 0; i < json_array_size(planned); i++) {
        const double total = weft_past_number(json_array_get(planned, i), NULL, "total");
        if (!(total <= out->planned)) out->planned = total;
    }
    for (size_t i = 0; i < run->n_ranks; i++)
        if (!(run->ranks[i].peak <= out->resident)) out->resident = run->ranks[i].peak;
    for (size_t i = 0; run->n_ranks == 0 && i < run->n_steps; i++)
        if (!(run->steps[i].resident <= out->resident)) out->resident = run->steps[i].resident;
}

static void take_setup(weft_digest *out, const weft_past_run *run) {
    const json_t *start = weft_past_start(run), *who = json_object_get(start, "run");
    const char *strategy = weft_past_text(who, "plugins", "strategy"),
               *shard = weft_past_text(who, "strategy", "shard");
    out->ranks = weft_past_number(who, NULL, "world");
    out->replicas = weft_past_number(who, NULL, "replicas");
    out->micro_batches = weft_past_number(who, NULL, "micro_batches");
    out->lr = weft_past_number(who, NULL, "lr");
    out->global_batch = weft_past_number(start, "batch", "global");
    out->micro_batch = weft_past_number(start, "batch", "micro");
    out->all_steps = weft_past_number(start, NULL, "steps");
    (void)snprintf(out->strategy, sizeof out->strategy, "%.30s%s%.30s", strategy, *shard != '\0' ? " " : "", shard);
    (void)snprintf(out->precision, sizeof out->precision, "%.15s", weft_past_text(who, NULL, "precision"));
}

void weft_digest_make(weft_digest *out, const weft_past_run *run) {
    memset(out, 0, sizeof *out);
    take_setup(out, run);
    add_up_times(out, run);
    sum_up_losses(out, run);
    find_memory(out, run);
    out->steps = run->n_steps > 0 ? run->steps[run->n_steps - 1].step : 0.0;
    out->epochs = run->n_steps > 0 ? run->steps[run->n_steps - 1].epoch : (double)NAN;
    out->finished = run->n_saves > 0 && run->saves[run->n_saves - 1].is_model && out->steps >= out->all_steps;
}

void weft_sheet_begin(weft_sheet *self, size_t columns) {
    memset(self, 0, sizeof *self);
    self->columns = columns;
}

/* Removes control characters and newlines from a cell, because directory names and recorded texts are untrusted. */
static void make_line(char *text) {
    weft_words_sanitize(text);
    for (; *text != '\0'; text++)
        if (*text == '\n' || *text == '\t') *text = ' ';
}

void weft_sheet_put(weft_sheet *self, const char *format, ...) {
    va_list args;
    char *text = NULL;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0) text = weft_strdup("");
    va_end(args);
    make_line(text);
    self->cells = weft_realloc(self->cells, self->n + 1, sizeof *self->cells);
    self->cells[self->n++] = text;
}

void weft_sheet_free(weft_sheet *self) {
    for (size_t i = 0; i < self->n; i++) free(self->cells[i]);
    free(self->cells);
    memset(self, 0, sizeof *self);
}

size_t weft_sheet_rows(const weft_sheet *self) {
    return self->n / self->columns;
}

const char *weft_sheet_at(const weft_sheet *self, size_t row, size_t column) {
    return self->cells[row * self->columns + column];
}

/* ---- terminal ---- */

/* Returns the width on a terminal: the number of UTF-8 characters. */
static size_t places(const char *text) {
    size_t n = 0;
    for (; *text != '\0'; text++) n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static size_t column_width(const weft_sheet *self, size_t column) {
    size_t most = 0;
    for (size_t row = 0; row < weft_sheet_rows(self); row++) {
        const size_t n = places(weft_sheet_at(self, row, column));
        if (n > most) most = n;
    }
    return most;
}

/* Prints the text padded to a width, truncated with ".." if it is wider. */
static void print_cell(const char *text, size_t width, bool left, FILE *to) {
    const size_t n = places(text);
    size_t at = 0, shown = 0;
    if (n <= width) {
        if (!left) (void)fprintf(to, "%*s", (int)(width - n), "");
        (void)fprintf(to, "%s", text);
        if (left) (void)fprintf(to, "%*s", (int)(width - n), "");
        return;
    }
    while (shown + 2 < width && text[at] != '\0')
        for (shown++, at++; ((unsigned char)text[at] & 0xc0) == 0x80;) at++;
    (void)fprintf(to, "%.*s%.*s", (int)at, text, (int)(width < 2 ? width : 2), "..");
}

static void print_columns(const weft_sheet *self, FILE *to, const size_t *widths, size_t first, size_t last) {
    for (size_t row = 0; row < weft_sheet_rows(self); row++) {
        print_cell(weft_sheet_at(self, row, 0), widths[0], true, to);
        for (size_t column = first; column < last; column++) {
            (void)fputs("  ", to);
            print_cell(weft_sheet_at(self, row, column), widths[column], false, to);
        }
        (void)fputc('\n', to);
    }
}

/* Limits a column to about half of a line, so that two columns always fit. */
static void choose_widths(const weft_sheet *self, size_t *widths, size_t width) {
    for (size_t column = 0; column < self->columns; column++) {
        const size_t most = width == 0 ? (size_t)-1 : column == 0 ? width / 2 - 2 : width - width / 2;
        widths[column] = column_width(self, column);
        if (widths[column] > most) widths[column] = most;
    }
}

void weft_sheet_print(const weft_sheet *self, FILE *to, size_t width) {
    size_t *widths = weft_alloc(self->columns, sizeof *widths);
    size_t first = 1, last = 1;
    choose_widths(self, widths, width);
    while (first < self->columns) {
        size_t taken = widths[0];
        for (last = first; last < self->columns; last++) {
            taken += 2 + widths[last];
            if (width > 0 && last > first && taken > width) break;
        }
        if (first > 1) (void)fputc('\n', to);
        print_columns(self, to, widths, first, last);
        first = last;
    }
    free(widths);
}

/* ---- Markdown ---- */

static void print_markdown_cell(const char *text, FILE *to) {
    (void)fputc(' ', to);
    for (; *text != '\0'; text++) {
        if (*text == '|' || *text == '\\' || *text == '`' || *text == '*' || *text == '_' || *text == '<')
            (void)fputc('\\', to);
        (void)fputc(*text == '\n' ? ' ' : *text, to);
    }
    (void)fputs(" |", to);
}

void weft_sheet_print_markdown(const weft_sheet *self, FILE *to) {
    for (size_t row = 0; row < weft_sheet_rows(self); row++) {
        (void)fputc('|', to);
        for (size_t column = 0; column < self->columns; column++)
            print_markdown_cell(weft_sheet_at(self, row, column), to);
        (void)fputc('\n', to);
        if (row > 0) continue;
        (void)fputc('|', to);
        for (size_t column = 0; column < self->columns; column++) (void)fputs(column == 0 ? "---|" : "---:|", to);
        (void)fputc('\n', to);
    }
}

/* ---- CSV ---- */

/* True for a cell that a spreadsheet would evaluate as a formula. Numbers are safe. */
static bool is_formula(const char *text) {
    char *end = NULL;
    if (strchr("=+-@", text[0]) == NULL || text[0] == '\0') return false;
    (void)strtod(text, &end);
    return *end != '\0' || end == text;
}

static void print_csv_cell(const char *text, FILE *to) {
    const bool formula = is_formula(text);
    if (!formula && strpbrk(text, ",\"") == NULL) {
        (void)fputs(text, to);
        return;
    }
    (void)fputs(formula ? "\"'" : "\"", to);
    for (; *text != '\0'; text++) {
        if (*text == '"') (void)fputc('"', to);
        (void)fputc(*text, to);
    }
    (void)fputc('"', to);
}

void weft_sheet_print_csv(const weft_sheet *self, FILE *to) {
    for (size_t row = 0; row < weft_sheet_rows(self); row++)
        for (size_t column = 0; column < self->columns; column++) {
            print_csv_cell(weft_sheet_at(self, row, column), to);
            (void)fputc(column + 1 < self->columns ? ',' : '\n', to);
        }
}

/* ---- names ---- */

/* Returns the last `parts` components of a path. */
static const char *path_tail(const char *path, int parts) {
    const char *at = path + strlen(path);
    while (at > path && (at[-1] != '/' || --parts > 0)) at--;
    return at;
}

static bool all_differ(const weft_comparison *self, int parts) {
    for (size_t i = 0; i < self->n; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(path_tail(self->runs[i].directory, parts), path_tail(self->runs[k].directory, parts)) == 0)
                return false;
    return true;
}

static void choose_names(weft_comparison *self) {
    int parts = 1;
    while (parts < 8 && !all_differ(self, parts)) parts++;
    for (size_t i = 0; i < self->n; i++) {
        const char *name = path_tail(self->runs[i].directory, parts);
        (void)snprintf(self->names[i], sizeof self->names[i], "%.127s", name);
    }
}

void weft_comparison_make(weft_comparison *out, const weft_past_run *runs, size_t n) {
    memset(out, 0, sizeof *out);
    out->runs = runs;
    out->n = n;
    out->digests = weft_alloc(n, sizeof *out->digests);
    out->names = weft_alloc(n, sizeof *out->names);
    for (size_t i = 0; i < n; i++) weft_digest_make(&out->digests[i], &runs[i]);
    choose_names(out);
}

void weft_comparison_free(weft_comparison *self) {
    free(self->digests);
    free(self->names);
    memset(self, 0, sizeof *self);
}

/* ---- differing configuration keys ---- */

/* Writes a recorded value in INI syntax. */
static void write_value(char *out, size_t size, const json_t *value) {
    char *dumped = NULL;
    if (json_is_string(value)) (void)snprintf(out, size, "%s", json_string_value(value));
    else if (json_is_boolean(value)) (void)snprintf(out, size, "%s", json_is_true(value) ? "yes" : "no");
    else if (json_is_real(value)) (void)snprintf(out, size, "%.9g", json_real_value(value));
    else if (json_is_integer(value)) (void)snprintf(out, size, "%lld", (long long)json_integer_value(value));
    else {
        dumped = json_dumps(value, JSON_ENCODE_ANY);
        (void)snprintf(out, size, "%s", dumped == NULL ? "?" : dumped);
        free(dumped);
    }
}

bool weft_past_config(const weft_past_run *run, const char *key, char *out, size_t size, const char **source) {
    const json_t *config = json_object_get(weft_past_start(run), "config");
    for (size_t i = 0; i < json_array_size(config); i++) {
        const json_t *entry = json_array_get(config, i);
        if (strcmp(weft_past_text(entry, NULL, "key"), key) != 0) continue;
        write_value(out, size, json_object_get(entry, "value"));
        if (source != NULL) *source = weft_past_text(entry, NULL, "source");
        return true;
    }
    return false;
}

static const char *value_or_nothing(const weft_past_run *run, const char *key, char out[512]) {
    return weft_past_config(run, key, out, 512, NULL) ? out : NULL;
}

static bool alike(const char *a, const char *b) {
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static bool key_differs(const weft_comparison *self, const char *key) {
    char a[512], b[512];
    const char *first = value_or_nothing(&self->runs[0], key, a);
    for (size_t i = 1; i < self->n; i++)
        if (!alike(first, value_or_nothing(&self->runs[i], key, b))) return true;
    return false;
}

static void put_difference(const weft_comparison *self, weft_sheet *out, const char *key) {
    char text[512];
    weft_sheet_put(out, "%s", key);
    for (size_t i = 0; i < self->n; i++) {
        const char *value = value_or_nothing(&self->runs[i], key, text);
        weft_sheet_put(out, "%s", value == NULL ? "-" : *value == '\0' ? "\"\"" : value);
    }
}

static bool told_before(const weft_comparison *self, size_t run, const char *key) {
    char text[512];
    for (size_t i = 0; i < run; i++)
        if (value_or_nothing(&self->runs[i], key, text) != NULL) return true;
    return false;
}

void weft_comparison_differences(const weft_comparison *self, weft_sheet *out) {
    weft_sheet_begin(out, self->n + 1);
    weft_sheet_put(out, "key");
    for (size_t i = 0; i < self->n; i++) weft_sheet_put(out, "%s", self->names[i]);
    for (size_t run = 0; run < self->n; run++) {
        const json_t *config = json_object_get(weft_past_start(&self->runs[run]), "config");
        for (size_t i = 0; i < json_array_size(config); i++) {
            const char *key = weft_past_text(json_array_get(config, i), NULL, "key");
            if (strcmp(key, "run.out") == 0 || told_before(self, run, key) || !key_differs(self, key)) continue;
            put_difference(self, out, key);
        }
    }
}
