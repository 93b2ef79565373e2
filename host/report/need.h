/* host/report/need.h: required memory of a plan: of its largest rank, or of all ranks of its fullest machine if those
 * share the memory. */
#ifndef WEFT_HOST_REPORT_NEED_H
#define WEFT_HOST_REPORT_NEED_H

#include "report/room.h"
#include "report/survey.h"

typedef struct weft_need {
    weft_plan_bytes bytes; /* sum over those ranks */
    int32_t first, ranks;  /* those ranks: a number of them from the first on */
} weft_need;

/* Computes the requirement of a plan of any mode; with several ranks it must be a training plan. */
weft_status weft_need_plan(weft_need *out, const weft_plan *plan, const weft_room *room, weft_error *err);
/* Computes the requirement of surveyed ranks. */
void weft_need_survey(weft_need *out, const weft_survey *survey, const weft_room *room);

/* Adds one rank. */
void weft_need_add(weft_need *need, const weft_plan_bytes *rank);

/* Returns whether the memory is sufficient. Memory of unknown size is unlimited. */
bool weft_need_fits(const weft_need *need, const weft_room *room);
/* Returns whether it fits only with memory that other processes use now. */
bool weft_need_is_tight(const weft_need *need, const weft_room *room);

/* Returns the largest category. */
weft_memory_category weft_need_largest(const weft_need *need);

#endif
