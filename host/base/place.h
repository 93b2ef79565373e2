/* host/base/place.h: where buffers with known lifetimes lie in one arena.
 *
 * Each interval lives from time `first` to time `last`, both included; two that share a moment must not share a byte.
 * The best packing is hard to find in general, so several greedy orders are tried and the smallest arena is kept; the
 * outcome depends on nothing but the intervals. No arena can be smaller than `peak`, what lives at the fullest moment:
 * the difference is fragmentation, and is 0 in most programs. Knows nothing of events, slots or devices. */
#ifndef WEFT_HOST_BASE_PLACE_H
#define WEFT_HOST_BASE_PLACE_H

#include <weft/base.h>

#define WEFT_PLACE_ALIGN 64 /* bytes: a cache line and the widest vector */

typedef struct weft_interval {
    int64_t bytes;       /* more than 0; rounded up to WEFT_PLACE_ALIGN where it is placed */
    int32_t first, last; /* 0 <= first <= last */
    int64_t offset;      /* out: a multiple of WEFT_PLACE_ALIGN */
} weft_interval;

typedef struct weft_packing {
    int64_t arena;     /* bytes: end of the interval that lies highest */
    int64_t peak;      /* bytes that live at the fullest moment, each rounded up */
    int32_t peak_time; /* the first such moment; -1 without intervals */
    int32_t reserved;
} weft_packing;

static inline int64_t weft_place_round(int64_t bytes) {
    return (bytes + WEFT_PLACE_ALIGN - 1) / WEFT_PLACE_ALIGN * WEFT_PLACE_ALIGN;
}

/* Fills every offset. */
weft_status weft_intervals_place(weft_interval *items, weft_packing *out, int32_t n, weft_error *err);

#endif
