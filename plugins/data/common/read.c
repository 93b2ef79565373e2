/* read.c: reads a file into memory. It does not map the file: if another program truncates a mapped file, access raises
 * a fatal signal. */
#include "rows.h"

#include <errno.h>
#include <fcntl.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct input {
    const char *key, *path, *want;
    size_t n;
} input;

/* Opens the file and sets its size. */
static weft_status open_file(int *file, input *source, weft_error *err) {
    struct stat info;
    *file = open(source->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* does not block on a pipe, which is an error */
    if (*file < 0)
        return weft_error_set(err, WEFT_E_USER, "[data] %s = %s cannot be read: %s", source->key, source->path,
                              strerror(errno));
    if (fstat(*file, &info) != 0 || !S_ISREG(info.st_mode))
        return weft_error_set(err, WEFT_E_USER, "[data] %s = %s is not a regular file. Allowed: %s", source->key,
                              source->path, source->want);
    if (info.st_size == 0)
        return weft_error_set(err, WEFT_E_DATA, "[data] %s = %s is an empty file", source->key, source->path);
    source->n = (size_t)info.st_size;
    return WEFT_OK;
}

static weft_status fill(char *bytes, const input *source, int file, weft_error *err) {
    for (size_t done = 0; done < source->n;) {
        const ssize_t n = pread(file, bytes + done, source->n - done, (off_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return weft_error_set(err, WEFT_E_SYSTEM, "[data] %s = %s cannot be read at byte %zu: %s", source->key,
                                  source->path, done, strerror(errno));
        if (n == 0)
            return weft_error_set(err, WEFT_E_DATA,
                                  "[data] %s = %s ends at byte %zu but had %zu bytes when opened: another "
                                  "program changes it. Fix: start again when the file is complete",
                                  source->key, source->path, done, source->n);
        done += (size_t)n;
    }
    return WEFT_OK;
}

/* Fails for UTF-16, recognized by its byte order mark. */
static weft_status judge_encoding(const char *bytes, const input *source, weft_error *err) {
    if (source->n < 2 || (memcmp(bytes, "\xFF\xFE", 2) != 0 && memcmp(bytes, "\xFE\xFF", 2) != 0)) return WEFT_OK;
    return weft_error_set(err, WEFT_E_DATA,
                          "[data] %s = %s is UTF-16. Allowed: UTF-8. Fix: convert it by iconv -f UTF-16 -t UTF-8",
                          source->key, source->path);
}

int data_name_ends(const char *path, const char *end) {
    const size_t n = strlen(path), m = strlen(end);
    return n >= m && strcasecmp(path + n - m, end) == 0;
}

weft_status data_file_read(data_array *out, const weft_host *host, const char *key, const char *path, const char *want,
                           weft_error *err) {
    input source = {key, path, want, 0};
    int file = -1;
    data_array all = {0};
    weft_status status = open_file(&file, &source, err);
    if (status == WEFT_OK) {
        status = data_array_reserve(&all, host, source.n, 1);
        if (status == WEFT_OK) status = fill(all.data, &source, file, err);
        else (void)weft_error_set(err, WEFT_E_MEMORY, "no memory to read the %zu bytes of %s", source.n, path);
    }
    if (file >= 0) (void)close(file);
    if (status == WEFT_OK) status = judge_encoding(all.data, &source, err);
    all.n = source.n;
    if (status == WEFT_OK) *out = all;
    else data_array_free(&all, host);
    return status;
}
