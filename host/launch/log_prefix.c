/* host/launch/log_prefix.c: see log_prefix.h. Replaces stdout and stderr by streams that prefix each line with the
 * rank. Direct writes to the descriptors (crash reports, libraries) are unchanged. */
#include "launch/log_prefix.h"

#include "base/message.h"
#include "plugin/services.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A line is written at once, so that lines of several ranks do not mix. On a terminal it is written immediately,
 * because a progress line has no end. */
typedef struct prefixed {
    int descriptor;
    bool is_inside;  /* inside a line */
    bool buffers;    /* buffers until the end of the line */
    char line[4096]; /* its beginning */
    size_t n;
} prefixed;

static prefixed to_out = {.descriptor = STDOUT_FILENO}, to_err = {.descriptor = STDERR_FILENO};
static char prefix[16];
static FILE *plain; /* stdout before the replacement; NULL: not replaced */

static bool write_all(int descriptor, const char *text, size_t n) {
    while (n > 0) {
        const ssize_t written = write(descriptor, text, n);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return false;
        text += written;
        n -= (size_t)written;
    }
    return true;
}

static bool flush_line(prefixed *self) {
    const size_t n = self->n;
    self->n = 0;
    return write_all(self->descriptor, self->line, n);
}

/* Writes a line or a part of one. */
static bool put_part(prefixed *self, const char *text, size_t n) {
    const bool ends = text[n - 1] == '\n';
    if (!self->is_inside) {
        self->n = strlen(prefix);
        memcpy(self->line, prefix, self->n);
    }
    self->is_inside = !ends;
    if (self->n + n > sizeof self->line) return flush_line(self) && write_all(self->descriptor, text, n);
    memcpy(self->line + self->n, text, n);
    self->n += n;
    return (self->buffers && !ends) || flush_line(self);
}

/* Flushes incomplete lines. */
static void flush_all(void) {
    (void)fflush(stdout);
    (void)fflush(stderr);
    (void)flush_line(&to_out);
    (void)flush_line(&to_err);
}

static ssize_t write_prefixed(void *cookie, const char *text, size_t n) {
    prefixed *self = cookie;
    size_t at = 0;
    while (at < n) {
        const char *end = memchr(text + at, '\n', n - at);
        const size_t length = end == NULL ? n - at : (size_t)(end - text) + 1 - at;
        if (!put_part(self, text + at, length)) return 0; /* the stream records the error */
        at += length;
    }
    return (ssize_t)n;
}

/* ---- the terminal of `--ranks N` ---- */

#define TERMINAL "WEFT_TERMINAL" /* its path */

void weft_log_prefix_offer_terminal(void) {
    char path[256];
    if (isatty(STDOUT_FILENO) == 0 || ttyname_r(STDOUT_FILENO, path, sizeof path) != 0) (void)unsetenv(TERMINAL);
    else (void)setenv(TERMINAL, path, 1);
}

/* Redirects stdout to the offered terminal if it can be opened and is a terminal; otherwise keeps the launcher's. */
static bool take_terminal(void) {
    const char *path = getenv(TERMINAL);
    const int terminal = path == NULL ? -1 : open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
    const bool taken = terminal >= 0 && isatty(terminal) != 0 && dup2(terminal, STDOUT_FILENO) >= 0;
    if (terminal >= 0) (void)close(terminal);
    return taken;
}

/* Opens the stream. NULL: no memory; then lines have no prefix. */
static FILE *open_prefixed(prefixed *self, int mode) {
    const cookie_io_functions_t functions = {.write = write_prefixed};
    FILE *stream = fopencookie(self, "w", functions);
    self->buffers = !weft_terminal_of(self->descriptor).is_one;
    if (stream != NULL) (void)setvbuf(stream, NULL, mode, 0);
    return stream;
}

void weft_log_prefix_set(int32_t rank, bool speaks) {
    FILE *stream = NULL;
    if (prefix[0] != '\0') return;
    (void)snprintf(prefix, sizeof prefix, "[%d] ", (int)rank);
    (void)fflush(stdout);
    if (rank != 0 || !take_terminal()) weft_terminal_deny();
    (void)atexit(flush_all);
    stream = open_prefixed(&to_err, _IOLBF);
    if (stream != NULL) stderr = stream;
    if (!speaks) {
        (void)weft_services_log_level(WEFT_LOG_ERROR);
        (void)freopen("/dev/null", "w", stdout);
        return;
    }
    plain = stdout;
    stream = open_prefixed(&to_out, _IOLBF);
    if (stream != NULL) stdout = stream;
}

FILE *weft_log_prefix_plain(void) {
    return plain == NULL ? stdout : plain;
}
