/* host/tools/init/compose.h: composes a draft configuration that runs and fits without changes.
 *
 * Model and data are opened as in a run, so a composed configuration passes a run's validation. Settings follow from
 * their properties, and memory is checked by planning (train/fit.h). */
#ifndef WEFT_HOST_TOOLS_INIT_COMPOSE_H
#define WEFT_HOST_TOOLS_INIT_COMPOSE_H

#include "train/fit.h"

#include <stdio.h>
#include <weft/base.h>

/* Draft of a configuration: keys with their values and reasons.
 *
 * Before it is written, its rows serve as overrides, so tests run with the settings of the later file. */

enum { WEFT_DRAFT_ROWS = 40, WEFT_DRAFT_TEXT = 4096 };

typedef struct weft_draft_row {
    char section[24], key[40];
    char value[WEFT_DRAFT_TEXT];
    char why[400];
} weft_draft_row;

typedef struct weft_draft {
    weft_draft_row rows[WEFT_DRAFT_ROWS]; /* grouped by section, in file order */
    int32_t n;
} weft_draft;

/* Writes the file: the title, then each key with its reason as a comment above it. */
void weft_draft_write(const weft_draft *self, const char *title, FILE *to);

typedef struct weft_init_wish {
    const char *model, *plugin; /* absolute path; plugin of the family in config.json */
    const char *adapter;        /* absolute path of an adapter to continue; NULL: no adapter */
    const char *stored;         /* [model] base of its training; NULL: as in the files */
    const char *tokens, *pad;   /* added tokens and pad token of its tokenizer; NULL: no additions */
    const char *data;           /* absolute path */
    const char *out;            /* [run] out */
    bool fresh;                 /* start from config.json only */
    int64_t room;               /* bytes of a rank's device memory; 0: queried */
} weft_init_wish;

/* told: one line that summarizes the findings and choices. */
weft_status weft_init_compose(weft_draft *out, char *told, size_t size, const weft_init_wish *wish, weft_error *err);

#endif
