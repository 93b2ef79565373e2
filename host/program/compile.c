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

/* ---- prefetching ----
 *
 * A strategy places each GATHER where the parameters are required. The pass replaces a GATHER of queue 0 by a WAIT, and
 * starts the GATHER in GATHER_QUEUE job->prefetch GATHERs earlier. A unit that is still live from an earlier GATHER is
 * gathered again after its RELEASE. */

#define GATHER_QUEUE 2

typedef struct hoist {
    const weft_program *from;
    const weft_job_spec *job;
    weft_program to;
    int32_t *moved;   /* old index -> new index */
    int32_t *gathers; /* [n] old indices of the hoisted GATHERs */
    int32_t *started; /* [n] their new indices; -1: not started */
    bool *live;       /* [n_units] started and not released */
    int32_t n, next;  /* next: the first GATHER that has not started */
} hoist;

static bool is_hoistable(const hoist *h, const weft_instruction *instruction) {
    return instruction->kind == WEFT_INSTRUCTION_GATHER && instruction->what == WEFT_PAYLOAD_PARAMETERS &&
           instruction->queue == 0 && instruction->unit >= 0 && instruction->unit < h->job->view.n_units;
}

/* Starts GATHERs up to number `last`, until one must wait for a RELEASE. */
static void start_gathers(hoist *h, int32_t last) {
    while (h->next < h->n && h->next <= last) {
        weft_instruction instruction = h->from->instructions[h->gathers[h->next]];
        if (h->live[instruction.unit]) return;
        h->live[instruction.unit] = true;
        instruction.queue = GATHER_QUEUE;
        h->started[h->next++] = weft_program_emit(&h->to, &instruction);
    }
}

/* A GATHER of a live unit is unchanged; the checker rejects it. */
static void rewrite_instructions(hoist *h) {
    int32_t needed = 0; /* GATHERs passed so far */
    for (int32_t i = 0; i < h->from->n_instructions; i++) {
        weft_instruction instruction = h->from->instructions[i];
        if (is_hoistable(h, &instruction)) {
            weft_instruction wait = weft_instruction_of(WEFT_INSTRUCTION_WAIT);
            start_gathers(h, needed + h->job->prefetch);
            wait.waits = h->started[needed];
            if (wait.waits < 0)
                h->started[needed] = h->next < h->n ? (h->next++, weft_program_emit(&h->to, &instruction)) : -1;
            else (void)weft_program_emit(&h->to, &wait);
            h->moved[i] = h->started[needed++];
            continue;
        }
        if (instruction.waits >= 0 && instruction.waits < i) instruction.waits = h->moved[instruction.waits];
        h->moved[i] = weft_program_emit(&h->to, &instruction);
        if (instruction.kind == WEFT_INSTRUCTION_RELEASE && instruction.unit >= 0 &&
            instruction.unit < h->job->view.n_units) {
            h->live[instruction.unit] = false;
            if (needed > 0) start_gathers(h, needed - 1 + h->job->prefetch);
        }
    }
}

/* Moves the instructions of a rewritten program into the original. */
static void replace_instructions(weft_program *program, weft_program *rewritten) {
    free(program->instructions);
    program->instructions = rewritten->instructions;
    program->n_instructions = rewritten->n_instructions;
    program->capacity = rewritten->capacity;
    program->out_of_memory = rewritten->out_of_memory;
}

void weft_program_hoist(weft_program *program, const weft_job_spec *job) {
    hoist h = {.from = program, .job = job};
    h.moved = weft_alloc(program->n_instructions, sizeof *h.moved);
    h.gathers = weft_alloc(program->n_instructions, sizeof *h.gathers);
    h.started = weft_alloc(program->n_instructions, sizeof *h.started);
    h.live = weft_alloc(job->view.n_units, sizeof *h.live);
    for (int32_t i = 0; i < program->n_instructions; i++)
        if (is_hoistable(&h, &program->instructions[i])) h.gathers[h.n++] = i;
    for (int32_t i = 0; i < h.n; i++) h.started[i] = -1;
    if (h.n > 0) {
        rewrite_instructions(&h);
        replace_instructions(program, &h.to);
    }
    free(h.moved);
    free(h.gathers);
    free(h.started);
    free(h.live);
}

/* ---- activation checkpointing ----
 *
 * With a RECOMPUTE, a segment's tape lives only until its BACKWARD. Its input carry is live as before. The pass copies
 * invalid instructions unchanged; the checker rejects them. */

static bool in_range(const weft_instruction *instruction, const weft_job_spec *job) {
    return instruction->segment >= 0 && instruction->segment < job->view.n_segments && instruction->micro_batch >= 0 &&
           instruction->micro_batch < weft_job_spec_micro_batches(job);
}

/* True if instruction i should have a RECOMPUTE before it. forward: instruction of each (segment, micro-batch), -1:
 * not seen yet. */
static bool wants_recompute(const weft_program *program, const weft_job_spec *job, const int32_t *forward, int32_t i) {
    const weft_instruction *instruction = &program->instructions[i];
    int32_t at = -1;
    if (instruction->kind != WEFT_INSTRUCTION_BACKWARD || !in_range(instruction, job) ||
        job->segments[instruction->segment].tape == 0)
        return false;
    at = forward[instruction->segment * weft_job_spec_micro_batches(job) + instruction->micro_batch];
    return at >= 0 && at < i - 1;
}

