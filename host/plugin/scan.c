/* host/plugin/scan.c: see scan.h. */
#include "plugin/scan.h"

#include "plugin/subprocess_probe.h"

/* --- the walk --- */

typedef struct walk {
    json_t *out;
    double seconds;
    weft_status status;
    weft_error *err;
} walk;

/* Returns the row of an earlier file with the same kind and id, or NULL. */
static const json_t *find_earlier_row(const json_t *rows, const char *kind, const char *id) {
    size_t i;
    for (i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (strcmp(json_string_value(json_object_get(row, "kind")), kind) == 0 &&
            strcmp(json_string_value(json_object_get(row, "id")), id) == 0) {
            return row;
        }
    }
    return NULL;
}

/* Splits "weft-<kind>-<id>.so" into kind and id. Returns false for other names. */
static int split_name(char kind[32], char id[96], const char *path) {
    const char *name = strrchr(path, '/') + 1 + 5;
    const size_t n = strcspn(name, "-"), all = strlen(name) - 3;
    if (n >= 32 || n + 1 >= all || all - n - 1 >= 96) return 0;
    memcpy(kind, name, n);
    kind[n] = 0;
    memcpy(id, name + n + 1, all - n - 1);
    id[all - n - 1] = 0;
    return 1;
}

static void visit_file(void *context, const char *path) {
    walk *self = context;
    char kind[32], id[96], reason[4200];
    const json_t *before = NULL;
    json_t *row = NULL;
    if (self->status != WEFT_OK || !split_name(kind, id, path)) return;
    before = find_earlier_row(self->out, kind, id);
    row = weft_plugin_probe(path, kind, id, NULL, WEFT_PROBE_LIST, self->seconds, self->err);
    if (row != NULL && before != NULL) {
        (void)snprintf(reason, sizeof reason, "%s comes first.", json_string_value(json_object_get(before, "file")));
        (void)json_object_set_new(row, "status", json_string("hidden"));
        (void)json_object_set_new(row, "reason", json_string(reason));
    }
    if (row == NULL || json_object_set_new(row, "kind", json_string(kind)) != 0 ||
        json_object_set_new(row, "id", json_string(id)) != 0 ||
        json_object_set_new(row, "file", json_string(path)) != 0 || json_array_append_new(self->out, row) != 0) {
        self->status = row == NULL ? (weft_status)self->err->code : WEFT_E_MEMORY;
        if (row != NULL) (void)weft_error_set(self->err, WEFT_E_MEMORY, "no memory for the list of plugins.");
    }
}

weft_status weft_plugins_scan(json_t *out, const weft_search *search, double seconds, weft_error *err) {
    walk self = {out, seconds, WEFT_OK, err};
    const weft_status status = weft_search_walk(search, visit_file, &self, err);
    return self.status != WEFT_OK ? self.status : status;
}
