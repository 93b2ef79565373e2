/* host/tools/common/plugins.c: see plugins.h. */
#include "tools/common/plugins.h"

#include "base/file.h"
#include "config/store.h"

#include <stdlib.h>

/* Formats "number (0,1], steps", "path | none", "a,b". */
static void describe_type(const weft_key *row, char *out, size_t size) {
    static const char *const names[] = {"", "whole number", "number", "yes/no", "text", "path", "", "list"};
    const char *between = row->type == WEFT_KEY_STR || row->type == WEFT_KEY_PATH ? " | " : " ";
    const char *name = (row->flags & WEFT_HOST_FORMS) != 0 ? ""
                       : (row->flags & WEFT_PATHS) != 0    ? "paths"
                                                           : names[row->type];
    if (*row->range == '\0' || *name == '\0') between = "";
    (void)snprintf(out, size, "%s%s%s%s%s", name, between, row->range, *row->unit != '\0' ? ", " : "", row->unit);
}

static const char *fallback_text(const weft_key *row) {
    if (row->fallback == NULL) return "(required)";
    return *row->fallback == '\0' ? "\"\"" : row->fallback;
}

void weft_key_table_print(const weft_key *keys, uint64_t n, uint32_t stride, FILE *file) {
    int width[4] = {0}; /* of name, default, description and help */
    char what[1024];
    for (uint64_t i = 0; i < n; i++) {
        const weft_key *row = weft_key_row(keys, i, stride);
        const char *const columns[] = {row->name, fallback_text(row), what, row->help};
        if ((row->flags & WEFT_REMOVED) != 0) continue;
        describe_type(row, what, sizeof what);
        for (int k = 0; k < 4; k++)
            if ((int)strlen(columns[k]) > width[k]) width[k] = (int)strlen(columns[k]);
    }
    for (uint64_t i = 0; i < n; i++) {
        const weft_key *row = weft_key_row(keys, i, stride);
        const bool below = width[0] + width[1] + width[2] + width[3] + 8 > 120; /* help on a line of its own */
        if ((row->flags & WEFT_REMOVED) != 0) continue;
        describe_type(row, what, sizeof what);
        (void)fprintf(file, "  %-*s  %-*s  %-*s%s%s\n", width[0], row->name, width[1], fallback_text(row),
                      below ? 0 : width[2], what, below ? "\n      " : "  ", row->help);
    }
}

/* Returns the path of an earlier file with the same kind and id, or NULL. */
static const char *find_earlier(const weft_found *files, size_t i) {
    for (size_t j = 0; j < i; j++)
        if (strcmp(files[j].kind, files[i].kind) == 0 && strcmp(files[j].id, files[i].id) == 0) return files[j].path;
    return NULL;
}

weft_status weft_plugins_scan(json_t *out, const weft_plugins *plugins, double seconds, weft_error *err) {
    weft_found *files = NULL;
    size_t n = 0;
    weft_status status = weft_plugins_list(plugins, &files, &n, NULL, err);
    for (size_t i = 0; i < n && status == WEFT_OK; i++) {
        const weft_found *file = &files[i];
        const char *earlier = find_earlier(files, i);
        json_t *row = weft_plugin_probe(file, seconds, err);
        if (row == NULL) {
            status = WEFT_E_SYSTEM;
            break;
        }
        if (earlier != NULL) {
            (void)json_object_set_new(row, "status", json_string("hidden"));
            (void)json_object_set_new(row, "reason", json_sprintf("%s comes first.", earlier));
        }
        (void)json_object_set_new(row, "kind", json_string(file->kind));
        (void)json_object_set_new(row, "id", json_string(file->id));
        (void)json_object_set_new(row, "file", json_string(file->path));
        (void)json_array_append_new(out, row);
    }
    free(files);
    return status;
}

weft_status weft_templates_find(char out[WEFT_PATH_BYTES], const char *name, weft_error *err) {
    static const char *const places[] = {"template", WEFT_RELATIVE_TEMPLATE_DIR};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char below[512];
        (void)snprintf(below, sizeof below, "%s/%s", places[i], name);
        if (weft_sibling_program(out, below)) return WEFT_OK;
    }
    return weft_error_set(
        err, WEFT_E_SYSTEM,
        "the templates are missing: the program's directory has neither %s/%s nor %s/%s. Fix: install Weft with cmake "
        "--install, and run the installed program",
        places[0], name, places[1], name);
}
