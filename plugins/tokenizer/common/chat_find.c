/* chat_find.c: finds templates and special tokens in a tokenizer's files, as transformers 5.24 does: template files
 * take precedence over tokenizer_config.json. */
#include "chat.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_TEMPLATE = 4 << 20, PATH_BYTES = 4096 };

#define ADDITIONAL "additional_chat_templates"

static weft_status no_memory(weft_error *err) {
    return weft_error_set(err, WEFT_E_MEMORY, "no memory for chat templates");
}

static weft_status add_template(json_t **list, const char *name, const char *from, const char *text, size_t n,
                                weft_error *err) {
    json_t *source = json_stringn(text, n); /* NULL: not UTF-8; reported at its use */
    json_t *one =
        json_pack("{s:s, s:s, s:o}", "name", name, "from", from, "template", source == NULL ? json_null() : source);
    if (*list == NULL) *list = json_array();
    return one != NULL && json_array_append_new(*list, one) == 0 ? WEFT_OK : no_memory(err);
}

/* Reads a file. *source stays NULL with WEFT_OK if the file does not exist. */
static weft_status read_file(char **source, size_t *n, const weft_host *host, const char *path, weft_error *err) {
    struct stat about;
    size_t done = 0;
    weft_status status = WEFT_OK;
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0 && errno == ENOENT) return WEFT_OK;
    if (file < 0 || fstat(file, &about) != 0)
        status = weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be read: %s.", path, strerror(errno));
    else if (!S_ISREG(about.st_mode) || about.st_size > MOST_TEMPLATE)
        status = weft_error_set(err, WEFT_E_DATA, "%s: is not a regular file of at most 4 MiB.", path);
    else {
        *source = host->alloc(host, (size_t)about.st_size + 1, 16);
        if (*source == NULL) status = no_memory(err);
    }
    while (status == WEFT_OK && done < (size_t)about.st_size) {
        const ssize_t got = read(file, *source + done, (size_t)about.st_size - done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) status = weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be read completely.", path);
        else done += (size_t)got;
    }
    *n = done;
    if (file >= 0) (void)close(file);
    return status;
}

static weft_status add_file(json_t **list, const char *name, const weft_host *host, const char *directory,
                            const char *file, weft_error *err) {
    char path[PATH_BYTES], *source = NULL;
    size_t n = 0;
    weft_status status = WEFT_OK;
    if (snprintf(path, sizeof path, "%s/%s", directory, file) >= PATH_BYTES)
        return weft_error_set(err, WEFT_E_USER, "%s/%s: the path is too long.", directory, file);
    status = read_file(&source, &n, host, path, err);
    if (status == WEFT_OK && source != NULL) status = add_template(list, name, path, source, n, err);
    host->release(host, source);
    return status;
}

static int is_template(const struct dirent *entry) {
    const size_t n = strlen(entry->d_name);
    return n > strlen(".jinja") && strcmp(entry->d_name + n - strlen(".jinja"), ".jinja") == 0;
}

static weft_status add_directory(json_t **list, json_t **files, const weft_host *host, const char *directory,
                                 weft_error *err) {
    char path[PATH_BYTES];
    struct dirent **found = NULL;
    weft_status status = WEFT_OK;
    int n = 0;
    if (snprintf(path, sizeof path, "%s/%s", directory, ADDITIONAL) >= PATH_BYTES) return WEFT_OK;
    n = scandir(path, &found, is_template, alphasort);
    if (n < 0 && errno != ENOENT && errno != ENOTDIR)
        return weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be read: %s.", path, strerror(errno));
    for (int i = 0; i < n; i++) {
        char file[sizeof ADDITIONAL + sizeof found[i]->d_name + 1], name[sizeof found[i]->d_name];
        (void)snprintf(file, sizeof file, ADDITIONAL "/%s", found[i]->d_name);
        (void)snprintf(name, sizeof name, "%.*s", (int)(strlen(found[i]->d_name) - strlen(".jinja")), found[i]->d_name);
        if (status == WEFT_OK) status = add_file(list, name, host, directory, file, err);
        if (*files == NULL) *files = json_array();
        if (status == WEFT_OK && json_array_append_new(*files, json_string(file)) != 0) status = no_memory(err);
        free(found[i]);
    }
    free(found);
    return status;
}

/* Adds chat_template of tokenizer_config.json: a string, a list of {"name", "template"}, or an object of strings by
 * name. */
static weft_status add_config(json_t **list, const char *directory, const json_t *config, weft_error *err) {
    json_t *given = json_object_get(config, "chat_template"), *value = NULL;
    const char *key = NULL;
    char from[PATH_BYTES];
    weft_status status = WEFT_OK;
    (void)snprintf(from, sizeof from, "%.4000s/tokenizer_config.json: chat_template", directory);
    if (json_is_string(given))
        return add_template(list, "default", from, json_string_value(given), json_string_length(given), err);
    for (size_t i = 0; i < json_array_size(given) && status == WEFT_OK; i++) {
        const json_t *one = json_array_get(given, i), *text = json_object_get(one, "template");
        key = json_string_value(json_object_get(one, "name"));
        if (key == NULL || !json_is_string(text))
            return weft_error_set(err, WEFT_E_DATA, "%s: entry %zu needs \"name\" and \"template\", two strings.", from,
                                  i + 1);
        status = add_template(list, key, from, json_string_value(text), json_string_length(text), err);
    }
    json_object_foreach(given, key, value) {
        if (status == WEFT_OK && json_is_string(value))
            status = add_template(list, key, from, json_string_value(value), json_string_length(value), err);
    }
    return status;
}

weft_status chat_find(json_t **list, json_t **files, const weft_host *host, const char *directory, const json_t *config,
                      weft_error *err) {
    weft_status status = WEFT_OK;
    *list = *files = NULL;
    status = add_file(list, "default", host, directory, "chat_template.jinja", err);
    if (status == WEFT_OK) status = add_directory(list, files, host, directory, err);
    if (status == WEFT_OK && *list == NULL) status = add_config(list, directory, config, err);
    if (status == WEFT_OK) return WEFT_OK;
    json_decref(*list);
    json_decref(*files);
    *list = *files = NULL;
    return status;
}

/* Adds a token: a string, or an object with the string as `content`. */
static bool put_token(json_t *out, const char *key, json_t *value) {
    if (json_is_object(value)) value = json_object_get(value, "content");
    return !json_is_string(value) || json_object_set(out, key, value) == 0;
}

static bool put_tokens(json_t *out, const json_t *from) {
    static const char *const nested[] = {"model_specific_special_tokens", "extra_special_tokens"};
    json_t *value = NULL;
    const char *key = NULL;
    bool fits = true;
    json_object_foreach((json_t *)(uintptr_t)from, key, value) {
        const size_t n = strlen(key);
        if (n > strlen("_token") && strcmp(key + n - strlen("_token"), "_token") == 0)
            fits = fits && put_token(out, key, value);
    }
    for (size_t i = 0; i < sizeof nested / sizeof *nested; i++) {
        json_object_foreach(json_object_get(from, nested[i]), key, value) {
            fits = fits && put_token(out, key, value);
        }
    }
    return fits;
}

/* transformers reads special_tokens_map.json only if tokenizer_config.json does not list the added tokens. */
json_t *chat_special_tokens(const json_t *config, const json_t *map) {
    json_t *out = json_object();
    bool fits = out != NULL && put_tokens(out, config);
    if (json_object_get(config, "added_tokens_decoder") == NULL) fits = fits && put_tokens(out, map);
    if (fits) return out;
    json_decref(out);
    return NULL;
}
