/* host/program/liveness.c: computes the buffers of a checked program, their lifetimes and their offsets.
 *
 * The instructions determine the slots. weft_slot_kind in program.h has the rules. */
#include "base/alloc.h"
#include "base/place.h"
#include "base/units.h"
#include "program/execute.h"

#include <stdlib.h>

enum { FORWARD, RECOMPUTE, BACKWARD, N_RUNS };
enum { CARRY, GRADIENT };

/* Tables of instructions; -1: none. */
typedef struct planner {
    weft_program *program;
    const weft_job_spec *job;
    int32_t micro_batches;
    int32_t *run[N_RUNS];                    /* [n_segments][micro-batches] */
    int32_t *send[2], *recv[2];              /* [n_segments][micro-batches] of the carry; of its gradient */
    int32_t *reduce, *send_part, *recv_part; /* [n_units][micro-batches] */
    int32_t *ends; /* [n_instructions] instruction at which it has ended: itself, or its WAIT */
    int32_t *storage;
} planner;

static int32_t pair_index(const planner *p, int32_t row, int32_t micro_batch) {
    return row * p->micro_batches + micro_batch;
}

/* Returns the table of an instruction's kind; NULL: none. */
static int32_t *table_of(const planner *p, const weft_instruction *instruction) {
    const int of = instruction->what == WEFT_PAYLOAD_CARRY_GRADIENT ? GRADIENT : CARRY;
    switch (instruction->kind) {
    case WEFT_INSTRUCTION_FORWARD: return p->run[FORWARD];
    case WEFT_INSTRUCTION_RECOMPUTE: return p->run[RECOMPUTE];
    case WEFT_INSTRUCTION_BACKWARD: return p->run[BACKWARD];
    case WEFT_INSTRUCTION_REDUCE: return instruction->micro_batch < 0 ? NULL : p->reduce;
    case WEFT_INSTRUCTION_SEND: return instruction->unit >= 0 ? p->send_part : p->send[of];
    case WEFT_INSTRUCTION_RECV: return instruction->unit >= 0 ? p->recv_part : p->recv[of];
    default: return NULL;
    }
}

static void find_instructions(planner *p) {
    const int32_t segments = p->job->view.n_segments * p->micro_batches,
                  units = p->job->view.n_units * p->micro_batches;
    const size_t total = 7 * (size_t)segments + 3 * (size_t)units + (size_t)p->program->n_instructions;
    int32_t **const tables[] = {&p->run[FORWARD], &p->run[RECOMPUTE], &p->run[BACKWARD], &p->send[0],   &p->send[1],
                                &p->recv[0],      &p->recv[1],        &p->reduce,        &p->send_part, &p->recv_part};
    int32_t *next = p->storage = weft_alloc(total, sizeof *p->storage);
    for (size_t i = 0; i < total; i++) p->storage[i] = -1;
    for (int i = 0; i < 10; i++) {
        *tables[i] = next;
        next += i < 7 ? segments : units;
    }
    p->ends = next;
    for (int32_t i = 0; i < p->program->n_instructions; i++) {
        const weft_instruction *instruction = &p->program->instructions[i];
        int32_t *table = table_of(p, instruction);
        if (table != NULL)
            table[pair_index(p, instruction->unit >= 0 ? instruction->unit : instruction->segment,
                             instruction->micro_batch)] = i;
        p->ends[i] = i;
        if (instruction->kind == WEFT_INSTRUCTION_WAIT) p->ends[instruction->waits] = i;
    }
}

/* Returns the instruction at which instruction i has ended; -1 for i = -1. */
static int32_t end_of(const planner *p, int32_t i) {
    return i < 0 ? -1 : p->ends[i];
}

static int32_t later(int32_t a, int32_t b) {
    return a > b ? a : b;
}

static bool has_gradients(int32_t kind) {
    return kind == WEFT_INSTRUCTION_BACKWARD || kind == WEFT_INSTRUCTION_REDUCE || kind == WEFT_INSTRUCTION_SEND ||
           kind == WEFT_INSTRUCTION_RECV;
}

