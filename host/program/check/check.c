/* host/program/check/check.c: checks the programs of all ranks. program.h lists the checks, check.h the files. */
#include "program/check/check.h"

#include "base/alloc.h"

#include <stdlib.h>

/* ---- fields of an instruction ---- */

/* The operands that a kind of instruction uses. Every other operand must be -1. */
typedef struct shape {
    bool trains; /* belongs to training only */
    bool segment, unit, micro_batch, peer, waits, what, scope;
    bool queues; /* allowed in queues other than 0 */
} shape;

static const shape shapes[] = {
    [WEFT_INSTRUCTION_COUNT] = {.trains = true},
    [WEFT_INSTRUCTION_GATHER] = {.unit = true, .what = true, .queues = true},
    [WEFT_INSTRUCTION_RELEASE] = {.unit = true},
    [WEFT_INSTRUCTION_FORWARD] = {.segment = true, .micro_batch = true},
    [WEFT_INSTRUCTION_RECOMPUTE] = {.trains = true, .segment = true, .micro_batch = true},
    [WEFT_INSTRUCTION_BACKWARD] = {.trains = true, .segment = true, .micro_batch = true},
    [WEFT_INSTRUCTION_REDUCE] = {.trains = true, .unit = true, .micro_batch = true, .scope = true, .queues = true},
    [WEFT_INSTRUCTION_SEND] =
        {.segment = true, .unit = true, .micro_batch = true, .peer = true, .what = true, .queues = true},
    [WEFT_INSTRUCTION_RECV] =
        {.segment = true, .unit = true, .micro_batch = true, .peer = true, .what = true, .queues = true},
    [WEFT_INSTRUCTION_WAIT] = {.waits = true},
    [WEFT_INSTRUCTION_NORM] = {.trains = true},
    [WEFT_INSTRUCTION_STEP] = {.trains = true},
    [WEFT_INSTRUCTION_REFRESH] = {.trains = true, .unit = true, .queues = true},
};

static weft_status check_kind(weft_checker *check, const weft_instruction *instruction) {
    if (!WEFT_WHOLE(instruction, weft_instruction))
        return weft_check_refuse(check, "its struct_size is %u: an instruction has at least %u bytes",
                                 (unsigned)instruction->struct_size, (unsigned)WEFT_SIZE_1_0(weft_instruction));
    if (instruction->kind < WEFT_INSTRUCTION_COUNT || instruction->kind > WEFT_INSTRUCTION_REFRESH)
        return weft_check_refuse(check, "there is no such kind: kinds are %d (COUNT) to %d (REFRESH)",
                                 (int)WEFT_INSTRUCTION_COUNT, (int)WEFT_INSTRUCTION_REFRESH);
    if (shapes[instruction->kind].trains && !weft_check_trains(check))
        return weft_check_refuse(
            check, "evaluation and generation run FORWARDs, and what brings parameters and carries to them");
    return WEFT_OK;
}

/* A used operand must be in [0, n), an unused one must be -1. */
static weft_status check_operand(weft_checker *check, const char *name, int32_t value, bool used, int32_t n) {
    if (!used && value != -1)
        return weft_check_refuse(check, "its %s is %d, but such an instruction speaks of no %s: it must be -1", name,
                                 (int)value, name);
    if (used && (value < 0 || value >= n))
        return weft_check_refuse(check, "its %s is %d: this job has %d, numbered from 0", name, (int)value, (int)n);
    return WEFT_OK;
}

/* Returns the allowed values of `what` as bits 1 << weft_payload. */
static uint32_t whats_of(const weft_checker *check, int32_t kind) {
    if (kind == WEFT_INSTRUCTION_GATHER)
        return 1u << WEFT_PAYLOAD_PARAMETERS | (weft_check_trains(check) ? 1u << WEFT_PAYLOAD_SUM : 0);
    if (!weft_check_trains(check)) return 1u << WEFT_PAYLOAD_CARRY;
    return 1u << WEFT_PAYLOAD_CARRY | 1u << WEFT_PAYLOAD_CARRY_GRADIENT | 1u << WEFT_PAYLOAD_MICRO_BATCH_GRADIENT;
}

static weft_status check_what(weft_checker *check, const weft_instruction *instruction) {
    if (!shapes[instruction->kind].what) return check_operand(check, "what", instruction->what, false, 0);
    if (instruction->what < 1 || instruction->what > WEFT_PAYLOAD_MICRO_BATCH_GRADIENT ||
        (whats_of(check, instruction->kind) >> instruction->what & 1u) == 0)
        return weft_check_refuse(check, "its what is %d, which no %s carries here", (int)instruction->what,
                                 weft_instruction_kind_name(instruction->kind));
    return WEFT_OK;
}

