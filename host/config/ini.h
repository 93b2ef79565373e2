/* host/config/ini.h: parses an INI file into sections and items, with inih.
 *
 *     # comment            a full line, or after a blank that follows a value; `;` as well
 *     [section]
 *     key = value          blanks around the value are removed
 *     key = "a # b"        quotes keep blanks and comment signs; inside them \" and \\ mean " and \
 *
 * Any other text is rejected with its line. inih by itself would skip text after `]`, truncate long lines and long
 * section names, and join an indented line to the previous one. */
#ifndef WEFT_HOST_CONFIG_INI_H
#define WEFT_HOST_CONFIG_INI_H

#include <weft/base.h>

/* Strings live until the call returns. A result other than WEFT_OK ends the parse, with the prefix "NAME:LINE: " on
 * err. */
typedef struct weft_ini_visitor {
    void *context;
    weft_status (*section)(void *context, const char *section, long line, weft_error *err);
    weft_status (*item)(void *context, const char *section, const char *key, const char *value, long line,
                        weft_error *err);
} weft_ini_visitor;

/* Parses n bytes. name: of the file, for messages. */
weft_status weft_ini_parse(const weft_ini_visitor *visitor, const char *name, const char *text, size_t n,
                           weft_error *err);

/* Prints a value so that it parses back to the same text, in quotes if necessary. */
void weft_ini_print(FILE *file, const char *key, const char *value);

#endif
