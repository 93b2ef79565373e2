/* host/tools/check/reference_run.h: a declared model that computes, without strategy, data or optimizer: its segments
 * recorded for training, with numbers of their own, and run one after the other on a device as one rank's micro-batch
 * runs.
 *
 *     weft_reference_run_create(&p, declared, kernels, device, 1, &err)
 *     weft_reference_run_draw(p, 0, &micro_batch)
 *     weft_reference_run_forward(p, &micro_batch, &err), then weft_reference_run_backward(p, &err): p->loss_sum,
 *     weft_reference_run_gradient
 *
 * What it draws comes from numbers, so that it is the same everywhere. */
#ifndef WEFT_HOST_TOOLS_CHECK_REFERENCE_RUN_H
#define WEFT_HOST_TOOLS_CHECK_REFERENCE_RUN_H

#include "graph/graph.h"

enum { WEFT_PLAY_ROWS = 3, WEFT_PLAY_LENGTH = 8, WEFT_PLAY_PLACES = WEFT_PLAY_ROWS * WEFT_PLAY_LENGTH };

/* Place t of row r is number r * length + t; a model may number fewer places than WEFT_PLAY_LENGTH. */
typedef struct weft_reference_micro_batch {
    int32_t ids[WEFT_PLAY_PLACES], targets[WEFT_PLAY_PLACES];
    float weights[WEFT_PLAY_PLACES]; /* of targets */
    int32_t starts[WEFT_PLAY_PLACES], positions[WEFT_PLAY_PLACES];
} weft_reference_micro_batch;

typedef struct weft_reference_run {
    const weft_declared *declared;
    const weft_device_plugin *kernels;
    weft_device *device;
    int32_t length;
    weft_graph **graphs;          /* [n_segments] */
    weft_graph_binding *bindings; /* [n_segments] */
    weft_slot_ref micro_batch[5]; /* ids, targets, weights, starts, positions */
    weft_ref *parameters;         /* [n_parameters] */
    weft_slot_ref *gradients;     /* [n_parameters] */
    weft_slot_ref *tables;        /* [n_tables] */
    float **values;               /* [n_parameters]: what is drawn, numel of each */
    bool *is_read;                /* [n_parameters]: a segment reads it */
    weft_slot_ref *scratch;       /* what a pass may find anything in: tapes, carries, scratch */
    int32_t n_scratch;
    weft_buffer **buffers;
    int32_t n_buffers, most_buffers;
    weft_slot_ref loss;
    double loss_sum; /* of the last backward */
} weft_reference_run;

/* size: how far numbers of weights are drawn from their middle, 1 for values that pass on what goes in about as large
 * as it was. WEFT_E_UNSUPPORTED: the model is too large for this, or does not compute in fp32. declared and device
 * outlive it. To be destroyed, also after a failure. [main] */
weft_status weft_reference_run_create(weft_reference_run **out, const weft_declared *declared,
                                      const weft_device_plugin *kernels, weft_device *device, double size,
                                      weft_error *err);
void weft_reference_run_destroy(weft_reference_run *self); /* NULL is fine */

/* Micro-batch `number`: any ids; the first row is one document, the others are two. */
void weft_reference_run_draw(const weft_reference_run *self, int32_t number, weft_reference_micro_batch *out);

/* All segments, over memory that is full of NaN. [main] */
weft_status weft_reference_run_forward(weft_reference_run *self, const weft_reference_micro_batch *micro_batch,
                                       weft_error *err);
/* Of what forward has left, with all gradients and scratch NaN before, and the loss. [main] */
weft_status weft_reference_run_backward(weft_reference_run *self, weft_error *err);
/* The loss alone, over memory as it is. [main] */
weft_status weft_reference_run_loss(weft_reference_run *self, const weft_reference_micro_batch *micro_batch,
                                    double *out, weft_error *err);

/* Of a parameter that is read and trained, as the last backward left it. */
weft_status weft_reference_run_gradient(const weft_reference_run *self, int32_t parameter, float *out, weft_error *err);
/* Other numbers in place of values[parameter], which stays. Of one that is not packed. */
weft_status weft_reference_run_put(const weft_reference_run *self, int32_t parameter, const float *numbers,
                                   weft_error *err);

/* The name of an operator of the model's own that it has recorded; NULL: it has none. */
const char *weft_reference_run_own_operator(const weft_reference_run *self);

/* Its gradients are wanted: it is trained, and some segment reads it. */
static inline bool weft_reference_run_trains(const weft_reference_run *self, int32_t parameter) {
    return self->is_read[parameter] && self->declared->parameters[parameter].trainable;
}

#endif
