/* host/train/rehearsal.h: runs a step, or parts of it, before the first one: counts its kernels, detects steps that the
 * device rejects, and finds settings that are slow on this machine. */
#ifndef WEFT_HOST_TRAIN_REHEARSAL_H
#define WEFT_HOST_TRAIN_REHEARSAL_H

#include "run/session.h"

/* Kernels, GEMMs and copies that a training step launches, on a device that supports dry runs (weft/dry_run.h). The
 * step's own code runs on a device that executes no work, before any memory is allocated. */
typedef struct weft_launches {
    bool known;                        /* false: the device cannot count, or launches no kernels */
    int64_t kernels, products, copies; /* of this rank, with micro-batches of the largest length */
} weft_launches;

/* Counts the launches of a finished training plan; the engine is unchanged. */
weft_status weft_launches_count(weft_launches *out, const weft_engine *engine, weft_error *err);

/* Prints a notice if one thread would be faster than the device's team. May measure, so call it
 * before the session is started. [rank 0] */
void weft_world_log_threads(const weft_session *session);
/* Prints a notice if the run's 16-bit type is slower than fp32. [rank 0] */
void weft_world_log_precision(const weft_session *session);

/* Sorts the seconds and returns their median. */
double weft_median(double *seconds, int32_t n);

/* Allocates device memory for a measurement, filled with numbers that are small in both fp32 and bf16. */
weft_status weft_scratch_allocate(const weft_engine *engine, weft_buffer **out, int64_t bytes, weft_error *err);
void weft_scratch_release(const weft_engine *engine, weft_buffer *buffer); /* NULL is fine */

/* One segment of the training program in isolation, with a micro-batch of the largest shape, its own memory and
 * arbitrary numbers, for timing. */
typedef struct weft_segment_rig {
    const weft_engine *engine;
    const weft_graph *graph;
    int32_t rows, places;
    weft_buffer *buffer; /* NULL while the bytes are counted */
    int64_t at;
    weft_ref *parameters;
    weft_slot_ref *gradients, *tables;
    weft_graph_binding binding;
} weft_segment_rig;

/* Allocates the memory of a segment. The engine is prepared and not allocated. Close it also after a failure. */
weft_status weft_segment_rig_open(weft_segment_rig *self, weft_engine *engine, int32_t segment, weft_error *err);
void weft_segment_rig_close(weft_segment_rig *self);
/* Run the segment; no work if it has no backward. context: the rig. */
weft_status weft_segment_rig_forward(void *context, weft_error *err);
weft_status weft_segment_rig_backward(void *context, weft_error *err);

/* Returns the first segment with the same memory and work: itself, or an earlier one. */
int32_t weft_segment_like(const weft_engine *engine, int32_t segment);

#endif
