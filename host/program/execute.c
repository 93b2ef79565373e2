/* host/program/execute.c: one pass over a placed program's instructions, in their order.
 *
 * The list's order is the order in which instructions start; one of another queue ends at its WAIT. How an
 * instruction computes or travels is the table's affair; what it touched is judged here, from what it reported to
 * the trace. */
#include "program/execute.h"

#include <time.h>

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

/* What is wrong with the use that the trace kept. */
static weft_status bad_use(const weft_trace *trace, weft_error *err) {
    const weft_program *program = trace->program;
    const weft_slot *slot = NULL;
    if (trace->bad_slot < 0 || trace->bad_slot >= program->n_slots)
        return weft_error_set(err, WEFT_E_HOST, "it touches slot %d: the program has %d", (int)trace->bad_slot,
                              (int)program->n_slots);
    slot = &program->slots[trace->bad_slot];
    if (trace->instruction < slot->first || trace->instruction > slot->last)
        return weft_error_set(err, WEFT_E_HOST,
                              "it touches slot %d (%s), which lives from instruction %d to instruction %d only",
                              (int)trace->bad_slot, slot_kind_name(slot->kind), (int)slot->first, (int)slot->last);
    return weft_error_set(err, WEFT_E_HOST, "it touches %lld bytes of slot %d (%s), which has %lld",
                          (long long)trace->bad_bytes, (int)trace->bad_slot, slot_kind_name(slot->kind),
                          (long long)slot->bytes);
}

static weft_status name_instruction(weft_status status, const weft_instruction *instruction, const weft_job_spec *job,
                                    int32_t index, uint64_t step, weft_error *err) {
    char text[256];
    weft_instruction_describe(text, sizeof text, instruction, job);
    if (err != NULL && err->text[0] == '\0') (void)weft_error_set(err, status, "failed without saying why");
    (void)weft_error_prefix(err, "instruction %d, %s: ", (int)index, text);
    if (step > 0) (void)weft_error_prefix(err, "step %llu, ", (unsigned long long)step); /* else it is no step's */
    return status;
}

/* Starts an instruction of queue 0 and ends it; starts another one; a WAIT ends the one that it names. */
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
    const uint64_t start = now_ns();
    weft_status status = WEFT_OK;
    trace->instruction = i;
    if (table->begin != NULL) table->begin(table->context, i);
    status = perform_instruction(program, i, table, err);
    if (status == WEFT_OK && table->settle != NULL) status = table->settle(table->context, err);
    weft_trace_record(trace, step, start, now_ns());
    if (status == WEFT_OK && trace->bad_slot != -1) status = bad_use(trace, err);
    return status;
}

static weft_status check_table(const weft_program *program, const weft_exec_table *table, weft_error *err) {
    if (program->instruction_slots == NULL)
        return weft_error_set(err, WEFT_E_HOST, "the program has no slots yet: place it before it is executed");
    for (int32_t i = 0; i < program->n_instructions; i++) {
        const int32_t kind = program->instructions[i].kind;
        if (kind != WEFT_INSTRUCTION_WAIT && table->run[kind] == NULL)
            return weft_error_set(err, WEFT_E_HOST, "instruction %d: nothing is there to run a %s", (int)i,
                                  weft_instruction_kind_name(kind));
    }
    return WEFT_OK;
}

weft_status weft_program_execute_part(const weft_program *program, int32_t first, int32_t end, const weft_job_spec *job,
                                      const weft_exec_table *table, weft_trace *trace, uint64_t step, weft_error *err) {
    int32_t dying = 0; /* into by_last */
    weft_status status = check_table(program, table, err);
    if (status == WEFT_OK) status = weft_trace_begin(trace, program, err);
    if (status != WEFT_OK) return status;
    while (dying < program->n_slots && program->slots[program->by_last[dying]].last < first) dying++;
    for (int32_t i = first; i < end && status == WEFT_OK; i++) {
        status = run_instruction(program, i, table, trace, step, err);
        if (status != WEFT_OK) status = name_instruction(status, &program->instructions[i], job, i, step, err);
        for (; dying < program->n_slots && program->slots[program->by_last[dying]].last == i; dying++)
            weft_trace_release(trace, program->by_last[dying]);
    }
    weft_trace_end(trace);
    return status;
}

weft_status weft_program_execute(const weft_program *program, const weft_job_spec *job, const weft_exec_table *table,
                                 weft_trace *trace, uint64_t step, weft_error *err) {
    return weft_program_execute_part(program, 0, program->n_instructions, job, table, trace, step, err);
}
