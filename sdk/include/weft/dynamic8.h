/* weft/dynamic8.h: 8-bit block-wise optimizer states (Dettmers et al., arXiv 2110.02861).
 *
 * A block covers 256 consecutive numbers of a flat parameter; the last block of a parameter is padded with zeros:
 *
 *     bytes 0-3      the scale, fp32: the largest absolute value in the block
 *     bytes 4-259    one code per number, whose value is scale * map(code) in fp32
 *
 * The map is finer near zero. weft/levels.h has a signed map and a non-negative map. Each map contains zero and 1. The
 * absolute values of one sign are numbered in ascending order from zero, and that number is the code:
 *
 *     WEFT_DYN8X256     int8: 0 is zero, 1 to 127 the midpoints, -1 to -127 their negatives; -128, which has no
 *                       midpoint, is +1
 *     WEFT_UDYN8X256    uint8: 0 is zero, 1 to 254 the midpoints, 255 is 1
 *
 * A number is divided by the scale and takes the nearest code; a tie takes the code closer to zero. A block of zero
 * bytes represents zeros. A block with a non-finite number becomes NaN completely, so that the error is visible. */
#ifndef WEFT_DYNAMIC8_H
#define WEFT_DYNAMIC8_H

#include <math.h>
#include <weft/base.h>
#include <weft/levels.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_dyn8x256 {
    float scale;
    uint8_t code[256];
} weft_dyn8x256;

/* Buckets for absolute values between 2^-23 and 1, by the exponent and the next seven bits: a bucket has at most one
 * edge. */
#define WEFT_DYNAMIC8_LEAST   0x34000000u
#define WEFT_DYNAMIC8_BUCKETS (23 * 128 + 1)

/* Tables of one of the two maps, filled once before packing. */
typedef struct weft_dynamic8 {
    float value[256]; /* by code */
    float edge[256];  /* between adjacent absolute values: above the edge the larger one is nearer */
    int32_t is_signed;
    uint8_t first[WEFT_DYNAMIC8_BUCKETS]; /* per bucket: number of edges below it */
    uint8_t reserved[3];
} weft_dynamic8;

/* Returns the number of absolute values in a map. Value m has the code m, as uint8, for a non-negative number. */
static inline int weft_dynamic8_sizes(const weft_dynamic8 *map) {
    return map->is_signed != 0 ? 129 : 256;
}

/* Fills the absolute values, in ascending order from zero. */
static inline void weft_dynamic8_values(float *size, int is_signed) {
    static const float either[] = {WEFT_DYNAMIC8_LEVELS}, above[] = {WEFT_UDYNAMIC8_LEVELS};
    if (is_signed != 0) memcpy(size, either + 127, 129 * sizeof *size); /* the lower levels are the negatives */
    else memcpy(size, above, sizeof above);
}

/* Fills the tables. dtype: WEFT_DYN8X256 or WEFT_UDYN8X256. [any-thread] */
static inline void weft_dynamic8_fill(weft_dynamic8 *map, int32_t dtype) {
    uint32_t bucket;
    int n, m = 0;
    memset(map, 0, sizeof *map);
    map->is_signed = dtype == WEFT_DYN8X256;
    n = weft_dynamic8_sizes(map);
    weft_dynamic8_values(map->value, map->is_signed);
    for (m = 0; m + 1 < n; m++) map->edge[m] = (map->value[m] + map->value[m + 1]) / 2.0f;
    map->edge[n - 1] = INFINITY;
    for (m = 1; map->is_signed != 0 && m < 128; m++) map->value[256 - m] = -map->value[m];
    m = 0;
    for (bucket = 0; bucket < WEFT_DYNAMIC8_BUCKETS; bucket++) {
        const uint32_t bits = WEFT_DYNAMIC8_LEAST + (bucket << 16);
        float least;
        memcpy(&least, &bits, sizeof least);
        while (map->edge[m] < least) m++;
        map->first[bucket] = (uint8_t)m;
    }
}

/* Returns the code of x, |x| <= 1. [any-thread] [hot] */
static inline uint8_t weft_dynamic8_code(const weft_dynamic8 *map, float x) {
    const float size = fabsf(x);
    uint32_t bits;
    int m = 0;
    memcpy(&bits, &size, sizeof bits);
    if (bits >= WEFT_DYNAMIC8_LEAST) {
        const uint32_t bucket = (bits - WEFT_DYNAMIC8_LEAST) >> 16;
        m = map->first[bucket < WEFT_DYNAMIC8_BUCKETS ? bucket : WEFT_DYNAMIC8_BUCKETS - 1];
        m += size > map->edge[m];
    }
    if (x < 0.0f) m = map->is_signed == 0 ? 0 : m > 127 ? 256 - 127 : (256 - m) & 255;
    return (uint8_t)m;
}

/* Packs up to 256 numbers; the rest counts as zeros. Requires the default rounding mode. [any-thread] [hot] */
static inline void weft_dynamic8_pack(weft_dyn8x256 *out, const weft_dynamic8 *map, const float *x, int n) {
    float most = 0.0f, broken = 0.0f;
    int i;
    for (i = 0; i < n; i++) {
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
        broken += x[i] - x[i]; /* NaN if x is NaN or infinite */
    }
    out->scale = most + broken;
    for (i = 0; i < n; i++) out->code[i] = out->scale > 0.0f ? weft_dynamic8_code(map, x[i] / out->scale) : 0;
    for (; i < 256; i++) out->code[i] = 0;
}

/* [any-thread] [hot] */
static inline void weft_dynamic8_unpack(float *out, const weft_dynamic8 *map, const weft_dyn8x256 *block, int n) {
    int i;
    for (i = 0; i < n; i++) out[i] = block->scale * map->value[block->code[i]];
}

#ifdef __cplusplus
}
#endif
#endif
