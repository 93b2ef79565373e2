/* host/run/session.h: a configuration brought to the point where it can be planned, trained or measured: plugins,
 * text, data, engine with programs. */
#ifndef WEFT_HOST_RUN_SESSION_H
#define WEFT_HOST_RUN_SESSION_H

#include "run/data_job.h"
#include "run/engine.h"
#include "run/schedule.h"
#include "run/step.h"

typedef enum weft_session_kind {
    WEFT_SESSION_TRAIN = 0, /* training, and evaluation where there is validation */
    WEFT_SESSION_EVALUATE = 1,
    WEFT_SESSION_PROFILE = 2, /* as TRAIN, but nothing will be written: [run] out may be missing; plan and profile */
    WEFT_SESSION_STEPS = 3,   /* as PROFILE, and nothing is evaluated: prove */
    WEFT_SESSION_RESUME = 4   /* as TRAIN, and a checkpoint may take the place of the weights */
} weft_session_kind;

typedef struct weft_session weft_session;

/* A session among others of one process. */
typedef struct weft_session_place {
    weft_rank_span rank_span;
    const weft_session *plugin_lookup; /* whose text and data it uses, for they are the same; NULL: its own */
} weft_session_place;

/* Told after each piece of an evaluation: `done` of `rows` rows, and what came of them so far. */
typedef void weft_session_watch(void *context, uint64_t done, uint64_t rows, double loss, int64_t targets);

struct weft_session {
    weft_session_kind kind;
    weft_run *run;
    bool borrows; /* text and data are the plugin lookup's */
    weft_text text;
    weft_engine *engine;
    const weft_data_plugin *data_plugin;
    weft_data *data;
    weft_data_info data_info;
    weft_data_job data_job; /* the data keeps a pointer to it */
    weft_data_source data_source;
    weft_data_share data_share;
    int64_t data_bytes, data_shared; /* that the data hold here, and once per machine; of a plugin lookup's: 0 */
    weft_split_info train_info, validation_info, all_info;
    weft_stepper *stepper; /* after weft_session_start */
    int64_t steps;         /* optimizer steps of the whole run */
    weft_schedule schedule;
    double base_lr;            /* what the optimizer says, 1 where it says none, scaled with the batch */
    double clip;               /* 0: none */
    weft_session_watch *watch; /* (optional) */
    void *watch_context;
};

/* Everything up to a checked, placed and priced program; takes no device memory. */
weft_status weft_session_open(weft_session **out, const char *path, const char *const *overrides, size_t n_overrides,
                              weft_session_kind kind, weft_error *err);
/* The same at a place that outlives the session, perhaps with parts exchanged for others by overrides. */
weft_status weft_session_open_at(weft_session **out, const char *path, const char *const *overrides, size_t n_overrides,
                                 weft_session_kind kind, const weft_session_place *place, weft_error *err);
/* What is planned of the session where these are its keys; its own plan is of its own. */
weft_plan_spec weft_session_spec(const weft_session *session, const weft_train_settings *keys);
/* Reads the headers of the weights that it would load, and refuses what loading them refuses. [collective] */
weft_status weft_session_check_weights(const weft_session *session, weft_error *err);
/* Takes the memory; the caller then loads weights or a checkpoint. */
weft_status weft_session_start(weft_session *session, weft_error *err);
void weft_session_close(weft_session *session); /* NULL is fine */

/* Learning rate of update `step`, from 1. */
double weft_session_lr(const weft_session *session, int64_t step);

/* Evaluation of all rows of a split in order. */
typedef struct weft_evaluation {
    double loss; /* mean over target tokens */
    double perplexity;
    int64_t tokens; /* targets */
    double seconds;
    double similarity; /* set by who measures it (train/similarity.h); NaN: nobody does */
} weft_evaluation;
/* Where the stepper collects hidden states (run/hidden.h), they are those of this evaluation then. */
weft_status weft_session_evaluate(weft_session *session, weft_evaluation *out, int32_t split, weft_error *err);

/* Checks what training reads before it takes a device: the tokenizer, the model with its adapters, the headers of the
 * weights, and the data, which are encoded. */
weft_status weft_session_check(weft_run *run, weft_error *err);

/* Refuses a tokenizer that has ids which the model's vocabulary has not. */
weft_status weft_vocabulary_check(const weft_run *run, const weft_text *text, const weft_declared *declared,
                                  weft_error *err);

#endif
