/* host/tools/report/past_run.c: see past_run.h. */
#include "tools/report/past_run.h"

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

/* ---- parts of a line ---- */

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

/* Room for one more of an array that doubles; NULL: no memory. The new element is zero. */
static void *grow(void *array, size_t *n, size_t bytes) {
    void **at = array;
    char *grown = *at;
    if ((*n & (*n - 1)) == 0) grown = realloc(*at, (*n == 0 ? 1 : 2 * *n) * bytes);
    if (grown == NULL) return NULL;
    *at = grown;
    return memset(grown + (*n)++ * bytes, 0, bytes);
}

/* ---- lines of each kind ---- */

static bool take_step(weft_past_run *self, const json_t *line) {
    weft_past_step *step = grow(&self->steps, &self->n_steps, sizeof *self->steps);
    if (step == NULL) return false;
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
    return true;
}

static bool take_evaluation(weft_past_run *self, const json_t *line) {
    weft_past_evaluation *one = grow(&self->evaluations, &self->n_evaluations, sizeof *self->evaluations);
    if (one == NULL) return false;
    one->step = number_at(line, "step");
    one->loss = number_at(line, "loss");
    one->perplexity = number_at(line, "perplexity");
    one->similarity = number_at(line, "similarity");
    one->took = number_at(line, "took");
    one->seconds = number_at(line, "seconds");
    return true;
}

static bool take_save(weft_past_run *self, const json_t *line) {
    weft_past_save *save = grow(&self->saves, &self->n_saves, sizeof *self->saves);
    if (save == NULL) return false;
    save->step = number_at(line, "step");
    save->took = number_at(line, "took");
    save->seconds = number_at(line, "seconds");
    save->best = json_is_true(json_object_get(line, "best"));
    save->is_model = strcmp(weft_past_text(line, NULL, "what"), "model") == 0;
    return true;
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

static bool take_phases(weft_past_run *self, const json_t *line) {
    const json_t *rows = json_object_get(line, "ranks");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        if (i == self->n_ranks && grow(&self->ranks, &self->n_ranks, sizeof *self->ranks) == NULL) return false;
        take_rank(&self->ranks[i], json_array_get(rows, i));
    }
    return true;
}

static bool take_start(weft_past_run *self, const json_t *line) {
    return json_array_append(self->starts, (json_t *)(uintptr_t)line) == 0;
}

static bool take_line(weft_past_run *self, int32_t kind, const json_t *line) {
    static bool (*const take[WEFT_N_RECORDS])(weft_past_run *, const json_t *) = {
        [WEFT_RECORD_STARTS] = take_start,           [WEFT_RECORD_METRICS] = take_step,
        [WEFT_RECORD_EVALUATIONS] = take_evaluation, [WEFT_RECORD_CHECKPOINTS] = take_save,
        [WEFT_RECORD_PHASES] = take_phases,
    };
    const double seconds = number_at(line, "seconds"), at = number_at(line, "time");
    if (seconds > self->seconds) self->seconds = seconds;
    if (at > self->last_time) self->last_time = at;
    return take[kind](self, line);
}

/* ---- files ---- */

/* What was found of a file. */
typedef struct found {
    int64_t damaged, first_damaged;
    bool torn; /* the last line has no end: it is being written, or its writer was killed */
} found;

static weft_status read_lines(weft_past_run *self, int32_t kind, FILE *file, found *out, weft_error *err) {
    char *text = NULL;
    size_t capacity = 0;
    ssize_t n = 0;
    bool room = true;
    for (int64_t number = 1; room && (n = getline(&text, &capacity, file)) > 0; number++) {
        json_t *line = NULL;
        if (text[n - 1] == '\n') (void)weft_json_parse(&line, text, (size_t)n, 0, "", NULL);
        if (json_is_integer(json_object_get(line, "step"))) room = take_line(self, kind, line);
        else if (text[n - 1] != '\n') out->torn = true;
        else if (out->damaged++ == 0) out->first_damaged = number;
        json_decref(line);
    }
    free(text);
    return room ? WEFT_OK : weft_error_set(err, WEFT_E_MEMORY, "no memory for the records in %s", self->directory);
}

