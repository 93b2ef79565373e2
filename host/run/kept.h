/* host/run/kept.h: which lists of leaf lengths the slices of a stage's passes have come with (program/slices.h), and
 * the recordings that were made of them.
 *
 * Of each slice the lists that came last are kept; the one that has not come for longest makes room. A clipping of the
 * norm is recorded as well, so the last slice of a training step is another one with another clipping. */
#ifndef WEFT_HOST_RUN_KEPT_H
#define WEFT_HOST_RUN_KEPT_H

#include "run/stepper.h"
#include <weft/capture.h>

enum { WEFT_KEPT = 16 }; /* lists of a slice */

typedef struct weft_kept {
    int32_t *lengths; /* of the slice's leaves; NULL: free */
    double clip;
    weft_recording *made; /* NULL: it was seen, and is not recorded yet */
    weft_traffic sent;    /* what this rank sends in it */
    uint64_t came;        /* passes when it came last */
} weft_kept;

typedef struct weft_keeper {
    const weft_device_capture *capture;
    const weft_device_plugin *kernels;
    weft_device *device;
    const weft_stage *stage;
    int32_t world;
    uint64_t passes;
    weft_kept *kept; /* [slices][WEFT_KEPT] */
    weft_kept **now; /* [slices] of the pass at hand */
} weft_keeper;

/* self names device and stage. */
weft_status weft_keeper_open(weft_keeper *self, int32_t world, weft_error *err);
/* The device is at rest. Zeroed is fine. */
void weft_keeper_close(weft_keeper *self);

/* What a pass with these lengths comes to. */
typedef struct weft_recall {
    bool is_known; /* each slice has come with its list before, and so with all that it calls for the first time */
    bool in_vain;  /* a list made room that was not recorded */
} weft_recall;

/* Finds the lists of the pass at hand, or keeps them from now on: self->now. */
weft_status weft_keeper_recall(weft_keeper *self, weft_recall *out, const weft_stepper *stepper, weft_error *err);

#endif
