/* host/program/print_program.c: a program for people, one line per instruction.
 *
 *     index  queue  instruction                        slots
 *         7      0  BACKWARD layers.0.mlp micro-batch 0  micro-batch 1024@0  tape 65536@2048  work 4096@70000 ...
 *
 * A slot is its bytes and its offset in the arena; `sum` in place of an offset: the sum over micro-batches itself. */
#include "program/program.h"

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

static void print_slot(void *to, const char *name, const weft_slot *slot) {
    fprintf(to, "  %s %lld@", name, (long long)slot->bytes);
    if (slot->offset >= 0) fprintf(to, "%lld", (long long)slot->offset);
    else fprintf(to, "sum");
}

static void count_slot(void *n, const char *name, const weft_slot *slot) {
    (void)name;
    (void)slot;
    ++*(int *)n;
}

/* True if a column follows the instruction's name in its line. */
static bool has_slots(const weft_program *program, const weft_job_spec *job, int32_t i) {
    int n = 0;
    if (program->instruction_slots != NULL) weft_instruction_slots_visit(program, job, i, count_slot, &n);
    return n > 0;
}

/* Characters of the longest instruction. */
static int widest_instruction(const weft_program *program, const weft_job_spec *job) {
    char text[256];
    int width = (int)strlen("instruction");
    for (int32_t i = 0; i < program->n_instructions; i++) {
        weft_instruction_describe(text, sizeof text, &program->instructions[i], job);
        if ((int)strlen(text) > width) width = (int)strlen(text);
    }
    return width;
}

void weft_program_print_marked(const weft_program *program, const weft_job_spec *job, int32_t marked, FILE *to) {
    const bool placed = program->instruction_slots != NULL;
    const int width = placed ? widest_instruction(program, job) : 0;
    char text[256];
    fprintf(to, "index  queue  %-*s%s\n", width, "instruction", placed ? "  slots, as bytes@offset" : "");
    for (int32_t i = 0; i < program->n_instructions; i++) {
        const weft_instruction *instruction = &program->instructions[i];
        weft_instruction_describe(text, sizeof text, instruction, job);
        fprintf(to, "%5d  %5d  %-*s", (int)i, (int)instruction->queue, has_slots(program, job, i) ? width : 0, text);
        if (placed) weft_instruction_slots_visit(program, job, i, print_slot, to);
        fputs(i == marked ? "  <== refused\n" : "\n", to);
    }
    if (marked == program->n_instructions) fprintf(to, "%5d  <== something is missing\n", (int)marked);
    if (placed)
        fprintf(to, "%lld bytes live at instruction %d, in an arena of %lld\n", (long long)program->peak,
                (int)program->peak_instruction, (long long)program->arena);
}

void weft_program_print(const weft_program *program, const weft_job_spec *job, FILE *to) {
    weft_program_print_marked(program, job, -1, to);
}
