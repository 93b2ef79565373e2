/* host/run/loss_scale.c: see loss_scale.h. */
#include "run/loss_scale.h"

#include <math.h>

void weft_loss_scale_begin(weft_loss_scale *self, const weft_train_settings *keys) {
    const weft_loss_scale begin = {.scale = (float)keys->loss_scale};
    *self = begin;
}

float weft_loss_scale_seed(const weft_loss_scale *self, int64_t count) {
    return (float)((double)self->scale / (double)count);
}

/* The scale is an fp32 number times one of fp64, rounded once, as on PyTorch's devices. */
static void grow(weft_loss_scale *self, const weft_train_settings *keys) {
    const float grown = (float)((double)self->scale * keys->scale_growth);
    self->good = 0;
    if (isfinite(grown)) self->scale = grown;
}

bool weft_loss_scale_note(weft_loss_scale *self, const weft_train_settings *keys, bool finite) {
    if (finite) {
        if (++self->good >= keys->scale_every) grow(self, keys);
        return true;
    }
    self->skipped++;
    self->good = 0;
    self->scale = (float)((double)self->scale * keys->scale_backoff);
    return (double)self->scale >= keys->scale_floor;
}
