/* host/report/segment_rig.h: runs one segment of the training program in isolation, with its own memory and arbitrary
 * numbers, for timing. */
#ifndef WEFT_HOST_REPORT_SEGMENT_RIG_H
#define WEFT_HOST_REPORT_SEGMENT_RIG_H

#include "run/state.h"

typedef struct weft_segment_rig {
    weft_engine *engine;
    const weft_graph *graph;
    int32_t segment, rows, places;
    weft_buffer *buffer; /* NULL while the bytes are counted */
    int64_t at;
    weft_ref *parameters;
    weft_slot_ref *gradients, *tables;
    weft_graph_binding binding;
    bool back; /* weft_segment_rig_run executes BACKWARD, else FORWARD */
} weft_segment_rig;

/* Opens a rig for successive segments with a micro-batch of that shape. Close it also after a failure. */
weft_status weft_segment_rig_open(weft_segment_rig *out, weft_engine *engine, int32_t rows, int32_t places,
                                  weft_error *err);
void weft_segment_rig_close(weft_segment_rig *self); /* a zeroed one is fine */

/* Allocates the memory of a segment and frees that of the previous one. The engine is prepared and not allocated. */
weft_status weft_segment_rig_take(weft_segment_rig *self, int32_t segment, weft_error *err);
/* context: the rig (weft_rated_fn). */
weft_status weft_segment_rig_run(void *context, weft_error *err);
bool weft_segment_rig_has_backward(const weft_segment_rig *self);

/* Returns the first segment with the same memory and work: itself, or an earlier one. */
int32_t weft_segment_like(const weft_engine *engine, int32_t places, int32_t segment);

#endif
