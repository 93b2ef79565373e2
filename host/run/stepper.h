/* host/run/stepper.h: one optimizer step, or one micro-batch of evaluation: a pass over a program and its result.
 *
 * The files of a pass share this struct: step.c runs a pass and fetches its micro-batches, run_instructions.c runs an
 * instruction, communication.c those that communicate, graph_capture.c replays captured passes, values.c finds numbers
 * that are not finite. Losses and norm stay on the device until the pass ends. */
#ifndef WEFT_HOST_RUN_STEPPER_H
#define WEFT_HOST_RUN_STEPPER_H

#include "graph/kernels.h"
#include "model/stream_sync.h"
#include "program/execute.h"
#include "program/exchange.h"
#include "run/engine.h"

#include <weft/data.h>
#include <weft/ranges.h>

typedef struct weft_step_result {
    double loss_sum;   /* fp64 sum over micro-batches in order */
    int64_t n_targets; /* COUNT */
    int64_t n_places;  /* positions of all micro-batches, with padding */
    double norm;       /* of the mean gradient before clipping; training only */
    double lr;
    double data_seconds; /* spent in the data plugin */
    double scale;        /* loss scale; 0: losses are not scaled */
    bool skipped;        /* no update: no micro-batch has a target, ... */
    bool overflowed;     /* ... or, in fp16, gradients are not finite at this scale */
    bool replayed;       /* from captured graphs: the trace has no times of its instructions */
} weft_step_result;

typedef struct weft_graph_capture weft_graph_capture;
typedef struct weft_value_sink weft_value_sink; /* host/run/values.h */

enum { WEFT_STEP_EXCHANGES = 2 * WEFT_UNIT_GROUPS }; /* of one instruction: up to two per group of its unit */

typedef struct weft_stepper {
    weft_engine *engine;
    const weft_data_plugin *data_plugin;
    weft_data *data;
    const weft_mode_plan *mode_plan; /* whose program runs */
    weft_trace *trace;               /* large enough for a pass of any program */
    int32_t split;
    uint64_t first_row; /* of the step's first micro-batch */
    uint64_t step;      /* from 1; 0 in evaluation */
    double lr;
    double clip; /* 0: none */
    int64_t count;
    int64_t *micro_batch_targets; /* [micro-batches] target tokens */
    int32_t *micro_batch_lengths; /* [micro-batches] positions of a sequence */
    weft_stream_sync order;
    weft_double_buffer uploads;   /* of micro-batches */
    char *shared;                 /* transfer memory: the parts below */
    double *count_out;            /* COUNT, followed by the seed (fp32) */
    void *hp;                     /* the optimizer's struct */
    int64_t *first_out;           /* [micro-batches] index of the first sequence, for models with dropout */
    const double *outcome;        /* norm and losses, in the device's order */
    char *micro_batches;          /* during capture: all micro-batches, each of the largest size; else NULL */
    weft_micro_batch micro_batch; /* arrays of the largest shape, in uploads or micro_batches */
    int32_t loaded_micro_batch;   /* index of the loaded micro-batch; -1: none */
    weft_slot_ref *gradients;     /* [n_parameters] of the current instruction */
    int64_t *used;                /* [slots of the largest program] bytes that kernels touched */
    bool find_culprit;            /* after a loss that is not finite: check each carry */
    weft_error culprit;           /* found on this rank among several; the other ranks still wait for its exchanges */
    weft_comm_handle *(
        *handles)[WEFT_STEP_EXCHANGES]; /* [n_instructions] of the largest program: in-flight exchanges */
    int32_t n_in_flight;                /* handles that are not joined */
    weft_fold *folds;                   /* [n_units][2] sums by hop */
    struct weft_hidden *hidden;         /* collects hidden states in evaluation (values.h); NULL: it is off */
    weft_graph_capture *graph_capture;  /* NULL: passes are not captured */
    /* Called for each device call of the segments; then the trace has each instruction's own time, also on a device
     * that queues. NULL: no timing. */
    const weft_call_sink *sink;
    const weft_device_ranges *ranges; /* NULL: the device has no ranges */
    const weft_value_sink *values;    /* gets the values of a training step; NULL: nothing is read back */
    weft_step_result result;
} weft_stepper;

/* data may be NULL if no micro-batch is fetched. The engine must be allocated. */
weft_status weft_stepper_create(weft_stepper **out, weft_engine *engine, const weft_data_plugin *data_plugin,
                                weft_data *data, weft_error *err);
