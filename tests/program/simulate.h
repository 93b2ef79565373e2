/* tests/program/simulate.h: symbolic execution of a placed program.
 *
 * A value is a hash of the operations that produced it. Two runs are equal exactly if they did the same arithmetic on
 * the same operands in the same order. Slots are in a simulated arena with cells of 64 bytes, and each value fills all
 * cells of its slot. Overwriting a live slot therefore changes the values read from it, and so the final hash. */
#ifndef WEFT_TESTS_PROGRAM_SIMULATE_H
#define WEFT_TESTS_PROGRAM_SIMULATE_H

#include "jobs.h"
#include "program/execute.h"

typedef struct simulation {
    const weft_program *program;
    const weft_job_spec *job;
    weft_trace *trace;
    uint64_t *cells; /* the arena */
    uint64_t count, norm;
    uint64_t parameters[JOB_MAX], sums[JOB_MAX], losses[JOB_MAX];
    uint64_t direct[JOB_MAX]; /* micro-batch gradients without storage of their own */
    int32_t torn;             /* slots with inconsistent cells when read */
} simulation;

static inline uint64_t mix(uint64_t a, uint64_t b) {
    uint64_t x = a * 0x9E3779B97F4A7C15u + (b ^ 0x5851F42D4C957F2Du);
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9u;
    return x ^ x >> 32;
}

static inline uint64_t key_of_cell(int32_t slot, int64_t cell) {
    return mix(mix(77, (uint64_t)slot), (uint64_t)cell);
}

static inline void write_slot(simulation *sim, int32_t slot, uint64_t value) {
    const weft_slot *at = slot >= 0 ? &sim->program->slots[slot] : NULL;
    if (at == NULL) return;
    weft_trace_use(sim->trace, slot, at->bytes);
    if (at->offset < 0) sim->direct[at->unit] = value;
    for (int64_t i = 0; at->offset >= 0 && i < at->bytes / 64; i++)
        sim->cells[at->offset / 64 + i] = value + key_of_cell(slot, i);
}

static inline uint64_t read_slot(simulation *sim, int32_t slot) {
    const weft_slot *at = slot >= 0 ? &sim->program->slots[slot] : NULL;
    uint64_t value = 0;
    if (at == NULL) { /* a slot that must be read has no storage */
        sim->torn++;
        return 0;
    }
    weft_trace_use(sim->trace, slot, at->bytes);
    if (at->offset < 0) return sim->direct[at->unit];
    value = sim->cells[at->offset / 64] - key_of_cell(slot, 0);
    for (int64_t i = 1; i < at->bytes / 64; i++)
        if (sim->cells[at->offset / 64 + i] - key_of_cell(slot, i) != value) {
            sim->torn++;
            return mix(value, 13);
        }
    return value;
}

static inline uint64_t parameters_of(const simulation *sim, int32_t segment) {
    const weft_segment_view *view = &sim->job->view.segments[segment];
    uint64_t value = 1;
    for (int32_t i = 0; i < view->n_units; i++) value = mix(value, sim->parameters[view->units[i]]);
    return value;
}

/* Inputs of the segment: micro-batch, carry (if this instruction reads it), parameters. */
static inline uint64_t segment_inputs(simulation *sim, const weft_instruction *instruction,
                                      const weft_instruction_slots *slots) {
    const bool reads = instruction->kind != WEFT_INSTRUCTION_BACKWARD ||
                       sim->job->segments[instruction->segment].backward_reads_carry;
    uint64_t value = mix((uint64_t)instruction->segment, read_slot(sim, slots->micro_batch));
    if (instruction->segment > 0 && reads) value = mix(value, read_slot(sim, slots->carry_in));
    return mix(value, parameters_of(sim, instruction->segment));
}

/* Workspace is used together with all other slots of the instruction: neither may damage the other. */
static inline void use_work(simulation *sim, const weft_instruction_slots *slots) {
    write_slot(sim, slots->work, 4242);
}
static inline void verify_work(simulation *sim, const weft_instruction_slots *slots) {
    if (slots->work >= 0 && read_slot(sim, slots->work) != 4242) sim->torn++;
}

static inline weft_status sim_count(void *context, const weft_instruction *instruction,
                                    const weft_instruction_slots *slots, weft_error *err) {
    ((simulation *)context)->count = 99;
    return WEFT_OK;
}

static inline weft_status sim_forward(void *context, const weft_instruction *instruction,
                                      const weft_instruction_slots *slots, weft_error *err) {
    simulation *sim = context;
    uint64_t in = 0;
    if (instruction->segment == 0) write_slot(sim, slots->micro_batch, mix(5, (uint64_t)instruction->micro_batch));
    in = segment_inputs(sim, instruction, slots);
    use_work(sim, slots);
    write_slot(sim, slots->carry_out, mix(1, in));
    write_slot(sim, slots->tape, mix(2, in));
    if (sim->job->view.mode != WEFT_MODE_TRAIN && instruction->segment == sim->job->view.n_segments - 1)
        sim->losses[instruction->micro_batch] = mix(sim->losses[instruction->micro_batch], in);
    verify_work(sim, slots);
    if (segment_inputs(sim, instruction, slots) != in) sim->torn++;
    return WEFT_OK;
}

static inline weft_status sim_recompute(void *context, const weft_instruction *instruction,
                                        const weft_instruction_slots *slots, weft_error *err) {
    simulation *sim = context;
    const uint64_t in = segment_inputs(sim, instruction, slots);
    use_work(sim, slots);
    write_slot(sim, slots->tape, mix(2, in));
    verify_work(sim, slots);
    if (segment_inputs(sim, instruction, slots) != in) sim->torn++;
    return WEFT_OK;
}

