/* file.c: splits a file into records: elements of a JSON array, lines of JSONL, rows of a table. */
#include "instruct.h"

weft_status instruct_fail(weft_error *err, const instruct_record *record, const char *format, ...) {
    char text[sizeof err->text];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (unsigned char *at = (unsigned char *)text; *at != '\0'; at++)
        if (*at < 0x20 || *at == 0x7f) *at = '?'; /* control characters of a file must not reach a terminal */
    return weft_error_set(err, WEFT_E_DATA, "%s:%llu: %s", record->file->path, (unsigned long long)record->line, text);
}

static weft_status find_format(instruct_file *file, const instruct_config *config, weft_error *err) {
    static const char *const ends[] = {".json", ".jsonl", ".csv", ".tsv"};
    file->format = config->format;
    for (int64_t i = 0; i < 4 && file->format == FORMAT_AUTO; i++)
        if (data_name_ends(file->path, ends[i])) file->format = FORMAT_JSON + i;
    if (file->format != FORMAT_AUTO) return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER,
                          "[data] %s = %s: unknown suffix. Allowed: .json, .jsonl, .csv, .tsv. Fix: set "
                          "[data] format",
                          file->key, file->path);
}

static weft_status add_record(instruct_file *file, const weft_host *host, size_t begin, size_t end, uint64_t line,
                              weft_error *err) {
    const instruct_record record = {file, file->bytes + begin, end - begin, line};
    if (data_array_reserve(&file->records, host, 1, sizeof record) != WEFT_OK)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for the list of records in %s", file->path);
    ((instruct_record *)file->records.data)[file->records.n++] = record;
    return WEFT_OK;
}

static int is_blank(const char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (memchr(" \t\r\n", bytes[i], 4) == NULL) return 0;
    return 1;
}

static weft_status cut_lines(instruct_file *file, const weft_host *host, size_t at, weft_error *err) {
    weft_status status = WEFT_OK;
    uint64_t line = 1;
    for (size_t next = 0; at < file->n && status == WEFT_OK; at = next, line++) {
        const char *found = memchr(file->bytes + at, '\n', file->n - at);
        const size_t end = found != NULL ? (size_t)(found - file->bytes) : file->n;
        const instruct_record here = {file, NULL, 0, line};
        next = found != NULL ? end + 1 : file->n;
        if (is_blank(file->bytes + at, end - at))
            return instruct_fail(err, &here, "the line is empty: every line of JSONL must contain one object {...}");
        status = add_record(file, host, at, end, line, err);
    }
    return status;
}

/* Returns the end of the JSON value at `at`, by its brackets and strings. It is parsed as JSON later. */
static size_t value_end(const instruct_file *file, size_t at, uint64_t *lines) {
    int depth = 0, in_string = 0;
    for (; at < file->n; at++) {
        const char c = file->bytes[at];
        *lines += c == '\n';
        if (in_string) {
            if (c == '\\') at++;
            else if (c == '"') in_string = 0;
        } else if (c == '"') in_string = 1;
        else if (c == '{' || c == '[') depth++;
        else if ((c == '}' || c == ']') && depth-- == 0) break;
        else if (c == ',' && depth == 0) break;
    }
    return at;
}

static size_t skip_blanks(const instruct_file *file, size_t at, uint64_t *line) {
    for (; at < file->n && memchr(" \t\r\n", file->bytes[at], 4) != NULL; at++) *line += file->bytes[at] == '\n';
    return at;
}

static weft_status cut_array(instruct_file *file, const weft_host *host, size_t at, weft_error *err) {
    instruct_record here = {file, NULL, 0, 1};
    uint64_t line = 1;
    weft_status status = WEFT_OK;
    at = skip_blanks(file, at, &line);
    here.line = line;
    if (at == file->n || file->bytes[at] != '[')
        return instruct_fail(
            err, &here, "the file is not a JSON array, [ {...}, ... ]. Fix: format = jsonl reads one object per line");
    at = skip_blanks(file, at + 1, &line);
    while (status == WEFT_OK && at < file->n && file->bytes[at] != ']') {
        const size_t begin = at;
        here.line = line;
        at = value_end(file, at, &line);
        if (at >= file->n) return instruct_fail(err, &here, "the array ends in the middle of this element");
        if (file->bytes[at] == '}') return instruct_fail(err, &here, "this element of the array has an unmatched }");
        status = add_record(file, host, begin, at, here.line, err);
        if (file->bytes[at] == ',') at = skip_blanks(file, at + 1, &line);
    }
    here.line = line;
    if (status == WEFT_OK && at >= file->n) return instruct_fail(err, &here, "the array is not closed by ]");
    if (status == WEFT_OK && skip_blanks(file, at + 1, &line) < file->n)
        return instruct_fail(err, &here, "text follows the array");
    return status;
}

