/* host/run/session.h: a configuration with its plugins, text, data and engine, ready to plan, train or measure. */
#ifndef WEFT_HOST_RUN_SESSION_H
#define WEFT_HOST_RUN_SESSION_H

#include "run/text.h"
#include "run/stepper.h"

/* The learning rate of each optimizer step, the only clock. The formulas are those of transformers'
 * get_*_schedule_with_warmup and of PyTorch's StepLR. */
typedef struct weft_schedule {
    int32_t kind;   /* weft_schedule_kind */
    int64_t steps;  /* of the run */
    int64_t warmup; /* steps of linear warm-up from 0 (weft_warmup_resolve) */
    int64_t every;  /* STEP: steps between decays */
    double gamma;   /* STEP: factor of each decay */
} weft_schedule;

/* The factor on the learning rate that update `step`, from 1, uses: the schedule at step - 1. */
double weft_schedule_factor(const weft_schedule *schedule, int64_t step);
/* The factor of [train] lr_scaling: 1, global_batch / lr_batch, or its square root. */
double weft_lr_scale(const weft_train_settings *train);

typedef enum weft_session_kind {
    WEFT_SESSION_TRAIN = 0, /* training, with evaluation if there is validation data */
    WEFT_SESSION_EVALUATE = 1,
    WEFT_SESSION_PROFILE = 2, /* as TRAIN without output: [run] out may be missing; plan and profile */
    WEFT_SESSION_STEPS = 3,   /* as PROFILE without evaluation: prove */
    WEFT_SESSION_RESUME = 4   /* as TRAIN, with a checkpoint instead of the weights */
} weft_session_kind;

typedef struct weft_session weft_session;

/* A session among several of one process. */
typedef struct weft_session_place {
    weft_rank_span rank_span;
    const weft_session *plugin_lookup; /* whose text and data it uses, which are the same; NULL: its own */
} weft_session_place;

struct weft_session {
    weft_session_kind kind;
    weft_run *run;
    bool borrows; /* text and data of the plugin lookup */
    weft_text text;
    weft_engine *engine;
    const weft_data_plugin *data_plugin;
    weft_data *data;
    weft_data_info data_info;
    weft_data_job data_job; /* the data keeps a pointer to it */
    weft_data_source data_source;
    weft_data_share data_share;
    int64_t data_bytes, data_shared; /* memory of the data: this rank's, and shared per machine; 0 if borrowed */
    int64_t data_peak;               /* peak while the data is created; 0: not counted */
    weft_split_info train_info, validation_info, all_info;
    weft_stepper *stepper; /* after weft_session_start */
    int64_t steps;         /* optimizer steps of the run */
    weft_schedule schedule;
    double base_lr; /* the optimizer's, or 1, scaled with the batch */
    double clip;    /* 0: none */
    /* (optional) Called after each pass of an evaluation: `done` of `rows` sequences, mean loss and targets so far. */
    void (*watch)(void *context, uint64_t done, uint64_t rows, double loss, int64_t targets);
    void *watch_context;
};

/* Opens everything up to a checked, placed and priced program, without device memory. place: NULL, or one that outlives
 * the session; overrides may then replace parts. */
weft_status weft_session_open(weft_session **out, const char *path, const char *const *overrides, size_t n_overrides,
                              weft_session_kind kind, const weft_session_place *place, weft_error *err);
/* Returns the plan's input for these keys instead of the session's own. */
weft_plan_spec weft_session_spec(const weft_session *session, const weft_train_settings *keys);
/* Allocates the memory; the caller then loads weights or a checkpoint. */
weft_status weft_session_start(weft_session *session, weft_error *err);
void weft_session_close(weft_session *session); /* NULL is fine */

/* Learning rate of update `step`, from 1. */
double weft_session_lr(const weft_session *session, int64_t step);

typedef struct weft_evaluation {
    double loss; /* mean over target tokens */
    double perplexity;
    int64_t tokens; /* targets */
    double seconds;
    double similarity; /* set by run/values.h; NaN: not measured */
} weft_evaluation;
/* Evaluates all sequences of a split in order. If the stepper collects hidden states (run/values.h), they are those
 * of this evaluation. */
weft_status weft_session_evaluate(weft_session *session, weft_evaluation *out, int32_t split, weft_error *err);

/* Checks the input of training without a device: tokenizer, model with adapters, headers of the weights, and the
 * data, which are encoded. */
weft_status weft_session_check(weft_run *run, weft_error *err);

/* Fetches and validates a micro-batch of that one sequence. out->ids is the caller's to free; the other arrays are
 * in the same allocation. */
weft_status weft_session_row(weft_micro_batch *out, const weft_session *session, int32_t split, uint64_t row,
                             weft_error *err);

#endif
