/* host/program/phases.c: see phases.h. */
#include "program/phases.h"

const char *weft_phase_name(int32_t phase) {
    static const char *const names[WEFT_N_PHASES] = {"forward",  "recompute", "backward", "sum",
                                                     "exchange", "norm",      "optimizer"};
    return phase >= 0 && phase < WEFT_N_PHASES ? names[phase] : "?";
}

/* -1: RELEASE, which takes no time worth a name. */
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
        if (phase >= 0) seconds[phase] += 1e-9 * (double)(entry->end_ns - entry->start_ns);
    }
}
