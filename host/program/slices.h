/* host/program/slices.h: splits a program into slices whose behavior depends only on their own micro-batches.
 *
 * A boundary is a point without in-flight instructions: every started instruction of another queue has had its WAIT,
 * and no gathered unit is live. No micro-batch is used on both sides of it. Graph capture (run/graph_capture.h) caches
 * each slice by the lengths of its micro-batches. This needs few captured graphs; capture of complete steps would need
 * one for each combination of lengths.
 *
 * All ranks must capture and replay the same exchanges at the same time. Their programs are therefore split at the
 * same instructions, provided that they differ only in their micro-batches; a slice lists the micro-batches of all
 * ranks. Programs with other differences, such as pipeline programs, form one slice. */
#ifndef WEFT_HOST_PROGRAM_SLICES_H
#define WEFT_HOST_PROGRAM_SLICES_H

#include "program/program.h"

typedef struct weft_slices {
    int32_t n;              /* at least one */
    int32_t *first;         /* [n + 1] instructions; the last entry is their number */
    int32_t *micro_batches; /* micro-batches of all ranks, slice after slice, identical on every rank */
    int32_t *at;            /* [n + 1] start of each slice's micro-batches in `micro_batches` */
} weft_slices;

/* Computes the slices of a rank's program. programs: checked programs of all ranks. cut false: one slice with all
 * micro-batches. */
weft_status weft_slices_create(weft_slices **out, const weft_program *const *programs, int32_t world, int32_t rank,
                               bool cut, weft_error *err);
void weft_slices_destroy(weft_slices *slices); /* NULL is fine */

#endif
