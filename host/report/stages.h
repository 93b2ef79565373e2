/* host/report/stages.h: which rank runs what, where segments have owners: what each takes, how even that is, and which
 * layer to move to make it more so. */
#ifndef WEFT_HOST_REPORT_STAGES_H
#define WEFT_HOST_REPORT_STAGES_H

#include "train/engine.h"

#include <stdio.h>

typedef struct weft_stage_row {
    char segments[1000]; /* "embed, layers.0-2, layers.3.attn" */
    weft_engine_bytes bytes;
} weft_stage_row;

typedef struct weft_stages {
    weft_stage_row *rows; /* [n] by rank; n 0: segments have no owners */
    int32_t n;
    double imbalance; /* how far the largest lies above the mean, in percent */
    int32_t largest;  /* rank */
    /* The move of a layer between neighbours that helps most, by estimate; layer "": none helps. */
    char layer[128];
    int32_t from, to;
    double imbalance_then;
} weft_stages;

/* The engine is prepared. To be freed also after a failure. */
weft_status weft_stages_make(weft_stages *out, const weft_engine *engine, weft_error *err);
void weft_stages_free(weft_stages *self);

/* Nothing where n is 0. */
void weft_stages_print(const weft_stages *self, FILE *to);

#endif
