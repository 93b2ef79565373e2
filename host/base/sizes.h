/* host/base/sizes.h: the little arithmetic of sizes that every folder needs. */
#ifndef WEFT_HOST_BASE_SIZES_H
#define WEFT_HOST_BASE_SIZES_H

#include <stdint.h>

enum { WEFT_WORD = 4 }; /* bytes of the words in which a device fills memory */

static inline int64_t weft_larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static inline int64_t weft_smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* The next multiple of `step`, which is positive. */
static inline int64_t weft_round_up(int64_t n, int64_t step) {
    return (n + step - 1) / step * step;
}

/* Bytes up to the next cache line, so that what follows never shares one. */
static inline int64_t weft_cache_lines(int64_t bytes) {
    return weft_round_up(bytes, 64);
}

/* Bytes up to where the next part of a buffer may begin: what devices align buffers to (weft/device.h). */
static inline int64_t weft_buffer_part(int64_t bytes) {
    return weft_round_up(bytes, 256);
}

#endif
