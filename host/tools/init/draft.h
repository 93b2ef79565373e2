/* host/tools/init/draft.h: a configuration that is being made: each key with its value and with why it has it.
 *
 * Until it is written its rows are overrides of no file: what is tried while it is made is what the file will say. */
#ifndef WEFT_HOST_TOOLS_INIT_DRAFT_H
#define WEFT_HOST_TOOLS_INIT_DRAFT_H

#include <stdio.h>
#include <weft/base.h>

enum { WEFT_DRAFT_ROWS = 40, WEFT_DRAFT_TEXT = 4096 };

typedef struct weft_draft_row {
    char section[24], key[40];
    char value[WEFT_DRAFT_TEXT];
    char why[400];
} weft_draft_row;

typedef struct weft_draft {
    weft_draft_row rows[WEFT_DRAFT_ROWS]; /* sections together, in the order of the file */
    int32_t n;
} weft_draft;

/* The key gets this value for this reason, in the place where it was if it is there. A reason of "": none. */
void weft_draft_set(weft_draft *self, const char *section, const char *key, const char *value, const char *why, ...)
    WEFT_PRINTF(5, 6);
void weft_draft_set_number(weft_draft *self, const char *section, const char *key, double value, const char *why, ...)
    WEFT_PRINTF(5, 6);

/* The rows that there are now as n overrides and a NULL, to be freed by weft_draft_free_overrides; NULL: no memory. */
char **weft_draft_overrides(const weft_draft *self);
void weft_draft_free_overrides(char **overrides); /* NULL is fine */

/* The file: a title in front, and each reason as a comment above its key. */
void weft_draft_write(const weft_draft *self, const char *title, FILE *to);

#endif
