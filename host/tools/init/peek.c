/* host/tools/init/peek.c: see peek.h. */
#include "tools/init/peek.h"

#include "base/text.h"
#include "base/words.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_BYTES = 4 << 20, MOST_OF_A_LINE = 256 << 20, MOST_OBJECTS = 200 };

/* Makes room for as many bytes again. */
static bool grow(char **text, size_t *room) {
    char *more = realloc(*text, 2 * *room + 1);
    if (more == NULL) return false;
    *text = more;
    *room *= 2;
    return true;
}

/* The begin of a regular file, with its first line whole if that is at all possible; of anything else nothing. */
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

/* An array of JSON: its first record. Of one that is empty the plugin says so. */
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

/* The first row of a table. Names that are longer are cut, and more columns left out: these are not asked for. */
typedef struct header {
    char names[MOST_COLUMNS][64];
    int n;
} header;

/* Behind empty lines and "sep=;", which spreadsheets write. */
static const char *find_header(const char *text, char *between) {
    text += strspn(text, " \t\r\n");
    if (*between != ',' || strncmp(text, "sep=", 4) != 0 || text[4] == '\0' || strcspn(text, "\r\n") != 5) return text;
    *between = text[4];
    return text + 5 + strspn(text + 5, " \t\r\n");
}

/* One name, with or without quotes; the place behind it. */
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

/* Names that [data] columns can list. */
static bool can_be_listed(const char *name) {
    return name[0] != '\0' && strlen(name) < 63 && strpbrk(name, ",;#\"\n\r") == NULL;
}

/* What they are to the plugin: a pair that it knows, the only two that there are, or nothing. */
static void judge_columns(weft_peek *out, const header *columns) {
    for (size_t i = 0; i < N_PAIRS && !out->is_instruct; i++)
        out->is_instruct = has_column(columns, pairs[i][0]) && has_column(columns, pairs[i][1]);
    if (!out->is_instruct && columns->n == 2 && can_be_listed(columns->names[0]) && can_be_listed(columns->names[1])) {
        (void)snprintf(out->columns, sizeof out->columns, "%s, %s", columns->names[0], columns->names[1]);
        out->is_instruct = true;
    }
    out->is_table = columns->n > 1;
    for (int i = 0; i < columns->n; i++)
        weft_words_append(out->fields, sizeof out->fields, "%s%s", i > 0 ? ", " : "", columns->names[i]);
    weft_words_tame(out->fields);
}

/* CSV, whose fields are not separated by commas everywhere: by what makes most columns of the first row. */
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
    judge_columns(out, &columns);
}

static void look_for_answers(weft_peek *out, const char *path, const char *text) {
    const bool csv = weft_words_end_in_any_case(path, ".csv");
    if (csv || weft_words_end_in_any_case(path, ".tsv")) look_for_columns(out, text, csv);
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
        out->is_pgn = weft_words_end_in_any_case(path, ".pgn") || strncmp(text, "[Event \"", 8) == 0;
        out->is_named_so = weft_words_end_in_any_case(path, out->is_pgn ? ".pgn" : ".jsonl");
        out->is_jsonl = !out->is_pgn && (read_objects(out, sizes, text, n, out->is_whole) || out->is_named_so);
        look_for_answers(out, path, text);
        if (out->is_jsonl) choose_field(out, sizes);
        else count_lines(out, text, n);
    }
    json_decref(sizes);
    free(whole);
    return status;
}
