/* host/program/overlap.c: see overlap.h. */
#include "program/overlap.h"

const char *weft_overlap_name(int32_t kind) {
    static const char *const names[WEFT_N_OVERLAP] = {"gather", "reduce", "other"};
    return names[kind];
}

int32_t weft_overlap_of(const weft_instruction *instruction) {
    switch (instruction->kind) {
    case WEFT_INSTRUCTION_GATHER:
        return instruction->what == WEFT_PAYLOAD_SUM ? WEFT_OVERLAP_REDUCE : WEFT_OVERLAP_GATHER;
    case WEFT_INSTRUCTION_REDUCE: return instruction->scope == WEFT_SCOPE_RANK ? -1 : WEFT_OVERLAP_REDUCE;
    case WEFT_INSTRUCTION_REFRESH:
    case WEFT_INSTRUCTION_SEND:
    case WEFT_INSTRUCTION_RECV: return WEFT_OVERLAP_OTHER;
    default: return -1;
    }
}

static double seconds_of_entry(const weft_trace_entry *entry) {
    return 1e-9 * (double)(entry->end_ns - entry->start_ns);
}

void weft_overlap_add(weft_overlap *self, const weft_trace *trace, const weft_program *program) {
    const int32_t base = weft_trace_count(trace) - program->n_instructions;
    for (int32_t i = 0; i < program->n_instructions && base >= 0; i++) {
        const weft_instruction *instruction = &program->instructions[i];
        const bool ends = instruction->kind == WEFT_INSTRUCTION_WAIT;
        const int32_t begun = ends ? instruction->waits : i, kind = weft_overlap_of(&program->instructions[begun]);
        const weft_trace_entry *start = weft_trace_entry_at(trace, base + begun);
        const weft_trace_entry *now = weft_trace_entry_at(trace, base + i);
        if (kind < 0) continue;
        self->busy[kind] += seconds_of_entry(now);
        if (ends) self->under_way[kind] += 1e-9 * (double)(now->end_ns - start->start_ns);
        else if (instruction->queue == 0) self->under_way[kind] += seconds_of_entry(now);
    }
}

double weft_overlap_hidden(const weft_overlap *self, int32_t kind) {
    if (self->under_way[kind] <= 0.0) return 0.0;
    return 100.0 * (1.0 - self->busy[kind] / self->under_way[kind]);
}

void weft_overlap_print(const weft_overlap *self, int32_t kind, FILE *to) {
    char text[32] = "-";
    if (self->under_way[kind] > 0.0) (void)snprintf(text, sizeof text, "%.1f %%", weft_overlap_hidden(self, kind));
    (void)fprintf(to, " %14s", text);
}
