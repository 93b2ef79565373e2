/* host/tools/config/explain.c: see explain.h. */
#include "tools/config/explain.h"

#include <errno.h>
#include <jansson.h>

/* Widths of the table's first two columns, and its stream. */
typedef struct table {
    FILE *file;
    int key_width, value_width;
} table;

static void measure_row(void *context, const weft_config_row *row) {
    table *self = context;
    const int key = (int)strlen(row->name);
    const int value = (int)strnlen(row->text, 60); /* longer values only shift their own line */
    if (key > self->key_width) self->key_width = key;
    if (value > self->value_width) self->value_width = value;
}

static void print_row(void *context, const weft_config_row *row) {
    const table *self = context;
    (void)fprintf(self->file, "%-*s  %-*s  %s%s\n", self->key_width, row->name, self->value_width, row->text,
                  row->source, row->is_idle ? ", idle" : "");
}

weft_status weft_config_explain(const weft_config *self, FILE *file, bool json, weft_error *err) {
    table lines = {file, 0, 0};
    if (json) {
        json_t *array = weft_config_array(self);
        if (array == NULL)
            return weft_error_set(err, WEFT_E_USER,
                                  "the configuration cannot be printed as JSON: a path in it is not UTF-8");
        (void)json_dumpf(array, file, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
        (void)fputc('\n', file);
        json_decref(array);
    } else {
        weft_config_each_row(self, measure_row, &lines);
        weft_config_each_row(self, print_row, &lines);
    }
    if (fflush(file) == 0 && !ferror(file)) return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM, "the configuration cannot be written: %s", strerror(errno));
}
