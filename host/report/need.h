/* host/report/need.h: how much of a room a plan wants: what its largest rank takes, or all ranks of its fullest machine
 * where those share the room. */
#ifndef WEFT_HOST_REPORT_NEED_H
#define WEFT_HOST_REPORT_NEED_H

#include "report/room.h"
#include "report/survey.h"

typedef struct weft_need {
    weft_plan_bytes bytes; /* of those ranks together */
    int32_t first, ranks;  /* which they are: so many from this one on */
} weft_need;

/* Of a plan of any mode; of several ranks it must be one for training. */
weft_status weft_need_plan(weft_need *out, const weft_plan *plan, const weft_room *room, weft_error *err);
/* The same of ranks that were surveyed. */
void weft_need_survey(weft_need *out, const weft_survey *survey, const weft_room *room);

/* One rank more. */
void weft_need_add(weft_need *need, const weft_plan_bytes *rank);

/* Whether it has the room. One that nobody knows the size of has no end. */
bool weft_need_fits(const weft_need *need, const weft_room *room);
/* Whether it would have to take what somebody else holds now. */
bool weft_need_is_tight(const weft_need *need, const weft_room *room);

/* The category that has the most. */
weft_memory_category weft_need_largest(const weft_need *need);

#endif
