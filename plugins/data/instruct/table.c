/* table.c: reads rows of CSV, as Python's csv module does, and of TSV (no quotes). A CSV field that begins with a quote
 * may contain separators and line ends, up to the next single quote. Two quotes in it are one. Other quotes are
 * text. */
#include "instruct.h"

#include <stdlib.h>

/* State inside of a CSV field. */
enum { FIELD_BEGINS, FIELD_PLAIN, FIELD_QUOTED, FIELD_QUOTE_IN_QUOTED };

static int next_state(int state, char c, char separator) {
    if (state == FIELD_QUOTED) return c == '"' ? FIELD_QUOTE_IN_QUOTED : FIELD_QUOTED;
    if (state == FIELD_QUOTE_IN_QUOTED && c == '"') return FIELD_QUOTED;
    if (c == separator) return FIELD_BEGINS;
    return state == FIELD_BEGINS && c == '"' ? FIELD_QUOTED : FIELD_PLAIN;
}

size_t instruct_row_end(const instruct_file *file, size_t at) {
    int state = FIELD_BEGINS;
    for (; at < file->n; at++) {
        if (file->bytes[at] == '\n' && state != FIELD_QUOTED) return at + 1;
        if (file->format == FORMAT_CSV) state = next_state(state, file->bytes[at], file->separator);
    }
    return file->n;
}

/* Reads the field at `at` into `out`, without its quotes; *next: its separator, or the end. */
static weft_status read_field(char *out, size_t *used, const instruct_record *record, size_t n, size_t at, size_t *next,
                              weft_error *err) {
    const int csv = record->file->format == FORMAT_CSV;
    const char separator = record->file->separator;
    int state = FIELD_BEGINS;
    for (*used = 0; at < n; at++) {
        const char c = record->bytes[at];
        const int before = state;
        if (c == separator && before != FIELD_QUOTED) break;
        if (csv) state = next_state(state, c, separator);
        if (state != FIELD_QUOTE_IN_QUOTED && !(state == FIELD_QUOTED && before == FIELD_BEGINS)) out[(*used)++] = c;
    }
    *next = at;
    return state == FIELD_QUOTED ? instruct_fail(err, record, "a field in quotes is not closed") : WEFT_OK;
}

weft_status instruct_row_fields(json_t **out, const instruct_record *record, weft_error *err) {
    json_t *fields = json_array();
    size_t n = record->n, next = 0;
    char *field = NULL;
    weft_status status = WEFT_OK;
    while (n > 0 && (record->bytes[n - 1] == '\n' || record->bytes[n - 1] == '\r')) n--;
    field = malloc(n + 1);
    if (field == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "no memory for a row");
    for (size_t at = 0; status == WEFT_OK; at = next + 1) {
        size_t used = 0;
        json_t *text = NULL;
        status = read_field(field, &used, record, n, at, &next, err);
        if (status != WEFT_OK) break;
        text = json_stringn(field, used);
        if (text == NULL) status = instruct_fail(err, record, "field %zu is not UTF-8", json_array_size(fields) + 1);
        else (void)json_array_append_new(fields, text);
        if (next >= n) break;
    }
    free(field);
    if (status == WEFT_OK) *out = fields;
    else json_decref(fields);
    return status;
}
