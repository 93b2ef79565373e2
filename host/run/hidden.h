/* host/run/hidden.h: the mean of the last hidden states (the input of lm_head) over passes of evaluation, of the
 * positions that have a target.
 *
 * Each micro-batch's states are added in fp64 after its last segment. After a pass the sums of its micro-batches are
 * gathered on rank 0, which adds them in micro-batch order, so the mean has the same bits on any number of ranks. */
#ifndef WEFT_HOST_RUN_HIDDEN_H
#define WEFT_HOST_RUN_HIDDEN_H

#include "run/stepper.h"

typedef struct weft_hidden {
    const weft_engine *engine;
    int64_t width;
    /* [world][most_losses][width]: sums of the pass's micro-batches, by rank and position (weft_loss_place) */
    double *micro_batches;
    double *sum; /* [width] over passes; on rank 0 */
    int64_t targets;
    float *weights; /* [most positions of a micro-batch] */
    int64_t at_once;
    float *numbers; /* [at_once] positions, as floats and in the device's type */
    void *stored;
} weft_hidden;

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

/* out: [width]; on rank 0. */
void weft_hidden_mean(const weft_hidden *hidden, double *out);

#endif
