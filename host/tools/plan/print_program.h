/* host/tools/plan/print_program.h: prints a program. */
#ifndef WEFT_HOST_TOOLS_PLAN_PRINT_PROGRAM_H
#define WEFT_HOST_TOOLS_PLAN_PRINT_PROGRAM_H

#include "program/program.h"

/* Called for each slot of an instruction, in the order of weft_instruction_slots, with the name of its use. For a
 * micro-batch gradient the name is the unit's. The program is placed. */
typedef void (*weft_slot_visit)(void *context, const char *name, const weft_slot *slot);
void weft_instruction_slots_visit(const weft_program *program, const weft_job_spec *job, int32_t instruction,
                                  weft_slot_visit visit, void *context);
/* Prints one line per instruction, with slots if the program is placed. `marked` is highlighted: an instruction, the
 * number of instructions for a missing one, or -1. */
void weft_program_print(const weft_program *program, const weft_job_spec *job, int32_t marked, FILE *to);

#endif
