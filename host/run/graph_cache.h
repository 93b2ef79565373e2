/* host/run/graph_cache.h: which lists of micro-batch lengths the slices of a stage's passes have come with
 * (program/slices.h), and the captured graphs that were made of them.
 *
 * Of each slice the lists that came last are kept; the one that has not come for longest makes room. A clipping of the
 * norm is recorded as well, so the last slice of a training step is another one with another clipping. */
#ifndef WEFT_HOST_RUN_GRAPH_CACHE_H
#define WEFT_HOST_RUN_GRAPH_CACHE_H

#include "run/stepper.h"
#include <weft/capture.h>

enum { WEFT_GRAPH_CACHE_ENTRIES = 16 }; /* lists of a slice */

typedef struct weft_graph_cache_entry {
    int32_t *lengths; /* of the slice's micro-batches; NULL: free */
    double clip;
    weft_captured_graph *made; /* NULL: it was seen, and is not recorded yet */
    weft_traffic sent;         /* what this rank sends in it */
    uint64_t came;             /* passes when it came last */
} weft_graph_cache_entry;

typedef struct weft_graph_cache {
    const weft_device_capture *capture;
    const weft_device_plugin *kernels;
    weft_device *device;
    const weft_mode_plan *mode_plan;
    int32_t world;
    uint64_t passes;
    weft_graph_cache_entry *kept; /* [slices][WEFT_GRAPH_CACHE_ENTRIES] */
    weft_graph_cache_entry **now; /* [slices] of the pass at hand */
} weft_graph_cache;

/* self names device and stage. */
weft_status weft_graph_cache_open(weft_graph_cache *self, int32_t world, weft_error *err);
/* The device is at rest. Zeroed is fine. */
void weft_graph_cache_close(weft_graph_cache *self);

/* What a pass with these lengths comes to. */
typedef struct weft_graph_cache_result {
    bool is_known; /* each slice has come with its list before, and so with all that it calls for the first time */
    bool in_vain;  /* a list made room that was not recorded */
} weft_graph_cache_result;

/* Finds the lists of the pass at hand, or keeps them from now on: self->now. */
weft_status weft_graph_cache_find(weft_graph_cache *self, weft_graph_cache_result *out, const weft_stepper *stepper,
                                  weft_error *err);

#endif