/* A SEND or RECV uses either segment or unit. The second hop of a REDUCE has no micro-batch. */
static weft_status check_operands(weft_checker *check, const weft_instruction *instruction) {
    const shape *speaks = &shapes[instruction->kind];
    const weft_strategy_job *view = &check->job->view;
    const bool part = speaks->peer && instruction->what == WEFT_PAYLOAD_MICRO_BATCH_GRADIENT;
    const bool second = instruction->kind == WEFT_INSTRUCTION_REDUCE && instruction->micro_batch == -1;
    weft_status status = check_what(check, instruction);
    if (status == WEFT_OK)
        status = check_operand(check, "segment", instruction->segment, speaks->segment && !part, view->n_segments);
    if (status == WEFT_OK)
        status =
            check_operand(check, "unit", instruction->unit, speaks->unit && (part || !speaks->peer), view->n_units);
    if (status == WEFT_OK)
        status = check_operand(check, "micro-batch", instruction->micro_batch, speaks->micro_batch && !second,
                               check->micro_batches);
    if (status == WEFT_OK) status = check_operand(check, "peer", instruction->peer, speaks->peer, check->world);
    if (status == WEFT_OK) status = check_operand(check, "waits", instruction->waits, speaks->waits, check->at);
    if (status == WEFT_OK && !speaks->scope) status = check_operand(check, "scope", instruction->scope, false, 0);
    if (status == WEFT_OK && speaks->scope &&
        (instruction->scope < WEFT_SCOPE_RANK || instruction->scope > WEFT_SCOPE_ACROSS))
        status = weft_check_refuse(check, "its scope is %d: scopes are %d (RANK) to %d (ACROSS)",
                                   (int)instruction->scope, (int)WEFT_SCOPE_RANK, (int)WEFT_SCOPE_ACROSS);
    return status;
}

static weft_status check_queue(weft_checker *check, const weft_instruction *instruction) {
    const int32_t last = shapes[instruction->kind].queues ? 3 : 0;
    if (instruction->queue < 0 || instruction->queue > last)
        return weft_check_refuse(check,
                                 last == 0 ? "its queue is %d: such an instruction ends in its place, in queue 0"
                                           : "its queue is %d: queues are 0 to 3",
                                 (int)instruction->queue);
    if (instruction->kind == WEFT_INSTRUCTION_SEND && instruction->queue == 0)
        return weft_check_refuse(check,
                                 "a SEND is of queue 1 to 3, with a WAIT: it may end only when its RECV has started");
    return WEFT_OK;
}

weft_status weft_check_fields(weft_checker *check, const weft_instruction *instruction) {
    weft_status status = check_kind(check, instruction);
    if (status == WEFT_OK) status = check_operands(check, instruction);
    if (status == WEFT_OK) status = check_queue(check, instruction);
    if (status == WEFT_OK && (instruction->flags != 0 || instruction->reserved != 0))
        status = weft_check_refuse(check, "its flags are %u and its reserved field is %d: both must be 0",
                                   (unsigned)instruction->flags, (int)instruction->reserved);
    return status;
}

/* ---- order of messages for a communicator without tags (WEFT_COMM_IN_ORDER) ---- */

/* Payloads of messages; each has its own p2p channel (weft/comm.h). */
enum { N_SORTS = WEFT_PAYLOAD_MICRO_BATCH_GRADIENT - WEFT_PAYLOAD_CARRY + 1 };

/* latest: [world][sorts] the last SEND of each rank and payload that the current rank has received. */
static weft_status follow_senders(weft_checker *check, int32_t rank, int32_t *latest) {
    const weft_program *program = check->programs[rank];
    char name[160];
    for (int32_t i = 0; i < check->world * N_SORTS; i++) latest[i] = -1;
    for (int32_t i = 0; i < program->n_instructions; i++) {
        const weft_instruction *instruction = &program->instructions[i];
        int32_t *before = NULL;
        int32_t send = -1;
        if (instruction->kind != WEFT_INSTRUCTION_RECV) continue;
        send = check->sent[weft_check_transfer(check, instruction)];
        before = &latest[instruction->peer * N_SORTS + instruction->what - WEFT_PAYLOAD_CARRY];
        if (send < *before) {
            weft_instruction_describe(name, sizeof name, &check->programs[instruction->peer]->instructions[*before],
                                      check->job);
            return weft_check_refuse_at(
                check, rank, i,
                "rank %d sends this before %s, which is received before it: the communicator "
                "has no tags, so what comes from a rank is received in the order in which it is "
                "sent",
                (int)instruction->peer, name);
        }
        *before = send;
    }
    return WEFT_OK;
}

static weft_status check_transfers_in_order(weft_checker *check) {
    int32_t *latest = NULL;
    weft_status status = WEFT_OK;
    if (!check->job->in_order || check->sent == NULL) return WEFT_OK;
    latest = weft_alloc(check->world * N_SORTS, sizeof *latest);
    for (int32_t rank = 0; rank < check->world && status == WEFT_OK; rank++)
        status = follow_senders(check, rank, latest);
    free(latest);
    return status;
}

weft_status weft_check_refuse_at(weft_checker *check, int32_t rank, int32_t instruction, const char *format, ...) {
    char text[256], reason[1200];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    check->refused_rank = rank;
    check->refused_instruction = instruction;
    weft_instruction_describe(text, sizeof text, &check->programs[rank]->instructions[instruction], check->job);
    return weft_error_set(check->err, WEFT_E_PLUGIN, "rank %d, instruction %d, %s: %s", (int)rank, (int)instruction,
                          text, reason);
}

