/* host/tools/check/recorded.h: what a model, adapted or not, records of its segments: in each mode the operators
 * that it calls, with their arguments. */
#ifndef WEFT_HOST_TOOLS_CHECK_RECORDED_H
#define WEFT_HOST_TOOLS_CHECK_RECORDED_H

#include "tools/check/other_key.h"
#include "graph/graph.h"

typedef struct weft_recorded {
    weft_graph **graphs; /* [n]: of each mode each segment; NULL: it is not supported there */
    int32_t n;
} weft_recorded;

/* Calls forward for each of them. `declared` outlives it. weft_recorded_free afterwards, also on failure. [main] */
weft_status weft_recorded_make(weft_recorded *out, const weft_declared *declared, weft_error *err);
void weft_recorded_free(weft_recorded *recorded);

/* Two of one model compute the same. */
bool weft_recorded_same(const weft_recorded *a, const weft_recorded *b);

/* All that makes two the same. */
void weft_recorded_add(weft_answer *to, const weft_recorded *recorded);

#endif
