/* host/command/directory.c: see directory.h. */
#include "command/directory.h"

#include <jansson.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

bool weft_is_directory(const char *path) {
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

static bool directory_has(const char *path, const char *name) {
    char *whole = NULL;
    bool is_there = asprintf(&whole, "%s/%s", path, name) >= 0;
    if (!is_there) return false;
    is_there = access(whole, F_OK) == 0;
    free(whole);
    return is_there;
}

static weft_status no_memory(weft_error *err) {
    return weft_error_set(err, WEFT_E_MEMORY, "no memory for the arguments");
}

/* key=value, or key=value/rest where there is a rest. */
static weft_status say(weft_directory *self, const char *key, const char *value, const char *rest, weft_error *err) {
    char *text = NULL;
    if (asprintf(&text, "%s=%s%s%s", key, value, *rest != '\0' ? "/" : "", rest) < 0) return no_memory(err);
    self->says[self->n++] = text;
    return WEFT_OK;
}

/* A model plugin has the name of the family that it computes. A file that names none is left to be judged by who reads
 * it: then [model] plugin is missed. */
static weft_status say_family(weft_directory *self, const char *directory, weft_error *err) {
    char *path = NULL;
    json_t *config = NULL;
    const char *family = NULL;
    weft_status status = WEFT_OK;
    if (asprintf(&path, "%s/config.json", directory) < 0) return no_memory(err);
    config = json_load_file(path, 0, NULL);
    family = json_string_value(json_object_get(config, "model_type"));
    if (family != NULL) status = say(self, "model.plugin", family, "", err);
    json_decref(config);
    free(path);
    return status;
}

/* Its configuration with what it has made in the place of what it began with. */
static weft_status read_run(weft_directory *out, const char *path, weft_error *err) {
    if (!directory_has(path, "model/config.json"))
        return weft_error_set(err, WEFT_E_USER,
                              "%s is a run that has not come to its end: there is no model/ in it yet. Give one of its "
                              "checkpoints, %s/checkpoints/step-N",
                              path, path);
    if (asprintf(&out->ini, "%s/config.ini", path) < 0) {
        out->ini = NULL;
        return no_memory(err);
    }
    if (say(out, "model.start", "weights", "", err) != WEFT_OK) return WEFT_E_MEMORY;
    return say(out, "model.path", path, "model", err);
}

weft_status weft_directory_read(weft_directory *out, const char *path, bool has_length, weft_error *err) {
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    if (directory_has(path, "config.ini")) return read_run(out, path, err);
    if (!directory_has(path, "config.json"))
        return weft_error_set(err, WEFT_E_USER,
                              "%s is neither a model's directory, which has a config.json, nor a run's, which has a "
                              "config.ini",
                              path);
    status = say(out, "model.path", path, "", err);
    if (status == WEFT_OK && !has_length) status = say(out, "train.epochs", "1", "", err);
    return status == WEFT_OK ? say_family(out, path, err) : status;
}

void weft_directory_clear(weft_directory *self) {
    free(self->ini);
    for (size_t i = 0; i < self->n; i++) free(self->says[i]);
    memset(self, 0, sizeof *self);
}
