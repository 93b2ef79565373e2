/* host/base/place.h: packs buffers with known lifetimes into one arena.
 *
 * Each interval lives from time `first` to time `last`, both included. Intervals that overlap in time must not overlap
 * in memory. Optimal packing is NP-hard, so several greedy orders are tried and the smallest arena is kept. The result
 * depends only on the intervals. The lower bound is `peak`, the most bytes live at one time. The difference is
 * fragmentation, and is 0 in most programs. Independent of instructions, slots and devices. */
#ifndef WEFT_HOST_BASE_PLACE_H
#define WEFT_HOST_BASE_PLACE_H

#include <weft/base.h>

#define WEFT_PLACE_ALIGN 64 /* bytes: a cache line and the widest vector */

typedef struct weft_live_interval {
    int64_t bytes;       /* more than 0; rounded up to WEFT_PLACE_ALIGN */
    int32_t first, last; /* 0 <= first <= last */
    int64_t offset;      /* out: a multiple of WEFT_PLACE_ALIGN */
} weft_live_interval;

typedef struct weft_packing {
    int64_t arena;     /* bytes: the highest end of an interval */
    int64_t peak;      /* bytes live at the peak time, each interval rounded up */
    int32_t peak_time; /* the first such time; -1 without intervals */
    int32_t reserved;
} weft_packing;

static inline int64_t weft_place_round(int64_t bytes) {
    return (bytes + WEFT_PLACE_ALIGN - 1) / WEFT_PLACE_ALIGN * WEFT_PLACE_ALIGN;
}

/* Sets the offset of every interval. */
weft_status weft_intervals_place(weft_live_interval *items, weft_packing *out, int32_t n, weft_error *err);

#endif
