/* host/program/save_place.c: see save_place.h. */
#include "program/save_place.h"

#include "base/machine.h"
#include "base/sizes.h"
#include "plugin/enter.h"

int64_t weft_save_place_parameters(const weft_plan *plan) {
    const weft_hold *hold = plan->holds[WEFT_HOLD_PARAMETERS];
    const int32_t trained = plan->layout->n_trainable_groups; /* they come first */
    return plan->visible && trained < hold->n_groups ? hold->spans[trained].at : hold->bytes;
}

int64_t weft_save_place_state(const weft_plan *plan) {
    return plan->holds[WEFT_HOLD_STATES]->bytes;
}

int64_t weft_save_place_bytes(const weft_plan *plan) {
    return weft_buffer_part(weft_save_place_parameters(plan)) +
           plan->n_states * weft_buffer_part(weft_save_place_state(plan));
}

/* The ranks of a machine keep about as much as this one does. */
static bool has_room(const weft_plan *plan) {
    const int64_t ranks = plan->nodes > 0 ? (plan->world + plan->nodes - 1) / plan->nodes : plan->world;
    weft_machine_memory machine;
    weft_machine_memory_read(&machine, "");
    return machine.total == 0 || weft_save_place_bytes(plan) <= machine.total / 2 / weft_larger(ranks, 1);
}

void weft_save_place_decide(weft_plan *plan, const weft_device_plugin *kernels, const weft_device *device) {
    weft_device_info info = {.struct_size = (uint32_t)sizeof info};
    const int64_t asked = plan->run->settings.checkpoint.beside;
    plan->visible = kernels->host_view != NULL;
    plan->saves = WEFT_SAVES_NONE;
    if (!plan->spec.saves) return;
    WEFT_PLUGIN_TELL(kernels, info, device, &info);
    if (asked == WEFT_CHOICE_NO) plan->saves = WEFT_SAVES_IN_PLACE;
    else if (asked == WEFT_CHOICE_YES) plan->saves = WEFT_SAVES_BESIDE;
    else if ((info.flags & WEFT_DEVICE_SHARES_MACHINE) != 0) plan->saves = WEFT_SAVES_SHARED;
    else plan->saves = has_room(plan) ? WEFT_SAVES_BESIDE : WEFT_SAVES_NO_ROOM;
}
