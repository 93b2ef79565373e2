/* host/base/text.c: reads whole small files. */
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static weft_status refuse_file(const char *path, const char *what, weft_error *err) {
    return weft_error_set(err, errno == ENOENT ? WEFT_E_USER : WEFT_E_SYSTEM, "%s: cannot be %s: %s", path, what,
                          strerror(errno));
}

/* n: bytes that the file has. Fewer are there if it is being cut at this moment. */
static weft_status read_whole_file(int file, char *text, size_t n, const char *path, weft_error *err) {
    size_t done = 0;
    while (done < n) {
        const ssize_t got = read(file, text + done, n - done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return refuse_file(path, "read", err);
        if (got == 0) return weft_error_set(err, WEFT_E_SYSTEM, "%s: became shorter while it was read", path);
        done += (size_t)got;
    }
    text[n] = '\0';
    return WEFT_OK;
}

weft_status weft_text_read(char **text, size_t *bytes, const char *path, size_t limit, weft_error *err) {
    weft_status status = WEFT_OK;
    struct stat about;
    char *buffer = NULL;
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is refused, not waited for */
    if (file < 0) return refuse_file(path, "opened", err);
    if (fstat(file, &about) != 0) {
        status = refuse_file(path, "examined", err);
    } else if (!S_ISREG(about.st_mode)) {
        status = weft_error_set(err, WEFT_E_USER, "%s: is not a file: a pipe or a device cannot be read here", path);
    } else if ((uint64_t)about.st_size > limit) {
        status = weft_error_set(err, WEFT_E_DATA, "%s: has %lld bytes, more than the %zu that such a file may have",
                                path, (long long)about.st_size, limit);
    } else {
        buffer = malloc((size_t)about.st_size + 1);
        if (buffer == NULL)
            status =
                weft_error_set(err, WEFT_E_MEMORY, "%s: no memory for its %lld bytes", path, (long long)about.st_size);
        else status = read_whole_file(file, buffer, (size_t)about.st_size, path, err);
    }
    (void)close(file);
    if (status != WEFT_OK) {
        free(buffer);
        return status;
    }
    *text = buffer;
    *bytes = (size_t)about.st_size;
    return WEFT_OK;
}
