/* host/program/check/check_fields.c: an instruction is known in this job, and its fields say something and nothing
 * else. */
#include "program/check/check.h"

/* What a kind of instruction speaks of. Every other operand must be -1. */
typedef struct shape {
    bool trains; /* belongs to training only */
    bool segment, unit, micro_batch, peer, waits, what, scope;
    bool queues; /* may be of a queue other than 0 */
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

/* An operand that the kind speaks of must be in [0, n), another must be -1. */
static weft_status check_operand(weft_checker *check, const char *name, int32_t value, bool used, int32_t n) {
    if (!used && value != -1)
        return weft_check_refuse(check, "its %s is %d, but such an instruction speaks of no %s: it must be -1", name,
                                 (int)value, name);
    if (used && (value < 0 || value >= n))
        return weft_check_refuse(check, "its %s is %d: this job has %d, numbered from 0", name, (int)value, (int)n);
    return WEFT_OK;
}

/* The words that `what` may be by the kind, as bits 1 << weft_payload. */
static uint32_t whats_of(const weft_checker *check, int32_t kind) {
    if (kind == WEFT_INSTRUCTION_GATHER)
        return 1u << WEFT_PAYLOAD_PARAMETERS | (weft_check_trains(check) ? 1u << WEFT_PAYLOAD_SUM : 0);
    if (!weft_check_trains(check)) return 1u << WEFT_PAYLOAD_CARRY;
    return 1u << WEFT_PAYLOAD_CARRY | 1u << WEFT_PAYLOAD_CARRY_GRADIENT | 1u << WEFT_PAYLOAD_MICRO_BATCH_GRADIENT;
}

static weft_status check_what(weft_checker *check, const weft_instruction *instruction) {
    const bool used = shapes[instruction->kind].what;
    if (!used) return check_operand(check, "what", instruction->what, false, 0);
    if (instruction->what < 1 || instruction->what > WEFT_PAYLOAD_MICRO_BATCH_GRADIENT ||
        (whats_of(check, instruction->kind) >> instruction->what & 1u) == 0)
        return weft_check_refuse(check, "its what is %d, which no %s carries here", (int)instruction->what,
                                 weft_instruction_kind_name(instruction->kind));
    return WEFT_OK;
}

/* Of a SEND or RECV, one of segment and unit has a meaning; of a REDUCE, the second hop names no micro-batch. */
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
