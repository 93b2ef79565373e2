/* host/config/ini.h: the text of an INI file becomes sections and items, through inih.
 *
 *     # comment            a whole line, or behind a blank after a value; `;` as well
 *     [section]
 *     key = value          blanks around the value are not part of it
 *     key = "a # b"        quotes keep blanks and comment signs; inside them \" and \\ stand for " and \
 *
 * Anything else is refused with its line: inih passes over text behind `]`, cuts long lines and long section names, and
 * joins an indented line to the one before.
 */
#ifndef WEFT_HOST_CONFIG_INI_H
#define WEFT_HOST_CONFIG_INI_H

#include <weft/base.h>

/* Texts live until the call returns. What a call returns other than WEFT_OK ends the parse; its err text gets
 * "NAME:LINE: " in front. */
typedef struct weft_ini_visitor {
    void *context;
    weft_status (*section)(void *context, const char *section, long line, weft_error *err);
    weft_status (*item)(void *context, const char *section, const char *key, const char *value, long line,
                        weft_error *err);
} weft_ini_visitor;

/* name: of the file, for messages. */
weft_status weft_ini_parse(const weft_ini_visitor *visitor, const char *name, const char *text, size_t n,
                           weft_error *err);

/* A value as it is to be written so that it reads back the same: in quotes where it needs them. */
void weft_ini_print(FILE *file, const char *key, const char *value);

#endif
