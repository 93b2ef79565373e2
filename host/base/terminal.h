/* host/base/terminal.h: detects the capabilities of a stream's terminal. */
#ifndef WEFT_HOST_BASE_TERMINAL_H
#define WEFT_HOST_BASE_TERMINAL_H

#include <stdbool.h>

typedef struct weft_terminal {
    bool is_one; /* false: a file or a pipe; then width is 0 and all capabilities but utf8 are false */
    bool renews; /* a line can be rewritten: false if TERM is dumb */
    bool colour; /* as renews, and false if NO_COLOR is set (no-color.org) */
    int width;   /* columns: COLUMNS if it is a number, else the terminal's size, else 80 */
    bool utf8;   /* from the locale's variables, also for a file */
} weft_terminal;

/* Returns the current state; a window can change its size between calls. */
weft_terminal weft_terminal_of(int descriptor);

/* From here on every stream counts as no terminal. Some launchers run their ranks on a pseudo-terminal and copy its
 * output to a file. [main] */
void weft_terminal_deny(void);

#endif
