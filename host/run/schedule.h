/* host/run/schedule.h: the learning rate of each optimizer step, and the loss scale. The only clock is optimizer
 * steps. The formulas are those of transformers' get_*_schedule_with_warmup and of PyTorch's StepLR. */
#ifndef WEFT_HOST_RUN_SCHEDULE_H
#define WEFT_HOST_RUN_SCHEDULE_H

#include "config/settings.h"

/* The factor of losses before backward in fp16, which has no numbers between 0 and 2^-24, where most gradients of
 * activations are, and none above 65504. The clip divides the gradient by it. A step whose gradient norm is not finite
 * makes no update, and the scale is multiplied by `backoff`. After `every` consecutive steps with a finite norm it is
 * multiplied by `growth`, unless fp32 would overflow: the rules of PyTorch's GradScaler (torch/amp/grad_scaler.py). The
 * norm is identical on all ranks, and so is the scale. */
typedef struct weft_loss_scale {
    float scale;
    int64_t good;    /* steps in a row whose gradients were finite, since the last change of the scale */
    int64_t skipped; /* steps of the run without an update */
} weft_loss_scale;

void weft_loss_scale_begin(weft_loss_scale *self, const weft_train_settings *keys);
/* The factor of the sum of losses over a step's targets; count > 0. */
float weft_loss_scale_seed(const weft_loss_scale *self, int64_t count);
/* After a step with targets. false: the scale has fallen below [train] scale_floor. */
bool weft_loss_scale_note(weft_loss_scale *self, const weft_train_settings *keys, bool finite);

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

#endif
