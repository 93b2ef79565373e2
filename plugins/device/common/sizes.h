/* common/sizes.h: overflow-checked size arithmetic. */
#ifndef WEFT_DEVICE_COMMON_SIZES_H
#define WEFT_DEVICE_COMMON_SIZES_H

#include <stdint.h>

static inline int64_t size_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static inline int64_t size_max(int64_t a, int64_t b) {
    return a > b ? a : b;
}
static inline int64_t size_ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}
static inline int64_t size_round_up(int64_t a, int64_t to) {
    return size_ceil_div(a, to) * to;
}
/* Returns a b for non-negative a and b, -1 on overflow. */
static inline int64_t size_times(int64_t a, int64_t b) {
    int64_t product = 0;
    return __builtin_mul_overflow(a, b, &product) ? -1 : product;
}

#endif
