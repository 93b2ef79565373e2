/* host/run/stepper.c: see stepper.h. */
#include "run/stepper.h"

double weft_step_loss(const weft_stepper *self, int32_t micro_batch) {
    const weft_scalars *scalars = &self->engine->scalars;
    const weft_loss_place *place = &self->mode_plan->losses[micro_batch];
    const int64_t at = (int64_t)place->rank * self->mode_plan->most_losses + place->position;
    return self->outcome[(scalars->all_losses.offset - scalars->norm.offset) / weft_f64_bytes(1) + at];
}

weft_status weft_step_of_pass(const weft_stepper *self, const char *what, weft_status status, weft_error *err) {
    if (status == WEFT_OK) return WEFT_OK;
    if (self->step == 0) (void)weft_error_prefix(err, "evaluation%s: ", what);
    else (void)weft_error_prefix(err, "step %llu%s: ", (unsigned long long)self->step, what);
    return status;
}
