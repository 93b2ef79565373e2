/* host/report/segment_rig.h: a segment of the training program that runs by itself, with memory of its own that holds
 * numbers which mean nothing: to be timed. */
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
    bool back; /* what weft_segment_rig_run does: BACKWARD, else FORWARD */
} weft_segment_rig;

/* For one segment after the other of a leaf of that shape. To be closed also after a failure. */
weft_status weft_segment_rig_open(weft_segment_rig *out, weft_engine *engine, int32_t rows, int32_t places,
                                  weft_error *err);
void weft_segment_rig_close(weft_segment_rig *self); /* a zeroed one is fine */

/* Takes the memory of a segment, and gives back that of the one before. The engine is prepared and not allocated. */
weft_status weft_segment_rig_take(weft_segment_rig *self, int32_t segment, weft_error *err);
/* context: the rig (weft_rated_fn). */
weft_status weft_segment_rig_run(void *context, weft_error *err);
bool weft_segment_rig_has_backward(const weft_segment_rig *self);

/* The first segment whose graph asks for the same memory and does as much: itself, or one before it. */
int32_t weft_segment_like(const weft_engine *engine, int32_t places, int32_t segment);

#endif
