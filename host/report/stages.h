/* host/report/stages.h: the owners of segments, the balance of their memory, and the layer move that improves it most.
 * host/report/all_rank_plan.h prints the memory by category. */
#ifndef WEFT_HOST_REPORT_STAGES_H
#define WEFT_HOST_REPORT_STAGES_H

#include "report/all_rank_plan.h"

#include <stdio.h>

typedef struct weft_stage_row {
    char segments[1000];        /* "embed, layers.0-2, layers.3.attn" */
    int64_t total, activations; /* bytes, planned */
    double micro_batch;         /* activation bytes of one micro-batch */
    int32_t n;                  /* segments */
} weft_stage_row;

typedef struct weft_stages {
    weft_stage_row *rows; /* [n] by rank; n 0: segments have no owners */
    int32_t n;
    double imbalance; /* excess of the largest over the mean, in percent */
    int32_t largest;  /* rank */
    /* The estimated best move of a layer between neighbours; layer "": no move helps. */
    char layer[128];
    int32_t from, to;
    double imbalance_then;
} weft_stages;

/* Returns whether the engine's training assigns segments to owners, with several ranks. */
bool weft_stages_exist(const weft_plan *plan);

/* Computes the stages of a training plan. */
void weft_stages_make(weft_stages *out, const weft_plan *plan, const weft_all_rank_plan *all_rank_plan);
void weft_stages_free(weft_stages *self);

/* Prints the stages; no output if n is 0. */
void weft_stages_print(const weft_stages *self, FILE *to);

#endif
