/* host/program/compile.c: asking the strategy three times, and judging its answers before they are used.
 *
 * What a strategy says is a stranger's: counts and holdings are checked here, instructions by the checker. */
#include "plugin/enter.h"
#include "plugin/timeout.h"
#include "program/instructions.h"

#include <stdlib.h>

static void begin(weft_timeout *limit, const weft_strategy_plugin *strategy, const char *slot,
                  const weft_job_spec *job) {
    weft_timeout_begin(limit, strategy, slot, "[plugins] compile_seconds", job->most_seconds);
}

weft_status weft_job_replicas(weft_job_spec *job, const weft_host *host, const weft_strategy_plugin *strategy,
                              const void *config, weft_error *err) {
    int32_t replicas = 0;
    weft_timeout limit;
    weft_status status = WEFT_OK;
    job->view.replicas = 0;
    begin(&limit, strategy, "replicas", job);
    WEFT_PLUGIN_CALL(status, strategy, replicas, err, host, config, &job->view, &replicas);
    weft_timeout_end(&limit);
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

static weft_status judge_owner(const weft_placement *placement, const char *unit, int32_t world, weft_error *err) {
    if (placement->owner >= 0 && placement->owner < world) return WEFT_OK;
    return weft_error_set(err, WEFT_E_PLUGIN, "the strategy plugin gives unit %s to rank %d: ranks are 0 to %d", unit,
                          (int)placement->owner, (int)world - 1);
}

static weft_status judge_group(const weft_placement *placement, const char *unit, int32_t world, weft_error *err) {
    if (placement->group >= 1 && placement->group <= world && world % placement->group == 0) return WEFT_OK;
    return weft_error_set(err, WEFT_E_PLUGIN,
                          "the strategy plugin shards unit %s over groups of %d ranks: the group must divide the world "
                          "of %d",
                          unit, (int)placement->group, (int)world);
}

static weft_status judge_placement(const weft_placement *placement, const char *unit, int32_t world, weft_error *err) {
    const int32_t holdings[3] = {placement->parameters, placement->gradients, placement->optimizer};
    bool owned = false, sharded = false;
    weft_status status = WEFT_OK;
    for (int i = 0; i < 3; i++) {
        if (!holding_exists(holdings[i]))
            return weft_error_set(err, WEFT_E_PLUGIN,
                                  "the strategy plugin places unit %s with holding %d, which there is not", unit,
                                  (int)holdings[i]);
        owned = owned || holdings[i] == WEFT_OWNED;
        sharded = sharded || holdings[i] == WEFT_SHARDED;
    }
    if (owned) status = judge_owner(placement, unit, world, err);
    if (status == WEFT_OK && sharded) status = judge_group(placement, unit, world, err);
    if (status == WEFT_OK && owned &&
        (holdings[0] != WEFT_OWNED || holdings[1] != WEFT_OWNED || holdings[2] != WEFT_OWNED))
        status = weft_error_set(err, WEFT_E_PLUGIN,
                                "the strategy plugin gives one part of unit %s to an owner and spreads another: an "
                                "owner has parameters, gradients and optimizer state",
                                unit);
    return status;
}

static weft_status judge_owners(const int32_t *owners, const weft_job_spec *job, weft_error *err) {
    for (int32_t s = 0; s < job->view.n_segments; s++)
        if (owners[s] < -1 || owners[s] >= job->view.world || (owners[s] >= 0) != (owners[0] >= 0))
            return weft_error_set(err, WEFT_E_PLUGIN,
                                  "the strategy plugin gives segment %s to rank %d: either each segment has an owner "
                                  "from 0 to %d, or none has",
                                  job->view.segments[s].name, (int)owners[s], (int)job->view.world - 1);
    return WEFT_OK;
}

/* The views are the caller's and writable: it is the strategy that must not write to them. */
static void keep_placement(weft_job_spec *job, const weft_placement *units, const int32_t *owners) {
    weft_placement *placements = (weft_placement *)job->view.placements;
    weft_segment_view *segment_views = (weft_segment_view *)job->view.segments;
    for (int32_t u = 0; u < job->view.n_units; u++) placements[u] = units[u];
    for (int32_t s = 0; s < job->view.n_segments; s++) segment_views[s].owner = owners[s];
}

weft_status weft_job_place(weft_job_spec *job, const weft_host *host, const weft_strategy_plugin *strategy,
                           const void *config, weft_error *err) {
    weft_timeout limit;
    weft_status status = WEFT_OK;
    weft_placement *units = calloc((size_t)job->view.n_units + 1, sizeof *units);
    int32_t *owners = malloc(((size_t)job->view.n_segments + 1) * sizeof *owners);
    if (units == NULL || owners == NULL) {
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the placement of %d units", (int)job->view.n_units);
        goto done;
    }
    for (int32_t u = 0; u < job->view.n_units; u++) {
        units[u].struct_size = (uint32_t)sizeof *units;
        units[u].owner = -1;
    }
    for (int32_t s = 0; s < job->view.n_segments; s++) owners[s] = -1;
    begin(&limit, strategy, "place", job);
    WEFT_PLUGIN_CALL(status, strategy, place, err, host, config, &job->view, units, owners);
    weft_timeout_end(&limit);
    for (int32_t u = 0; u < job->view.n_units && status == WEFT_OK; u++)
        status = judge_placement(&units[u], job->view.units[u].name, job->view.world, err);
    if (status == WEFT_OK) status = judge_owners(owners, job, err);
    if (status == WEFT_OK) keep_placement(job, units, owners);
done:
    free(units);
    free(owners);
    return status;
}

/* Of a later SDK: what it says in fields that this host does not have would be lost. */
static weft_status refuse_foreign(const weft_program *program, const weft_job_spec *job, weft_error *err) {
    char text[256];
    weft_instruction_describe(text, sizeof text, &program->instructions[program->foreign_instruction], job);
    return weft_error_set(
        err, WEFT_E_UNSUPPORTED,
        "instruction %d, %s: the strategy plugin says something in it behind the %zu bytes that an instruction has "
        "in this host; build the plugin with this host's headers, or use a later host",
        (int)program->foreign_instruction, text, sizeof *program->instructions);
}

/* RECOMPUTE is the host's own, so that a strategy cannot be wrong about it. */
static weft_status judge_instructions(const weft_program *program, const weft_job_spec *job, weft_error *err) {
    char text[256];
    if (program->too_many)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "the strategy plugin emits more than %lld instructions for one program, which [plugins] "
                              "compile_events allows: raise it if the program is meant to be so long",
                              (long long)job->most_instructions);
    if (program->out_of_memory)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for more than %d instructions of a step program",
                              (int)program->n_instructions);
    if (program->foreign_instruction >= 0) return refuse_foreign(program, job, err);
    for (int32_t i = 0; i < program->n_instructions; i++) {
        if (program->instructions[i].kind != WEFT_INSTRUCTION_RECOMPUTE) continue;
        weft_instruction_describe(text, sizeof text, &program->instructions[i], job);
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "instruction %d, %s: a strategy emits no RECOMPUTE; the host adds them where activation "
                              "checkpointing is on",
                              (int)i, text);
    }
    return WEFT_OK;
}

