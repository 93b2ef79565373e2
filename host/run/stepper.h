/* host/run/stepper.h: a pass over a program while it runs: one struct for training and evaluation, which the files of
 * this folder share. leaf.h asks the data for leaves as the events need them, bind.h binds slots to the segment graphs,
 * run_events.h does each event, blame.h finds a number that is not finite. Losses and norm stay on the device until the
 * end of the pass. */
#ifndef WEFT_HOST_RUN_STEPPER_H
#define WEFT_HOST_RUN_STEPPER_H

#include "run/state.h"
#include "run/order.h"
#include "program/execute.h"
#include "graph/calls.h"
#include <weft/data.h>

/* What one optimizer step, or one leaf of evaluation, came to. */
typedef struct weft_step_result {
    double loss_sum;   /* fp64 sum over leaves in order */
    int64_t n_targets; /* COUNT */
    int64_t n_places;  /* of all leaves, padding too */
    double norm;       /* of the mean gradient, before clipping; training only */
    double lr;
    double data_seconds; /* spent in the data plugin */
    double scale;        /* that the losses were multiplied by; 0: they were not */
    bool skipped;        /* nothing was updated: no target on any leaf, ... */
    bool overflowed;     /* ... or gradients that are not finite at this scale, in fp16 */
    bool replayed;       /* by one call: the trace holds no times of its events */
} weft_step_result;

typedef struct weft_flights weft_flights;       /* host/run/flight.h */
typedef struct weft_recorder weft_recorder;     /* host/run/recorder.h */
typedef struct weft_value_sink weft_value_sink; /* host/run/values.h */

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
    int64_t *leaf_targets; /* [leaves] targets of each leaf */
    int32_t *leaf_lengths; /* [leaves] places of a row of each leaf */
    weft_order order;
    char *shared;             /* what goes to the device and comes back: the parts below */
    char *leaf_memory[2];     /* in turn: one is filled while the other one may still be on its way */
    weft_mark *leaf_sent[2];  /* when it may be filled again; NULL: now */
    int leaf_turn;            /* which one is next */
    double *count_out;        /* COUNT, and behind it the seed (fp32) */
    void *hp;                 /* the optimizer's struct */
    int64_t *first_out;       /* [leaves] their first rows, where they are asked for */
    const double *outcome;    /* norm, and losses as they lie behind it on the device */
    char *leaves;             /* while a pass is recorded: all its leaves, each as large as the largest; else NULL */
    weft_leaf leaf;           /* arrays of the largest shape, in leaf_memory or leaves */
    int32_t leaf_now;         /* which leaf the arrays hold and the slot has; -1: none */
    weft_slot_ref *gradients; /* [n_parameters] of the event that runs */
    int64_t *used;            /* [slots of the largest program]: bytes of each slot that were really touched */
    bool find_culprit;        /* after a non-finite loss: look at each carry */
    weft_error culprit;       /* what this rank has found then, where there are others: they wait for its exchanges */
    double data_seconds;
    weft_flights *flights;
    struct weft_hidden *hidden;    /* collects the last hidden states of evaluations (hidden.h); NULL: nobody does */
    weft_recorder *recorder;       /* NULL: passes are not recorded */
    const weft_call_sink *sink;    /* is told of each device call of the segments, and the trace has each event's own
                                    * time, on a device that queues as well; NULL: nothing is timed */
    const weft_value_sink *values; /* is told what the events of a training step leave; NULL: nothing is read back */
    weft_step_result result;
} weft_stepper;

/* A leaf's loss, once the pass has ended. */
double weft_step_loss(const weft_stepper *self, int32_t leaf);

/* What a pass does beside its events, and fails, is told with the pass: "step 12, its losses: ". what: "", or what it
 * was behind a comma. Gives status. */
weft_status weft_step_of_pass(const weft_stepper *self, const char *what, weft_status status, weft_error *err);

#endif