weft_status weft_check_once(weft_checker *check, int32_t *done) {
    if (*done >= 0)
        return weft_check_refuse(check, "instruction %d has done this already: it must come once", (int)*done);
    *done = check->at;
    return WEFT_OK;
}

/* Allocates n elements whose bytes are 0xFF: each int32 is -1. */
static void *allocate_blank(size_t n, size_t size) {
    return memset(weft_alloc(n, size), 0xFF, n * size);
}

static void allocate_tables(weft_checker *check) {
    const weft_strategy_job *view = &check->job->view;
    const size_t micro_batches = (size_t)check->micro_batches, segments = (size_t)view->n_segments * micro_batches;
    const size_t units = (size_t)view->n_units * micro_batches, transfers = 2 * segments + units;
    int32_t most = 0;
    for (int32_t rank = 0; rank < check->world; rank++)
        if (check->programs[rank]->n_instructions > most) most = check->programs[rank]->n_instructions;
    check->forward = allocate_blank(segments, sizeof *check->forward);
    check->recompute = allocate_blank(segments, sizeof *check->recompute);
    check->backward = allocate_blank(segments, sizeof *check->backward);
    check->begun[0] = weft_alloc(2 * units, sizeof *check->begun[0]);
    check->begun[1] = check->begun[0] + units;
    check->terms = allocate_blank(units, sizeof *check->terms);
    check->units = weft_alloc(view->n_units, sizeof *check->units);
    check->uses = weft_alloc(view->n_units, sizeof *check->uses);
    check->waited = weft_alloc(most, 1);
    if (!weft_job_spec_owned(check->job)) return;
    check->sent = allocate_blank(transfers, sizeof *check->sent);
    check->received = allocate_blank(transfers, sizeof *check->received);
    check->arrived = weft_alloc(transfers, 1);
}

static void free_tables(weft_checker *check) {
    free(check->forward);
    free(check->recompute);
    free(check->backward);
    free(check->begun[0]);
    free(check->terms);
    free(check->units);
    free(check->uses);
    free(check->waited);
    free(check->sent);
    free(check->received);
    free(check->arrived);
}

static void fill_units(weft_checker *check) {
    for (int32_t u = 0; u < check->job->view.n_units; u++) {
        weft_check_unit *facts = &check->units[u];
        facts->trains = weft_job_spec_trains(check->job, u);
        facts->owner = facts->borrower = -1;
        if (!weft_job_spec_owned(check->job)) continue;
        facts->owner = check->job->view.placements[u].owner;
        if (facts->trains) facts->borrower = weft_job_spec_borrower(check->job, u);
    }
}

/* Programs of another job do not fit the sizes of the checker's tables. */
static weft_status check_programs(const weft_checker *check) {
    for (int32_t rank = 0; rank < check->world; rank++) {
        const weft_program *program = check->programs[rank];
        if (program->mode != check->job->view.mode || program->micro_batches != check->micro_batches ||
            program->rank != rank)
            return weft_error_set(
                check->err, WEFT_E_HOST,
                "the program of rank %d, mode %d and %d micro-batches stands in the place of rank %d in a job "
                "of mode %d and %d micro-batches",
                (int)program->rank, (int)program->mode, (int)program->micro_batches, (int)rank,
                (int)check->job->view.mode, (int)check->micro_batches);
    }
    return WEFT_OK;
}

/* Reports the failing instruction, or the end of the current program if an instruction is missing. */
static void locate_failure(const weft_checker *check, weft_coverage *out) {
    const bool at_instruction = check->refused_rank >= 0;
    out->refused_rank = at_instruction ? check->refused_rank : check->rank;
    out->refused_instruction = at_instruction ? check->refused_instruction
                                              : check->programs[check->rank]->n_instructions;
}

weft_status weft_programs_check(weft_coverage *out, const weft_program *const *programs, const weft_job_spec *job,
                                weft_error *err) {
    weft_checker check = {.programs = programs, .job = job, .err = err, .refused_rank = -1};
    weft_status status = weft_job_spec_check_owners(job, err);
    memset(out, 0, sizeof *out);
    out->refused_rank = -1;
    if (status != WEFT_OK) return status;
    check.world = job->view.world;
    check.micro_batches = weft_job_spec_micro_batches(job);
    status = check_programs(&check);
    if (status != WEFT_OK) return status;
    allocate_tables(&check);
    fill_units(&check);
    for (int32_t rank = 0; rank < check.world && status == WEFT_OK; rank++) status = weft_check_rank(&check, rank);
    if (status == WEFT_OK) status = weft_check_matches(&check);
    if (status == WEFT_OK) status = check_transfers_in_order(&check);
    out->covered = true;
    if (status == WEFT_OK && weft_check_trains(&check)) weft_check_sums_order(&check, out);
    if (status == WEFT_E_PLUGIN) locate_failure(&check, out);
    free_tables(&check);
    return status;
}
