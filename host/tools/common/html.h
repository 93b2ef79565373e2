/* host/tools/common/html.h: texts of a run inside of HTML. */
#ifndef WEFT_HOST_TOOLS_COMMON_HTML_H
#define WEFT_HOST_TOOLS_COMMON_HTML_H

#include <stdio.h>

/* The text with & < > " ' written out, and control characters as a space: it cannot leave its element or attribute. */
void weft_html_text(FILE *to, const char *text);

/* From the document's first byte to the open <main>, with its title and style. */
void weft_html_begin(FILE *to, const char *title);
void weft_html_tile(FILE *to, const char *value, const char *about); /* inside of <div class=tiles> */

/* The whole style sheet of a page, light and dark; class k0 to k9 are the colours of parts and of runs. */
void weft_html_style(FILE *to);
enum { WEFT_HTML_COLOURS = 10 };

#endif
