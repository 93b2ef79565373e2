/* host/run/loss_scale.h: what a loss is multiplied by before its backward in fp16, and what a step does to it.
 *
 * fp16 has no numbers between 0 and 2^-24, where most gradients of activations lie, and none over 65504. The loss, as a
 * mean over the step's targets, is multiplied by a scale; the clip divides it out of the gradient again. A step whose
 * gradient norm is not finite makes no update: the scale falls by `backoff`. After `every` steps in a row whose norm
 * was finite it grows by `growth`, unless fp32 could not hold that. These are the rules of PyTorch's GradScaler
 * (torch/amp/grad_scaler.py). The norm is alike on all ranks, and so is the scale. */
#ifndef WEFT_HOST_RUN_LOSS_SCALE_H
#define WEFT_HOST_RUN_LOSS_SCALE_H

#include "config/settings.h"

typedef struct weft_loss_scale {
    float scale;
    int64_t good;    /* steps in a row whose gradients were finite, since the last change of the scale */
    int64_t skipped; /* steps of the whole run that made no update */
} weft_loss_scale;

void weft_loss_scale_begin(weft_loss_scale *self, const weft_train_settings *keys);

/* What the sum of losses over a step's targets is multiplied by; count over 0. */
float weft_loss_scale_seed(const weft_loss_scale *self, int64_t count);

/* After a step with targets. false: the scale has fallen below [train] scale_floor. */
bool weft_loss_scale_note(weft_loss_scale *self, const weft_train_settings *keys, bool finite);

#endif
