/* host/base/message.h: text for people, wrapped at word boundaries, and messages on stderr. */
#ifndef WEFT_HOST_BASE_MESSAGE_H
#define WEFT_HOST_BASE_MESSAGE_H

#include <stdio.h>

typedef enum weft_message_kind { WEFT_MESSAGE_ERROR, WEFT_MESSAGE_WARNING, WEFT_MESSAGE_NOTE } weft_message_kind;

/* Prints "PREFIX: text" and a line end on stderr, in one write, so that lines of threads do not mix. On a terminal
 * the line is wrapped at its width, and the prefix is red for an error and yellow for a warning. Control bytes
 * become spaces. [any-thread] */
void weft_message_print(weft_message_kind kind, const char *prefix, const char *text);

/* Prints text wrapped at `width` columns; 0: not wrapped. The line is at column `column` at the start; later lines are
 * indented by `indent`. A line end in the text stays one, and so do two blanks at its start. No line end is added. */
void weft_print_wrapped(FILE *file, const char *text, int column, int indent, int width);

#endif
