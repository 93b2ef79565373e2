/* host/launch/voice.c: see voice.h. stdout and stderr become streams that put the rank in front of each line. What
 * writes to the descriptors itself (the line of a crash, libraries) is not changed by that. */
#include "launch/voice.h"

#include "plugin/services.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct voice {
    int descriptor;
    bool within; /* a line */
} voice;

static char prefix[16];
static FILE *plain; /* stdout before it was given a voice; NULL: it has none */

static bool put(int descriptor, const char *text, size_t n) {
    while (n > 0) {
        const ssize_t written = write(descriptor, text, n);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return false;
        text += written;
        n -= (size_t)written;
    }
    return true;
}

/* A line that fits goes out in one piece, so that those of several ranks do not mix. */
static bool put_line(voice *self, const char *text, size_t n) {
    char line[4096];
    const size_t before = self->within ? 0 : strlen(prefix);
    self->within = text[n - 1] != '\n';
    memcpy(line, prefix, before);
    if (before + n <= sizeof line) {
        memcpy(line + before, text, n);
        return put(self->descriptor, line, before + n);
    }
    return put(self->descriptor, line, before) && put(self->descriptor, text, n);
}

static ssize_t speak(void *cookie, const char *text, size_t n) {
    voice *self = cookie;
    size_t at = 0;
    while (at < n) {
        const char *end = memchr(text + at, '\n', n - at);
        const size_t length = end == NULL ? n - at : (size_t)(end - text) + 1 - at;
        if (!put_line(self, text + at, length)) return 0; /* which the stream remembers as its error */
        at += length;
    }
    return (ssize_t)n;
}

/* NULL: no memory; then the lines go out as they are. */
static FILE *open_voice(voice *self, int mode) {
    const cookie_io_functions_t functions = {.write = speak};
    FILE *stream = fopencookie(self, "w", functions);
    if (stream != NULL) (void)setvbuf(stream, NULL, mode, 0);
    return stream;
}

void weft_voice_set(int32_t rank, bool speaks) {
    static voice out = {STDOUT_FILENO, false}, err = {STDERR_FILENO, false};
    FILE *stream = NULL;
    if (prefix[0] != '\0') return;
    (void)snprintf(prefix, sizeof prefix, "[%d] ", (int)rank);
    (void)fflush(stdout);
    stream = open_voice(&err, _IOLBF);
    if (stream != NULL) stderr = stream;
    if (!speaks) {
        weft_services_log_level(WEFT_LOG_ERROR);
        (void)freopen("/dev/null", "w", stdout);
        return;
    }
    plain = stdout;
    stream = open_voice(&out, _IOLBF);
    if (stream != NULL) stdout = stream;
}

FILE *weft_voice_plain(void) {
    return plain == NULL ? stdout : plain;
}
