/* host/tools/check/reference_run.h: reference run of a declared model, without strategy, data or optimizer. All
 * segments are recorded for training with drawn parameters, and run in order on a device, like one rank's micro-batch.
 *
 *     weft_reference_run_create(&p, declared, kernels, device, 1, false, &err)
 *     weft_reference_run_draw(p, 0, &micro_batch)
 *     weft_reference_run_forward(p, &micro_batch, &err), then weft_reference_run_backward(p, &err): p->loss_sum,
 *     weft_reference_run_gradient
 *
 * Drawn values depend only on numbers, so they are the same on every machine. */
#ifndef WEFT_HOST_TOOLS_CHECK_REFERENCE_RUN_H
#define WEFT_HOST_TOOLS_CHECK_REFERENCE_RUN_H

#include "plugin/plugin.h"
#include "graph/graph.h"

enum { WEFT_PLAY_ROWS = 3, WEFT_PLAY_LENGTH = 8, WEFT_PLAY_PLACES = WEFT_PLAY_ROWS * WEFT_PLAY_LENGTH };

/* Position t of sequence r has index r * length + t. A model may have a shorter length than WEFT_PLAY_LENGTH. */
typedef struct weft_reference_micro_batch {
    int32_t ids[WEFT_PLAY_PLACES], targets[WEFT_PLAY_PLACES];
    float weights[WEFT_PLAY_PLACES]; /* of targets */
    int32_t starts[WEFT_PLAY_PLACES], positions[WEFT_PLAY_PLACES];
} weft_reference_micro_batch;

typedef struct weft_reference_run {
    const weft_declared *declared;
    const weft_device_plugin *kernels;
    weft_device *device;
    int32_t rows, length;
    weft_graph **graphs;          /* [n_segments] */
    weft_graph_binding *bindings; /* [n_segments] */
    weft_slot_ref micro_batch[5]; /* ids, targets, weights, starts, positions */
    weft_ref *parameters;         /* [n_parameters] */
    weft_slot_ref *gradients;     /* [n_parameters] */
    weft_slot_ref *tables;        /* [n_tables] */
    float **values;               /* [n_parameters]: drawn values, numel each */
    bool *is_read;                /* [n_parameters]: a segment reads it */
    weft_slot_ref *scratch;       /* buffers without defined content before a pass: tapes, carries, scratch */
    int32_t n_scratch;
    weft_buffer **buffers;
    int32_t n_buffers;
    weft_slot_ref loss;
    double loss_sum; /* result of the last backward */
} weft_reference_run;

/* size: scale of the drawn weights; 1 preserves the magnitude of activations. is_small: for micro-batches of one
 * sequence of five positions. WEFT_E_UNSUPPORTED: the model is too large, or does not compute in fp32. declared and
 * device must outlive it. Destroy it also after a failure. [main] */
weft_status weft_reference_run_create(weft_reference_run **out, const weft_declared *declared,
                                      const weft_device_plugin *kernels, weft_device *device, double size,
                                      bool is_small, weft_error *err);
void weft_reference_run_destroy(weft_reference_run *self); /* NULL is valid */

/* Draws micro-batch `number` with random ids. The first sequence has one document, the others have two. */
void weft_reference_run_draw(const weft_reference_run *self, int32_t number, weft_reference_micro_batch *out);

/* Runs all segments, over memory filled with NaN. [main] */
weft_status weft_reference_run_forward(weft_reference_run *self, const weft_reference_micro_batch *micro_batch,
                                       weft_error *err);
/* Runs the backward after a forward, with gradients and scratch filled with NaN, and computes the loss. [main] */
weft_status weft_reference_run_backward(weft_reference_run *self, weft_error *err);
/* Computes the loss, over memory as it is. [main] */
weft_status weft_reference_run_loss(weft_reference_run *self, const weft_reference_micro_batch *micro_batch,
                                    double *out, weft_error *err);

/* Reads the gradient of a trained, used parameter from the last backward. */
weft_status weft_reference_run_gradient(const weft_reference_run *self, int32_t parameter, float *out, weft_error *err);
/* Uploads other numbers for a parameter; values[parameter] does not change. The parameter must not be packed. */
weft_status weft_reference_run_put(const weft_reference_run *self, int32_t parameter, const float *numbers,
                                   weft_error *err);

/* Returns the name of a recorded operator of the model's own; NULL: no such operator. */
const char *weft_reference_run_own_operator(const weft_reference_run *self);

/* True if its gradient is needed: it is trained, and a segment reads it. */
static inline bool weft_reference_run_trains(const weft_reference_run *self, int32_t parameter) {
    return self->is_read[parameter] && self->declared->parameters[parameter].trainable;
}

/* ---- checks on reference runs (gradient_check.c) ---- */

/* Returns the model plugin with its own operators split: each is computed two times from the same inputs, and three
 * quarters of one result are added to one quarter of the other. The sum is unchanged, and each input has two readers,
 * so every backward must accumulate. One per process, never freed. [main] */
const weft_loaded *weft_accumulate_shim(const weft_loaded *loaded);

/* Checks that the loss depends only on earlier ids of its document: another id at a position changes no loss of an
 * earlier position, of another document or of another sequence. Also checks that a sequence's loss does not depend on
 * its index in the micro-batch. WEFT_E_PLUGIN with a message: violated. [main] */
weft_status weft_causal_mask_check(weft_reference_run *played, weft_error *err);

/* Checks that loss and gradients of a micro-batch have the same bits after other micro-batches, and while another one
 * waits for its backward. beside: another instance of the same model. [main] */
weft_status weft_causal_mask_check_history(weft_reference_run *played, weft_reference_run *beside, weft_error *err);

/* A part of a row has the same loss and gradients in micro-batches of both shapes. small: the same model's, which has
 * been recorded and run before; its own are the same bits afterwards. [main] */
weft_status weft_causal_mask_check_shapes(weft_reference_run *small, weft_reference_run *large, weft_error *err);

/* Checks each trained parameter, along its gradient and along random directions. WEFT_E_PLUGIN with a message: a
 * gradient differs from the loss's slope, or is NaN. [main] */
weft_status weft_gradient_check(weft_reference_run *played, weft_error *err);

#endif
