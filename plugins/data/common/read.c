/* read.c: a file as bytes. It is read and not mapped: a map ends the process with a signal where another program
 * makes the file shorter meanwhile. */
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

/* Opens the file and says how long it is. */
static weft_status open_file(int *file, input *source, weft_error *err) {
    struct stat info;
    *file = open(source->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without a writer is refused too */
    if (*file < 0)
        return weft_error_set(err, WEFT_E_USER, "[data] %s = %s cannot be read: %s", source->key, source->path,
                              strerror(errno));
    if (fstat(*file, &info) != 0 || !S_ISREG(info.st_mode))
        return weft_error_set(err, WEFT_E_USER, "[data] %s = %s is not a file: give %s", source->key, source->path,
                              source->want);
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
                                  "[data] %s = %s ends at byte %zu, though it had %zu when it was opened; another "
                                  "program has changed it: start again when it is whole",
                                  source->key, source->path, done, source->n);
        done += (size_t)n;
    }
    return WEFT_OK;
}

/* The mark at its begin says so. */
static weft_status judge_encoding(const char *bytes, const input *source, weft_error *err) {
    if (source->n < 2 || (memcmp(bytes, "\xFF\xFE", 2) != 0 && memcmp(bytes, "\xFE\xFF", 2) != 0)) return WEFT_OK;
    return weft_error_set(err, WEFT_E_DATA,
                          "[data] %s = %s is UTF-16: it is read as UTF-8; iconv -f UTF-16 -t UTF-8 makes it that",
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
