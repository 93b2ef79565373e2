/* tests/common/mutants.h: programs with one thing wrong, one after the other, for tests of what the checker lets
 * through.
 */
#ifndef WEFT_TEST_MUTANTS_H
#define WEFT_TEST_MUTANTS_H

#include "program/program.h"

typedef enum mutation {
    MUTATION_DELETION = 0,    /* of each instruction */
    MUTATION_DUPLICATION = 1, /* of each instruction, to any place */
    MUTATION_SWAP = 2,        /* of neighbours */
    MUTATION_MOVE = 3,        /* of each instruction, to any place */
    /* each field of each instruction, set to every value near those that mean something, and to two that no field
     * should survive */
    MUTATION_OPERAND = 4,
    N_MUTATIONS = 5
} mutation;
extern const char *const mutation_names[N_MUTATIONS]; /* "deletions" */

typedef struct mutant {
    weft_program *program; /* not yet placed; the judge's */
    mutation how;
    int32_t instruction; /* of the valid program */
    const char *field;   /* of an operand: "micro-batch"; NULL otherwise */
    int32_t to;          /* where it has come to lie, -1: nowhere; of an operand: the value */
} mutant;

/* Every mutant of a valid program of the kinds in the mask 1 << mutation. A WAIT goes on meaning the instruction
 * that it meant, wherever that has come to lie. */
void each_mutant(const weft_program *valid, const weft_strategy_job *view, uint32_t kinds,
                 void (*judge)(void *context, const mutant *m), void *context);

/* The same change of another program; NULL: there it changes nothing. */
weft_program *mutate_alike(const weft_program *valid, const weft_strategy_job *view, const mutant *m);

/* True if the checker refuses the programs of all ranks; the sentence must then name rank and instruction, or say
 * what the end of a program lacks. */
bool are_refused(const weft_program *const *programs, const weft_job_spec *job, weft_coverage *coverage);
/* The same in a world of one. */
bool is_refused(const weft_program *program, const weft_job_spec *job);

weft_program *copy_program(const weft_program *program);
/* All three keep what WAITs mean; what waited for a removed instruction waits for the one that took its place. */
void remove_instruction(weft_program *program, int32_t i);
void insert_instruction(weft_program *program, int32_t i, weft_instruction instruction); /* before instruction i */
void swap_instructions(weft_program *program, int32_t i, int32_t j);

#endif
