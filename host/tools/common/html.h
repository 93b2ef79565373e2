/* host/tools/common/html.h: HTML output: escaping, page header, style. */
#ifndef WEFT_HOST_TOOLS_COMMON_HTML_H
#define WEFT_HOST_TOOLS_COMMON_HTML_H

#include <stdio.h>

/* Prints escaped text, with control characters as spaces, so that it cannot end its element or attribute. */
void weft_html_text(FILE *to, const char *text);

/* Prints the start of the document up to the open <main>, with title and style. */
void weft_html_begin(FILE *to, const char *title);
void weft_html_tile(FILE *to, const char *value, const char *about); /* for use in <div class=tiles> */

/* Prints the style sheet of a page, light and dark. Classes k0 to k9 are the colours of parts and runs. */
void weft_html_style(FILE *to);
enum { WEFT_HTML_COLOURS = 10 };

#endif
