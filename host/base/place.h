/* host/base/place.h: packs buffers with known lifetimes into one arena.
 *
 * Each interval lives from time `first` to time `last`, both included. Intervals that overlap in time must not overlap
 * in memory. Optimal packing is NP-hard, so several greedy orders are tried and the smallest arena is kept. The result
 * depends only on the intervals. The lower bound is `peak`, the most bytes live at one time. The difference is
 * fragmentation, and is 0 in most programs. Independent of instructions, slots and devices. */
#ifndef WEFT_HOST_BASE_PLACE_H
#define WEFT_HOST_BASE_PLACE_H

#include <weft/base.h>

typedef struct weft_live_interval {
    int64_t bytes;       /* more than 0; rounded up to cache lines */
    int32_t first, last; /* 0 <= first <= last */
    int64_t offset;      /* out: a multiple of a cache line */
} weft_live_interval;

typedef struct weft_packing {
    int64_t arena;     /* bytes: the highest end of an interval */
    int64_t peak;      /* bytes live at the peak time, each interval rounded up */
    int32_t peak_time; /* the first such time; -1 without intervals */
} weft_packing;

/* Sets the offset of every interval. */
weft_status weft_intervals_place(weft_live_interval *items, weft_packing *out, int32_t n, weft_error *err);

#endif
