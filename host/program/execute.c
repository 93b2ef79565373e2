/* host/program/execute.c: executes the instructions of a placed program in their order.
 *
 * An instruction of queue 0 completes before the next one starts; one of another queue completes at its WAIT. The
 * table's functions compute and communicate, and report the slots that they use to the trace, which validates them. */
#include "program/execute.h"

#include "base/alloc.h"
#include "base/units.h"

#include <stdlib.h>
#include <time.h>

weft_trace *weft_trace_create(int32_t capacity) {
    weft_trace *trace = weft_alloc(1, sizeof *trace);
    trace->ring = weft_alloc(capacity, sizeof *trace->ring);
    trace->capacity = capacity;
    trace->bad_slot = -1;
    return trace;
}

void weft_trace_destroy(weft_trace *trace) {
    if (trace == NULL) return;
    free(trace->ring);
    free(trace->used);
    free(trace);
}

int32_t weft_trace_count(const weft_trace *trace) {
    return trace->recorded < trace->capacity ? (int32_t)trace->recorded : trace->capacity;
}

const weft_trace_entry *weft_trace_entry_at(const weft_trace *trace, int32_t i) {
    const int32_t held = weft_trace_count(trace);
    if (i < 0 || i >= held) return NULL;
    return &trace->ring[(trace->recorded - held + i) % trace->capacity];
}

/* Stores an invalid use for the executor, which ends the pass after the instruction. */
void weft_trace_use(weft_trace *trace, int32_t slot, int64_t bytes) {
    const weft_program *program = trace->program;
    const weft_slot *planned = NULL;
    const int64_t lines = weft_cache_lines(bytes);
    if (slot == -1 || program == NULL) return;
    planned = slot >= 0 && slot < program->n_slots ? &program->slots[slot] : NULL;
    if (planned == NULL || bytes < 0 || bytes > planned->bytes || trace->instruction < planned->first ||
        trace->instruction > planned->last) {
        if (trace->bad_slot == -1) {
            trace->bad_slot = slot;
            trace->bad_bytes = bytes;
        }
        return;
    }
    if (lines <= trace->used[slot]) return;
    if (planned->offset >= 0) trace->live += lines - trace->used[slot]; /* else the caller owns the memory */
    trace->used[slot] = lines;
    if (trace->live > trace->high_water) trace->high_water = trace->live;
}

const char *weft_phase_name(int32_t phase) {
    static const char *const names[WEFT_N_PHASES] = {"forward",  "recompute", "backward", "sum",
                                                     "exchange", "norm",      "optimizer"};
    return phase >= 0 && phase < WEFT_N_PHASES ? names[phase] : "?";
}

/* Returns -1 for RELEASE, which takes no measurable time. */
static int32_t phase_of(const weft_instruction *instruction) {
    switch (instruction->kind) {
    case WEFT_INSTRUCTION_COUNT:
    case WEFT_INSTRUCTION_FORWARD: return WEFT_PHASE_FORWARD;
    case WEFT_INSTRUCTION_RECOMPUTE: return WEFT_PHASE_RECOMPUTE;
    case WEFT_INSTRUCTION_BACKWARD: return WEFT_PHASE_BACKWARD;
    case WEFT_INSTRUCTION_REDUCE: return instruction->scope == WEFT_SCOPE_RANK ? WEFT_PHASE_SUM : WEFT_PHASE_EXCHANGE;
    case WEFT_INSTRUCTION_NORM: return WEFT_PHASE_NORM;
    case WEFT_INSTRUCTION_STEP: return WEFT_PHASE_OPTIMIZER;
    case WEFT_INSTRUCTION_RELEASE: return -1;
    default: return WEFT_PHASE_EXCHANGE;
    }
}

void weft_phases_add(double *seconds, const weft_trace *trace, const weft_program *program) {
    const int32_t base = weft_trace_count(trace) - program->n_instructions;
    for (int32_t i = 0; i < program->n_instructions && base >= 0; i++) {
        const weft_trace_entry *entry = weft_trace_entry_at(trace, base + i);
        const int32_t phase = phase_of(&program->instructions[i]);
        if (phase >= 0) seconds[phase] += weft_trace_seconds(entry);
    }
}

weft_program *weft_program_create(const weft_job_spec *job, int32_t rank) {
    weft_program *program = weft_alloc(1, sizeof *program);
    program->mode = job->view.mode;
    program->rank = rank;
    program->micro_batches = weft_job_spec_micro_batches(job);
    program->peak_instruction = program->foreign_instruction = -1;
    return program;
}

/* The strategy determines the size of the program, so lack of memory is an error of the compilation. */
static bool grow(weft_program *program) {
    const int32_t capacity = program->capacity > INT32_MAX / 2 ? 0
                             : program->capacity == 0          ? 64
                                                               : program->capacity * 2;
    weft_instruction *larger = NULL;
    if (capacity > 0 && !program->out_of_memory)
        larger = realloc(program->instructions, (size_t)capacity * sizeof *larger);
    program->out_of_memory = larger == NULL;
    if (larger == NULL) return false;
    program->instructions = larger;
    program->capacity = capacity;
    return true;
}

