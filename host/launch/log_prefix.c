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

static bool flush_line(prefixed *self) {
    size_t done = 0;
    bool is_written = true;
    while (done < self->n && is_written) {
        const ssize_t n = write(self->descriptor, self->line + done, self->n - done);
        is_written = n > 0 || (n < 0 && errno == EINTR);
        if (n > 0) done += (size_t)n;
    }
    self->n = 0;
    return is_written;
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
    bool is_written = true; /* else the stream records the error */
    for (size_t i = 0; i < n && is_written; i++) {
        if (!self->is_inside) self->n = (size_t)snprintf(self->line, sizeof self->line, "%s", prefix);
        self->line[self->n++] = text[i];
        self->is_inside = text[i] != '\n';
        if (!self->is_inside || self->n == sizeof self->line) is_written = flush_line(self);
    }
    return is_written && (self->buffers || flush_line(self)) ? (ssize_t)n : 0;
}

/* ---- the terminal of `--ranks N` ---- */

#define TERMINAL "WEFT_TERMINAL" /* its path */

void weft_log_prefix_offer_terminal(void) {
    char path[256];
    if (isatty(STDOUT_FILENO) == 0 || ttyname_r(STDOUT_FILENO, path, sizeof path) != 0) (void)unsetenv(TERMINAL);
    else (void)setenv(TERMINAL, path, 1);
}

/* Redirects stdout to the offered terminal, if there is one. */
static bool take_terminal(void) {
    const char *path = getenv(TERMINAL);
    const int terminal = path == NULL ? -1 : open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
    const bool taken = terminal >= 0 && isatty(terminal) != 0 && dup2(terminal, STDOUT_FILENO) >= 0;
    if (terminal >= 0) (void)close(terminal);
    return taken;
}

/* Replaces the stream. Without memory its lines have no prefix. */
static void open_prefixed(prefixed *self, FILE **stream) {
    FILE *opened = fopencookie(self, "w", (cookie_io_functions_t){.write = write_prefixed});
    self->buffers = !weft_terminal_of(self->descriptor).is_one;
    if (opened == NULL) return;
    (void)setvbuf(opened, NULL, _IOLBF, 0);
    *stream = opened;
}

void weft_log_prefix_set(int32_t rank, bool speaks) {
    if (prefix[0] != '\0') return;
    (void)snprintf(prefix, sizeof prefix, "[%d] ", (int)rank);
    (void)fflush(stdout);
    if (rank != 0 || !take_terminal()) weft_terminal_deny();
    (void)atexit(flush_all);
    open_prefixed(&to_err, &stderr);
    if (!speaks) {
        (void)weft_services_log_level(WEFT_LOG_ERROR);
        (void)freopen("/dev/null", "w", stdout);
        return;
    }
    plain = stdout;
    open_prefixed(&to_out, &stdout);
}

FILE *weft_log_prefix_plain(void) {
    return plain == NULL ? stdout : plain;
}
