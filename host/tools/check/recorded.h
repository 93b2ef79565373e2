/* host/tools/check/recorded.h: operators that a model records in its segments, per mode, with arguments. */
#ifndef WEFT_HOST_TOOLS_CHECK_RECORDED_H
#define WEFT_HOST_TOOLS_CHECK_RECORDED_H

#include "tools/check/other_key.h"
#include "graph/graph.h"

typedef struct weft_recorded {
    weft_graph **graphs; /* [n]: each segment in each mode; NULL: unsupported */
    int32_t n;
} weft_recorded;

/* Calls `forward` for each of them. `declared` must outlive it. Free it also after a failure. [main] */
weft_status weft_recorded_make(weft_recorded *out, const weft_declared *declared, weft_error *err);
void weft_recorded_free(weft_recorded *recorded);

/* Adds all operators with their inputs, weights and arguments. */
void weft_recorded_add(weft_answer *to, const weft_recorded *recorded);

/* True if two recordings of one model compute the same: weft_recorded_add adds the same. */
bool weft_recorded_same(const weft_recorded *a, const weft_recorded *b);

#endif
