/* host/program/show.h: prints a step program on request, for any mode and rank. A rejected program is printed with
 * the failing instruction highlighted. */
#ifndef WEFT_HOST_PROGRAM_SHOW_H
#define WEFT_HOST_PROGRAM_SHOW_H

#include "program/program.h"

/* Enables printing: each plan also keeps the program of this mode and rank (weft_mode_plan.shown), and rejected
 * programs are printed. [main] */
void weft_show_want(int32_t mode, int32_t rank, FILE *refused);

/* Returns the rank requested for this mode; -1: no request. [main] */
int32_t weft_show_rank(int32_t mode);

/* Prints the program if printing is enabled. instruction: the rejected instruction, or the number of instructions if
 * one is missing. [main] */
void weft_show_refused(const weft_program *program, const weft_job_spec *job, int32_t instruction);

#endif
