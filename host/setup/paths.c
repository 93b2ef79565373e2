/* host/setup/paths.c: see paths.h. */
#include "setup/paths.h"

#include <errno.h>
#include <sys/stat.h>

static weft_status check_path(const weft_run *run, const char *section, const char *key, const char *path,
                              weft_error *err) {
    struct stat about;
    if (path == NULL || path[0] != '/' || stat(path, &about) == 0) return WEFT_OK; /* a word such as none is no path */
    return weft_config_reject(run->config, section, key, err, "(%s): %s", path, strerror(errno));
}

static weft_status check_keys(const weft_run *run, int32_t part, weft_error *err) {
    const weft_part *of = &run->parts[part];
    const weft_plugin *plugin = of->loaded == NULL ? NULL : of->loaded->plugin;
    weft_status status = WEFT_OK;
    for (uint64_t k = 0; plugin != NULL && k < plugin->n_keys && status == WEFT_OK; k++) {
        const weft_key *key = (const weft_key *)(const void *)((const char *)plugin->keys + k * plugin->key_stride);
        const char *path = NULL;
        if (key->type != WEFT_KEY_PATH) continue;
        memcpy(&path, (const char *)of->config + key->offset, sizeof path);
        status = check_path(run, weft_part_name(part), key->name, path, err);
    }
    return status;
}

weft_status weft_paths_check(const weft_run *run, weft_error *err) {
    weft_status status = check_path(run, "model", "path", run->settings.model.path, err);
    if (status == WEFT_OK) status = check_path(run, "tokenizer", "path", run->settings.tokenizer.path, err);
    if (status == WEFT_OK) status = check_keys(run, WEFT_PART_TOKENIZER, err);
    return status == WEFT_OK ? check_keys(run, WEFT_PART_DATA, err) : status;
}
