/* host/run/stepper.h: a pass over a program while it runs: one struct for training and evaluation, which the files of
 * this folder share. micro_batch.h asks the data for leaves as the instructions need them, bind.h binds slots to the
 * segment graphs, run_instructions.h does each instruction, nonfinite.h finds a number that is not finite. Losses
 * and norm stay on the device until the end of the pass. */
#ifndef WEFT_HOST_RUN_STEPPER_H
#define WEFT_HOST_RUN_STEPPER_H

#include "run/state.h"
#include "run/stream_sync.h"
#include "program/execute.h"
#include "graph/calls.h"
#include <weft/data.h>

/* What one optimizer step, or one micro-batch of evaluation, came to. */
typedef struct weft_step_result {
    double loss_sum;   /* fp64 sum over micro-batches in order */
    int64_t n_targets; /* COUNT */
    int64_t n_places;  /* of all micro-batches, padding too */
    double norm;       /* of the mean gradient, before clipping; training only */
    double lr;
    double data_seconds; /* spent in the data plugin */
    double scale;        /* that the losses were multiplied by; 0: they were not */
    bool skipped;        /* nothing was updated: no target on any micro-batch, ... */
    bool overflowed;     /* ... or gradients that are not finite at this scale, in fp16 */
    bool replayed;       /* by one call: the trace holds no times of its instructions */
} weft_step_result;

typedef struct weft_flights weft_flights;             /* host/run/in_flight.h */
typedef struct weft_graph_capture weft_graph_capture; /* host/run/graph_capture.h */
typedef struct weft_value_sink weft_value_sink;       /* host/run/values.h */

typedef struct weft_stepper {
    weft_engine *engine;
    const weft_data_plugin *data_plugin;
    weft_data *data;
    const weft_mode_plan *mode_plan; /* whose program runs */
    weft_trace *trace;               /* holds a whole pass of any program */
    int32_t split;
    uint64_t first_row; /* of the step's first micro-batch */
    uint64_t step;      /* from 1; 0 in evaluation */
    double lr;
    double clip; /* 0: none */
    int64_t count, places;
    int64_t *micro_batch_targets; /* [micro-batches] targets of each micro-batch */
    int32_t *micro_batch_lengths; /* [micro-batches] places of a row of each micro-batch */
    weft_stream_sync order;
    char *shared;                    /* what goes to the device and comes back: the parts below */
    char *micro_batch_memory[2];     /* in turn: one is filled while the other one may still be on its way */
    weft_event *micro_batch_sent[2]; /* when it may be filled again; NULL: now */
    int micro_batch_turn;            /* which one is next */
    double *count_out;               /* COUNT, and behind it the seed (fp32) */
    void *hp;                        /* the optimizer's struct */
    int64_t *first_out;              /* [micro-batches] their first rows, where they are asked for */
    const double *outcome;           /* norm, and losses as they lie behind it on the device */
    /* while a pass is recorded: all its micro-batches, each as large as the largest; else NULL */
    char *micro_batches;
    weft_micro_batch micro_batch; /* arrays of the largest shape, in micro_batch_memory or micro-batches */
    int32_t micro_batch_now;      /* which micro-batch the arrays hold and the slot has; -1: none */
    weft_slot_ref *gradients;     /* [n_parameters] of the instruction that runs */
    int64_t *used;                /* [slots of the largest program]: bytes of each slot that were really touched */
    bool find_culprit;            /* after a non-finite loss: look at each carry */
    weft_error culprit; /* what this rank has found then, where there are others: they wait for its exchanges */
    double data_seconds;
    weft_flights *flights;
    struct weft_hidden *hidden; /* collects the last hidden states of evaluations (hidden.h); NULL: nobody does */
    weft_graph_capture *graph_capture; /* NULL: passes are not recorded */
    /* is told of each device call of the segments, and the trace has each instruction's own time, on a device that
     * queues as well; NULL: nothing is timed */
    const weft_call_sink *sink;
    /* is told what the instructions of a training step leave; NULL: nothing is read back */
    const weft_value_sink *values;
    weft_step_result result;
} weft_stepper;

/* A micro-batch's loss, once the pass has ended. */
double weft_step_loss(const weft_stepper *self, int32_t micro_batch);

/* What a pass does beside its instructions, and fails, is told with the pass: "step 12, its losses: ". what: "", or
 * what it was behind a comma. Gives status. */
weft_status weft_step_of_pass(const weft_stepper *self, const char *what, weft_status status, weft_error *err);

#endif
