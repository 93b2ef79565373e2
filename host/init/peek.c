/* host/init/peek.c: see peek.h. */
#include "init/peek.h"

#include "base/words.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_BYTES = 4 << 20, MOST_OBJECTS = 200 };

/* The begin of a regular file; of anything else nothing. */
static weft_status read_begin(char **text, size_t *n, bool *is_whole, const char *path, weft_error *err) {
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat about;
    ssize_t got = 0;
    *n = 0;
    *is_whole = true;
    *text = malloc(MOST_BYTES + 1);
    if (*text != NULL && file >= 0 && fstat(file, &about) == 0 && S_ISREG(about.st_mode)) {
        while (*n < MOST_BYTES && (got = read(file, *text + *n, MOST_BYTES - *n)) > 0) *n += (size_t)got;
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

/* The field that is called text, or the one that has the most of it. */
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
    weft_words_tame(out->fields);
}

/* ---- questions with answers ---- */

/* The pairs of names that data plugin `instruct` knows by itself. */
static const char *const pairs[][2] = {
    {"instruction", "output"}, {"prompt", "completion"}, {"prompt", "response"}, {"question", "answer"}};
enum { N_PAIRS = sizeof pairs / sizeof pairs[0] };

static bool is_instruct(const json_t *object) {
    if (json_is_array(json_object_get(object, "messages")) || json_is_array(json_object_get(object, "conversations")))
        return true;
    for (size_t i = 0; i < N_PAIRS; i++)
        if (json_object_get(object, pairs[i][0]) != NULL && json_object_get(object, pairs[i][1]) != NULL) return true;
    return false;
}

/* An array of JSON: its first record. */
static bool is_instruct_array(const char *text) {
    const char *at = text + strspn(text, " \t\r\n");
    json_t *first = NULL;
    bool is = false;
    if (*at != '[') return false;
    at++;
    at += strspn(at, " \t\r\n");
    first = json_loads(at, JSON_DISABLE_EOF_CHECK | JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL, NULL);
    is = json_is_object(first) && is_instruct(first);
    json_decref(first);
    return is;
}

/* Whether the header, the first line, names the column. */
static bool has_column(const char *text, char between, const char *name) {
    const size_t line = strcspn(text, "\r\n"), n = strlen(name);
    for (size_t at = 0; at < line;) {
        const char *end = memchr(text + at, between, line - at);
        const size_t length = end != NULL ? (size_t)(end - text) - at : line - at;
        const bool quoted = length > 1 && text[at] == '"' && text[at + length - 1] == '"';
        if (length - 2 * quoted == n && strncmp(text + at + quoted, name, n) == 0) return true;
        at += length + 1;
    }
    return false;
}

static bool is_instruct_table(const char *text, char between) {
    for (size_t i = 0; i < N_PAIRS; i++)
        if (has_column(text, between, pairs[i][0]) && has_column(text, between, pairs[i][1])) return true;
    return false;
}

/* CSV, whose fields are not separated by commas everywhere. */
static void look_for_columns(weft_peek *out, const char *text) {
    static const char signs[] = ",;\t|";
    static const char *const names[] = {"", "semicolon", "tab", "bar"};
    for (size_t i = 0; i < sizeof names / sizeof *names && !out->is_instruct; i++) {
        out->is_instruct = is_instruct_table(text, signs[i]);
        (void)snprintf(out->separator, sizeof out->separator, "%s", names[i]);
    }
}

static void look_for_answers(weft_peek *out, const char *path, const char *text) {
    if (weft_words_end_in_any_case(path, ".tsv")) out->is_instruct = is_instruct_table(text, '\t');
    else if (weft_words_end_in_any_case(path, ".csv")) look_for_columns(out, text);
    else if (is_instruct_array(text)) {
        out->is_instruct = true;
        if (!weft_words_end_in_any_case(path, ".json")) (void)snprintf(out->format, sizeof out->format, "json");
    } else if (out->is_instruct && !out->is_named_so) (void)snprintf(out->format, sizeof out->format, "jsonl");
}

/* The first lines, the last of them perhaps not whole. False: a line is no object. */
static bool read_objects(weft_peek *out, json_t *sizes, const char *text, size_t n, bool is_whole) {
    int objects = 0, answered = 0;
    for (size_t at = 0; at < n && objects < MOST_OBJECTS; objects++) {
        const char *end = memchr(text + at, '\n', n - at);
        const size_t length = end != NULL ? (size_t)(end - text) - at : n - at;
        json_t *object = NULL;
        if (end == NULL && !is_whole) break;
        object = json_loadb(text + at, length, JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL, NULL);
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
    bool inside = false; /* a paragraph */
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

weft_status weft_peek_file(weft_peek *out, const char *path, weft_error *err) {
    char *text = NULL;
    size_t n = 0;
    json_t *sizes = json_object();
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    status = read_begin(&text, &n, &out->is_whole, path, err);
    if (status == WEFT_OK) {
        out->is_pgn = weft_words_end_in_any_case(path, ".pgn") || strncmp(text, "[Event \"", 8) == 0;
        out->is_named_so = weft_words_end_in_any_case(path, out->is_pgn ? ".pgn" : ".jsonl");
        out->is_jsonl = !out->is_pgn && (read_objects(out, sizes, text, n, out->is_whole) || out->is_named_so);
        look_for_answers(out, path, text);
        if (out->is_jsonl) choose_field(out, sizes);
        else count_lines(out, text, n);
    }
    json_decref(sizes);
    free(text);
    return status;
}