/* Fails if two columns have the same name, since their fields would be indistinguishable. */
static weft_status judge_names(const instruct_file *file, const instruct_record *row, weft_error *err) {
    const size_t n = json_array_size(file->header);
    json_t *seen = json_object(); /* name: column number */
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < n && status == WEFT_OK; i++) {
        const char *name = json_string_value(json_array_get(file->header, i));
        const json_t *before = json_object_get(seen, name);
        if (*name == '\0') continue;
        if (before != NULL)
            status = instruct_fail(err, row,
                                   "the first row names two columns \"%.60s\", number %lld and %zu: rename "
                                   "one of them",
                                   name, (long long)json_integer_value(before), i + 1);
        else if (json_object_set_new(seen, name, json_integer((json_int_t)i + 1)) != 0)
            status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the names of columns in %s", file->path);
    }
    json_decref(seen);
    return status;
}

/* Detects a wrong separator. In locales with decimal commas, CSV files use semicolons. */
static weft_status judge_header(const instruct_file *file, const instruct_record *row, weft_error *err) {
    static const char others[] = ";\t|,";
    static const char *const names[] = {"semicolon", "tab", "bar", "comma"};
    const char *header = json_string_value(json_array_get(file->header, 0));
    if (file->format != FORMAT_CSV || json_array_size(file->header) != 1) return judge_names(file, row, err);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (others[i] != file->separator && strchr(header, others[i]) != NULL)
            return instruct_fail(err, row,
                                 "the first row is one field, \"%.60s\": if the separator is a %s, set [data] "
                                 "separator = %s",
                                 header, names[i], names[i]);
    return WEFT_OK;
}

/* Reads "sep=;" in the first line, which spreadsheets write and read. */
static int says_separator(instruct_file *file, const instruct_record *row) {
    if (file->format != FORMAT_CSV || row->n < 5 || memcmp(row->bytes, "sep=", 4) != 0 ||
        !is_blank(row->bytes + 5, row->n - 5))
        return 0;
    file->separator = row->bytes[4];
    return 1;
}

static int is_line_end(const char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != '\r' && bytes[i] != '\n') return 0;
    return 1;
}

/* Splits a table; the first row contains the names of the columns. */
static weft_status cut_table(instruct_file *file, const weft_host *host, size_t at, weft_error *err) {
    weft_status status = WEFT_OK;
    uint64_t line = 1;
    for (size_t end = 0; at < file->n && status == WEFT_OK; at = end) {
        const instruct_record row = {file, file->bytes + at, 0, line};
        instruct_record whole = row;
        end = instruct_row_end(file, at);
        whole.n = end - at;
        for (size_t i = at; i < end; i++) line += file->bytes[i] == '\n';
        if (is_blank(row.bytes, whole.n) && (end == file->n || file->header == NULL)) continue;
        if (file->header != NULL && is_line_end(row.bytes, whole.n)) { /* as Python's csv.DictReader does */
            if (file->skipped++ == 0) file->first_skipped = row.line;
            continue;
        }
        if (file->header == NULL && says_separator(file, &whole)) continue;
        if (file->header == NULL) {
            status = instruct_row_fields(&file->header, &whole, err);
            if (status == WEFT_OK) status = judge_header(file, &whole, err);
        } else status = add_record(file, host, at, end, row.line, err);
    }
    return status;
}

static weft_status cut(instruct_file *file, const weft_host *host, weft_error *err) {
    const size_t begin = file->n >= 3 && memcmp(file->bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    if (file->format == FORMAT_JSONL) return cut_lines(file, host, begin, err);
    if (file->format == FORMAT_JSON) return cut_array(file, host, begin, err);
    return cut_table(file, host, begin, err);
}

weft_status instruct_file_open(instruct_file *out, const weft_host *host, const instruct_config *config,
                               const char *key, char *path, weft_error *err) {
    static const char separators[] = {
        [SEPARATOR_COMMA] = ',', [SEPARATOR_SEMICOLON] = ';', [SEPARATOR_TAB] = '\t', [SEPARATOR_BAR] = '|'};
    weft_status status = WEFT_OK;
    out->key = key;
    out->path = path;
    status = find_format(out, config, err);
    out->separator = out->format == FORMAT_CSV ? separators[config->separator] : '\t';
    if (status == WEFT_OK)
        status = data_file_read(&out->held, host, key, path, "a file of JSON, JSONL, CSV or TSV", err);
    out->bytes = out->held.data;
    out->n = out->held.n;
    if (status == WEFT_OK) status = cut(out, host, err);
    if (status == WEFT_OK && out->skipped > 0)
        weft_log(host, WEFT_LOG_INFO, "%s: %llu empty line%s between rows skipped, the first is line %llu", path,
                 (unsigned long long)out->skipped, out->skipped == 1 ? "" : "s",
                 (unsigned long long)out->first_skipped);
    if (status == WEFT_OK && out->records.n == 0)
        status = weft_error_set(err, WEFT_E_DATA, "[data] %s = %s contains no record", key, path);
    return status;
}

void instruct_file_close(instruct_file *file, const weft_host *host) {
    host->release(host, file->path);
    data_array_free(&file->held, host);
    json_decref(file->header);
    data_array_free(&file->records, host);
    memset(file, 0, sizeof *file);
}
