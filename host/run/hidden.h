/* host/run/hidden.h: the mean of the last hidden states, what lm_head reads, over passes of evaluation: of the places
 * that have a target, each once.
 *
 * While the stepper has such a collector, each micro-batch's states are added up in fp64 where its last segment
 * runs; after a pass the sums of its micro-batches come to rank 0, which adds them in the order of the
 * micro-batches. So the mean has the same bits on any number of ranks. */
#ifndef WEFT_HOST_RUN_HIDDEN_H
#define WEFT_HOST_RUN_HIDDEN_H

#include "run/stepper.h"

typedef struct weft_hidden weft_hidden;

/* For an engine that evaluates, with its memory for all ranks' micro-batches. */
weft_status weft_hidden_create(weft_hidden **out, const weft_engine *engine, weft_error *err);
void weft_hidden_destroy(weft_hidden *hidden); /* NULL is fine */

/* What was added before no longer counts. NULL is fine. */
void weft_hidden_begin(weft_hidden *hidden);

/* The micro-batch whose last segment has just run forward, on the rank where it has. */
weft_status weft_hidden_add(weft_hidden *hidden, const weft_stepper *stepper, const weft_instruction *instruction,
                            const weft_graph *graph, const weft_graph_binding *binding, weft_error *err);
/* A pass has ended that has `targets` targets on all ranks together. [collective] */
weft_status weft_hidden_end_pass(weft_hidden *hidden, int64_t targets, weft_error *err);

int64_t weft_hidden_width(const weft_hidden *hidden);
/* Into out, of weft_hidden_width numbers; on rank 0. */
void weft_hidden_mean(const weft_hidden *hidden, double *out);

#endif
