/* host/base/terminal.h: what a stream's terminal can show. */
#ifndef WEFT_HOST_BASE_TERMINAL_H
#define WEFT_HOST_BASE_TERMINAL_H

#include <stdbool.h>

typedef struct weft_terminal {
    bool is_one; /* false: a file or a pipe; then width is 0 and it can do nothing of the rest */
    bool renews; /* a line can be written anew: not where TERM is dumb */
    bool colour; /* the same, and not where NO_COLOR is set (no-color.org) */
    int width;   /* columns: COLUMNS where it is a number, else what the terminal says, else 80 */
    bool utf8;   /* as the locale's variables say, of a file too */
} weft_terminal;

/* Asked anew each time: a window changes its size. */
weft_terminal weft_terminal_of(int descriptor);

/* From here on nothing is a terminal: some launchers give their ranks what looks like one, and pass on to a file what
 * is written there. [main] */
void weft_terminal_deny(void);

#endif