int32_t weft_program_emit(weft_program *program, const weft_instruction *instruction) {
    if (program->most_instructions > 0 && program->n_instructions >= program->most_instructions) {
        program->too_many = true;
        return -1;
    }
    if (program->n_instructions == program->capacity && !grow(program)) return -1;
    if (!weft_struct_take(&program->instructions[program->n_instructions], sizeof *instruction, instruction) &&
        program->foreign_instruction < 0)
        program->foreign_instruction = program->n_instructions;
    return program->n_instructions++;
}

void weft_program_destroy(weft_program *program) {
    if (program == NULL) return;
    free(program->slots);
    free(program->instruction_slots);
    free(program->instruction_gradients);
    free(program->by_last);
    free(program->instructions);
    free(program);
}

static uint64_t now_ns(void) {
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static const char *slot_kind_name(int32_t kind) {
    static const char *const names[] = {"?",         "micro-batch",           "carry",
                                        "tape",      "gradient of the carry", "micro-batch gradient",
                                        "workspace", "gathered unit",         "exchange"};
    return kind >= WEFT_SLOT_MICRO_BATCH && kind <= WEFT_SLOT_EXCHANGE ? names[kind] : names[0];
}

/* Reports the invalid use that the trace stored. */
static weft_status bad_use(const weft_trace *trace, weft_error *err) {
    const weft_program *program = trace->program;
    const weft_slot *slot = NULL;
    if (trace->bad_slot < 0 || trace->bad_slot >= program->n_slots)
        return weft_error_set(err, WEFT_E_HOST, "it uses slot %d: the program has %d", (int)trace->bad_slot,
                              (int)program->n_slots);
    slot = &program->slots[trace->bad_slot];
    if (trace->instruction < slot->first || trace->instruction > slot->last)
        return weft_error_set(err, WEFT_E_HOST, "it uses slot %d (%s), which is live from instruction %d to %d only",
                              (int)trace->bad_slot, slot_kind_name(slot->kind), (int)slot->first, (int)slot->last);
    return weft_error_set(err, WEFT_E_HOST, "it uses %lld bytes of slot %d (%s), which has %lld",
                          (long long)trace->bad_bytes, (int)trace->bad_slot, slot_kind_name(slot->kind),
                          (long long)slot->bytes);
}

/* Runs an instruction of queue 0 to its end, starts one of another queue, or ends the one that a WAIT names. */
static weft_status perform_instruction(const weft_program *program, int32_t i, const weft_exec_table *table,
                                       weft_error *err) {
    const weft_instruction *instruction = &program->instructions[i];
    const int32_t of = instruction->kind == WEFT_INSTRUCTION_WAIT ? instruction->waits : i;
    const weft_instruction *what = &program->instructions[of];
    weft_status status = WEFT_OK;
    if (of == i)
        status = table->run[instruction->kind](table->context, instruction, &program->instruction_slots[i], err);
    if (status == WEFT_OK && (of != i || instruction->queue == 0) && table->finish[what->kind] != NULL)
        status = table->finish[what->kind](table->context, what, &program->instruction_slots[of], err);
    return status;
}

static weft_status run_instruction(const weft_program *program, int32_t i, const weft_exec_table *table,
                                   weft_trace *trace, uint64_t step, weft_error *err) {
    weft_trace_entry *entry = &trace->ring[trace->recorded++ % trace->capacity];
    weft_status status = WEFT_OK;
    *entry = (weft_trace_entry){.start_ns = now_ns(), .step = step, .instruction = i};
    trace->instruction = i;
    if (table->begin != NULL) table->begin(table->context, i);
    status = perform_instruction(program, i, table, err);
    if (table->end != NULL) status = table->end(table->context, status, err);
    entry->live = trace->live;
    entry->end_ns = now_ns();
    return status == WEFT_OK && trace->bad_slot != -1 ? bad_use(trace, err) : status;
}

weft_status weft_program_execute(const weft_program *program, int32_t first, int32_t end, const weft_job_spec *job,
                                 const weft_exec_table *table, weft_trace *trace, uint64_t step, weft_error *err) {
    char text[256];
    int32_t dying = 0; /* into by_last */
    weft_status status = WEFT_OK;
    trace->used = weft_realloc(trace->used, program->n_slots, sizeof *trace->used);
    memset(trace->used, 0, (size_t)program->n_slots * sizeof *trace->used);
    trace->program = program;
    trace->live = 0;
    trace->bad_slot = -1;
    while (dying < program->n_slots && program->slots[program->by_last[dying]].last < first) dying++;
    for (int32_t i = first; i < end && status == WEFT_OK; i++) {
        status = run_instruction(program, i, table, trace, step, err);
        for (; dying < program->n_slots && program->slots[program->by_last[dying]].last == i; dying++)
            if (program->slots[program->by_last[dying]].offset >= 0)
                trace->live -= trace->used[program->by_last[dying]];
    }
    trace->program = NULL;
    if (status == WEFT_OK) return WEFT_OK;
    weft_instruction_describe(text, sizeof text, &program->instructions[trace->instruction], job);
    if (err != NULL && err->text[0] == '\0') (void)weft_error_set(err, status, "failed without a message");
    (void)weft_error_prefix(err, "instruction %d, %s: ", (int)trace->instruction, text);
    if (step > 0) (void)weft_error_prefix(err, "step %llu, ", (unsigned long long)step);
    return status;
}
