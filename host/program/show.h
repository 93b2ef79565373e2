/* host/program/show.h: the step program that somebody wants to see: of any mode and rank, and first of all one that is
 * refused, with a mark where. */
#ifndef WEFT_HOST_PROGRAM_SHOW_H
#define WEFT_HOST_PROGRAM_SHOW_H

#include "program/program.h"

/* From here on a program of this mode and rank is kept beside each plan's own (weft_stage.shown), and whichever program
 * is refused is printed. [main] */
void weft_show_want(int32_t mode, int32_t rank, FILE *refused);

/* The rank whose program of this mode is wanted; -1: none. [main] */
int32_t weft_show_rank(int32_t mode);

/* Prints it if somebody wants to see programs. event: the refused one, or how many there are where one is missing.
 * [main] */
void weft_show_refused(const weft_program *program, const weft_job_spec *job, int32_t event);

#endif
