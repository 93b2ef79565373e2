/* host/report/stages.h: which rank runs what, where segments have owners: how even what they take is, and which layer
 * to move to make it more so. What each takes of what is host/report/survey_table.h. */
#ifndef WEFT_HOST_REPORT_STAGES_H
#define WEFT_HOST_REPORT_STAGES_H

#include "report/survey.h"

#include <stdio.h>

typedef struct weft_stage_row {
    char segments[1000];        /* "embed, layers.0-2, layers.3.attn" */
    int64_t total, activations; /* bytes, of the survey */
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

/* Whether segments have owners in the engine's training, and several ranks are there to be them. */
bool weft_stages_exist(const weft_plan *plan);

/* survey: of the engine. To be freed also after a failure. */
weft_status weft_stages_make(weft_stages *out, const weft_plan *plan, const weft_survey *survey, weft_error *err);
void weft_stages_free(weft_stages *self);

/* Nothing where n is 0. */
void weft_stages_print(const weft_stages *self, FILE *to);

#endif