/* Allocates the maximum number of slots and of rows of gradients. */
static void allocate_slots(planner *p) {
    weft_program *program = p->program;
    const size_t instructions = (size_t)program->n_instructions, units = (size_t)p->job->view.n_units;
    const size_t most = (size_t)p->micro_batches * (1 + 3 * (size_t)p->job->view.n_segments + units) + 3 * instructions;
    size_t rows = 1; /* row 0, all -1: of instructions without gradients */
    for (int32_t i = 0; i < program->n_instructions; i++) rows += has_gradients(program->instructions[i].kind);
    program->slots = weft_alloc(most, sizeof *program->slots);
    program->by_last = weft_alloc(most, sizeof *program->by_last);
    program->instruction_slots = weft_alloc(instructions, sizeof *program->instruction_slots);
    program->instruction_gradients = weft_alloc(rows * units, sizeof *program->instruction_gradients);
    for (size_t i = 0; i < rows * units; i++) program->instruction_gradients[i] = -1;
    rows = 1;
    for (int32_t i = 0; i < program->n_instructions; i++) {
        const size_t row = has_gradients(program->instructions[i].kind) ? rows++ : 0;
        const weft_instruction_slots none = {-1, -1, -1, -1, -1,
                                             -1, -1, -1, -1, program->instruction_gradients + row * units};
        program->instruction_slots[i] = none;
    }
}

/* Returns the slot's index; -1 if it has no bytes. */
static int32_t add_slot(planner *p, int32_t kind, int32_t unit, int32_t segment, int32_t micro_batch, int32_t first,
                        int32_t last, int64_t bytes) {
    static const int32_t categories[] = {
        [WEFT_SLOT_MICRO_BATCH] = WEFT_MEMORY_ACTIVATIONS,
        [WEFT_SLOT_CARRY] = WEFT_MEMORY_ACTIVATIONS,
        [WEFT_SLOT_TAPE] = WEFT_MEMORY_ACTIVATIONS,
        [WEFT_SLOT_CARRY_GRADIENT] = WEFT_MEMORY_ACTIVATIONS,
        [WEFT_SLOT_MICRO_BATCH_GRADIENT] = WEFT_MEMORY_GRADIENTS,
        [WEFT_SLOT_WORK] = WEFT_MEMORY_WORKSPACE,
        [WEFT_SLOT_UNIT] = WEFT_MEMORY_PARAMETERS,
        [WEFT_SLOT_EXCHANGE] = WEFT_MEMORY_GRADIENTS,
    };
    const weft_slot slot = {kind, categories[kind],        unit, segment, micro_batch, first,
                            last, weft_cache_lines(bytes), -1,   false};
    if (bytes == 0) return -1;
    p->program->slots[p->program->n_slots] = slot;
    return p->program->n_slots++;
}

static void plan_micro_batch(planner *p, int32_t m) {
    const int32_t n = N_RUNS * p->job->view.n_segments;
    int32_t first = INT32_MAX, last = -1, slot = -1;
    for (int32_t k = 0; k < n; k++) {
        const int32_t i = p->run[k % N_RUNS][pair_index(p, k / N_RUNS, m)];
        if (i >= 0 && i < first) first = i;
        if (i > last) last = i;
    }
    if (last < 0) return; /* another rank runs it */
    slot = add_slot(p, WEFT_SLOT_MICRO_BATCH, -1, -1, m, first, last, p->job->micro_batch_bytes);
    for (int32_t k = 0; k < n; k++) {
        const int32_t i = p->run[k % N_RUNS][pair_index(p, k / N_RUNS, m)];
        if (i >= 0) p->program->instruction_slots[i].micro_batch = slot;
    }
}

/* Plans the output of segment s. All instructions of segment s + 1 read it, except a BACKWARD that needs only its tape,
 * and its SEND reads it. */
static void plan_carry(planner *p, int32_t s, int32_t m) {
    weft_instruction_slots *of = p->program->instruction_slots;
    const int32_t at = pair_index(p, s, m), sent = p->send[CARRY][at];
    const int32_t made = p->run[FORWARD][at] >= 0 ? p->run[FORWARD][at] : p->recv[CARRY][at];
    int32_t last = -1, slot = -1;
    if (made < 0) return;
    last = later(end_of(p, made), end_of(p, sent));
    for (int pass = 0; pass < 2; pass++) {
        for (int k = 0; k < N_RUNS && s + 1 < p->job->view.n_segments; k++) {
            const int32_t reader = p->run[k][pair_index(p, s + 1, m)];
            if (reader < 0 || (k == BACKWARD && !p->job->segments[s + 1].backward_reads_carry)) continue;
            if (pass == 0) last = later(last, reader);
            else of[reader].carry_in = slot;
        }
        if (pass == 0) slot = add_slot(p, WEFT_SLOT_CARRY, -1, s, m, made, last, p->job->segments[s].carry);
    }
    of[made].carry_out = slot;
    if (sent >= 0) of[sent].carry_out = slot;
}

