/* host/pages/html.h: texts of a run inside of HTML. */
#ifndef WEFT_HOST_PAGES_HTML_H
#define WEFT_HOST_PAGES_HTML_H

#include <stdio.h>

/* The text with & < > " ' written out, and control characters as a space: it cannot leave its element or attribute. */
void weft_html_text(FILE *to, const char *text);

/* The whole style sheet of a page, light and dark; class k0 to k9 are the colours of parts and of runs. */
void weft_html_style(FILE *to);
enum { WEFT_HTML_COLOURS = 10 };

#endif
