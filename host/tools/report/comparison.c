/* host/tools/report/comparison.c: see comparison.h. */
#include "tools/report/comparison.h"

#include <stdlib.h>

/* ---- names ---- */

/* The last `parts` parts of a path. */
static const char *path_tail(const char *path, int parts) {
    const char *at = path + strlen(path);
    while (at > path && (at[-1] != '/' || --parts > 0)) at--;
    return at;
}

static bool all_differ(const weft_comparison *self, int parts) {
    for (size_t i = 0; i < self->n; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(path_tail(self->runs[i].directory, parts), path_tail(self->runs[k].directory, parts)) == 0)
                return false;
    return true;
}

static void choose_names(weft_comparison *self) {
    int parts = 1;
    while (parts < 8 && !all_differ(self, parts)) parts++;
    for (size_t i = 0; i < self->n; i++) {
        const char *name = path_tail(self->runs[i].directory, parts);
        (void)snprintf(self->names[i], sizeof self->names[i], "%.127s", name);
    }
}

weft_status weft_comparison_make(weft_comparison *out, const weft_past_run *runs, size_t n, weft_error *err) {
    memset(out, 0, sizeof *out);
    out->runs = runs;
    out->n = n;
    out->digests = calloc(n, sizeof *out->digests);
    out->names = calloc(n, sizeof *out->names);
    if (out->digests == NULL || out->names == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory to compare runs");
    for (size_t i = 0; i < n; i++) weft_digest_make(&out->digests[i], &runs[i]);
    choose_names(out);
    return WEFT_OK;
}

void weft_comparison_free(weft_comparison *self) {
    free(self->digests);
    free(self->names);
    memset(self, 0, sizeof *self);
}

/* ---- what differs in the configurations ---- */

/* A recorded value as a user would write it. */
static void write_value(char *out, size_t size, const json_t *value) {
    char *dumped = NULL;
    if (json_is_string(value)) (void)snprintf(out, size, "%s", json_string_value(value));
    else if (json_is_boolean(value)) (void)snprintf(out, size, "%s", json_is_true(value) ? "yes" : "no");
    else if (json_is_real(value)) (void)snprintf(out, size, "%.9g", json_real_value(value));
    else if (json_is_integer(value)) (void)snprintf(out, size, "%lld", (long long)json_integer_value(value));
    else {
        dumped = json_dumps(value, JSON_ENCODE_ANY);
        (void)snprintf(out, size, "%s", dumped == NULL ? "?" : dumped);
        free(dumped);
    }
}

bool weft_past_config(const weft_past_run *run, const char *key, char *out, size_t size, const char **source) {
    const json_t *config = json_object_get(weft_past_start(run), "config");
    for (size_t i = 0; i < json_array_size(config); i++) {
        const json_t *entry = json_array_get(config, i);
        if (strcmp(weft_past_text(entry, NULL, "key"), key) != 0) continue;
        write_value(out, size, json_object_get(entry, "value"));
        if (source != NULL) *source = weft_past_text(entry, NULL, "source");
        return true;
    }
    return false;
}

static const char *value_or_nothing(const weft_past_run *run, const char *key, char out[512]) {
    return weft_past_config(run, key, out, 512, NULL) ? out : NULL;
}

static bool alike(const char *a, const char *b) {
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static bool key_differs(const weft_comparison *self, const char *key) {
    char a[512], b[512];
    const char *first = value_or_nothing(&self->runs[0], key, a);
    for (size_t i = 1; i < self->n; i++)
        if (!alike(first, value_or_nothing(&self->runs[i], key, b))) return true;
    return false;
}

static void put_difference(const weft_comparison *self, weft_sheet *out, const char *key) {
    char text[512];
    weft_sheet_put(out, "%s", key);
    for (size_t i = 0; i < self->n; i++) {
        const char *value = value_or_nothing(&self->runs[i], key, text);
        weft_sheet_put(out, "%s", value == NULL ? "-" : *value == '\0' ? "\"\"" : value);
    }
}

static bool told_before(const weft_comparison *self, size_t run, const char *key) {
    char text[512];
    for (size_t i = 0; i < run; i++)
        if (value_or_nothing(&self->runs[i], key, text) != NULL) return true;
    return false;
}

void weft_comparison_differences(const weft_comparison *self, weft_sheet *out) {
    weft_sheet_begin(out, self->n + 1);
    weft_sheet_put(out, "key");
    for (size_t i = 0; i < self->n; i++) weft_sheet_put(out, "%s", self->names[i]);
    for (size_t run = 0; run < self->n; run++) {
        const json_t *config = json_object_get(weft_past_start(&self->runs[run]), "config");
        for (size_t i = 0; i < json_array_size(config); i++) {
            const char *key = weft_past_text(json_array_get(config, i), NULL, "key");
            if (strcmp(key, "run.out") == 0 || told_before(self, run, key) || !key_differs(self, key)) continue;
            put_difference(self, out, key);
        }
    }
}
