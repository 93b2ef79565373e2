/* host/base/message.c: see message.h. */
#include "base/message.h"

#include "base/alloc.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const char *variable(const char *name) {
    const char *value = getenv(name);
    return value == NULL ? "" : value;
}

static bool locale_is_utf8(void) {
    const char *names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (int i = 0; i < 3; i++) {
        const char *value = variable(names[i]);
        if (*value != '\0') return strcasestr(value, "UTF-8") != NULL || strcasestr(value, "UTF8") != NULL;
    }
    return false;
}

static int width_of(int descriptor) {
    struct winsize size;
    char *end = NULL;
    const long asked = strtol(variable("COLUMNS"), &end, 10);
    if (*variable("COLUMNS") != '\0' && *end == '\0' && asked > 0 && asked < 10000) return (int)asked;
    memset(&size, 0, sizeof size);
    if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    return 80;
}

static bool denied;

void weft_terminal_deny(void) {
    denied = true;
}

weft_terminal weft_terminal_of(int descriptor) {
    weft_terminal out = {.is_one = !denied && isatty(descriptor) != 0, .utf8 = locale_is_utf8()};
    if (!out.is_one) return out;
    out.width = width_of(descriptor);
    out.renews = strcmp(variable("TERM"), "dumb") != 0;
    out.colour = out.renews && *variable("NO_COLOR") == '\0';
    return out;
}

/* Returns the columns of n bytes of UTF-8, one per character. */
static int columns(const char *text, size_t n) {
    int count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

void weft_print_wrapped(FILE *file, const char *text, int column, int indent, int width) {
    const char *at = text;
    while (*at != '\0') {
        const size_t blanks = strspn(at, " "), n = strcspn(at + blanks, " \n");
        const int wide = columns(at + blanks, n);
        if (width > 0 && blanks > 0 && column > indent && column + (int)blanks + wide > width) {
            (void)fprintf(file, "\n%*s", indent, "");
            column = indent;
        } else {
            (void)fprintf(file, "%*s", (int)blanks, "");
            column += (int)blanks;
        }
        (void)fwrite(at + blanks, 1, n, file);
        column += wide;
        at += blanks + n;
        if (*at != '\n') continue;
        at++;
        (void)fprintf(file, "\n%*s", *at == '\0' || *at == '\n' ? 0 : indent, "");
        column = indent;
    }
}

void weft_message_print(weft_log_level level, const char *prefix, const char *text) {
    static const char *const colours[] = {"\033[31m", "\033[33m", "", ""};
    const weft_terminal terminal = weft_terminal_of(STDERR_FILENO);
    const char *colour = terminal.colour ? colours[level] : "";
    char *line = NULL, *tame = weft_strdup(text);
    size_t size = 0;
    FILE *file = open_memstream(&line, &size);
    if (file == NULL) abort();
    weft_words_sanitize(tame);
    (void)fprintf(file, "%s%s:%s ", colour, prefix, *colour != '\0' ? "\033[0m" : "");
    weft_print_wrapped(file, tame, columns(prefix, strlen(prefix)) + 2, 0, terminal.width);
    (void)fputc('\n', file);
    if (fclose(file) == 0) (void)fwrite(line, 1, size, stderr);
    free(line);
    free(tame);
}
