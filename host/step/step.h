/* host/step/step.h: one optimizer step, or one leaf of evaluation: a pass over a program and what it came to.
 *
 * One weft_stepper serves training and evaluation, and is what the files beside this one share: leaf.h asks the data
 * for leaves as the events need them, bind.h binds slots to the segment graphs, events.h does each event, blame.h finds
 * a number that is not finite. Losses and norm stay on the device until the end of the pass. */
#ifndef WEFT_HOST_STEP_STEP_H
#define WEFT_HOST_STEP_STEP_H

#include "engine/engine.h"
#include "tensor/calls.h"
#include "program/execute.h"
#include <weft/data.h>

/* What one optimizer step, or one leaf of evaluation, came to. */
typedef struct weft_step_result {
    double loss_sum;   /* fp64 sum over leaves in order */
    int64_t n_targets; /* COUNT */
    int64_t n_places;  /* of all leaves, padding too */
    double norm;       /* of the mean gradient, before clipping; training only */
    double lr;
    double data_seconds; /* spent in the data plugin */
    bool skipped;        /* no target on any leaf: nothing was updated */
} weft_step_result;

typedef struct weft_travel weft_travel; /* host/step/travel.h */

typedef struct weft_stepper {
    weft_engine *engine;
    const weft_data_plugin *data_plugin;
    weft_data *data;
    const weft_stage *stage; /* whose program runs */
    weft_trace *trace;       /* holds a whole pass of any program */
    int32_t split;
    uint64_t first_row; /* of the step's first leaf */
    uint64_t step;      /* from 1; 0 in evaluation */
    double lr;
    double clip; /* 0: none */
    int64_t count, places;
    int64_t *leaf_targets;    /* [leaves] targets of each leaf */
    int32_t *leaf_lengths;    /* [leaves] places of a row of each leaf */
    weft_leaf leaf;           /* host arrays of the largest shape */
    int32_t leaf_now;         /* which leaf the arrays hold and the slot has; -1: none */
    void *hp;                 /* host copy of the optimizer's struct */
    weft_slot_ref *gradients; /* [n_parameters] of the event that runs */
    int64_t *used;            /* [slots of the largest program]: bytes of each slot that were really touched */
    bool find_culprit;        /* after a non-finite loss: look at each carry */
    weft_error culprit;       /* what this rank has found then, where there are others: they wait for its exchanges */
    double data_seconds;
    weft_travel *travel;
    const weft_call_sink *sink; /* is told of each device call of the segments; NULL: nothing is timed */
    weft_step_result result;
} weft_stepper;

/* data may be NULL where no leaf is ever asked for. The engine must be allocated. */
weft_status weft_stepper_create(weft_stepper **out, weft_engine *engine, const weft_data_plugin *data_plugin,
                                weft_data *data, weft_error *err);
void weft_stepper_destroy(weft_stepper *stepper); /* NULL is fine */

/* Optimizer step `step` (from 1) with learning rate lr, clip (0: none): runs the training program once. A loss or
 * gradient that is not finite is WEFT_E_NUMERIC, named with step and segment. */
weft_status weft_stepper_train(weft_stepper *stepper, weft_step_result *out, uint64_t step, double lr, double clip,
                               weft_error *err);

/* One leaf per replica, from first_row of a split on: their targets, and their losses, added to out->loss_sum in their
 * order, so that the sum over many passes is the same for any number of replicas. [collective] */
weft_status weft_stepper_evaluate(weft_stepper *stepper, weft_step_result *out, int32_t split, uint64_t first_row,
                                  weft_error *err);

/* A leaf's loss, once the pass has ended. */
weft_status weft_step_loss(const weft_stepper *self, double *out, int32_t leaf, weft_error *err);

#endif
