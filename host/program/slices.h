/* host/program/slices.h: where a program may be cut, so that what a part of it does depends on its own leaves alone.
 *
 * A cut lies where nothing is under way: every event of another queue that has started has had its WAIT, no gathered
 * unit is live, and no leaf is worked on before it and behind it. What lies between two cuts is a slice. Whoever
 * records passes (run/recorder.h) keeps each slice by the lengths of its own leaves: few lists, where those of a whole
 * step are as many as there are ways to put them together.
 *
 * Several ranks have to record and to replay the same exchanges at the same time, so they are cut alike: at the same
 * events of programs that differ in their leaves alone, and a slice has the leaves of all of them. Programs that differ
 * in more, as those of a pipeline, are one slice. */
#ifndef WEFT_HOST_PROGRAM_SLICES_H
#define WEFT_HOST_PROGRAM_SLICES_H

#include "program/program.h"

typedef struct weft_slices {
    int32_t n;       /* at least one */
    int32_t *first;  /* [n + 1] events; the last is how many there are */
    int32_t *leaves; /* of all ranks, slice after slice, the same on every rank */
    int32_t *at;     /* [n + 1] where a slice's begin in them */
} weft_slices;

/* Of a rank's program. programs: of all ranks, proved. cut: false leaves one slice, of all leaves. */
weft_status weft_slices_create(weft_slices **out, const weft_program *const *programs, int32_t world, int32_t rank,
                               bool cut, weft_error *err);
void weft_slices_destroy(weft_slices *slices); /* NULL is fine */

#endif
