/* host/program/family.c: see family.h. */
#include "program/family.h"

#include "adapter/origin.h"
#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum { LONGEST_ID = 64 };

/* Letters, digits and signs that lead to no other directory. */
static bool could_be_id(const char *name) {
    const size_t n = strlen(name);
    return n > 0 && n <= LONGEST_ID &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == n;
}

/* Returns the object of a file in the directory, which the caller releases; NULL: there is none. */
static json_t *read_object(const char *directory, const char *file) {
    char *path = NULL;
    json_t *object = NULL;
    if (asprintf(&path, "%s/%s", directory, file) < 0) return NULL;
    (void)weft_json_read(&object, path, 0, NULL);
    free(path);
    return object;
}

/* A text of a file in the directory that could be an id, to be freed; NULL: there is none. of_peft: PREFIX_TUNING is
 * prefix-tuning. */
static char *read_id(const char *directory, const char *file, const char *key, bool of_peft) {
    json_t *object = read_object(directory, file);
    const char *name = json_string_value(json_object_get(object, key));
    char *id = name != NULL ? strdup(name) : NULL;
    for (char *at = id; of_peft && at != NULL && *at != '\0'; at++)
        *at = *at == '_' ? '-' : (char)tolower((unsigned char)*at);
    if (id != NULL && !could_be_id(id)) {
        free(id);
        id = NULL;
    }
    json_decref(object);
    return id;
}

char *weft_family_read(const char *directory) {
    return read_id(directory, "config.json", "model_type", false);
}

/* "lora, mlp-head", as weft_adapter.json lists them, to be freed; NULL: it has one alone, or something else. */
static char *read_stack(const char *directory) {
    weft_adapter_origin origin;
    char *list = NULL;
    if (weft_origin_load(&origin, directory, NULL) != WEFT_OK) return NULL;
    for (int32_t i = 0; origin.n_all > 1 && i < origin.n_all; i++) {
        char *longer = NULL;
        const bool good = could_be_id(origin.all[i]);
        if (!good || asprintf(&longer, "%s%s%s", i > 0 ? list : "", i > 0 ? ", " : "", origin.all[i]) < 0)
            longer = NULL;
        free(list);
        list = longer;
        if (list == NULL) return NULL;
    }
    return list;
}

/* What PEFT calls otherwise than the plugin that computes it, whose id is no longer. */
static void use_own_name(char *id) {
    static const struct {
        const char *peft, *own;
    } names[] = {{"prefix-tuning", "prefix"}, {"adaption-prompt", "llama-adapter"}};
    for (size_t i = 0; id != NULL && i < sizeof names / sizeof *names; i++)
        if (strcmp(id, names[i].peft) == 0) memcpy(id, names[i].own, strlen(names[i].own) + 1);
}

char *weft_family_whole_modules(const char *directory) {
    json_t *config = read_object(directory, "adapter_config.json");
    const json_t *list = json_object_get(config, "modules_to_save");
    char *all = NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        char *longer = NULL;
        if (name == NULL || name[0] == '\0') continue;
        if (asprintf(&longer, "%s%s*%s.*", all == NULL ? "" : all, all == NULL ? "" : ", ", name) < 0) break;
        free(all);
        all = longer;
    }
    json_decref(config);
    return all;
}

void weft_family_find_adapter(weft_run *run) {
    weft_adapter_settings settings;
    char from[4096] = "";
    if (weft_config_has_key(run->config, "adapter", "plugin")) return;
    if (weft_settings_load_adapter(&settings, from, run->config, NULL) != WEFT_OK || from[0] == '\0') return;
    run->adapter = read_stack(from);
    if (run->adapter == NULL) run->adapter = read_id(from, "weft_adapter.json", "plugin", false);
    if (run->adapter == NULL) run->adapter = read_id(from, "adapter_config.json", "peft_type", true);
    use_own_name(run->adapter);
}

weft_status weft_family_check(const char *directory, const char *file, weft_error *err) {
    char *path = NULL;
    json_t *object = NULL;
    weft_status status = WEFT_OK;
    if (asprintf(&path, "%s/%s", directory, file) < 0) return weft_error_set(err, WEFT_E_MEMORY, "no memory");
    status = weft_json_read(&object, path, 0, err);
    json_decref(object);
    free(path);
    return status;
}

/* 0, or the error of looking at the directory's config.json. */
static int look_at_config(const char *directory) {
    char *path = NULL;
    int error = 0;
    if (asprintf(&path, "%s/config.json", directory) < 0) return ENOMEM;
    if (access(path, R_OK) != 0) error = errno;
    free(path);
    return error;
}

/* What is wrong with the section is said when its keys are judged. */
void weft_family_find(weft_run *run) {
    if (weft_config_has_key(run->config, "model", "plugin")) return;
    if (weft_settings_load_model(&run->settings.model, run->config, NULL) != WEFT_OK) return;
    run->family = weft_family_read(run->settings.model.path);
}

weft_status weft_family_missing(const weft_run *run, weft_error *err) {
    weft_status status = weft_run_check_directory(run, "model", run->settings.model.path, err);
    int error = 0;
    if (status != WEFT_OK) return status;
    error = look_at_config(run->settings.model.path);
    if (error != 0 && error != ENOENT)
        return weft_config_reject(run->config, "model", "path", err, "has a config.json that cannot be read: %s",
                                  strerror(error));
    if (error == ENOENT)
        return weft_config_reject(run->config, "model", "path", err,
                                  "has no config.json: give the directory of a model as it comes from Hugging Face");
    status = weft_family_check(run->settings.model.path, "config.json", err);
    if (status != WEFT_OK) return status;
    return weft_config_reject(
        run->config, "model", "plugin", err,
        "is missing, and %s/config.json has no model_type that could be its id: name one of those "
        "that weft plugins list has",
        run->settings.model.path);
}
