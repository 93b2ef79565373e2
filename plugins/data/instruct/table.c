/* table.c: rows of CSV (RFC 4180, with whatever separator: fields in quotes may hold it, line ends, and quotes that are
 * written twice) and of TSV (no quotes). */
#include "instruct.h"

#include <stdlib.h>

size_t instruct_row_end(const char *bytes, size_t n, size_t at, int csv) {
    int quoted = 0;
    for (; at < n; at++) {
        if (csv && bytes[at] == '"') quoted = !quoted;
        else if (bytes[at] == '\n' && !quoted) return at + 1;
    }
    return n;
}

/* One field from `at`; *next is at the separator, or the end. The field without its quotes is in `out`. */
static weft_status read_field(char *out, size_t *used, const instruct_record *record, size_t n, size_t at, size_t *next,
                              weft_error *err) {
    const int csv = record->file->format == FORMAT_CSV;
    const char separator = record->file->separator;
    *used = 0;
    if (!csv || at == n || record->bytes[at] != '"') {
        for (; at < n && record->bytes[at] != separator; at++) out[(*used)++] = record->bytes[at];
        *next = at;
        return WEFT_OK;
    }
    for (at++; at < n; at++) {
        if (record->bytes[at] != '"') out[(*used)++] = record->bytes[at];
        else if (at + 1 < n && record->bytes[at + 1] == '"') out[(*used)++] = record->bytes[at++];
        else break;
    }
    if (at == n) return instruct_fail(err, record, "a field in quotes is not closed");
    *next = at + 1;
    if (*next < n && record->bytes[*next] != separator)
        return instruct_fail(err, record,
                             "something stands behind the quotes of a field: quotes inside are written twice");
    return WEFT_OK;
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