static void plan_tape(planner *p, int32_t s, int32_t m) {
    weft_instruction_slots *of = p->program->instruction_slots;
    const int32_t at = pair_index(p, s, m), again = p->run[RECOMPUTE][at], used = p->run[BACKWARD][at];
    const int32_t made = again >= 0 ? again : p->run[FORWARD][at];
    if (used < 0) return;
    of[made].tape = of[used].tape = add_slot(p, WEFT_SLOT_TAPE, -1, s, m, made, used, p->job->segments[s].tape);
}

/* Plans the gradient of segment s's output: from the next segment's BACKWARD or a RECV to the segment's own BACKWARD or
 * a SEND. */
static void plan_carry_gradient(planner *p, int32_t s, int32_t m) {
    weft_instruction_slots *of = p->program->instruction_slots;
    const int32_t at = pair_index(p, s, m), used = p->run[BACKWARD][at], sent = p->send[GRADIENT][at];
    const int32_t above = s + 1 < p->job->view.n_segments ? p->run[BACKWARD][pair_index(p, s + 1, m)] : -1;
    const int32_t made = above >= 0 ? above : p->recv[GRADIENT][at], last = later(used, end_of(p, sent));
    int32_t slot = -1;
    if (made < 0 || last < 0 || !p->job->segments[s].has_backward) return;
    slot = add_slot(p, WEFT_SLOT_CARRY_GRADIENT, -1, s, m, made, last, p->job->segments[s].carry);
    if (above >= 0) of[made].d_carry_in = slot;
    else of[made].d_carry_out = slot;
    if (used >= 0) of[used].d_carry_out = slot;
    if (sent >= 0) of[sent].d_carry_out = slot;
}

/* Sets the micro-batch gradient of a unit at instruction i. */
static void set_gradient(planner *p, int32_t i, int32_t u, int32_t slot) {
    const int32_t *row = p->program->instruction_slots[i].gradients;
    p->program->instruction_gradients[row - p->program->instruction_gradients + u] = slot;
}

/* With one micro-batch, its gradient is the sum itself. */
static void plan_micro_batch_gradient(planner *p, int32_t u, int32_t m) {
    const int32_t at = pair_index(p, u, m), reduced = p->reduce[at], got = p->recv_part[at];
    const int32_t used = reduced >= 0 ? reduced : p->send_part[at];
    int32_t first = got >= 0 && got < used ? got : used, slot = -1;
    if (used < 0) return;
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t s = 0; s < p->job->view.n_segments; s++) {
            const int32_t backward = p->run[BACKWARD][pair_index(p, s, m)];
            if (backward < 0 || !weft_job_spec_reads(p->job, s, u)) continue;
            if (pass == 1) set_gradient(p, backward, u, slot);
            else if (backward < first) first = backward;
        }
        if (pass == 0)
            slot = add_slot(p, WEFT_SLOT_MICRO_BATCH_GRADIENT, u, -1, m, first, end_of(p, used),
                            p->job->units[u].gradient);
    }
    if (slot >= 0) p->program->slots[slot].elsewhere = p->micro_batches == 1 && reduced >= 0;
    set_gradient(p, used, u, slot);
    if (got >= 0) set_gradient(p, got, u, slot);
}

/* Plans the gathered parameters of a unit and the slots of exchanges. */
static void plan_exchange(planner *p, int32_t *gathered, int32_t i) {
    const weft_instruction *instruction = &p->program->instructions[i];
    const int32_t u = instruction->unit;
    weft_instruction_slots *of = &p->program->instruction_slots[i];
    if (instruction->kind == WEFT_INSTRUCTION_GATHER && instruction->what == WEFT_PAYLOAD_PARAMETERS) {
        of->unit = gathered[u] =
            add_slot(p, WEFT_SLOT_UNIT, u, -1, -1, i, p->program->n_instructions - 1, p->job->units[u].gathered);
    } else if (instruction->kind == WEFT_INSTRUCTION_RELEASE) {
        of->unit = gathered[u];
        if (of->unit >= 0) p->program->slots[of->unit].last = i;
    } else if (instruction->kind == WEFT_INSTRUCTION_REDUCE) {
        of->exchange = add_slot(p, WEFT_SLOT_EXCHANGE, u, -1, instruction->micro_batch, i, p->ends[i],
                                p->job->units[u].exchange[instruction->scope]);
    }
}

