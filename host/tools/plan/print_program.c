/* host/tools/plan/print_program.c: see print_program.h. */
#include "tools/plan/print_program.h"

/* ---- printing: one line per instruction ----
 *
 *     index  queue  instruction                        slots
 *         7      0  BACKWARD layers.0.mlp micro-batch 0  micro-batch 1024@0  tape 65536@2048  work 4096@70000 ...
 *
 * A slot is printed as bytes@offset in the arena; `sum` instead of an offset: the gradient sum itself. */

void weft_instruction_slots_visit(const weft_program *program, const weft_job_spec *job, int32_t instruction,
                                  weft_slot_visit visit, void *context) {
    const weft_instruction_slots *s = &program->instruction_slots[instruction];
    const struct {
        const char *name;
        int32_t slot;
    } before[] = {{"micro-batch", s->micro_batch},
                  {"carry-in", s->carry_in},
                  {"carry-out", s->carry_out},
                  {"tape", s->tape},
                  {"gradient-from-above", s->d_carry_out},
                  {"gradient-below", s->d_carry_in},
                  {"unit", s->unit},
                  {"exchange", s->exchange}};
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++)
        if (before[i].slot >= 0) visit(context, before[i].name, &program->slots[before[i].slot]);
    for (int32_t u = 0; u < job->view.n_units; u++)
        if (s->gradients[u] >= 0) visit(context, job->view.units[u].name, &program->slots[s->gradients[u]]);
    if (s->work >= 0) visit(context, "work", &program->slots[s->work]);
}

typedef struct slot_printer {
    FILE *to;
    int pad; /* spaces before the first slot */
} slot_printer;

static void print_slot(void *context, const char *name, const weft_slot *slot) {
    slot_printer *self = context;
    fprintf(self->to, "%*s  %s %lld@", self->pad, "", name, (long long)slot->bytes);
    self->pad = 0;
    if (slot->offset >= 0) fprintf(self->to, "%lld", (long long)slot->offset);
    else fputs("sum", self->to);
}

void weft_program_print(const weft_program *program, const weft_job_spec *job, int32_t marked, FILE *to) {
    const bool placed = program->instruction_slots != NULL;
    int width = (int)strlen("instruction"); /* of the longest instruction */
    char text[256];
    for (int32_t i = 0; i < program->n_instructions; i++) {
        weft_instruction_describe(text, sizeof text, &program->instructions[i], job);
        if ((int)strlen(text) > width) width = (int)strlen(text);
    }
    fprintf(to, "index  queue  %-*s%s\n", placed ? width : 0, "instruction", placed ? "  slots, as bytes@offset" : "");
    for (int32_t i = 0; i < program->n_instructions; i++) {
        slot_printer printer = {to, 0};
        weft_instruction_describe(text, sizeof text, &program->instructions[i], job);
        printer.pad = width - (int)strlen(text);
        fprintf(to, "%5d  %5d  %s", (int)i, (int)program->instructions[i].queue, text);
        if (placed) weft_instruction_slots_visit(program, job, i, print_slot, &printer);
        fputs(i == marked ? "  <== refused\n" : "\n", to);
    }
    if (marked == program->n_instructions) fprintf(to, "%5d  <== something is missing\n", (int)marked);
    if (placed)
        fprintf(to, "%lld bytes live at instruction %d, in an arena of %lld\n", (long long)program->peak,
                (int)program->peak_instruction, (long long)program->arena);
}
