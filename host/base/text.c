/* host/base/text.c: reads whole small files, as text and as JSON. */
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

weft_status weft_bytes_put(weft_bytes *bytes, const void *data, size_t n) {
    if (bytes->n + n > bytes->capacity) {
        const size_t capacity = (bytes->n + n) * 2;
        char *grown = realloc(bytes->data, capacity);
        if (grown == NULL) return WEFT_E_MEMORY;
        bytes->data = grown;
        bytes->capacity = capacity;
    }
    if (n > 0) memcpy(bytes->data + bytes->n, data, n);
    bytes->n += n;
    return WEFT_OK;
}

weft_status weft_bytes_put_ids(void *context, const int32_t *ids, size_t n) {
    return weft_bytes_put(context, ids, n * sizeof *ids);
}

weft_status weft_bytes_put_text(void *context, const char *text, size_t n) {
    return weft_bytes_put(context, text, n);
}

void weft_bytes_free(weft_bytes *bytes) {
    const weft_bytes empty = {0};
    free(bytes->data);
    *bytes = empty;
}

void weft_words_append(char *text, size_t size, const char *format, ...) {
    const size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text + used, size - used, format, args);
    va_end(args);
}

bool weft_words_end(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Returns the number of continuation bytes after the first byte of a UTF-8 character. */
static int32_t following(unsigned char lead) {
    return lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
}

/* C1 controls are two bytes in UTF-8, 0xC2 and 0x80 to 0x9F. To a terminal without UTF-8 they are one byte, the second
 * of these: there they are only allowed as part of a longer character. */
void weft_words_sanitize(char *text) {
    int32_t left = 0; /* remaining bytes of the current character */
    for (unsigned char *at = (unsigned char *)text; *at != '\0'; at++) {
        const bool goes_on = *at >= 0x80 && *at < 0xC0;
        if ((*at < 0x20 && *at != '\n' && *at != '\t') || *at == 0x7F) *at = ' ';
        if (at[0] == 0xC2 && at[1] >= 0x80 && at[1] <= 0x9F) at[0] = at[1] = ' ';
        if (goes_on && left == 0 && *at <= 0x9F) *at = ' ';
        left = goes_on && left > 0 ? left - 1 : following(*at);
    }
}

enum { JSON_LIMIT = 100 << 20 };

static weft_status refuse_file(const char *path, const char *what, weft_error *err) {
    return weft_error_set(err, errno == ENOENT ? WEFT_E_USER : WEFT_E_SYSTEM, "%s: cannot be %s: %s", path, what,
                          strerror(errno));
}

weft_status weft_text_read(char **text, size_t *bytes, const char *path, size_t limit, weft_error *err) {
    weft_status status = WEFT_OK;
    struct stat about;
    char *buffer = NULL;
    size_t n = 0, done = 0;
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* rejects a pipe instead of waiting for it */
    if (file < 0) return refuse_file(path, "opened", err);
    if (fstat(file, &about) != 0) {
        status = refuse_file(path, "examined", err);
    } else if (!S_ISREG(about.st_mode)) {
        status = weft_error_set(err, WEFT_E_USER,
                                "%s: is not a file: a directory, a pipe or a device cannot be read here", path);
    } else if ((uint64_t)about.st_size > limit) {
        status = weft_error_set(err, WEFT_E_DATA, "%s: has %lld bytes. Allowed: at most %zu", path,
                                (long long)about.st_size, limit);
    } else {
        n = (size_t)about.st_size;
        buffer = malloc(n + 1);
        if (buffer == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "%s: no memory for its %zu bytes", path, n);
    }
    while (done < n && status == WEFT_OK) {
        const ssize_t got = read(file, buffer + done, n - done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) status = refuse_file(path, "read", err);
        if (got == 0) status = weft_error_set(err, WEFT_E_SYSTEM, "%s: became shorter while it was read", path);
        done += got > 0 ? (size_t)got : 0;
    }
    (void)close(file);
    if (status != WEFT_OK) {
        free(buffer);
        return status;
    }
    buffer[n] = '\0';
    *text = buffer;
    *bytes = n;
    return WEFT_OK;
}

/* Returns a reason why the text is not valid JSON, for cases that jansson reports badly or accepts; NULL: valid. */
static const char *find_fault(const char *text, size_t bytes, json_error_t *why) {
    static const char mark[] = "\xEF\xBB\xBF";
    const char *nul = memchr(text, 0, bytes), *line = text;
    why->line = why->column = 1;
    if (bytes >= 3 && memcmp(text, mark, 3) == 0)
        return "it begins with a byte order mark (EF BB BF). Fix: save it as UTF-8 without the mark";
    if (nul == NULL) return NULL;
    for (const char *at = text; at < nul; at++) {
        if (*at != '\n') continue;
        why->line++;
        line = at + 1;
    }
    why->column = (int)(nul - line) + 1;
    return "it has a NUL byte";
}

weft_status weft_json_parse(json_t **out, const char *text, size_t bytes, size_t flags, const char *path,
                            weft_error *err) {
    json_error_t why;
    const char *fault = find_fault(text, bytes, &why);
    *out = fault != NULL ? NULL : json_loadb(text, bytes, flags | JSON_REJECT_DUPLICATES, &why);
    if (json_is_object(*out)) return WEFT_OK;
    if (*out == NULL)
        return weft_error_set(err, WEFT_E_DATA, "%s:%d:%d: is not JSON: %s", path, why.line, why.column,
                              fault != NULL ? fault : why.text);
    json_decref(*out);
    *out = NULL;
    return weft_error_set(err, WEFT_E_DATA, "%s:1:1: is not a JSON object of keys and values", path);
}

weft_status weft_json_read(json_t **out, const char *path, size_t flags, weft_error *err) {
    char *text = NULL;
    size_t bytes = 0;
    weft_status status = weft_text_read(&text, &bytes, path, JSON_LIMIT, err);
    *out = NULL;
    if (status == WEFT_OK) status = weft_json_parse(out, text, bytes, flags, path, err);
    free(text);
    return status;
}
