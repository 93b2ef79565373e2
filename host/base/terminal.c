/* host/base/terminal.c: see terminal.h. */
#include "base/terminal.h"

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
