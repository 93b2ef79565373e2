/* host/report/required_memory.h: required memory of a plan: of its largest rank, or of all ranks of its fullest
 * machine if those share the memory. */
#ifndef WEFT_HOST_REPORT_REQUIRED_MEMORY_H
#define WEFT_HOST_REPORT_REQUIRED_MEMORY_H

#include "report/available_memory.h"
#include "report/all_rank_plan.h"

typedef struct weft_required_memory {
    weft_plan_bytes bytes; /* sum over those ranks */
    int32_t first, ranks;  /* those ranks: a number of them from the first on */
} weft_required_memory;

/* Computes the requirement of a plan of any mode; with several ranks it must be a training plan. */
weft_status weft_required_memory_plan(weft_required_memory *out, const weft_plan *plan,
                                      const weft_available_memory *room, weft_error *err);
/* Computes the requirement of surveyed ranks. */
void weft_required_memory_all_ranks(weft_required_memory *out, const weft_all_rank_plan *all_rank_plan,
                                    const weft_available_memory *room);

/* Adds one rank. */
void weft_required_memory_add(weft_required_memory *need, const weft_plan_bytes *rank);

/* Returns whether the memory is sufficient. Memory of unknown size is unlimited. */
bool weft_required_memory_fits(const weft_required_memory *need, const weft_available_memory *room);
/* Returns whether it fits only with memory that other processes use now. */
bool weft_required_memory_is_tight(const weft_required_memory *need, const weft_available_memory *room);

/* Returns the largest category. */
weft_memory_category weft_required_memory_largest(const weft_required_memory *need);

#endif
