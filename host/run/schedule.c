/* host/run/schedule.c: see schedule.h. */
#include "run/schedule.h"

#include <math.h>

void weft_loss_scale_begin(weft_loss_scale *self, const weft_train_settings *keys) {
    *self = (weft_loss_scale){.scale = (float)keys->loss_scale};
}

float weft_loss_scale_seed(const weft_loss_scale *self, int64_t count) {
    return (float)((double)self->scale / (double)count);
}

bool weft_loss_scale_note(weft_loss_scale *self, const weft_train_settings *keys, bool finite) {
    if (finite && ++self->good < keys->scale_every) return true;
    if (finite) { /* an fp32 number times one of fp64, rounded once, as on PyTorch's devices */
        const float grown = (float)((double)self->scale * keys->scale_growth);
        self->good = 0;
        if (isfinite(grown)) self->scale = grown;
        return true;
    }
    self->skipped++;
    self->good = 0;
    self->scale = (float)((double)self->scale * keys->scale_backoff);
    return (double)self->scale >= keys->scale_floor;
}

double weft_schedule_factor(const weft_schedule *schedule, int64_t step) {
    const int64_t x = step - 1, after = x - schedule->warmup;
    const int64_t span = schedule->steps > schedule->warmup ? schedule->steps - schedule->warmup : 1;
    const double done = (double)after / (double)span;
    if (after < 0) return (double)x / (double)schedule->warmup;
    switch (schedule->kind) {
    case WEFT_SCHEDULE_LINEAR: return done < 1.0 ? (double)(schedule->steps - x) / (double)span : 0.0;
    case WEFT_SCHEDULE_COSINE: return done < 1.0 ? 0.5 * (1.0 + cos(3.14159265358979323846 * done)) : 0.0;
    case WEFT_SCHEDULE_STEP: return pow(schedule->gamma, (double)(after / schedule->every));
    default: return 1.0;
    }
}

double weft_lr_scale(const weft_train_settings *train) {
    const double ratio = (double)train->global_batch / (double)train->lr_batch;
    if (train->lr_scaling == WEFT_LR_AS_IT_IS) return 1.0;
    return train->lr_scaling == WEFT_LR_LINEAR ? ratio : sqrt(ratio);
}
