/* chat_find.c: the template among a tokenizer's files, as transformers finds it: chat_template.jinja before
 * tokenizer_config.json, and of several the one named default. */
#include "chat.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_TEMPLATE = 4 << 20 };

static weft_status read_file(char **source, size_t *n, const weft_host *host, const char *path, weft_error *err) {
    struct stat about;
    size_t done = 0;
    weft_status status = WEFT_OK;
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0 && errno == ENOENT) return WEFT_OK;
    if (file < 0 || fstat(file, &about) != 0)
        status = weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be read: %s.", path, strerror(errno));
    else if (!S_ISREG(about.st_mode) || about.st_size > MOST_TEMPLATE)
        status = weft_error_set(err, WEFT_E_DATA, "%s: is not a file of at most 4 MiB.", path);
    else {
        *source = host->alloc(host, (size_t)about.st_size + 1, 16);
        if (*source == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "no memory for %s", path);
    }
    while (status == WEFT_OK && done < (size_t)about.st_size) {
        const ssize_t got = read(file, *source + done, (size_t)about.st_size - done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) status = weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be read whole.", path);
        else done += (size_t)got;
    }
    *n = done;
    if (file >= 0) (void)close(file);
    return status;
}

/* A text, or of a list of {"name", "template"} the one named default. */
static const json_t *chosen(const json_t *given) {
    if (json_is_string(given)) return given;
    for (size_t i = 0; i < json_array_size(given); i++) {
        const json_t *one = json_array_get(given, i);
        const char *name = json_string_value(json_object_get(one, "name"));
        if (name != NULL && strcmp(name, "default") == 0) return json_object_get(one, "template");
    }
    return NULL;
}

weft_status chat_find(char **source, size_t *n, char *name, size_t size, const weft_host *host, const char *directory,
                      const json_t *config, weft_error *err) {
    const json_t *text = chosen(json_object_get(config, "chat_template"));
    weft_status status = WEFT_OK;
    (void)snprintf(name, size, "%s/chat_template.jinja", directory);
    status = read_file(source, n, host, name, err);
    if (status != WEFT_OK || *source != NULL || !json_is_string(text)) return status;
    (void)snprintf(name, size, "%s/tokenizer_config.json: chat_template", directory);
    *n = json_string_length(text);
    *source = host->alloc(host, *n + 1, 16);
    if (*source == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a chat template");
    if (*n > 0) memcpy(*source, json_string_value(text), *n);
    return WEFT_OK;
}
