/* host/report/axes.h: the settings that a run's memory depends on, each with values that take less than its own, the
 * mildest first. */
#ifndef WEFT_HOST_REPORT_AXES_H
#define WEFT_HOST_REPORT_AXES_H

#include "report/trial.h"

/* In the order in which they are told: what leaves the result as it is first. */
typedef enum weft_fit_axis {
    WEFT_FIT_SAVING = 0,        /* training stands while a checkpoint is written */
    WEFT_FIT_MICRO = 1,         /* the same batch in smaller pieces */
    WEFT_FIT_CHECKPOINTING = 2, /* less is kept and more computed */
    WEFT_FIT_SHARDING = 3,      /* fsdp on as many ranks */
    WEFT_FIT_FEWER = 4,         /* ranks of one machine that share its memory */
    WEFT_FIT_MORE = 5,          /* fsdp on more devices, or machines */
    WEFT_FIT_PRECISION = 6,     /* rounds otherwise */
    WEFT_FIT_TRAINABLE = 7,     /* learns in fewer layers */
    WEFT_N_FIT_AXES = 8
} weft_fit_axis;

/* WORK: of a plan, in segments that are run by a rank in a step; twice as many take four times as long to plan. */
enum { WEFT_FIT_LEVELS = 32, WEFT_FIT_MOST_RANKS = 64, WEFT_FIT_WORK = 1 << 15, WEFT_FIT_PLANS = 100 };

/* What a run is changed to at one level of one axis. */
typedef struct weft_fit_level {
    char key[WEFT_TRIAL_KEY_SIZE]; /* "": none */
    int32_t ranks, nodes;          /* 0: as they are */
} weft_fit_level;

typedef struct weft_fit_levels {
    weft_fit_level at[WEFT_FIT_LEVELS];
    int32_t n;
} weft_fit_levels;

/* The levels of each axis for a session; level 0, its own, is not among them. */
void weft_fit_axes(weft_fit_levels axes[WEFT_N_FIT_AXES], const weft_fit_question *question);

#endif
