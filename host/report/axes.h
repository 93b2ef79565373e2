/* host/report/axes.h: the settings that determine a run's memory, each with values that need less than the current one,
 * in order of increasing effect. */
#ifndef WEFT_HOST_REPORT_AXES_H
#define WEFT_HOST_REPORT_AXES_H

#include "report/trial.h"

/* In output order: settings that do not change the result come first. */
typedef enum weft_fit_axis {
    WEFT_FIT_SAVING = 0,        /* save checkpoints synchronously */
    WEFT_FIT_MICRO = 1,         /* the same batch in smaller micro-batches */
    WEFT_FIT_CHECKPOINTING = 2, /* store less and recompute more */
    WEFT_FIT_SHARDING = 3,      /* fsdp on the same number of ranks */
    WEFT_FIT_FEWER = 4,         /* fewer ranks on one machine, which share its memory */
    WEFT_FIT_MORE = 5,          /* fsdp on more devices, or machines */
    WEFT_FIT_PRECISION = 6,     /* different rounding */
    WEFT_FIT_TRAINABLE = 7,     /* train fewer layers */
    WEFT_N_FIT_AXES = 8
} weft_fit_axis;

/* WORK: limit of a plan, in segments executed by a rank in a step; twice as many take four times as long to plan. */
enum { WEFT_FIT_LEVELS = 32, WEFT_FIT_MOST_RANKS = 64, WEFT_FIT_WORK = 1 << 15, WEFT_FIT_PLANS = 100 };

/* The change at one level of one axis. */
typedef struct weft_fit_level {
    char key[WEFT_TRIAL_KEY_SIZE]; /* "": unchanged */
    int32_t ranks, nodes;          /* 0: unchanged */
} weft_fit_level;

typedef struct weft_fit_levels {
    weft_fit_level at[WEFT_FIT_LEVELS];
    int32_t n;
} weft_fit_levels;

/* Lists the levels of each axis for a session, without level 0, the current setting. */
void weft_fit_axes(weft_fit_levels axes[WEFT_N_FIT_AXES], const weft_fit_question *question);

#endif
