/* host/tools/init/compose.c: see compose.h. */
#include "tools/init/compose.h"

#include "base/alloc.h"
#include "base/text.h"
#include "base/units.h"
#include "config/ini.h"
#include "config/number.h"
#include "model/weights.h"
#include "plugin/services.h"
#include "program/plan.h"
#include "train/fit.h"
#include "run/session.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* Chooses the format of a data file from its start; the plugin validates it. */

typedef struct weft_peek {
    bool is_jsonl, is_pgn;     /* lines are objects; contains chess games */
    bool is_instruct;          /* records are question-answer pairs or conversations */
    char format[8];            /* "json" or "jsonl" if the file name has no such extension; else "" */
    bool is_table;             /* CSV or TSV with several columns */
    char columns[160];         /* question and answer columns if their names are not standard; else "" */
    char separator[12];        /* of CSV, if not a comma: "semicolon", "tab", "bar" */
    bool is_named_so;          /* the file name matches the format */
    char field[64];            /* JSONL field with the most text; "": no text field */
    char fields[160];          /* all text fields, or a table's columns: "question, answer" */
    int64_t lines, paragraphs; /* of plain text, in the inspected part */
    bool is_whole;             /* the inspected part is the complete file */
} weft_peek;

enum { COLUMNS = 100 };

static bool ends_in_any_case(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcasecmp(text + n - m, end) == 0;
}

/* Returns the row of a key; inserts a new key at the end of its section. */
static weft_draft_row *row_of(weft_draft *self, const char *section, const char *key) {
    int32_t at = self->n;
    for (int32_t i = 0; i < self->n; i++) {
        if (strcmp(self->rows[i].section, section) != 0) continue;
        if (strcmp(self->rows[i].key, key) == 0) return &self->rows[i];
        at = i + 1;
    }
    if (self->n == WEFT_DRAFT_ROWS) return &self->rows[WEFT_DRAFT_ROWS - 1];
    memmove(&self->rows[at + 1], &self->rows[at], (size_t)(self->n - at) * sizeof *self->rows);
    self->n++;
    memset(&self->rows[at], 0, sizeof *self->rows);
    (void)snprintf(self->rows[at].section, sizeof self->rows[at].section, "%s", section);
    (void)snprintf(self->rows[at].key, sizeof self->rows[at].key, "%s", key);
    return &self->rows[at];
}

static void set_row(weft_draft_row *row, const char *value, const char *why, va_list more) {
    (void)snprintf(row->value, sizeof row->value, "%s", value);
    (void)vsnprintf(row->why, sizeof row->why, why, more);
}

/* Sets a key's value and reason; an existing key keeps its row. value NULL or "": the key is not set. why "": no
 * reason. */
static void weft_draft_set(weft_draft *self, const char *section, const char *key, const char *value, const char *why,
                           ...) {
    va_list more;
    if (value == NULL || value[0] == '\0') return;
    va_start(more, why);
    set_row(row_of(self, section, key), value, why, more);
    va_end(more);
}

static void weft_draft_set_number(weft_draft *self, const char *section, const char *key, double value, const char *why,
                                  ...) {
    char text[40];
    va_list more;
    weft_number_print(text, sizeof text, value);
    va_start(more, why);
    set_row(row_of(self, section, key), text, why, more);
    va_end(more);
}

/* Returns the current rows as overrides, NULL-terminated, freed by weft_draft_free_overrides. */
static char **weft_draft_overrides(const weft_draft *self) {
    char **out = weft_alloc(self->n + 1, sizeof *out);
    for (int32_t i = 0; i < self->n; i++)
        out[i] = weft_text_of("%s.%s=%s", self->rows[i].section, self->rows[i].key, self->rows[i].value);
    return out;
}

static void weft_draft_free_overrides(char **overrides) {
    for (size_t i = 0; overrides != NULL && overrides[i] != NULL; i++) free(overrides[i]);
    free(overrides);
}

/* Writes a comment wrapped to COLUMNS. */
static void write_comment(const char *text, FILE *to) {
    size_t at = 0;
    while (*text != '\0') {
        const size_t n = strcspn(text, " ");
        if (at == 0 || at + 1 + n > COLUMNS) {
            (void)fprintf(to, "%s#", at > 0 ? "\n" : "");
            at = 1;
        }
        (void)fprintf(to, " %.*s", (int)n, text);
        at += 1 + n;
        text += n + strspn(text + n, " ");
    }
    (void)fputc('\n', to);
}

void weft_draft_write(const weft_draft *self, const char *title, FILE *to) {
    write_comment(title, to);
    for (int32_t i = 0; i < self->n; i++) {
        const weft_draft_row *row = &self->rows[i];
        if (i == 0 || strcmp(row->section, self->rows[i - 1].section) != 0) (void)fprintf(to, "\n[%s]\n", row->section);
        if (row->why[0] != '\0') write_comment(row->why, to);
        weft_ini_print(to, row->key, row->value);
    }
}

