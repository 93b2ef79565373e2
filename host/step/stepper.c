/* host/step/stepper.c: see stepper.h. */
#include "step/stepper.h"

#include "plugin/enter.h"

weft_status weft_step_loss(const weft_stepper *self, double *out, int32_t leaf, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_loss_place *place = &self->stage->losses[leaf];
    const int64_t at = (int64_t)place->rank * self->stage->most_losses + place->position;
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, engine->kernels, read, err, engine->device, NULL, out,
                     weft_ref_at(engine->scalars.all_losses, 8 * at), 8);
    return status;
}
