/* host/program/checkpointing.c: activation checkpointing as a rewriting of instructions.
 *
 * A segment's tape then lives from its RECOMPUTE to its BACKWARD and no longer through all that lies between FORWARD
 * and BACKWARD; what the segment read stays, as it does anyway. The program may still be wrong: the pass only copies
 * what it does not understand, and leaves it to the checker. */
#include "program/instructions.h"

#include <stdlib.h>
#include <weft/emit.h>

static bool in_range(const weft_instruction *instruction, const weft_job_spec *job) {
    return instruction->segment >= 0 && instruction->segment < job->view.n_segments && instruction->micro_batch >= 0 &&
           instruction->micro_batch < weft_job_spec_micro_batches(job);
}

/* True if instruction i should have a RECOMPUTE before it. forward: instruction of each (segment, micro-batch), -1:
 * not seen yet. */
static bool wants_recompute(const weft_program *program, const weft_job_spec *job, const int32_t *forward, int32_t i) {
    const weft_instruction *instruction = &program->instructions[i];
    int32_t at = -1;
    if (instruction->kind != WEFT_INSTRUCTION_BACKWARD || !in_range(instruction, job) ||
        job->segments[instruction->segment].tape == 0)
        return false;
    at = forward[instruction->segment * weft_job_spec_micro_batches(job) + instruction->micro_batch];
    return at >= 0 && at < i - 1;
}

static void copy_instruction(weft_program *to, int32_t *moved, const weft_program *from, int32_t i, bool recompute) {
    const weft_instruction *instruction = &from->instructions[i];
    weft_instruction *next = &to->instructions[to->n_instructions];
    if (recompute) {
        weft_instruction again = weft_instruction_of(WEFT_INSTRUCTION_RECOMPUTE);
        again.segment = instruction->segment;
        again.micro_batch = instruction->micro_batch;
        *next++ = again;
        to->n_instructions++;
    }
    *next = *instruction;
    moved[i] = to->n_instructions++;
    if (instruction->waits >= 0 && instruction->waits < i) next->waits = moved[instruction->waits];
}

weft_status weft_program_checkpoint(weft_program *program, const weft_job_spec *job, weft_error *err) {
    const int32_t micro_batches = weft_job_spec_micro_batches(job), n_pairs = job->view.n_segments * micro_batches;
    weft_status status = WEFT_OK;
    weft_program rewritten = {0};
    int32_t *forward = malloc((size_t)n_pairs * sizeof *forward);
    int32_t *moved = malloc(((size_t)program->n_instructions + 1) * sizeof *moved); /* old index -> new */
    rewritten.capacity = program->n_instructions * 2 + 1;
    rewritten.instructions = malloc((size_t)rewritten.capacity * sizeof *rewritten.instructions);
    if (forward == NULL || moved == NULL || rewritten.instructions == NULL) {
        status =
            weft_error_set(err, WEFT_E_MEMORY, "no memory to rewrite %d instructions", (int)program->n_instructions);
        goto done;
    }
    for (int32_t i = 0; i < n_pairs; i++) forward[i] = -1;
    for (int32_t i = 0; i < program->n_instructions; i++) {
        const weft_instruction *instruction = &program->instructions[i];
        if (instruction->kind == WEFT_INSTRUCTION_FORWARD && in_range(instruction, job))
            forward[instruction->segment * micro_batches + instruction->micro_batch] = i;
        copy_instruction(&rewritten, moved, program, i, wants_recompute(program, job, forward, i));
    }
    free(program->instructions);
    program->instructions = rewritten.instructions;
    program->n_instructions = rewritten.n_instructions;
    program->capacity = rewritten.capacity;
    rewritten.instructions = NULL;
done:
    free(rewritten.instructions);
    free(forward);
    free(moved);
    return status;
}
