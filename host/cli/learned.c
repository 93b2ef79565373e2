/* host/cli/learned.c: see learned.h. */
#include "cli/learned.h"

#include "adapter/tensors.h"
#include "base/file.h"
#include "base/join.h"
#include "base/text.h"
#include "config/settings.h"
#include "program/token_files.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

/* A file that cannot be examined counts as present: its reader then reports the error. */
static bool has_file(const char *directory, const char *name) {
    char path[WEFT_PATH_BYTES];
    bool is_there = false;
    if (weft_path_join(path, directory, name, NULL) != WEFT_OK) return false;
    return weft_file_exists(&is_there, path, NULL) != WEFT_OK || is_there;
}

/* Copies the base's name from adapter_config.json; NULL: missing. */
static weft_status read_base(char **base, const char *adapter, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    json_t *config = NULL;
    const char *name = NULL;
    weft_status status = weft_path_join(path, adapter, WEFT_ADAPTER_CONFIG, err);
    if (status == WEFT_OK) status = weft_json_read(&config, path, 0, err);
    name = json_string_value(json_object_get(config, "base_model_name_or_path"));
    if (name != NULL && name[0] != '\0') *base = strdup(name);
    json_decref(config);
    return status;
}

/* Finds the base. One saved in the adapter's directory is the base that it was trained on. */
static weft_status find_base(weft_learned *self, weft_error *err) {
    char *named = NULL;
    weft_status status = WEFT_OK;
    if (has_file(self->adapter, "config.json")) named = strdup(self->adapter);
    else status = read_base(&named, self->adapter, err);
    if (status != WEFT_OK) return status;
    if (named == NULL)
        return weft_error_set(err, WEFT_E_USER,
                              "%.1000s/" WEFT_ADAPTER_CONFIG " names no base (base_model_name_or_path): write its "
                              "directory there, or say weft init BASE DATA and set [adapter] from to this one",
                              self->adapter);
    self->base = realpath(named, NULL);
    if (self->base == NULL || !has_file(self->base, "config.json"))
        status =
            weft_error_set(err, WEFT_E_USER,
                           "%.1000s is an adapter of %.500s, which is no model's directory here: say weft init "
                           "BASE DATA with the directory where that model lies, and set [adapter] from to this one",
                           self->adapter, named);
    free(named);
    return status;
}

/* Reads [model] base from the configuration of the adapter's run, which has all keys. */
static weft_status find_stored(weft_learned *self, const char *run, weft_error *err) {
    static const char *const names[] = {
        [WEFT_BASE_NF4] = "nf4",   [WEFT_BASE_NF4X64] = "nf4x64", [WEFT_BASE_INT8] = "int8", [WEFT_BASE_FP8] = "fp8",
        [WEFT_BASE_BF16] = "bf16", [WEFT_BASE_FP16] = "fp16",     [WEFT_BASE_FP32] = "fp32"};
    weft_model_settings model = {0};
    weft_config *config = NULL;
    char path[WEFT_PATH_BYTES];
    weft_status status = weft_path_join(path, run, "config.ini", err);
    if (status == WEFT_OK) status = weft_config_load(&config, path, NULL, 0, err);
    if (status == WEFT_OK) status = weft_settings_load_model(&model, config, err);
    if (status == WEFT_OK && names[model.base] != NULL) self->stored = strdup(names[model.base]);
    weft_config_free(config);
    return status;
}

weft_status weft_learned_read(weft_learned *out, bool *found, const char *path, weft_error *err) {
    const bool is_run = has_file(path, "config.ini");
    char inner[WEFT_PATH_BYTES], *had = NULL;
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    (void)snprintf(inner, sizeof inner, "%.*s%s", (int)sizeof inner - 16, path, is_run ? "/model" : "");
    *found = has_file(inner, WEFT_ADAPTER_CONFIG);
    if (!*found) return WEFT_OK;
    out->adapter = realpath(inner, NULL);
    if (out->adapter == NULL) return weft_error_set(err, WEFT_E_USER, "%.1000s: %s", inner, strerror(errno));
    status = find_base(out, err);
    if (status == WEFT_OK && is_run) status = find_stored(out, path, err);
    if (status != WEFT_OK) return status;
    status = weft_token_files_pad(&had, out->base, err);
    if (status == WEFT_OK && had == NULL) status = weft_token_files_pad(&out->pad, out->adapter, err);
    if (status == WEFT_OK) status = weft_token_files_more(&out->tokens, out->base, out->adapter, err);
    free(had);
    return status;
}

void weft_learned_clear(weft_learned *self) {
    free(self->adapter);
    free(self->base);
    free(self->stored);
    free(self->tokens);
    free(self->pad);
    memset(self, 0, sizeof *self);
}
