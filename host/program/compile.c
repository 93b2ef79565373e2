/* host/program/compile.c: calls the strategy for replicas, placement and programs, and runs the passes on the programs.
 *
 * The results of a strategy are untrusted. They are validated here and in job.c; the checker checks the
 * instructions. */
#include "base/alloc.h"
#include "base/timer.h"
#include "plugin/enter.h"
#include "plugin/services.h"
#include "program/execute.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <weft/base.h>
#include <weft/emit.h>

enum { MOST_INSTRUCTIONS = 1 << 26 }; /* without [plugins] compile_events */

/* ---- passes: activation checkpointing and prefetching ----
 *
 * With a RECOMPUTE before a segment's BACKWARD, its tape lives only until the BACKWARD. A BACKWARD directly after
 * its own FORWARD gets none, because that would not shorten the lifetime of the tape.
 *
 * A strategy places each GATHER where the parameters are required. Prefetching replaces a GATHER of queue 0 by a
 * WAIT, and starts the GATHER in GATHER_QUEUE job->prefetch GATHERs earlier. A unit that is still live from an
 * earlier GATHER is gathered again after its RELEASE.
 *
 * Invalid instructions are copied unchanged; the checker rejects them. */

#define GATHER_QUEUE 2

typedef struct rewriting {
    const weft_program *from;
    const weft_job_spec *job;
    weft_program to;
    int32_t *moved;          /* old index -> new index */
    int32_t *forward;        /* [n_segments][micro-batches] the FORWARD, -1: not seen yet */
    int32_t *gathers;        /* [n] old indices of the hoisted GATHERs */
    int32_t *started;        /* [n] their new indices; -1: not started */
    bool *live;              /* [n_units] started and not released */
    int32_t n, next, passed; /* next: the first GATHER that has not started; passed: GATHERs passed so far */
} rewriting;

static bool has_unit(const rewriting *r, const weft_instruction *instruction) {
    return instruction->unit >= 0 && instruction->unit < r->job->view.n_units;
}

static bool is_hoistable(const rewriting *r, const weft_instruction *instruction) {
    return r->job->prefetch > 0 && instruction->kind == WEFT_INSTRUCTION_GATHER &&
           instruction->what == WEFT_PAYLOAD_PARAMETERS && instruction->queue == 0 && has_unit(r, instruction);
}

/* Starts GATHERs up to number `last`, until one must wait for a RELEASE. */
static void start_gathers(rewriting *r, int32_t last) {
    while (r->next < r->n && r->next <= last) {
        weft_instruction instruction = r->from->instructions[r->gathers[r->next]];
        if (r->live[instruction.unit]) return;
        r->live[instruction.unit] = true;
        instruction.queue = GATHER_QUEUE;
        r->started[r->next++] = weft_program_emit(&r->to, &instruction);
    }
}

/* Returns the new index. A GATHER of a live unit is unchanged; the checker rejects it. */
static int32_t hoist(rewriting *r, const weft_instruction *gather) {
    weft_instruction wait = weft_instruction_of(WEFT_INSTRUCTION_WAIT);
    int32_t *started = &r->started[r->passed];
    start_gathers(r, r->passed++ + r->job->prefetch);
    wait.waits = *started;
    if (*started >= 0) (void)weft_program_emit(&r->to, &wait);
    else if (r->next++ < r->n) *started = weft_program_emit(&r->to, gather);
    return *started;
}

/* Emits the RECOMPUTE that belongs before a BACKWARD. */
static void checkpoint(rewriting *r, const weft_instruction *instruction, int32_t i) {
    const int32_t micro_batches = weft_job_spec_micro_batches(r->job), s = instruction->segment;
    weft_instruction recompute = weft_instruction_of(WEFT_INSTRUCTION_RECOMPUTE);
    int32_t *forward = NULL;
    if (s < 0 || s >= r->job->view.n_segments || instruction->micro_batch < 0 ||
        instruction->micro_batch >= micro_batches)
        return;
    forward = &r->forward[s * micro_batches + instruction->micro_batch];
    if (instruction->kind == WEFT_INSTRUCTION_FORWARD) *forward = i;
    if (instruction->kind != WEFT_INSTRUCTION_BACKWARD || r->job->segments[s].tape == 0 || *forward < 0 ||
        *forward == i - 1)
        return;
    recompute.segment = s;
    recompute.micro_batch = instruction->micro_batch;
    (void)weft_program_emit(&r->to, &recompute);
}