static void tell_damage(weft_past_run *self, int32_t kind, const found *what) {
    const char *name = weft_record_name(kind);
    if (what->damaged == 1)
        add_note(self, "%s: line %lld is no whole record and is left out", name, (long long)what->first_damaged);
    if (what->damaged > 1)
        add_note(self, "%s: %lld lines are no whole records and are left out; the first is line %lld", name,
                 (long long)what->damaged, (long long)what->first_damaged);
    if (what->torn) add_note(self, "%s: its last line is not finished and is left out", name);
}

static weft_status read_record(weft_past_run *self, int32_t kind, weft_error *err) {
    char path[4096];
    found what = {0};
    weft_status status = WEFT_OK;
    FILE *file = NULL;
    struct stat about;
    (void)snprintf(path, sizeof path, "%s/%s", self->directory, weft_record_name(kind));
    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode)) {
        add_note(self, "%s is no file, and is left out", weft_record_name(kind));
        return WEFT_OK;
    }
    file = fopen(path, "re");
    if (file == NULL && errno == ENOENT) return WEFT_OK;
    if (file == NULL) {
        add_note(self, "%s cannot be read: %s", weft_record_name(kind), strerror(errno));
        return WEFT_OK;
    }
    status = read_lines(self, kind, file, &what, err);
    if (status == WEFT_OK && ferror(file)) add_note(self, "%s could be read in part only", weft_record_name(kind));
    (void)fclose(file);
    tell_damage(self, kind, &what);
    return status;
}

/* The directory without slashes at its end, and the last part of it. */
static weft_status take_name(weft_past_run *self, const char *directory, weft_error *err) {
    size_t n = strlen(directory);
    const char *slash = NULL;
    while (n > 1 && directory[n - 1] == '/') n--;
    self->directory = strndup(directory, n);
    self->starts = json_array();
    if (self->directory == NULL || self->starts == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for a run");
    slash = strrchr(self->directory, '/');
    self->name = slash == NULL || slash[1] == '\0' ? self->directory : slash + 1;
    return WEFT_OK;
}

static weft_status judge_found(const weft_past_run *self, weft_error *err) {
    struct stat about;
    if (self->n_steps > 0 || json_array_size(self->starts) > 0) return WEFT_OK;
    if (stat(self->directory, &about) != 0)
        return weft_error_set(err, WEFT_E_USER, "%s: %s; give the directory of a run, as [run] out names it",
                              self->directory, strerror(errno));
    if (!S_ISDIR(about.st_mode))
        return weft_error_set(err, WEFT_E_USER, "%s is a file: give the directory of a run, as [run] out names it",
                              self->directory);
    return weft_error_set(
        err, WEFT_E_USER,
        "%s holds no run: neither metrics.jsonl nor starts.jsonl there has a line; give the directory "
        "of a run, as [run] out names it",
        self->directory);
}

/* What an older version of Weft left, or a copy left out. */
static void tell_missing(weft_past_run *self) {
    if (json_array_size(self->starts) == 0)
        add_note(self, "starts.jsonl is not there: configuration, plan and ranks are not known");
    else if (!json_is_array(json_object_get(weft_past_start(self), "config")))
        add_note(self, "the configuration was not recorded: a value in it is no UTF-8 text");
    if (self->n_steps == 0) add_note(self, "no step was recorded yet");
    else if (self->n_ranks == 0)
        add_note(self, "times and memory of the ranks come with the first save, or at the end");
}

weft_status weft_past_run_read(weft_past_run *out, const char *directory, weft_error *err) {
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    status = take_name(out, directory, err);
    for (int32_t kind = 0; kind < WEFT_N_RECORDS && status == WEFT_OK; kind++) status = read_record(out, kind, err);
    if (status == WEFT_OK) status = judge_found(out, err);
    if (status == WEFT_OK) tell_missing(out);
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
