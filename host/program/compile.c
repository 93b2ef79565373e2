/* host/program/compile.c: asking the strategy three times, and judging its answers before they are used.
 *
 * What a strategy says is a stranger's: counts and holdings are checked here, events by the checker. */
#include "plugin/enter.h"
#include "program/events.h"

#include <stdlib.h>

static weft_status ask_replicas(weft_job_spec *job, const weft_host *host, const weft_strategy_plugin *strategy,
                                const void *config, weft_error *err) {
    int32_t replicas = 0;
    weft_status status = WEFT_OK;
    job->view.replicas = 0;
    WEFT_PLUGIN_CALL(status, strategy, replicas, err, host, config, &job->view, &replicas);
    if (status != WEFT_OK) return status;
    if (replicas < 1 || replicas > job->view.world)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "the strategy plugin wants %d replicas: 1 to %d fit a world of %d ranks", (int)replicas,
                              (int)job->view.world, (int)job->view.world);
    job->view.replicas = replicas;
    return WEFT_OK;
}

static bool holding_exists(int32_t holding) {
    return holding == WEFT_REPLICATED || holding == WEFT_SHARDED || holding == WEFT_OWNED;
}

static weft_status judge_placement(const weft_placement *placement, const char *unit, int32_t world, weft_error *err) {
    const int32_t holdings[3] = {placement->parameters, placement->gradients, placement->optimizer};
    bool owned = false;
    for (int i = 0; i < 3; i++) {
        if (!holding_exists(holdings[i]))
            return weft_error_set(err, WEFT_E_PLUGIN,
                                  "the strategy plugin places unit %s with holding %d, which there is not", unit,
                                  (int)holdings[i]);
        owned = owned || holdings[i] == WEFT_OWNED;
    }
    if (owned && (placement->owner < 0 || placement->owner >= world))
        return weft_error_set(err, WEFT_E_PLUGIN, "the strategy plugin gives unit %s to rank %d: ranks are 0 to %d",
                              unit, (int)placement->owner, (int)world - 1);
    return WEFT_OK;
}

/* The views are the caller's and writable: it is the strategy that must not write to them. */
static weft_status ask_placement(weft_job_spec *job, const weft_host *host, const weft_strategy_plugin *strategy,
                                 const void *config, weft_error *err) {
    weft_unit_view *views = (weft_unit_view *)job->view.units;
    weft_status status = WEFT_OK;
    weft_placement *answer = calloc((size_t)job->view.n_units + 1, sizeof *answer);
    if (answer == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for the placement of %d units", (int)job->view.n_units);
    for (int32_t u = 0; u < job->view.n_units; u++) answer[u].struct_size = (uint32_t)sizeof *answer;
    WEFT_PLUGIN_CALL(status, strategy, place, err, host, config, &job->view, answer);
    for (int32_t u = 0; u < job->view.n_units && status == WEFT_OK; u++)
        status = judge_placement(&answer[u], views[u].name, job->view.world, err);
    for (int32_t u = 0; u < job->view.n_units && status == WEFT_OK; u++) views[u].placement = answer[u];
    free(answer);
    return status;
}

/* RECOMPUTE is the host's own, so that a strategy cannot be wrong about it. */
static weft_status judge_events(const weft_program *program, const weft_job_spec *job, weft_error *err) {
    char text[256];
    if (program->out_of_memory)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for more than %d events of a step program",
                              (int)program->n_events);
    for (int32_t i = 0; i < program->n_events; i++) {
        if (program->events[i].kind != WEFT_EVENT_RECOMPUTE) continue;
        weft_event_describe(text, sizeof text, &program->events[i], job);
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "event %d, %s: a strategy emits no RECOMPUTE; the host adds them where activation "
                              "checkpointing is on",
                              (int)i, text);
    }
    return WEFT_OK;
}

weft_status weft_program_compile(weft_program **out, const weft_host *host, const weft_strategy_plugin *strategy,
                                 const void *strategy_config, weft_job_spec *job, int32_t rank, weft_error *err) {
    weft_program *program = NULL;
    weft_emitter emitter = {(uint32_t)sizeof emitter, 0, NULL, weft_program_emit};
    weft_status status = weft_job_spec_check(job, err);
    if (status == WEFT_OK) status = ask_replicas(job, host, strategy, strategy_config, err);
    if (status == WEFT_OK) status = ask_placement(job, host, strategy, strategy_config, err);
    if (status == WEFT_OK) status = weft_program_create(&program, job, err);
    if (status != WEFT_OK) return status;
    emitter.program = program;
    WEFT_PLUGIN_CALL(status, strategy, compile, err, host, strategy_config, &job->view, rank, &emitter);
    if (status == WEFT_OK || program->out_of_memory) {
        const weft_status judged = judge_events(program, job, err);
        status = judged != WEFT_OK ? judged : status;
    }
    if (status == WEFT_OK && job->view.mode == WEFT_MODE_TRAIN && job->activation_checkpointing)
        status = weft_program_checkpoint(program, job, err);
    if (status == WEFT_OK) *out = program;
    else weft_program_destroy(program);
    return status;
}