static int64_t work_bytes(const planner *p, const weft_instruction *instruction) {
    const weft_graph_sizes *sizes = instruction->segment >= 0 ? &p->job->segments[instruction->segment] : NULL;
    switch (instruction->kind) {
    case WEFT_INSTRUCTION_FORWARD:
        return p->run[RECOMPUTE][pair_index(p, instruction->segment, instruction->micro_batch)] >= 0
                   ? sizes->forward_work_untaped
                   : sizes->forward_work;
    case WEFT_INSTRUCTION_RECOMPUTE: return sizes->recompute_work;
    case WEFT_INSTRUCTION_BACKWARD: return sizes->backward_work;
    case WEFT_INSTRUCTION_NORM:
    case WEFT_INSTRUCTION_STEP: return p->job->step_work;
    default: return 0;
    }
}

static void plan_slots(planner *p) {
    int32_t *gathered = weft_alloc(p->job->view.n_units, sizeof *gathered);
    for (int32_t u = 0; u < p->job->view.n_units; u++) gathered[u] = -1;
    for (int32_t m = 0; m < p->micro_batches; m++) {
        plan_micro_batch(p, m);
        for (int32_t s = 0; s < p->job->view.n_segments; s++) {
            plan_carry(p, s, m);
            plan_tape(p, s, m);
            plan_carry_gradient(p, s, m);
        }
        for (int32_t u = 0; u < p->job->view.n_units; u++) plan_micro_batch_gradient(p, u, m);
    }
    for (int32_t i = 0; i < p->program->n_instructions; i++) {
        const weft_instruction *instruction = &p->program->instructions[i];
        p->program->instruction_slots[i].work = add_slot(p, WEFT_SLOT_WORK, -1, instruction->segment,
                                                         instruction->micro_batch, i, i, work_bytes(p, instruction));
        plan_exchange(p, gathered, i);
    }
    free(gathered);
}

/* Counting sort by last instruction, so that the executor finds ended slots without a search. */
static void sort_by_last(weft_program *program) {
    int32_t *start = weft_alloc(program->n_instructions + 1, sizeof *start);
    for (int32_t i = 0; i < program->n_slots; i++) start[program->slots[i].last + 1]++;
    for (int32_t i = 0; i < program->n_instructions; i++) start[i + 1] += start[i];
    for (int32_t i = 0; i < program->n_slots; i++) program->by_last[start[program->slots[i].last]++] = i;
    free(start);
}

static weft_status place_slots(weft_program *program, weft_error *err) {
    weft_packing packing = {0, 0, -1};
    weft_status status = WEFT_OK;
    int32_t n = 0;
    weft_live_interval *items = weft_alloc(program->n_slots, sizeof *items);
    for (int32_t i = 0; i < program->n_slots; i++) {
        const weft_slot *slot = &program->slots[i];
        const weft_live_interval item = {slot->bytes, slot->first, slot->last, -1};
        if (slot->elsewhere) continue;
        items[n++] = item;
    }
    status = weft_intervals_place(items, &packing, n, err);
    program->arena = packing.arena;
    program->peak = packing.peak;
    program->peak_instruction = packing.peak_time;
    n = 0;
    for (int32_t i = 0; i < program->n_slots && status == WEFT_OK; i++) {
        weft_slot *slot = &program->slots[i];
        if (slot->elsewhere) continue;
        slot->offset = items[n++].offset;
        if (slot->first <= packing.peak_time && packing.peak_time <= slot->last)
            program->category[slot->category] += slot->bytes;
    }
    free(items);
    return status;
}

weft_status weft_program_place(weft_program *program, const weft_job_spec *job, weft_error *err) {
    planner p = {.program = program, .job = job, .micro_batches = weft_job_spec_micro_batches(job)};
    weft_status status = WEFT_OK;
    find_instructions(&p);
    allocate_slots(&p);
    plan_slots(&p);
    sort_by_last(program);
    status = place_slots(program, err);
    free(p.storage);
    return status;
}
