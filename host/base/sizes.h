/* host/base/sizes.h: common size arithmetic. */
#ifndef WEFT_HOST_BASE_SIZES_H
#define WEFT_HOST_BASE_SIZES_H

#include <stdint.h>

enum { WEFT_WORD = 4 }; /* bytes of the words with which a device fills memory */

static inline int64_t weft_larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static inline int64_t weft_smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Returns the next multiple of `step`, which is positive. */
static inline int64_t weft_round_up(int64_t n, int64_t step) {
    return (n + step - 1) / step * step;
}

/* Rounds up to a cache line, so that the next buffer never shares one. */
static inline int64_t weft_cache_lines(int64_t bytes) {
    return weft_round_up(bytes, 64);
}

/* Rounds up to the buffer alignment of devices (weft/device.h). */
static inline int64_t weft_buffer_part(int64_t bytes) {
    return weft_round_up(bytes, 256);
}

#endif