void weft_stepper_destroy(weft_stepper *stepper); /* NULL is fine */

/* Runs optimizer step `step` (from 1). clip 0: none. A loss or gradient that is not finite is WEFT_E_NUMERIC, with step
 * and segment in the message. [collective] */
weft_status weft_stepper_train(weft_stepper *stepper, weft_step_result *out, uint64_t step, double lr, double clip,
                               weft_error *err);

/* Runs a training step on micro-batches of the largest length without data, on a device in a dry run. */
weft_status weft_stepper_rehearse(weft_stepper *stepper, weft_error *err);

/* Evaluates one micro-batch per replica, from first_row of a split on. Adds the losses to out->loss_sum in micro-batch
 * order, so the sum over many passes does not depend on the number of replicas. [collective] */
weft_status weft_stepper_evaluate(weft_stepper *stepper, weft_step_result *out, int32_t split, uint64_t first_row,
                                  weft_error *err);

/* Updates the loss scale after a step with targets. false: it has fallen below [train] scale_floor. */
bool weft_loss_scale_note(weft_loss_scale *self, const weft_train_settings *keys, bool finite);
/* Returns a micro-batch's loss, after the pass. */
double weft_step_loss(const weft_stepper *self, int32_t micro_batch);
/* Returns status. Prefixes a failure with "step 12" or "evaluation" and `detail`: "" or text after a comma. */
weft_status weft_step_of_pass(const weft_stepper *self, const char *detail, weft_status status, weft_error *err);

/* Bytes of a micro-batch of the largest shape. */
int64_t weft_step_micro_batch_bytes(const weft_engine *engine);
/* Fetches the wanted micro-batches into self->micro_batches. wanted: [micro-batches] */
weft_status weft_step_make_micro_batches(weft_stepper *self, const bool *wanted, weft_error *err);
/* Loads micro-batch m into self->micro_batch and its slot, unless it is loaded. */
weft_status weft_step_load_micro_batch(weft_stepper *self, int32_t m, weft_slot_ref slot, weft_error *err);

/* Writes the numbers that the device reads in a training pass: COUNT, the optimizer's struct, the micro-batches' first
 * sequences. For a replay, which runs no instruction that writes them. */
weft_status weft_step_put_numbers(weft_stepper *self, weft_error *err);
/* Uploads the index of each micro-batch's first sequence, if the model has dropout. */
weft_status weft_step_send_first_rows(weft_stepper *self, weft_error *err);
/* Runs instructions [first, end) of self->mode_plan's program: a slice (program/plan.h). */
weft_status weft_step_run_part(weft_stepper *self, int32_t first, int32_t end, weft_error *err);
/* Gathers the losses of a pass on all ranks. [collective] */
weft_status weft_step_gather_losses(weft_stepper *self, weft_error *err);

/* Returns a slot for the graphs, with the counter of the bytes that they touch. */
weft_slot_ref weft_step_slot(const weft_stepper *self, int32_t index);
/* Returns a unit's micro-batch gradient: its slot, or the sum itself if the step has one micro-batch. */
weft_slot_ref weft_step_gradient(const weft_stepper *self, int32_t unit, int32_t slot);
/* Resets the unit sums to their state before instruction `first`, at which no exchange is in flight. */
void weft_communication_begin(weft_stepper *self, int32_t first);
/* Drives in-flight exchanges; stepper: a weft_stepper. */
void weft_communication_poke(void *stepper);
/* Registers its functions; the context is the stepper. */
void weft_communication_table(weft_exec_table *table);

/* *out NULL: nothing is captured, because [run] replay = no, or because device, communicator or model do not support
 * it; the latter is an error under replay = yes. stepper->order must be open. */
weft_status weft_graph_capture_open(weft_graph_capture **out, const weft_stepper *stepper, weft_error *err);
/* The device must be idle. */
void weft_graph_capture_close(weft_graph_capture *self, weft_stepper *stepper); /* NULL is fine */

/* Queues instructions [first, end); with the last one also the copy of the outcome. */
typedef weft_status weft_queue_part(weft_stepper *stepper, int32_t first, int32_t end, weft_error *err);

/* Queues a pass whose micro-batches have been counted: by captured graphs, or by `queue`. */
weft_status weft_graph_capture_queue(weft_stepper *self, weft_queue_part *queue, weft_error *err);

#endif
