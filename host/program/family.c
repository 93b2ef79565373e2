/* host/program/family.c: infers the model plugin and adapters from directories if the configuration names none. */
#include "program/sections.h"

#include "adapter/stack.h"
#include "base/alloc.h"
#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum { LONGEST_ID = 64 };

/* True for letters, digits, - and _: the name cannot leave the directory. */
static bool could_be_id(const char *name) {
    const size_t n = strlen(name);
    return n > 0 && n <= LONGEST_ID &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == n;
}

/* Sets *out to the object of a file in the directory, which the caller releases; NULL: none. */
static weft_status read_object(json_t **out, const char *directory, const char *file, weft_error *err) {
    char *path = weft_text_of("%s/%s", directory, file);
    const weft_status status = weft_json_read(out, path, 0, err);
    free(path);
    return status;
}

/* Returns a string of a JSON file that is a valid id, which the caller frees; NULL: none. of_peft: converts
 * PREFIX_TUNING to prefix-tuning. */
static char *read_id(const char *directory, const char *file, const char *key, bool of_peft) {
    json_t *object = NULL;
    (void)read_object(&object, directory, file, NULL);
    const char *name = json_string_value(json_object_get(object, key));
    char *id = name != NULL ? weft_strdup(name) : NULL;
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

/* Appends text to a list, which may be NULL, after ", ". */
static char *append(char *list, const char *before, const char *text, const char *after) {
    char *longer = weft_text_of("%s%s%s%s%s", list == NULL ? "" : list, list == NULL ? "" : ", ", before, text, after);
    free(list);
    return longer;
}

/* Returns the list of weft_adapter.json, "lora, mlp-head", which the caller frees; NULL: fewer than two valid ids. */
static char *read_stack(const char *directory) {
    weft_adapter_origin origin;
    char *list = NULL;
    if (weft_origin_load(&origin, directory, NULL) != WEFT_OK) return NULL;
    for (int32_t i = 0; i < origin.n_all; i++)
        if (!could_be_id(origin.all[i])) return NULL;
    for (int32_t i = 0; origin.n_all > 1 && i < origin.n_all; i++) list = append(list, "", origin.all[i], "");
    return list;
}

char *weft_family_full_modules(const char *directory) {
    json_t *config = NULL;
    (void)read_object(&config, directory, "adapter_config.json", NULL);
    const json_t *list = json_object_get(config, "modules_to_save");
    char *all = NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (name != NULL && name[0] != '\0') all = append(all, "*", name, ".*");
    }
    json_decref(config);
    return all;
}

void weft_family_find_adapter(weft_run *run) {
    static const struct {
        const char *peft, *own; /* the plugin's id, which is not longer */
    } names[] = {{"prefix-tuning", "prefix"}, {"adaption-prompt", "llama-adapter"}};
    weft_settings settings;
    const char *from = settings.adapter_from;
    if (weft_config_has_key(run->config, "adapter", "plugin")) return;
    if (weft_settings_load_section(&settings, "adapter", run->config, NULL) != WEFT_OK || from[0] == '\0') return;
    run->adapter = read_stack(from);
    if (run->adapter == NULL) run->adapter = read_id(from, "weft_adapter.json", "plugin", false);
    if (run->adapter == NULL) run->adapter = read_id(from, "adapter_config.json", "peft_type", true);
    for (size_t i = 0; run->adapter != NULL && i < sizeof names / sizeof *names; i++)
        if (strcmp(run->adapter, names[i].peft) == 0) memcpy(run->adapter, names[i].own, strlen(names[i].own) + 1);
}

weft_status weft_family_check(const char *directory, const char *file, weft_error *err) {
    json_t *object = NULL;
    const weft_status status = read_object(&object, directory, file, err);
    json_decref(object);
    return status;
}

weft_status weft_family_missing(const weft_run *run, weft_error *err) {
    weft_status status = weft_run_check_directory(run, "model", run->settings.model.path, err);
    char *config = NULL;
    int error = 0;
    if (status != WEFT_OK) return status;
    config = weft_text_of("%s/config.json", run->settings.model.path);
    if (access(config, R_OK) != 0) error = errno;
    free(config);
    if (error != 0 && error != ENOENT)
        return weft_config_reject(run->config, "model", "path", err, "has a config.json that cannot be read: %s",
                                  strerror(error));
    if (error == ENOENT)
        return weft_config_reject(run->config, "model", "path", err,
                                  "has no config.json: set it to the directory of a model from Hugging Face");
    status = weft_family_check(run->settings.model.path, "config.json", err);
    if (status != WEFT_OK) return status;
    return weft_config_reject(
        run->config, "model", "plugin", err,
        "is missing, and %s/config.json has no model_type that could be its id: name one of those "
        "that weft plugins list has",
        run->settings.model.path);
}