/* True if a BACKWARD above has already written the unit's micro-batch gradient. Depends on the job, not on the
 * program. */
static inline bool adds(const weft_job_spec *job, int32_t segment, int32_t unit) {
    for (int32_t s = segment + 1; s < job->view.n_segments; s++)
        if (job->segments[s].has_backward && weft_job_spec_reads(job, s, unit)) return true;
    return false;
}

static inline uint64_t backward_inputs(simulation *sim, const weft_instruction *instruction,
                                       const weft_instruction_slots *slots) {
    uint64_t value = mix(segment_inputs(sim, instruction, slots), read_slot(sim, slots->tape));
    if (instruction->segment < sim->job->view.n_segments - 1) return mix(value, read_slot(sim, slots->d_carry_out));
    return mix(value, sim->count);
}

static inline weft_status sim_backward(void *context, const weft_instruction *instruction,
                                       const weft_instruction_slots *slots, weft_error *err) {
    simulation *sim = context;
    const weft_segment_view *view = &sim->job->view.segments[instruction->segment];
    const uint64_t in = backward_inputs(sim, instruction, slots);
    use_work(sim, slots);
    write_slot(sim, slots->d_carry_in, mix(3, in));
    for (int32_t i = 0; i < view->n_units; i++) {
        const int32_t u = view->units[i];
        const uint64_t part = mix(mix(4, (uint64_t)u), in);
        if (!weft_job_spec_trains(sim->job, u)) continue;
        write_slot(sim, slots->gradients[u],
                   adds(sim->job, instruction->segment, u) ? mix(read_slot(sim, slots->gradients[u]), part) : part);
    }
    if (instruction->segment == sim->job->view.n_segments - 1)
        sim->losses[instruction->micro_batch] = mix(sim->losses[instruction->micro_batch], in);
    verify_work(sim, slots);
    if (backward_inputs(sim, instruction, slots) != in) sim->torn++;
    return WEFT_OK;
}

static inline weft_status sim_reduce(void *context, const weft_instruction *instruction,
                                     const weft_instruction_slots *slots, weft_error *err) {
    simulation *sim = context;
    const uint64_t term = read_slot(sim, slots->gradients[instruction->unit]);
    use_work(sim, slots);
    sim->sums[instruction->unit] = instruction->micro_batch == 0 ? mix(6, term)
                                                                 : mix(sim->sums[instruction->unit], term);
    verify_work(sim, slots);
    if (read_slot(sim, slots->gradients[instruction->unit]) != term) sim->torn++;
    return WEFT_OK;
}

static inline weft_status sim_norm(void *context, const weft_instruction *instruction,
                                   const weft_instruction_slots *slots, weft_error *err) {
    simulation *sim = context;
    use_work(sim, slots);
    sim->norm = mix(sim->norm, sim->count);
    for (int32_t u = 0; u < sim->job->view.n_units; u++) sim->norm = mix(sim->norm, sim->sums[u]);
    verify_work(sim, slots);
    return WEFT_OK;
}

static inline weft_status sim_step(void *context, const weft_instruction *instruction,
                                   const weft_instruction_slots *slots, weft_error *err) {
    simulation *sim = context;
    use_work(sim, slots);
    for (int32_t u = 0; u < sim->job->view.n_units; u++)
        if (weft_job_spec_trains(sim->job, u))
            sim->parameters[u] = mix(sim->parameters[u], mix(sim->sums[u], mix(sim->norm, sim->count)));
    verify_work(sim, slots);
    return WEFT_OK;
}

/* Runs a placed program from fixed parameters; *torn (may be NULL): number of slots damaged while live. */
static inline uint64_t simulate(const weft_program *program, const weft_job_spec *job, weft_trace *trace,
                                int32_t *torn) {
    simulation sim = {.program = program, .job = job, .trace = trace};
    weft_exec_table table = {.context = &sim};
    weft_error err = WEFT_ERROR_INIT;
    uint64_t hash = 0;
    table.run[WEFT_INSTRUCTION_COUNT] = sim_count;
    table.run[WEFT_INSTRUCTION_FORWARD] = sim_forward;
    table.run[WEFT_INSTRUCTION_RECOMPUTE] = sim_recompute;
    table.run[WEFT_INSTRUCTION_BACKWARD] = sim_backward;
    table.run[WEFT_INSTRUCTION_REDUCE] = sim_reduce;
    table.run[WEFT_INSTRUCTION_NORM] = sim_norm;
    table.run[WEFT_INSTRUCTION_STEP] = sim_step;
    sim.cells = malloc((size_t)program->arena + 8);
    ck_assert_ptr_nonnull(sim.cells);
    memset(sim.cells, 0xA5, (size_t)program->arena + 8); /* previous content */
    for (int32_t u = 0; u < job->view.n_units; u++) sim.parameters[u] = mix(8, (uint64_t)u);
    ck_assert_ok(weft_program_execute(program, 0, program->n_instructions, job, &table, trace, 1, &err), err);
    hash = mix(sim.count, sim.norm);
    for (int32_t u = 0; u < job->view.n_units; u++) hash = mix(hash, sim.parameters[u]);
    for (int32_t m = 0; m < weft_job_spec_micro_batches(job); m++) hash = mix(hash, sim.losses[m]);
    free(sim.cells);
    if (torn != NULL) *torn = sim.torn;
    return hash;
}

#endif
