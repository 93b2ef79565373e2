/* host/ab/contest.h: several configurations of one run trained side by side in one launch: their blocks of steps take
 * turns, so that what the machine does meanwhile happens to all of them alike.
 *
 * All arms live at once and each goes through its own steps from its own beginning. They share device and
 * communicator, which are the first's. */
#ifndef WEFT_HOST_AB_CONTEST_H
#define WEFT_HOST_AB_CONTEST_H

#include "ab/arms.h"

typedef struct weft_ab_options {
    int64_t steps;  /* of a block; 0: as many as half a second holds */
    double minutes; /* at most */
    int64_t rounds; /* at most */
    uint64_t seed;  /* of the order of blocks */
    bool progress;
} weft_ab_options;

/* Opens the arms, compares and times them until each is decided or the minutes are over; the same on all ranks, but for
 * times, which are rank 0's. To be closed also after a failure. [collective] */
weft_status weft_ab_run(weft_ab_contest *out, const weft_ab_spec *specs, int32_t n, const weft_ab_options *options,
                        weft_error *err);
void weft_ab_close(weft_ab_contest *self);

#endif
