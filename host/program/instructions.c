/* host/program/instructions.c: the list of instructions as memory: made, grown by emit, copied, freed. */
#include "program/instructions.h"

#include <stdlib.h>

#define MOST_INSTRUCTIONS (1 << 26) /* 64 Mi: a strategy that emits more has gone astray */

weft_status weft_program_create(weft_program **out, const weft_job_spec *job, int32_t rank, weft_error *err) {
    weft_program *program = calloc(1, sizeof *program);
    if (program == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a step program");
    program->mode = job->view.mode;
    program->rank = rank;
    program->micro_batches = weft_job_spec_micro_batches(job);
    program->peak_instruction = program->foreign_instruction = -1;
    *out = program;
    return WEFT_OK;
}

static bool reserve_instruction(weft_program *program) {
    const int32_t capacity = program->capacity == 0 ? 64 : program->capacity * 2;
    weft_instruction *instructions = NULL;
    if (program->capacity >= MOST_INSTRUCTIONS) return false;
    instructions = realloc(program->instructions, (size_t)capacity * sizeof *instructions);
    if (instructions == NULL) return false;
    program->instructions = instructions;
    program->capacity = capacity;
    return true;
}

/* The checker judges what was given; that an instruction asks for more than this host knows is seen here alone. */
int32_t weft_program_emit(weft_program *program, const weft_instruction *instruction) {
    if (program->most_instructions > 0 && program->n_instructions >= program->most_instructions) {
        program->too_many = true;
        return -1;
    }
    if (program->n_instructions == program->capacity && !reserve_instruction(program)) {
        program->out_of_memory = true;
        return -1;
    }
    if (!weft_struct_take(&program->instructions[program->n_instructions], sizeof *instruction, instruction) &&
        program->foreign_instruction < 0)
        program->foreign_instruction = program->n_instructions;
    return program->n_instructions++;
}

weft_status weft_program_copy(weft_program **out, const weft_program *program, weft_error *err) {
    const size_t bytes = (size_t)program->n_instructions * sizeof *program->instructions;
    weft_program *copy = calloc(1, sizeof *copy);
    if (copy != NULL) copy->instructions = malloc(bytes + 1);
    if (copy == NULL || copy->instructions == NULL) {
        free(copy);
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for a copy of %d instructions",
                              (int)program->n_instructions);
    }
    if (bytes > 0) memcpy(copy->instructions, program->instructions, bytes);
    copy->n_instructions = copy->capacity = program->n_instructions;
    copy->mode = program->mode;
    copy->rank = program->rank;
    copy->micro_batches = program->micro_batches;
    copy->peak_instruction = copy->foreign_instruction = -1;
    *out = copy;
    return WEFT_OK;
}

void weft_program_unplace(weft_program *program) {
    free(program->slots);
    free(program->instruction_slots);
    free(program->instruction_gradients);
    free(program->by_last);
    program->slots = NULL;
    program->instruction_slots = NULL;
    program->instruction_gradients = NULL;
    program->by_last = NULL;
    program->n_slots = 0;
    program->arena = program->peak = 0;
    program->peak_instruction = -1;
}

void weft_program_destroy(weft_program *program) {
    if (program == NULL) return;
    weft_program_unplace(program);
    free(program->instructions);
    free(program);
}
