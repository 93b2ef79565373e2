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

/* Visits a section (key and value NULL) or an item. Strings live until the call returns. A result other than WEFT_OK
 * ends the parse, with the prefix "NAME:LINE: " on err. */
typedef weft_status weft_ini_visit(void *context, const char *section, const char *key, const char *value, long line,
                                   weft_error *err);

/* Parses n bytes. name: of the file, for messages. */
weft_status weft_ini_parse(weft_ini_visit *visit, void *context, const char *name, const char *text, size_t n,
                           weft_error *err);

/* Prints a value so that it parses back to the same text, in quotes if necessary. */
void weft_ini_print(FILE *file, const char *key, const char *value);

#endif
