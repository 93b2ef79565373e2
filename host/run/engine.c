/* host/run/engine.c: see engine.h. Opening and closing; memory is in buffers.c. */
#include "run/engine.h"

#include "run/validate_optimizer.h"
#include "program/make_plan.h"
#include "program/states.h"
#include "plugin/call.h"
#include "plugin/enter.h"
#include "run/guard.h"

#include <stdlib.h>

weft_status weft_engine_open_optimizer(weft_engine *engine, weft_error *err) {
    const weft_part *part = &engine->plan.run->parts[WEFT_PART_OPTIMIZER];
    weft_plugin_call call;
    weft_optimizer_facts facts;
    weft_status status = WEFT_OK;
    if (part->loaded == NULL) return WEFT_OK;
    engine->optimizer_plugin = weft_loaded_table(part->loaded, optimizer);
    weft_plugin_call_begin(&call, part->loaded, "create");
    status = engine->optimizer_plugin->create(&engine->optimizer, engine->plan.run->host, part->config, err);
    status = weft_run_located(engine->plan.run, WEFT_PART_OPTIMIZER,
                              weft_plugin_call_made(&call, status, engine->optimizer, err), err);
    if (status == WEFT_OK)
        status = weft_plugin_blame(engine->optimizer_plugin,
                                   weft_optimizer_validate(&facts, engine->optimizer_plugin, engine->optimizer,
                                                           part->loaded->plugin->id, err),
                                   err);
    if (status != WEFT_OK) return status;
    memcpy(engine->plan.states, facts.states, sizeof facts.states);
    engine->plan.n_states = facts.n_states;
    weft_states_choose(engine->plan.states, facts.n_states, (weft_states)engine->plan.run->settings.optimizer.states);
    engine->plan.hp_bytes = facts.hp_bytes;
    return status;
}

bool weft_engine_lr(const weft_engine *engine, double *out) {
    const weft_optimizer_plugin *plugin = engine->optimizer_plugin;
    weft_doing before;
    if (plugin == NULL || !WEFT_HAS(plugin, lr) || plugin->lr == NULL) return false;
    before = weft_plugin_enter(plugin, "lr");
    *out = plugin->lr(engine->optimizer);
    (void)weft_plugin_leave(before, WEFT_OK, NULL);
    return true;
}

static void take_rank_span(weft_engine *engine, const weft_rank_span *rank_span) {
    engine->kernels = rank_span->process_context->kernels;
    engine->device = rank_span->process_context->device;
    engine->device_info = rank_span->process_context->device_info;
    engine->account.kernels = engine->kernels;
    engine->account.device = engine->device;
    weft_ranks_take(&engine->ranks, rank_span);
    engine->plan.rank = engine->ranks.rank;
    engine->plan.world = engine->ranks.world;
    engine->plan.nodes = engine->ranks.info.nodes;
    engine->plan.in_order = (engine->ranks.info.flags & WEFT_COMM_IN_ORDER) != 0;
}

/* Who the ranks are, and how they speak to each other. */
static weft_status meet_ranks(weft_engine *engine, const weft_rank_span *rank_span, weft_error *err) {
    weft_status status = WEFT_OK;
    if (rank_span != NULL) take_rank_span(engine, rank_span);
    else {
        weft_rank_span whole = {0};
        status = weft_process_context_open(&engine->own_process_context, engine->plan.run, err);
        if (status != WEFT_OK) return status;
        whole = weft_process_context_rank_span(engine->own_process_context);
        take_rank_span(engine, &whole);
    }
    status =
        weft_control_channel_open(&engine->post, &engine->peers, &engine->ranks, engine->kernels, engine->device, err);
    weft_account_note(&engine->account, WEFT_ACCOUNT_CONTROL, engine->post.bytes);
    if (status == WEFT_OK && engine->own_process_context != NULL && engine->ranks.comm != NULL)
        status = weft_guard_arrange(&engine->peers, &engine->ranks.info, err);
    return status;
}

weft_status weft_engine_open(weft_engine **out, const weft_run *run, const weft_rank_span *rank_span, weft_error *err) {
    weft_status status = WEFT_OK;
    weft_engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the engine");
    status = weft_plan_open(&engine->plan, run, err);
    if (status == WEFT_OK) status = meet_ranks(engine, rank_span, err);
    if (status == WEFT_OK) {
        *out = engine;
        return WEFT_OK;
    }
    engine->failed = true;
    weft_engine_close(engine);
    return status;
}

weft_status weft_engine_prepare(weft_engine *engine, const weft_plan_spec *spec, weft_error *err) {
    return weft_plan_make(&engine->plan, engine->kernels, engine->device, spec, err);
}

weft_chooser weft_engine_chooser(const weft_engine *engine) {
    const weft_chooser by = {engine->kernels, engine->device, &engine->peers};
    return by;
}

void weft_engine_give_up(weft_engine *engine) {
    weft_process_context *process_context = engine == NULL ? NULL : engine->ranks.process_context;
    if (process_context != NULL && (engine->failed || engine->post.broken || process_context->broken))
        weft_process_context_abandon(process_context);
}

void weft_engine_close(weft_engine *engine) {
    if (engine == NULL) return;
    weft_engine_give_up(engine);
    weft_engine_release(engine);
    if (engine->optimizer != NULL) WEFT_PLUGIN_TELL(engine->optimizer_plugin, destroy, engine->optimizer);
    weft_control_channel_close(&engine->post, &engine->peers);
    weft_ranks_leave(&engine->ranks);
    weft_process_context_close(engine->own_process_context, engine->failed || engine->post.broken);
    weft_choices_clear(&engine->choices);
    weft_plan_close(&engine->plan);
    free(engine);
}
