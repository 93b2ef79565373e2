/* host/program/paths.c: see paths.h. */
#include "program/paths.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static weft_status check_path(const weft_run *run, const char *section, const char *key, const char *path,
                              weft_error *err) {
    struct stat about;
    if (path == NULL || path[0] != '/' || stat(path, &about) == 0) return WEFT_OK;
    return weft_config_reject(run->config, section, key, err, "(%s): %s", path, strerror(errno));
}

/* A colon and a number at the end of a listed name are none of its path. */
static size_t path_length(const char *name, size_t n) {
    const char *colon = memrchr(name, ':', n);
    char *end = NULL;
    if (colon == NULL || colon + 1 == name + n) return n;
    (void)strtod(colon + 1, &end);
    return end == name + n ? (size_t)(colon - name) : n;
}

static weft_status each_listed(const char *list, const char *key, weft_path_visit *visit, void *context,
                               weft_error *err) {
    weft_status status = WEFT_OK;
    while (*list != '\0' && status == WEFT_OK) {
        const size_t n = strcspn(list, ",");
        char *path = strndup(list, path_length(list, n));
        status = path == NULL ? weft_error_set(err, WEFT_E_MEMORY, "no memory for the name of a file")
                              : visit(context, key, path, err);
        free(path);
        list += n + (list[n] == ',');
    }
    return status;
}

weft_status weft_part_each_path(const weft_part *part, weft_path_visit *visit, void *context, weft_error *err) {
    const weft_plugin *plugin = part->loaded == NULL ? NULL : part->loaded->plugin;
    weft_status status = WEFT_OK;
    for (uint64_t k = 0; plugin != NULL && k < plugin->n_keys && status == WEFT_OK; k++) {
        const weft_key *key = (const weft_key *)(const void *)((const char *)plugin->keys + k * plugin->key_stride);
        const bool is_list = (key->flags & WEFT_PATHS) != 0;
        const char *value = NULL;
        if ((key->type != WEFT_KEY_PATH && !is_list) || (key->flags & WEFT_REMOVED) != 0) continue;
        memcpy(&value, (const char *)part->config + key->offset, sizeof value);
        if (is_list) status = each_listed(value, key->name, visit, context, err);
        else if (value != NULL && value[0] == '/') status = visit(context, key->name, value, err);
    }
    return status;
}

typedef struct checking {
    const weft_run *run;
    const char *section;
} checking;

static weft_status check_key(void *context, const char *key, const char *path, weft_error *err) {
    const checking *self = context;
    return check_path(self->run, self->section, key, path, err);
}

static weft_status check_part(const weft_run *run, int32_t part, weft_error *err) {
    checking self = {run, weft_part_name(part)};
    return weft_part_each_path(&run->parts[part], check_key, &self, err);
}

weft_status weft_paths_check(const weft_run *run, weft_error *err) {
    weft_status status = check_path(run, "model", "path", run->settings.model.path, err);
    if (status == WEFT_OK) status = check_path(run, "tokenizer", "path", run->settings.tokenizer.path, err);
    if (status == WEFT_OK) status = check_part(run, WEFT_PART_TOKENIZER, err);
    return status == WEFT_OK ? check_part(run, WEFT_PART_DATA, err) : status;
}
