/* host/base/terminal.h: what a stream's terminal can show. */
#ifndef WEFT_HOST_BASE_TERMINAL_H
#define WEFT_HOST_BASE_TERMINAL_H

#include <stdbool.h>

typedef struct weft_terminal {
    bool is_one; /* false: a file or a pipe; then width is 0 and there is no colour */
    int width;   /* columns: COLUMNS where it is a number, else what the terminal says, else 80 */
    bool colour; /* not with NO_COLOR, nor TERM = dumb */
    bool utf8;   /* as the locale's variables say, of a file too */
} weft_terminal;

/* Asked anew each time: a window changes its size. */
weft_terminal weft_terminal_of(int descriptor);

#endif
