/* host/tools/config/explain.c: see explain.h. */
#include "tools/config/explain.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

/* Prints an aligned table. */
static void print_table(const weft_config *self, FILE *file) {
    size_t n = 0;
    weft_config_row *rows = weft_config_rows(self, &n);
    int key = 0, value = 0;
    for (size_t i = 0; i < n; i++) {
        const int key_width = (int)strlen(rows[i].name);
        const int value_width = (int)strnlen(rows[i].text, 60); /* longer values only shift their own line */
        if (key_width > key) key = key_width;
        if (value_width > value) value = value_width;
    }
    for (size_t i = 0; i < n; i++)
        (void)fprintf(file, "%-*s  %-*s  %s%s\n", key, rows[i].name, value, rows[i].text, rows[i].source,
                      rows[i].is_idle ? ", idle" : "");
    free(rows);
}

weft_status weft_config_explain(const weft_config *self, FILE *file, bool json, weft_error *err) {
    json_t *array = json ? weft_config_array(self) : NULL;
    if (json && array == NULL)
        return weft_error_set(err, WEFT_E_USER,
                              "the configuration cannot be printed as JSON: a path in it is not UTF-8");
    if (json) {
        (void)json_dumpf(array, file, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
        (void)fputc('\n', file);
    } else print_table(self, file);
    json_decref(array);
    if (fflush(file) == 0 && !ferror(file)) return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM, "the configuration cannot be written: %s", strerror(errno));
}