enum { ROWS = 400 };

/* Counts documents by length: [positions + 1]. A document's first position is its own start; padding has no weight. */
static int64_t count_pieces(int64_t *n, const weft_micro_batch *micro_batch) {
    int64_t pieces = 0;
    for (int32_t t = 0; t < micro_batch->length;) {
        int32_t end = t + 1;
        while (end < micro_batch->length && micro_batch->starts[end] == t) end++;
        if (micro_batch->weights[t] > 0.0f || end > t + 1) {
            n[end - t]++;
            pieces++;
        }
        t = end;
    }
    return pieces;
}

/* Returns the 95th percentile of document lengths (or windows of long ones), from about a hundred sequences. */
static weft_status weft_lengths_most(int64_t *out, const weft_session *session, weft_error *err) {
    const uint64_t all = session->all_info.rows, step = all > ROWS ? all / ROWS : 1;
    const int32_t places = session->data_info.lengths[session->data_info.n_lengths - 1];
    int64_t *n = weft_alloc(places + 1, sizeof *n), pieces = 0, seen = 0;
    weft_status status = WEFT_OK;
    for (uint64_t row = 0; row < all && status == WEFT_OK; row += step) {
        weft_micro_batch micro_batch;
        status = weft_session_row(&micro_batch, session, WEFT_SPLIT_ALL, row, err);
        if (status != WEFT_OK) break;
        pieces += count_pieces(n, &micro_batch);
        free(micro_batch.ids);
    }
    for (*out = 1; *out < places && status == WEFT_OK; ++*out) {
        seen += n[*out];
        if (seen * 100 >= pieces * 95) break;
    }
    free(n);
    return status;
}

enum { MOST_BYTES = 4 << 20, MOST_OF_A_LINE = 256 << 20, MOST_OBJECTS = 200 };

/* Doubles the buffer. */
static bool grow(char **text, size_t *room) {
    char *more = realloc(*text, 2 * *room + 1);
    if (more == NULL) return false;
    *text = more;
    *room *= 2;
    return true;
}

