/* host/launch/log_prefix.c: see log_prefix.h. Replaces stdout and stderr by streams that prefix each line with the
 * rank. Direct writes to the descriptors (crash reports, libraries) are unchanged. */
#include "launch/log_prefix.h"

#include "base/terminal.h"
#include "plugin/services.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A line is written at once, so that lines of several ranks do not mix. On a terminal it is written immediately,
 * because a progress line has no end. */
typedef struct voice {
    int descriptor;
    bool within;     /* inside a line */
    bool holds;      /* buffers until the end of the line */
    char line[4096]; /* its beginning */
    size_t n;
} voice;

static voice to_out = {.descriptor = STDOUT_FILENO}, to_err = {.descriptor = STDERR_FILENO};
static char prefix[16];
static FILE *plain; /* stdout before the replacement; NULL: not replaced */

static bool write_whole(int descriptor, const char *text, size_t n) {
    while (n > 0) {
        const ssize_t written = write(descriptor, text, n);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return false;
        text += written;
        n -= (size_t)written;
    }
    return true;
}

static bool let_go(voice *self) {
    const size_t n = self->n;
    self->n = 0;
    return write_whole(self->descriptor, self->line, n);
}

/* Writes a line or a part of one. */
static bool put_part(voice *self, const char *text, size_t n) {
    const bool ends = text[n - 1] == '\n';
    if (!self->within) {
        self->n = strlen(prefix);
        memcpy(self->line, prefix, self->n);
    }
    self->within = !ends;
    if (self->n + n > sizeof self->line) return let_go(self) && write_whole(self->descriptor, text, n);
    memcpy(self->line + self->n, text, n);
    self->n += n;
    return (self->holds && !ends) || let_go(self);
}

/* Flushes incomplete lines. */
static void let_go_of_all(void) {
    (void)fflush(stdout);
    (void)fflush(stderr);
    (void)let_go(&to_out);
    (void)let_go(&to_err);
}

static ssize_t write_marked(void *cookie, const char *text, size_t n) {
    voice *self = cookie;
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

weft_status weft_log_prefix_offer_terminal(weft_error *err) {
    char path[256];
    if (isatty(STDOUT_FILENO) == 0 || ttyname_r(STDOUT_FILENO, path, sizeof path) != 0) {
        (void)unsetenv(TERMINAL);
        return WEFT_OK;
    }
    if (setenv(TERMINAL, path, 1) == 0) return WEFT_OK;
    return weft_error_set(err, WEFT_E_MEMORY, "no memory for an environment variable");
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
static FILE *open_prefixed(voice *self, int mode) {
    const cookie_io_functions_t functions = {.write = write_marked};
    FILE *stream = fopencookie(self, "w", functions);
    self->holds = !weft_terminal_of(self->descriptor).is_one;
    if (stream != NULL) (void)setvbuf(stream, NULL, mode, 0);
    return stream;
}

void weft_log_prefix_set(int32_t rank, bool speaks) {
    FILE *stream = NULL;
    if (prefix[0] != '\0') return;
    (void)snprintf(prefix, sizeof prefix, "[%d] ", (int)rank);
    (void)fflush(stdout);
    if (rank != 0 || !take_terminal()) weft_terminal_deny();
    (void)atexit(let_go_of_all);
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
