/* tests/common/mutants.h: programs with a single error, generated one by one, for tests of the checker. */
#ifndef WEFT_TEST_MUTANTS_H
#define WEFT_TEST_MUTANTS_H

#include "program/program.h"

typedef enum mutation {
    MUTATION_DELETION = 0,    /* of each instruction */
    MUTATION_DUPLICATION = 1, /* of each instruction, to any index */
    MUTATION_SWAP = 2,        /* of neighbours */
    MUTATION_MOVE = 3,        /* of each instruction, to any index */
    MUTATION_OPERAND = 4,     /* each field of each instruction, set to every value near a valid one, and to two values
                                 that no field allows */
    N_MUTATIONS = 5
} mutation;
extern const char *const mutation_names[N_MUTATIONS]; /* "deletions" */

typedef struct mutant {
    weft_program *program; /* not yet placed; owned by the callback */
    mutation how;
    int32_t instruction; /* of the valid program */
    const char *field;   /* for an operand: "micro-batch"; otherwise NULL */
    int32_t to;          /* new index, -1: removed; for an operand: the value */
} mutant;

/* Calls `judge` for every mutant of a valid program of the kinds in the mask 1 << mutation. A WAIT still refers to the
 * same instruction at its new index. */
void each_mutant(const weft_program *valid, const weft_strategy_job *view, uint32_t kinds,
                 void (*judge)(void *context, const mutant *m), void *context);

/* Returns another program with the same change; NULL: it has no effect there. */
weft_program *mutate_alike(const weft_program *valid, const weft_strategy_job *view, const mutant *m);

/* Returns true if the checker rejects the programs of all ranks. The message must name rank and instruction, or the
 * missing end of a program. */
bool are_refused(const weft_program *const *programs, const weft_job_spec *job, weft_coverage *coverage);
/* The same with one rank. */
bool is_refused(const weft_program *program, const weft_job_spec *job);

weft_program *copy_program(const weft_program *program);
/* All three keep the targets of WAITs. A WAIT for a removed instruction refers to its successor. */
void remove_instruction(weft_program *program, int32_t i);
void insert_instruction(weft_program *program, int32_t i, weft_instruction instruction); /* before instruction i */
void swap_instructions(weft_program *program, int32_t i, int32_t j);

#endif
