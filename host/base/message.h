/* host/base/message.h: messages on stderr and text wrapped at word boundaries. */
#ifndef WEFT_HOST_BASE_MESSAGE_H
#define WEFT_HOST_BASE_MESSAGE_H

#include <stdio.h>

typedef enum weft_message_kind { WEFT_MESSAGE_ERROR, WEFT_MESSAGE_WARNING, WEFT_MESSAGE_NOTE } weft_message_kind;

/* Prints "PREFIX: text" and a newline on stderr in one write, so that lines of threads do not mix. On a terminal the
 * line is wrapped at its width, and the prefix is red for an error and yellow for a warning. Control bytes become
 * spaces. [any-thread] */
void weft_message_print(weft_message_kind kind, const char *prefix, const char *text);

/* Prints text wrapped at `width` columns; 0: not wrapped. The line starts at column `column`; later lines are indented
 * by `indent`. Newlines in the text are kept, and so are two blanks at the start of a line. Adds no newline. */
void weft_print_wrapped(FILE *file, const char *text, int column, int indent, int width);

#endif