weft_status weft_program_compile(weft_program **out, const weft_host *host, const weft_strategy_plugin *strategy,
                                 const void *strategy_config, const weft_job_spec *job, int32_t rank, weft_error *err) {
    weft_program *program = NULL;
    weft_emitter emitter = {(uint32_t)sizeof emitter, 0, NULL, weft_program_emit};
    weft_timeout limit;
    weft_status status = WEFT_OK;
    *out = NULL;
    status = weft_program_create(&program, job, rank, err);
    if (status != WEFT_OK) return status;
    program->most_instructions = job->most_instructions;
    emitter.program = program;
    begin(&limit, strategy, "compile", job);
    WEFT_PLUGIN_CALL(status, strategy, compile, err, host, strategy_config, &job->view, rank, &emitter);
    weft_timeout_end(&limit);
    program->most_instructions = 0; /* the passes add what they must */
    if (status == WEFT_OK || program->out_of_memory || program->too_many) {
        const weft_status judged = judge_instructions(program, job, err);
        status = judged != WEFT_OK ? judged : status;
    }
    if (status == WEFT_OK && job->view.mode == WEFT_MODE_TRAIN && job->activation_checkpointing)
        status = weft_program_checkpoint(program, job, err);
    if (status == WEFT_OK && job->prefetch > 0) status = weft_program_hoist(program, job, err);
    *out = program;
    return status;
}