static void rewrite_instructions(rewriting *r) {
    const bool checkpoints = r->job->view.mode == WEFT_MODE_TRAIN && r->job->activation_checkpointing;
    for (int32_t i = 0; i < r->from->n_instructions; i++) {
        weft_instruction instruction = r->from->instructions[i];
        if (is_hoistable(r, &instruction)) {
            r->moved[i] = hoist(r, &instruction);
            continue;
        }
        if (checkpoints) checkpoint(r, &instruction, i);
        if (instruction.waits >= 0 && instruction.waits < i) instruction.waits = r->moved[instruction.waits];
        r->moved[i] = weft_program_emit(&r->to, &instruction);
        if (instruction.kind != WEFT_INSTRUCTION_RELEASE || !has_unit(r, &instruction)) continue;
        r->live[instruction.unit] = false;
        if (r->passed > 0) start_gathers(r, r->passed - 1 + r->job->prefetch);
    }
}

void weft_program_rewrite(weft_program *program, const weft_job_spec *job) {
    const int32_t n = program->n_instructions, pairs = job->view.n_segments * weft_job_spec_micro_batches(job);
    rewriting r = {.from = program, .job = job};
    r.moved = weft_alloc(n, sizeof *r.moved);
    r.gathers = weft_alloc(n, sizeof *r.gathers);
    r.started = weft_alloc(n, sizeof *r.started);
    r.forward = weft_alloc(pairs, sizeof *r.forward);
    r.live = weft_alloc(job->view.n_units, sizeof *r.live);
    for (int32_t i = 0; i < pairs; i++) r.forward[i] = -1;
    for (int32_t i = 0; i < n; i++) {
        r.started[i] = -1;
        if (is_hoistable(&r, &program->instructions[i])) r.gathers[r.n++] = i;
    }
    rewrite_instructions(&r);
    free(program->instructions);
    program->instructions = r.to.instructions;
    program->n_instructions = r.to.n_instructions;
    program->capacity = r.to.capacity;
    program->out_of_memory = r.to.out_of_memory;
    free(r.moved);
    free(r.gathers);
    free(r.started);
    free(r.forward);
    free(r.live);
}

/* ---- timeout for a strategy's call. A computing call cannot be interrupted from outside, so the process ends ---- */

typedef struct timeout {
    const weft_strategy_plugin *strategy;
    const char *slot;
    weft_timer timer;
} timeout;

/* Ends the process without main's output: the caller's memory is in the middle of a call. */
static bool end_process(void *context) {
    const timeout *self = context;
    char title[700], line[1000];
    weft_plugin_title(title, sizeof title, self->strategy);
    (void)snprintf(
        line, sizeof line,
        "%s has been in its %s for %g s, which [plugins] compile_seconds allows. Fix: raise it if the call is "
        "only slow; this process ends here",
        title, self->slot, self->timer.seconds);
    weft_services_print(WEFT_LOG_ERROR, line);
    weft_crash_crumb(NULL); /* the host ends the process, not the plugin */
    _exit(1);
}

/* Starts the timer; it does not run if job->most_seconds is 0. weft_timer_end stops it. */
static void begin_timeout(timeout *self, const weft_strategy_plugin *strategy, const char *slot,
                          const weft_job_spec *job) {
    *self = (timeout){.strategy = strategy, .slot = slot};
    if (job->most_seconds > 0) weft_timer_begin(&self->timer, job->most_seconds, end_process, self);
}

weft_status weft_job_replicas(weft_job_spec *job, const weft_host *host, const weft_strategy_plugin *strategy,
                              const void *config, weft_error *err) {
    int32_t replicas = 0;
    timeout limit;
    weft_status status = WEFT_OK;
    job->view.replicas = 0;
    begin_timeout(&limit, strategy, "replicas", job);
    WEFT_PLUGIN_CALL(status, strategy, replicas, err, host, config, &job->view, &replicas);
    weft_timer_end(&limit.timer);
    if (status != WEFT_OK) return status;
    if (replicas < 1 || replicas > job->view.world)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "the strategy plugin requests %d replicas. Allowed: 1 to %d in a world of %d ranks",
                              (int)replicas, (int)job->view.world, (int)job->view.world);
    job->view.replicas = replicas;
    return WEFT_OK;
}