void weft_program_checkpoint(weft_program *program, const weft_job_spec *job) {
    const int32_t micro_batches = weft_job_spec_micro_batches(job), n_pairs = job->view.n_segments * micro_batches;
    weft_program rewritten = {0};
    int32_t *forward = weft_alloc(n_pairs, sizeof *forward);
    int32_t *moved = weft_alloc(program->n_instructions, sizeof *moved); /* old index -> new index */
    for (int32_t i = 0; i < n_pairs; i++) forward[i] = -1;
    for (int32_t i = 0; i < program->n_instructions; i++) {
        weft_instruction instruction = program->instructions[i];
        if (instruction.kind == WEFT_INSTRUCTION_FORWARD && in_range(&instruction, job))
            forward[instruction.segment * micro_batches + instruction.micro_batch] = i;
        if (wants_recompute(program, job, forward, i)) {
            weft_instruction recompute = weft_instruction_of(WEFT_INSTRUCTION_RECOMPUTE);
            recompute.segment = instruction.segment;
            recompute.micro_batch = instruction.micro_batch;
            (void)weft_program_emit(&rewritten, &recompute);
        }
        if (instruction.waits >= 0 && instruction.waits < i) instruction.waits = moved[instruction.waits];
        moved[i] = weft_program_emit(&rewritten, &instruction);
    }
    if (program->n_instructions > 0) replace_instructions(program, &rewritten);
    free(forward);
    free(moved);
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
    (void)snprintf(line, sizeof line,
                   "%s has been in its %s for %g s, which [plugins] compile_seconds allows: raise it if the call only "
                   "is slow; this process ends here",
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
                              "the strategy plugin wants %d replicas: 1 to %d fit a world of %d ranks", (int)replicas,
                              (int)job->view.world, (int)job->view.world);
    job->view.replicas = replicas;
    return WEFT_OK;
}

weft_status weft_job_place(weft_job_spec *job, const weft_host *host, const weft_strategy_plugin *strategy,
                           const void *config, weft_error *err) {
    timeout limit;
    weft_status status = WEFT_OK;
    weft_job_spec placed = *job; /* validated before it is stored in the job */
    weft_placement *units = weft_alloc(job->view.n_units, sizeof *units);
    weft_segment_view *segments = weft_alloc(job->view.n_segments, sizeof *segments);
    int32_t *owners = weft_alloc(job->view.n_segments, sizeof *owners);
    for (int32_t u = 0; u < job->view.n_units; u++) {
        units[u].struct_size = (uint32_t)sizeof *units;
        units[u].owner = -1;
    }
    for (int32_t s = 0; s < job->view.n_segments; s++) owners[s] = -1;
    begin_timeout(&limit, strategy, "place", job);
    WEFT_PLUGIN_CALL(status, strategy, place, err, host, config, &job->view, units, owners);
    weft_timer_end(&limit.timer);
    for (int32_t s = 0; s < job->view.n_segments; s++) {
        segments[s] = job->view.segments[s];
        segments[s].owner = owners[s];
    }
    placed.view.placements = units;
    placed.view.segments = segments;
    if (status == WEFT_OK) status = weft_job_spec_check_placement(&placed, err);
    if (status == WEFT_OK) { /* the caller owns these arrays; only the strategy sees them as const */
        memcpy((weft_placement *)job->view.placements, units, (size_t)job->view.n_units * sizeof *units);
        memcpy((weft_segment_view *)job->view.segments, segments, (size_t)job->view.n_segments * sizeof *segments);
    }
    free(units);
    free(segments);
    free(owners);
    return status;
}

/* Rejects an instruction of a later SDK with fields that this host does not have. */
static weft_status refuse_foreign(const weft_program *program, const weft_job_spec *job, weft_error *err) {
    char text[256];
    weft_instruction_describe(text, sizeof text, &program->instructions[program->foreign_instruction], job);
    return weft_error_set(
        err, WEFT_E_UNSUPPORTED,
        "instruction %d, %s: the strategy plugin sets fields after the %zu bytes that an instruction has in this host. "
        "Fix: build the plugin with this host's headers, or use a later host",
        (int)program->foreign_instruction, text, sizeof *program->instructions);
}

/* Only the host adds RECOMPUTEs. */
static weft_status validate_instructions(const weft_program *program, const weft_job_spec *job, weft_error *err) {
    char text[256];
    if (program->too_many)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "the strategy plugin emits more than %lld instructions for one program, which [plugins] "
                              "compile_events allows: raise it if the program is meant to be so long",
                              (long long)program->n_instructions);
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
    if (status == WEFT_OK && !program->out_of_memory) {
        if (job->view.mode == WEFT_MODE_TRAIN && job->activation_checkpointing) weft_program_checkpoint(program, job);
        if (job->prefetch > 0) weft_program_hoist(program, job);
    }
    if (!program->out_of_memory) return status;
    return weft_error_set(err, WEFT_E_MEMORY, "rank %d: no memory for a program of more than %d instructions",
                          (int)rank, (int)program->n_instructions);
}