/* Reads the start of a regular file, with the complete first line if possible. Other file types yield no text. */
static weft_status read_begin(char **text, size_t *n, bool *is_whole, const char *path, weft_error *err) {
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat about;
    size_t room = MOST_BYTES;
    ssize_t got = 0;
    *n = 0;
    *is_whole = true;
    *text = malloc(room + 1);
    if (*text != NULL && file >= 0 && fstat(file, &about) == 0 && S_ISREG(about.st_mode)) {
        do {
            while (*n < room && (got = read(file, *text + *n, room - *n)) > 0) *n += (size_t)got;
        } while (*n == room && room < MOST_OF_A_LINE && memchr(*text, '\n', *n) == NULL && grow(text, &room));
        *is_whole = about.st_size <= (off_t)*n;
    }
    if (file >= 0) (void)close(file);
    if (*text == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory to look at %s", path);
    (*text)[*n] = '\0';
    return WEFT_OK;
}

/* ---- JSONL ---- */

static void add_sizes(json_t *sizes, json_t *object) {
    const char *name = NULL;
    json_t *value = NULL;
    json_object_foreach(object, name, value) {
        if (!json_is_string(value)) continue;
        (void)json_object_set_new(sizes, name,
                                  json_integer(json_integer_value(json_object_get(sizes, name)) +
                                               (json_int_t)json_string_length(value)));
    }
}

/* Chooses the field named text, or else the one with the most text. */
static void choose_field(weft_peek *out, json_t *sizes) {
    const char *name = NULL;
    json_t *value = NULL;
    json_int_t most = -1;
    json_object_foreach(sizes, name, value) {
        weft_words_append(out->fields, sizeof out->fields, "%s%s", out->fields[0] != '\0' ? ", " : "", name);
        if (json_integer_value(value) <= most || strlen(name) >= sizeof out->field) continue;
        most = json_integer_value(value);
        (void)snprintf(out->field, sizeof out->field, "%s", name);
    }
    if (json_object_get(sizes, "text") != NULL) (void)snprintf(out->field, sizeof out->field, "text");
    weft_words_sanitize(out->fields);
}

/* ---- question-answer records ---- */

/* Pairs of names that data plugin `instruct` recognizes. */
static const char *const pairs[][2] = {{"instruction", "output"},
                                       {"instruction", "response"},
                                       {"prompt", "completion"},
                                       {"prompt", "response"},
                                       {"question", "answer"}};
enum { N_PAIRS = sizeof pairs / sizeof pairs[0] };

static bool is_instruct(const json_t *object) {
    if (json_is_array(json_object_get(object, "messages")) || json_is_array(json_object_get(object, "conversations")))
        return true;
    for (size_t i = 0; i < N_PAIRS; i++)
        if (json_object_get(object, pairs[i][0]) != NULL && json_object_get(object, pairs[i][1]) != NULL) return true;
    return false;
}

/* Checks the first record of a JSON array. The plugin reports an empty array. */
static bool is_instruct_array(const char *text) {
    const char *at = text + strspn(text, " \t\r\n");
    json_t *first = NULL;
    bool is = false;
    if (*at != '[') return false;
    at++;
    at += strspn(at, " \t\r\n");
    if (*at == ']') return true;
    first = json_loads(at, JSON_DISABLE_EOF_CHECK | JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL, NULL);
    is = json_is_object(first) && is_instruct(first);
    json_decref(first);
    return is;
}

/* ---- tables ---- */

enum { MOST_COLUMNS = 64 };

/* First row of a table. Longer names are truncated, and further columns ignored; no known name is affected. */
typedef struct header {
    char names[MOST_COLUMNS][64];
    int n;
} header;

/* Skips empty lines and "sep=;", which spreadsheets write. */
static const char *find_header(const char *text, char *between) {
    text += strspn(text, " \t\r\n");
    if (*between != ',' || strncmp(text, "sep=", 4) != 0 || text[4] == '\0' || strcspn(text, "\r\n") != 5) return text;
    *between = text[4];
    return text + 5 + strspn(text + 5, " \t\r\n");
}

/* Reads one name, with or without quotes. Returns the position after it. */
static const char *read_name(char *out, size_t size, const char *at, char between) {
    size_t n = 0;
    const bool quoted = *at == '"';
    for (at += quoted; *at != '\0'; at++) {
        if (quoted && at[0] == '"' && at[1] == '"') at++;
        else if (quoted ? *at == '"' : *at == between || *at == '\n' || *at == '\r') break;
        if (n + 1 < size) out[n++] = *at;
    }
    out[n] = '\0';
    return quoted && *at == '"' ? at + 1 : at;
}

static void read_header(header *out, const char *at, char between) {
    for (out->n = 0; out->n < MOST_COLUMNS; at++) {
        at = read_name(out->names[out->n], sizeof out->names[0], at, between);
        out->n++;
        if (*at != between) break;
    }
}

static bool has_column(const header *columns, const char *name) {
    for (int i = 0; i < columns->n; i++)
        if (strcmp(columns->names[i], name) == 0) return true;
    return false;
}

/* True for names that [data] columns can list. */
static bool can_be_listed(const char *name) {
    return name[0] != '\0' && strlen(name) < 63 && strpbrk(name, ",;#\"\n\r") == NULL;
}

/* Decides which columns to use: a pair that the plugin recognizes, or the only two columns. */
static void check_columns(weft_peek *out, const header *columns) {
    for (size_t i = 0; i < N_PAIRS && !out->is_instruct; i++)
        out->is_instruct = has_column(columns, pairs[i][0]) && has_column(columns, pairs[i][1]);
    if (!out->is_instruct && columns->n == 2 && can_be_listed(columns->names[0]) && can_be_listed(columns->names[1])) {
        (void)snprintf(out->columns, sizeof out->columns, "%s, %s", columns->names[0], columns->names[1]);
        out->is_instruct = true;
    }
    out->is_table = columns->n > 1;
    for (int i = 0; i < columns->n; i++)
        weft_words_append(out->fields, sizeof out->fields, "%s%s", i > 0 ? ", " : "", columns->names[i]);
    weft_words_sanitize(out->fields);
}

/* Detects the separator of a CSV file: the one with the most columns in the first row. */
static void look_for_columns(weft_peek *out, const char *text, bool csv) {
    static const char signs[] = ",;\t|";
    static const char *const names[] = {"", "semicolon", "tab", "bar"};
    char between = csv ? ',' : '\t';
    const char *first = find_header(text, &between);
    header columns, others;
    read_header(&columns, first, between);
    for (size_t i = 1; csv && between == ',' && i < sizeof names / sizeof *names; i++) {
        read_header(&others, first, signs[i]);
        if (others.n <= columns.n) continue;
        columns = others;
        (void)snprintf(out->separator, sizeof out->separator, "%s", names[i]);
    }
    check_columns(out, &columns);
}

static void look_for_answers(weft_peek *out, const char *path, const char *text) {
    const bool csv = ends_in_any_case(path, ".csv");
    if (csv || ends_in_any_case(path, ".tsv")) look_for_columns(out, text, csv);
    else if (is_instruct_array(text)) {
        out->is_instruct = true;
        if (!ends_in_any_case(path, ".json")) (void)snprintf(out->format, sizeof out->format, "json");
    } else if (out->is_instruct && !out->is_named_so) (void)snprintf(out->format, sizeof out->format, "jsonl");
}

/* Reads the first lines; the last one may be incomplete. Returns false if a line is not an object. */
static bool read_objects(weft_peek *out, json_t *sizes, const char *text, size_t n, bool is_whole) {
    int objects = 0, answered = 0;
    for (size_t at = 0; at < n && objects < MOST_OBJECTS; objects++) {
        const char *end = memchr(text + at, '\n', n - at);
        const size_t length = end != NULL ? (size_t)(end - text) - at : n - at;
        json_t *object = NULL;
        if (end == NULL && !is_whole) break;
        (void)weft_json_parse(&object, text + at, length, JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL, "", NULL);
        if (!json_is_object(object)) {
            json_decref(object);
            return false;
        }
        add_sizes(sizes, object);
        answered += is_instruct(object);
        json_decref(object);
        at += length + 1;
    }
    out->is_instruct = objects > 0 && answered == objects;
    return objects > 0;
}

/* ---- plain text ---- */

static void count_lines(weft_peek *out, const char *text, size_t n) {
    bool inside = false; /* in a paragraph */
    for (size_t at = 0; at < n;) {
        const char *end = memchr(text + at, '\n', n - at);
        const size_t length = end != NULL ? (size_t)(end - text) - at : n - at;
        const bool is_blank = strspn(text + at, " \t\r") >= length;
        out->lines += !is_blank;
        out->paragraphs += !is_blank && !inside;
        inside = !is_blank;
        at += length + 1;
    }
}

static weft_status weft_peek_file(weft_peek *out, const char *path, weft_error *err) {
    char *whole = NULL, *text = NULL;
    size_t n = 0;
    json_t *sizes = json_object();
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    status = read_begin(&whole, &n, &out->is_whole, path, err);
    if (status == WEFT_OK) {
        const size_t mark = strncmp(whole, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
        text = whole + mark;
        n -= mark;
        out->is_pgn = ends_in_any_case(path, ".pgn") || strncmp(text, "[Event \"", 8) == 0;
        out->is_named_so = ends_in_any_case(path, out->is_pgn ? ".pgn" : ".jsonl");
        out->is_jsonl = !out->is_pgn && (read_objects(out, sizes, text, n, out->is_whole) || out->is_named_so);
        look_for_answers(out, path, text);
        if (out->is_jsonl) choose_field(out, sizes);
        else count_lines(out, text, n);
    }
    json_decref(sizes);
    free(whole);
    return status;
}

/* Limits of the first run. A short context, even for long documents, limits the time for attention. */
enum { MOST_CONTEXT = 1024, LEAST_CONTEXT = 32, ROWS_OF_A_STEP = 16, LEAST_ROWS = 4, STEPS_OF_AN_EPOCH = 50 };
/* Share of device memory to plan with; the rest is for libraries, text and other processes. */
enum { PERCENT_OF_ROOM = 90 };

typedef struct composer {
    weft_draft *draft;
    const weft_init_wish *wish;
    weft_peek peek;
    int64_t max_context, parameters; /* of the model */
    int32_t dtype, packed;           /* dtype of the model's files; packed: dtype of packed blocks, 0: not packed */
    int64_t longest;                 /* 95th percentile of document lengths */
    int64_t global_batch;
    char ignored[WEFT_DRAFT_TEXT]; /* [data] ignore; "": its default */
    weft_fit fit;
} composer;

/* ---- model and data properties ---- */

static void print_model(composer *self) {
    weft_draft *draft = self->draft;
    const weft_init_wish *wish = self->wish;
    weft_draft_set(draft, "run", "out", wish->out,
                   "A new directory for the result, checkpoints and records. A relative path is relative to this "
                   "file's directory.");
    weft_draft_set(draft, "run", "seed", "1", "The same seed, the same run.");
    weft_draft_set(draft, "model", "plugin", wish->plugin, "model_type of its config.json.");
    weft_draft_set(draft, "model", "path", wish->model, "The directory with config.json, weights and tokenizer.");
    weft_draft_set(draft, "model", "base", wish->stored,
                   "Storage of frozen linears, as in the adapter's training: it was trained with these numbers.");
    weft_draft_set(draft, "model", "start", wish->fresh ? "fresh" : NULL,
                   "Weights are initialized randomly, from config.json and seed only.");
    weft_draft_set(draft, "tokenizer", "plugin", "bpe",
                   "tokenizer.json of the model's directory; it defines whether BOS and EOS surround a document.");
    weft_draft_set(draft, "tokenizer", "add", wish->tokens,
                   "The adapter was trained with these tokens and has their rows.");
    weft_draft_set(draft, "tokenizer", "pad", wish->pad != NULL ? "add" : NULL, "And with a pad token ...");
    weft_draft_set(draft, "tokenizer", "pad_token", wish->pad, "... of this name.");
    weft_draft_set(draft, "adapter", "from", wish->adapter,
                   "The adapter to continue, with its own kind, sizes and modules; the base model is unchanged. "
                   "Without this line the complete model is trained.");
}

static void print_jsonl(composer *self) {
    const weft_peek *peek = &self->peek;
    const bool one = strcmp(peek->field, peek->fields) == 0;
    if (!peek->is_named_so)
        weft_draft_set(self->draft, "data", "format", "jsonl",
                       "Its lines are objects, although its name has no such ending.");
    if (peek->field[0] == '\0') return; /* the data plugin reports the missing field */
    if (!one && strcmp(peek->field, "text") != 0)
        weft_log(weft_services(), WEFT_LOG_WARN,
                 "%s has texts in the fields %s, and only %s is trained. To train answers to questions: [data] plugin "
                 "= instruct with columns = QUESTION, ANSWER",
                 self->wish->data, peek->fields, peek->field);
    if (one) weft_draft_set(self->draft, "data", "field", peek->field, "The only field with text.");
    else
        weft_draft_set(self->draft, "data", "field", peek->field,
                       strcmp(peek->field, "text") == 0 ? "The field to train on, of the fields with text: %s."
                                                        : "The field with the most text, of %s. Only one is trained "
                                                          "on: to train on several, join them into one.",
                       peek->fields);
}

static void print_plain_text(composer *self) {
    const weft_peek *peek = &self->peek;
    char count[WEFT_UNIT_SIZE];
    if (peek->paragraphs > 1)
        weft_draft_set(self->draft, "data", "document", "paragraph",
                       "Text between blank lines is one document, %s of them%s; file: all text is one document; line: "
                       "each line is one.",
                       weft_unit_count(count, peek->paragraphs), peek->is_whole ? "" : " in its first 4 MiB");
    else if (peek->lines > 1)
        weft_draft_set(
            self->draft, "data", "document", "line",
            "There are no blank lines, and %s lines%s: each is one document; file: all text is one document.",
            weft_unit_count(count, peek->lines), peek->is_whole ? "" : " in its first 4 MiB");
    else weft_draft_set(self->draft, "data", "document", "file", "It is one line: one document.");
}

/* True if the model has a chat template, in a file of its own or in the tokenizer's configuration. */
static bool has_template(const char *model) {
    char path[4096];
    json_t *config = NULL;
    bool has = false;
    (void)snprintf(path, sizeof path, "%s/chat_template.jinja", model);
    if (access(path, R_OK) == 0) return true;
    (void)snprintf(path, sizeof path, "%s/tokenizer_config.json", model);
    (void)weft_json_read(&config, path, JSON_DECODE_INT_AS_REAL, NULL); /* the tokenizer reports errors in the file */
    has = json_object_get(config, "chat_template") != NULL;
    json_decref(config);
    return has;
}

static void print_answers(composer *self) {
    weft_draft *draft = self->draft;
    weft_draft_set(draft, "data", "plugin", "instruct",
                   "Questions with answers; only the answers are trained. weft data show prints them.");
    weft_draft_set(draft, "data", "path", self->wish->data, "The training data.");
    weft_draft_set(draft, "data", "format", self->peek.format,
                   "The format of its content, although its name has no such ending.");
    weft_draft_set(draft, "data", "separator", self->peek.separator, "The separator between the fields of its rows.");
    weft_draft_set(draft, "data", "columns", self->peek.columns,
                   "The question's column and the answer's: there are these two.");
    if (!has_template(self->wish->model))
        weft_draft_set(draft, "data", "template", "alpaca",
                       "The model has no chat template. Other values: llama2, llama3, chatml, mistral, gemma.");
}

static void print_data(composer *self) {
    const bool games = self->peek.is_pgn;
    if (self->peek.is_instruct) {
        print_answers(self);
        return;
    }
    if (self->peek.is_table)
        weft_log(
            weft_services(), WEFT_LOG_WARN,
            "%s is a table with the columns %s, without columns known as question and answer: its lines are trained as "
            "text. To train answers to questions: [data] plugin = instruct with columns = QUESTION, ANSWER",
            self->wish->data, self->peek.fields);
    weft_draft_set(self->draft, "data", "plugin", "text",
                   games ? "Chess games in PGN: the moves of each, on one line, are a document."
                         : "Plain text, or JSONL: an object a line.");
    weft_draft_set(self->draft, "data", "path", self->wish->data, "The training data.");
    if (games && !self->peek.is_named_so)
        weft_draft_set(self->draft, "data", "format", "pgn",
                       "Its content is games, although its name has no such ending.");
    if (self->peek.is_jsonl) print_jsonl(self);
    else if (!games) print_plain_text(self);
}

/* ---- queries to plugins ---- */

/* Reads the properties of the model. */
static weft_status query_model(composer *self, weft_error *err) {
    char **overrides = weft_draft_overrides(self->draft);
    weft_run *run = NULL;
    weft_plan plan = {.world = 1, .nodes = 1};
    weft_status status = weft_run_open(&run, NULL, (const char *const *)overrides, (size_t)self->draft->n,
                                       WEFT_NEEDS(WEFT_PART_MODEL) | WEFT_NEEDS(WEFT_PART_POLICY), err);
    if (status == WEFT_OK) status = weft_plan_open(&plan, run, err);
    if (status == WEFT_OK && !self->wish->fresh)
        status = weft_weights_check(plan.declared, run->settings.model.path, err);
    self->dtype = WEFT_F32;
    if (status == WEFT_OK && !self->wish->fresh)
        status = weft_weights_dtype(&self->dtype, &self->packed, run->settings.model.path, err);
    if (status == WEFT_OK) {
        self->max_context = plan.declared->info.max_context;
        self->parameters = weft_declared_numel(plan.declared, false);
    }
    weft_plan_close(&plan);
    weft_run_close(run);
    weft_draft_free_overrides(overrides);
    return status;
}

static weft_status open_session(const composer *self, weft_session **out, char **overrides, weft_error *err) {
    return weft_session_open(out, NULL, (const char *const *)overrides, (size_t)self->draft->n, WEFT_SESSION_PROFILE,
                             NULL, err);
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* ---- derived settings ---- */

/* Sets and returns the context. */
static int64_t print_context(composer *self, int64_t most) {
    int64_t context = LEAST_CONTEXT;
    while (context < self->longest) context *= 2;
    context = least(context, most);
    if (self->longest >= most)
        weft_draft_set_number(self->draft, "data", "context", (double)context,
                              "Positions of a sequence. Longer documents become windows; the model has %lld positions, "
                              "and twice as many need more than twice the time.",
                              (long long)self->max_context);
    else
        weft_draft_set_number(self->draft, "data", "context", (double)context,
                              "Positions of a sequence: 95 of 100 documents have %lld tokens or fewer, and several "
                              "share a sequence; the model has %lld positions.",
                              (long long)self->longest, (long long)self->max_context);
    return context;
}

/* Returns true if part of the data is kept for validation. */
static bool print_validation(composer *self, uint64_t documents) {
    char all[WEFT_UNIT_SIZE];
    (void)weft_unit_count(all, (int64_t)documents);
    if (documents >= 10000)
        weft_draft_set(self->draft, "data", "validation", "500", "500 of %s documents are kept for evaluation.", all);
    else if (documents >= 20)
        weft_draft_set(self->draft, "data", "validation", "0.05",
                       "One of twenty documents, of %s, is kept for evaluation.", all);
    else if (documents >= 4)
        weft_draft_set(self->draft, "data", "validation", "1", "One of %s documents is kept for evaluation.", all);
    else
        weft_draft_set(self->draft, "data", "validation", "none",
                       "Too few documents for an evaluation split: this can be a file of other documents.");
    return documents >= 4;
}

static int64_t epochs_for(uint64_t targets) {
    return targets < 2000000 ? 3 : targets < 20000000 ? 2 : 1;
}

/* rows: estimated number of sequences. */
static void print_batch(composer *self, int64_t rows) {
    self->global_batch = ROWS_OF_A_STEP;
    while (self->global_batch > LEAST_ROWS && rows / self->global_batch < STEPS_OF_AN_EPOCH) self->global_batch /= 2;
    if (rows < LEAST_ROWS) self->global_batch = 1;
    weft_draft_set_number(self->draft, "train", "global_batch", (double)self->global_batch,
                          "Sequences of an optimizer step: %lld, or fewer if an epoch would have less than %d steps.",
                          (long long)ROWS_OF_A_STEP, (int)STEPS_OF_AN_EPOCH);
    weft_draft_set_number(self->draft, "train", "micro_batch", (double)self->global_batch,
                          "Sequences of a micro-batch: all of a step fit.");
}

static void print_precision(composer *self, const weft_device_info *device) {
    const bool is_half = self->dtype == WEFT_BF16 && device->has_bf16;
    const char *why = "The files are fp32.";
    if (self->wish->fresh) why = "Weights that are initialized randomly are fp32.";
    else if (is_half) why = "The files are bf16, and the processor multiplies it.";
    else if (self->dtype == WEFT_F16) why = "The files are fp16, which fp32 represents exactly.";
    else if (self->dtype == WEFT_BF16) why = "The files are bf16, which this processor does not multiply by itself.";
    weft_draft_set(self->draft, "train", "precision", is_half ? "bf16" : "fp32", "%s", why);
}

/* Selects an adapter if the model is packed, because packed parameters are never trained. */
static void print_adapter(composer *self) {
    if (self->packed == 0 || self->wish->adapter != NULL) return;
    weft_draft_set(self->draft, "adapter", "plugin", "lora",
                   "The files are packed in %s, which is unchanged: low-rank updates are trained. weft merge makes one "
                   "model of both.",
                   weft_dtype_name(self->packed));
}

/* Sets a smaller learning rate for larger models. */
static void print_rate(composer *self) {
    const int64_t n = self->parameters;
    char count[WEFT_UNIT_SIZE];
    const char *lr = n < 10000000 ? "1e-3" : n < 100000000 ? "3e-4" : n < 1000000000 ? "1e-4" : "2e-5";
    if (self->packed != 0 || self->wish->adapter != NULL)
        weft_draft_set(self->draft, "optimizer", "lr", "2e-4",
                       "Usual for low-rank adapters, for every model size. Halve it if the loss jumps.");
    else
        weft_draft_set(
            self->draft, "optimizer", "lr", lr,
            "Usual for %s parameters: 1e-3 below 10 million, 3e-4 below 100 million, 1e-4 below a billion, 2e-5 "
            "from there on. Halve it where the loss jumps.",
            weft_unit_count(count, n));
}

static void print_method(composer *self) {
    weft_draft_set(self->draft, "train", "clip", "1.0",
                   "The maximum norm of a step's gradient, so that an unusual sequence does no harm.");
    weft_draft_set(self->draft, "train", "schedule", "cosine", "The rate falls to zero over the run.");
    weft_draft_set(self->draft, "train", "warmup", "0.05", "It rises over the first twentieth of the steps.");
    weft_draft_set(self->draft, "optimizer", "plugin", "adamw",
                   "Two moments for each trained parameter; suitable for almost every model.");
    print_rate(self);
    weft_draft_set(self->draft, "optimizer", "weight_decay", "0.01", "A little, as usual for fine-tuning.");
    weft_draft_set(self->draft, "device", "plugin", "cpu", "All processors that this process may use.");
}

static void print_cadence(composer *self, bool evaluates) {
    if (evaluates)
        weft_draft_set(self->draft, "eval", "every", "10%", "Ten times in the run, at its start and at its end.");
    weft_draft_set(self->draft, "checkpoint", "every", "20%",
                   "A crash loses at most a fifth of the run; --resume continues from the newest.");
    weft_draft_set(self->draft, "checkpoint", "keep", "2",
                   evaluates ? "And the best one is kept, too." : "The newest two.");
}

/* ---- memory ---- */

static const char *reason_of(const char *key) {
    if (strcmp(key, "micro_batch") == 0)
        return "Sequences of a micro-batch: the most that fit, found by planning; results hardly depend on it.";
    if (strcmp(key, "activation_checkpointing") == 0)
        return "Without it a step does not fit: it keeps fewer activations and computes more, with the same bits.";
    if (strcmp(key, "precision") == 0) return "Half the bytes for matmuls and activations: with more it does not fit.";
    return "The trained parameters: the last layers. All layers, with their gradients and moments, do not fit.";
}

/* "train.micro_batch=2" */
static void take_key(composer *self, const char *text) {
    char section[24] = "", key[40] = "", value[64] = "";
    if (sscanf(text, "%23[^.].%39[^=]=%63s", section, key, value) == 3)
        weft_draft_set(self->draft, section, key, value, "%s", reason_of(key));
}

static weft_status refuse_size(const composer *self, weft_error *err) {
    char need[WEFT_UNIT_SIZE], room[WEFT_UNIT_SIZE];
    return weft_error_set(err, WEFT_E_USER,
                          "%s does not fit: the plan needs %s, and %s has %s; no tested setting for one rank is small "
                          "enough. Fix: choose a smaller model, or set --fit to another machine's device",
                          self->wish->model, weft_unit_bytes(need, weft_required_memory_bytes(&self->fit.need)),
                          weft_available_memory_owner(&self->fit.room), weft_unit_bytes(room, self->fit.room.bytes));
}

/* Applies the mildest change that fits without further machines. */
static weft_status make_it_fit(composer *self, const weft_session *session, char **overrides, weft_error *err) {
    weft_fit_question question = {.session = session,
                                  .overrides = (const char *const *)overrides,
                                  .n_overrides = (size_t)self->draft->n};
    const weft_fit_change *change = NULL;
    question.room = weft_available_memory_find(self->wish->room, &session->engine->device_info);
    if (question.room.free >= 0) question.room.bytes = least(question.room.bytes, question.room.free);
    question.room.bytes = question.room.bytes / 100 * PERCENT_OF_ROOM;
    weft_fit_check(&self->fit, &question, NULL);
    if (self->fit.fits) return WEFT_OK;
    for (int32_t i = 0; i < self->fit.n && change == NULL; i++)
        if (!self->fit.fitting[i].grows) change = &self->fit.fitting[i];
    if (change == NULL) return refuse_size(self, err);
    for (int32_t i = 0; i < change->n_keys; i++) take_key(self, change->keys[i]);
    self->fit.need = change->need;
    return WEFT_OK;
}

/* ---- reading the data ---- */

/* Adds the keys named by the error to [data] ignore: all keys that `instruct` does not use, or the one that the
 * template does not read. Returns false for other errors, or if no key is new. */
static bool ignore_unused(composer *self, const weft_error *err) {
    static const char fix[] = "Fix: [data] ignore = ", unread[] = "the template does not read the key \"";
    const char *list = strstr(err->text, fix), *key = strstr(err->text, unread);
    char all[WEFT_DRAFT_TEXT + sizeof err->text] = "";
    if (list != NULL) (void)snprintf(all, sizeof all, "%s", list + strlen(fix));
    else if (key != NULL)
        (void)snprintf(all, sizeof all, "%s%s%.*s", self->ignored, self->ignored[0] != '\0' ? ", " : "",
                       (int)strcspn(key + strlen(unread), "\""), key + strlen(unread));
    if (strlen(all) <= strlen(self->ignored) || strlen(all) >= sizeof self->ignored) return false;
    memcpy(self->ignored, all, strlen(all) + 1);
    weft_draft_set(self->draft, "data", "ignore", all,
                   "Keys of the records and messages that training does not use. A key that is neither used nor listed "
                   "here is an error.");
    return true;
}

/* Measures document lengths with long sequences, and sets the values that depend on the number of documents. */
static weft_status read_lengths(composer *self, bool *evaluates, weft_error *err) {
    const int64_t most = least(self->max_context, MOST_CONTEXT);
    char **overrides = NULL;
    weft_session *session = NULL;
    weft_status status = WEFT_OK;
    weft_draft_set_number(self->draft, "data", "context", (double)most, "%s", "");
    weft_draft_set(self->draft, "train", "steps", "1", "%s", "");
    do {
        weft_draft_free_overrides(overrides);
        overrides = weft_draft_overrides(self->draft);
        status = open_session(self, &session, overrides, err);
    } while (status != WEFT_OK && ignore_unused(self, err));
    if (status == WEFT_OK) status = weft_lengths_most(&self->longest, session, err);
    weft_draft_free_overrides(overrides);
    if (status == WEFT_OK) {
        const int64_t context = print_context(self, most);
        print_batch(self, (int64_t)session->all_info.targets / context + 1);
        *evaluates = print_validation(self, session->all_info.documents);
        print_precision(self, &session->engine->device_info);
    }
    weft_session_close(session);
    return status;
}

/* Sets the values that depend on the final number of sequences. */
static void print_steps(composer *self, char *told, size_t size, const weft_session *session) {
    const int64_t epochs = epochs_for(session->train_info.targets), rows = (int64_t)session->train_info.rows;
    const int64_t steps = (epochs * rows + self->global_batch - 1) / self->global_batch;
    char a[WEFT_UNIT_SIZE], b[WEFT_UNIT_SIZE], c[WEFT_UNIT_SIZE], d[WEFT_UNIT_SIZE];
    weft_draft_set_number(
        self->draft, "train", "steps", (double)steps,
        "%s over %s sequences with %s targets: three below two million targets, two below twenty million.",
        epochs == 3   ? "Three passes"
        : epochs == 2 ? "Two passes"
                      : "One pass",
        weft_unit_count(a, rows), weft_unit_count(b, (int64_t)session->train_info.targets));
    (void)snprintf(told, size, "%s in %s of %lld positions, %s; %s planned",
                   weft_unit_counted(a, (int64_t)session->train_info.documents, "document"),
                   weft_unit_counted(b, rows, "sequence"),
                   (long long)session->data_info.lengths[session->data_info.n_lengths - 1],
                   weft_unit_counted(c, steps, "step"),
                   weft_unit_bytes(d, weft_required_memory_bytes(&self->fit.need)));
}

/* Opens the final configuration: counts its sequences and reduces its memory until it fits. */
static weft_status read_rows(composer *self, char *told, size_t size, weft_error *err) {
    char **overrides = weft_draft_overrides(self->draft);
    weft_session *session = NULL;
    weft_status status = open_session(self, &session, overrides, err);
    if (status == WEFT_OK) status = make_it_fit(self, session, overrides, err);
    if (status == WEFT_OK) print_steps(self, told, size, session);
    weft_session_close(session);
    weft_draft_free_overrides(overrides);
    return status;
}

/* Suppresses warnings that the first read has already printed. */
static weft_status read_quietly(composer *self, char *told, size_t size, weft_error *err) {
    const int32_t level = weft_services_log_level(WEFT_LOG_ERROR);
    const weft_status status = read_rows(self, told, size, err);
    (void)weft_services_log_level(level);
    return status;
}

weft_status weft_init_compose(weft_draft *out, char *told, size_t size, const weft_init_wish *wish, weft_error *err) {
    composer self = {.draft = out, .wish = wish};
    bool evaluates = false;
    weft_status status = weft_peek_file(&self.peek, wish->data, err);
    memset(out, 0, sizeof *out);
    if (status != WEFT_OK) return status;
    print_model(&self);
    status = query_model(&self, err);
    if (status != WEFT_OK) return status;
    print_adapter(&self);
    print_data(&self);
    status = read_lengths(&self, &evaluates, err);
    if (status != WEFT_OK) return status;
    print_method(&self);
    print_cadence(&self, evaluates);
    return read_quietly(&self, told, size, err);
}