weft_status weft_job_place(weft_job_spec *job, const weft_host *host, const weft_strategy_plugin *strategy,
                           const void *config, weft_error *err) {
    timeout limit;
    weft_status status = WEFT_OK;
    /* the caller owns these arrays; only the strategy sees them as const */
    weft_placement *units = (weft_placement *)job->view.placements;
    weft_segment_view *segments = (weft_segment_view *)job->view.segments;
    int32_t *owners = weft_alloc(job->view.n_segments, sizeof *owners);
    for (int32_t u = 0; u < job->view.n_units; u++)
        units[u] = (weft_placement){.struct_size = (uint32_t)sizeof *units, .owner = -1};
    for (int32_t s = 0; s < job->view.n_segments; s++) owners[s] = -1;
    begin_timeout(&limit, strategy, "place", job);
    WEFT_PLUGIN_CALL(status, strategy, place, err, host, config, &job->view, units, owners);
    weft_timer_end(&limit.timer);
    for (int32_t s = 0; s < job->view.n_segments; s++) segments[s].owner = owners[s];
    free(owners);
    return status == WEFT_OK ? weft_job_spec_check_placement(job, err) : status;
}

/* Rejects RECOMPUTEs, which only the host adds, and instructions of a later SDK with fields that this host does not
 * have. */
static weft_status validate_instructions(const weft_program *program, const weft_job_spec *job, weft_error *err) {
    const int32_t foreign = program->foreign_instruction;
    int32_t i = 0;
    char text[256];
    if (program->too_many)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "the strategy plugin emits more than %lld instructions for one program, which [plugins] "
                              "compile_events allows. Fix: raise it for programs of this length",
                              (long long)program->n_instructions);
    while (foreign < 0 && i < program->n_instructions && program->instructions[i].kind != WEFT_INSTRUCTION_RECOMPUTE)
        i++;
    if (foreign < 0 && i == program->n_instructions) return WEFT_OK;
    weft_instruction_describe(text, sizeof text, &program->instructions[foreign < 0 ? i : foreign], job);
    if (foreign < 0)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "instruction %d, %s: a strategy emits no RECOMPUTE; the host adds them where activation "
                              "checkpointing is on",
                              (int)i, text);
    return weft_error_set(
        err, WEFT_E_UNSUPPORTED,
        "instruction %d, %s: the strategy plugin sets fields after the %zu bytes that an instruction has in this host. "
        "Fix: build the plugin with this host's headers, or use a later host",
        (int)foreign, text, sizeof *program->instructions);
}

weft_status weft_program_compile(weft_program **out, const weft_host *host, const weft_strategy_plugin *strategy,
                                 const void *strategy_config, const weft_job_spec *job, int32_t rank, weft_error *err) {
    weft_program *program = weft_program_create(job, rank);
    weft_emitter emitter = {(uint32_t)sizeof emitter, 0, NULL, weft_program_emit};
    timeout limit;
    weft_status status = WEFT_OK;
    *out = program;
    program->most_instructions = job->most_instructions > 0 ? job->most_instructions : MOST_INSTRUCTIONS;
    emitter.program = program;
    begin_timeout(&limit, strategy, "compile", job);
    WEFT_PLUGIN_CALL(status, strategy, compile, err, host, strategy_config, &job->view, rank, &emitter);
    weft_timer_end(&limit.timer);
    program->most_instructions = 0; /* the passes have no limit */
    if (status == WEFT_OK || program->too_many) status = validate_instructions(program, job, err);
    if (status == WEFT_OK && !program->out_of_memory) weft_program_rewrite(program, job);
    if (!program->out_of_memory) return status;
    return weft_error_set(err, WEFT_E_MEMORY, "rank %d: no memory for a program of more than %d instructions",
                          (int)rank, (int)program->n_instructions);
}
