/* host/base/message.h: messages on stderr and text wrapped at word boundaries. */
#ifndef WEFT_HOST_BASE_MESSAGE_H
#define WEFT_HOST_BASE_MESSAGE_H

#include <stdbool.h>
#include <stdio.h>
#include <weft/host.h>

/* Capabilities of a stream's terminal. */
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

/* Prints "PREFIX: text" and a newline on stderr in one write, so that lines of threads do not mix. On a terminal the
 * line is wrapped at its width, and the prefix is red for an error and yellow for a warning. Control bytes become
 * spaces. [any-thread] */
void weft_message_print(weft_log_level level, const char *prefix, const char *text);

/* Prints text wrapped at `width` columns; 0: not wrapped. The line starts at column `column`; later lines are indented
 * by `indent`. Newlines in the text are kept, and so are two blanks at the start of a line. Adds no newline. */
void weft_print_wrapped(FILE *file, const char *text, int column, int indent, int width);

#endif
