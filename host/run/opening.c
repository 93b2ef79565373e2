/* host/run/opening.c: see opening.h. */
#include "run/opening.h"

#include "run/process_context.h"
#include "run/coherence.h"
#include "run/p2p_channels.h"

weft_status weft_opening_engine(weft_engine **out, const weft_run *run, const weft_rank_span *rank_span,
                                weft_error *err) {
    weft_engine *engine = NULL;
    weft_status status = weft_engine_open(&engine, run, rank_span, err);
    if (status != WEFT_OK) return status;
    status = weft_coherence_run(weft_coherence_peers(engine), run, &engine->device_info,
                                weft_engine_open_optimizer(engine, err), err);
    if (status == WEFT_OK) status = weft_coherence_answers(weft_coherence_peers(engine), engine, status, err);
    if (status == WEFT_OK) *out = engine;
    else weft_engine_close(engine);
    return status;
}

static weft_status settle_choices(weft_engine *engine, weft_error *err) {
    const weft_chooser by = weft_engine_chooser(engine);
    return weft_choices_settle(&engine->choices, &by, err);
}

/* All that a communicator opens is there before the device is asked what is left for the plan. */
static weft_status meet_others(weft_engine *engine, weft_error *err) {
    weft_status status = WEFT_OK;
    if (engine->ranks.comm == NULL || engine->ranks.world == 1) return WEFT_OK;
    status = weft_engine_meet(engine, err);
    if (status == WEFT_OK) status = weft_step_connect(engine, err);
    if (status == WEFT_OK) status = weft_control_channel_connect(&engine->post, err);
    if (status != WEFT_OK) return status;
    return weft_device_measure(&engine->device_info, engine->kernels, engine->device, err);
}

weft_status weft_opening_prepare(weft_engine *engine, const weft_plan_spec *spec, weft_error *err) {
    weft_status status =
        weft_coherence_answers(weft_coherence_peers(engine), engine, weft_engine_prepare(engine, spec, err), err);
    if (status != WEFT_OK || engine->own_process_context == NULL) return status;
    status = meet_others(engine, err);
    return status == WEFT_OK ? settle_choices(engine, err) : status;
}

weft_status weft_opening_allocate(weft_engine *engine, weft_error *err) {
    const weft_status status = weft_engine_allocate(engine, err);
    return status == WEFT_OK && engine->own_process_context == NULL ? settle_choices(engine, err) : status;
}
