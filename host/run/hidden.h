/* host/run/hidden.h: the mean of the last hidden states (the input of lm_head) over passes of evaluation, of the
 * positions that have a target.
 *
 * Each micro-batch's states are added in fp64 after its last segment. After a pass the sums of its micro-batches are
 * gathered on rank 0, which adds them in micro-batch order, so the mean has the same bits on any number of ranks. */
#ifndef WEFT_HOST_RUN_HIDDEN_H
#define WEFT_HOST_RUN_HIDDEN_H

#include "run/stepper.h"

typedef struct weft_hidden weft_hidden;

/* The engine must evaluate. */
weft_hidden *weft_hidden_create(const weft_engine *engine);
void weft_hidden_destroy(weft_hidden *hidden); /* NULL is fine */

/* Resets the sums. NULL is fine. */
void weft_hidden_begin(weft_hidden *hidden);

/* Adds a micro-batch after its last segment, on the rank that ran it. */
weft_status weft_hidden_add(weft_hidden *hidden, const weft_stepper *stepper, const weft_instruction *instruction,
                            const weft_graph *graph, const weft_graph_binding *binding, weft_error *err);
/* Ends a pass with `targets` target tokens on all ranks together. [collective] */
weft_status weft_hidden_end_pass(weft_hidden *hidden, int64_t targets, weft_error *err);

int64_t weft_hidden_width(const weft_hidden *hidden);
/* out: [weft_hidden_width]; on rank 0. */
void weft_hidden_mean(const weft_hidden *hidden, double *out);

#endif
