/* host/run/schedule.h: the learning rate of each optimizer step. One clock: optimizer steps, whatever the number
 * of ranks or micro-batches. The formulas are those of transformers' get_*_schedule_with_warmup and of PyTorch's
 * StepLR. */
#ifndef WEFT_HOST_RUN_SCHEDULE_H
#define WEFT_HOST_RUN_SCHEDULE_H

#include "config/settings.h"

typedef struct weft_schedule {
    int32_t kind;   /* weft_schedule_kind */
    int64_t steps;  /* of the whole run */
    int64_t warmup; /* steps of linear warm-up from 0 (weft_warmup_resolve) */
    int64_t every;  /* STEP: steps between decays */
    double gamma;   /* STEP: factor of each decay */
} weft_schedule;

/* The factor on the learning rate that update `step`, from 1, uses: the schedule at step - 1. */
double weft_schedule_factor(const weft_schedule *schedule, int64_t step);

/* What [train] lr_scaling makes of the learning rate: 1, global_batch / lr_batch, or its square root. */
double weft_lr_scale(const weft_train_settings *train);

#endif
