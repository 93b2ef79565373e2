/* host/report/launches.c: see launches.h. */
#include "report/launches.h"

#include "run/stepper.h"
#include <weft/dry_run.h>

/* The communicator handles communication itself, so collectives have no effect
 * here. */

static weft_status exchange_nothing(weft_comm *comm, weft_comm_handle **out, const weft_exchange *args,
                                    weft_error *err) {
    (void)comm;
    (void)args;
    (void)err;
    *out = NULL;
    return WEFT_OK;
}

static const weft_comm_plugin no_exchanges = {.struct_size = (uint32_t)sizeof no_exchanges,
                                              .all_gather = exchange_nothing,
                                              .reduce_scatter = exchange_nothing,
                                              .all_to_all = exchange_nothing,
                                              .send = exchange_nothing,
                                              .recv = exchange_nothing};

/* Copies the engine's plan, without memory and without a communicator. */
static weft_engine engine_without_memory(const weft_engine *of) {
    weft_engine out = {.plan = of->plan,
                       .kernels = of->kernels,
                       .device = of->device,
                       .device_info = of->device_info,
                       .optimizer_plugin = of->optimizer_plugin,
                       .optimizer = of->optimizer};
    out.account.kernels = of->kernels;
    out.account.device = of->device;
    out.ranks.rank = of->ranks.rank;
    out.ranks.world = of->ranks.world;
    out.ranks.info.progress = WEFT_PROGRESS_OWN;
    if (of->ranks.world > 1) out.ranks.plugin = &no_exchanges;
    return out;
}

/* Runs a step while the device counts. */
static weft_status count_step(weft_launches *out, const weft_device_dry_run *dry, weft_engine *engine,
                              weft_error *err) {
    weft_dry_counts before = {.struct_size = (uint32_t)sizeof before}, after = before;
    weft_stepper *stepper = NULL;
    weft_status status = weft_engine_take_memory(engine, err);
    if (status == WEFT_OK) status = weft_stepper_create(&stepper, engine, NULL, NULL, err);
    dry->counts(engine->device, &before);
    if (status == WEFT_OK && weft_stepper_rehearse(stepper, err) != WEFT_OK)
        status = weft_error_prefix(err, "a rehearsal of a step: ");
    dry->counts(engine->device, &after);
    weft_stepper_destroy(stepper);
    weft_engine_release(engine);
    out->kernels = after.kernels - before.kernels;
    out->products = after.products - before.products;
    out->copies = after.copies - before.copies;
    out->known = status == WEFT_OK;
    return status;
}

weft_status weft_launches_count(weft_launches *out, const weft_engine *engine, weft_error *err) {
    const weft_launches unknown = {0};
    const weft_device_dry_run *dry = NULL;
    weft_engine counted = engine_without_memory(engine);
    weft_status status = weft_device_dry_run_find(&dry, engine->kernels, engine->device, err);
    *out = unknown;
    if (status != WEFT_OK || dry == NULL || !engine->plan.spec.training) return status;
    status = dry->begin(engine->device, err);
    if (status != WEFT_OK) return status;
    status = count_step(out, dry, &counted, err);
    dry->end(engine->device);
    return status;
}
