/* host/program/overlap.h: how much of the time of exchanges a rank spends on other work: in a run, from its trace; in a
 * simulation (timeline.h), as it would be. */
#ifndef WEFT_HOST_PROGRAM_OVERLAP_H
#define WEFT_HOST_PROGRAM_OVERLAP_H

#include "program/execute.h"

typedef enum weft_overlap_kind {
    WEFT_OVERLAP_GATHER = 0, /* of parameters */
    WEFT_OVERLAP_REDUCE = 1, /* REDUCE, and GATHER of finished sums */
    WEFT_OVERLAP_OTHER = 2,  /* REFRESH, SEND, RECV */
    WEFT_N_OVERLAP = 3
} weft_overlap_kind;

/* Seconds. busy: inside the instruction and inside its WAIT, what is done with the result there included. */
typedef struct weft_overlap {
    double under_way[WEFT_N_OVERLAP]; /* from an instruction's start to its end */
    double busy[WEFT_N_OVERLAP];
} weft_overlap;

const char *weft_overlap_name(int32_t kind);                  /* "reduce" */
int32_t weft_overlap_of(const weft_instruction *instruction); /* -1: nothing that travels */

/* Adds the pass that the trace recorded last, of this program. */
void weft_overlap_add(weft_overlap *overlap, const weft_trace *trace, const weft_program *program);
/* Of the time of this kind of exchange, in percent, what the rank did not spend on it; 0 where there was none. */
double weft_overlap_hidden(const weft_overlap *overlap, int32_t kind);
/* The same as a column of a table; "-" where there was none. */
void weft_overlap_print(const weft_overlap *overlap, int32_t kind, FILE *to);

#endif
