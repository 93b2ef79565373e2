/* weft/blocks.h: what lies in a block of a packed storage type.
 *
 * WEFT_I8X64: 64 neighbours of a row, each one of 255 steps of a scale that is theirs alone:
 *
 *     bytes 0-3    the scale, fp32
 *     bytes 4-67   q[0] to q[63], int8: the numbers are scale * q[i], in fp32
 *
 * in the machine's byte order. A row of n elements is n / 64 blocks, so a matrix (out, in) has in / 64 of them a row
 * and 8.5 bits a number. The device multiplies with them as they are and makes dense numbers inside its product only,
 * in the type of the other operand (weft_matmul in weft/device.h).
 *
 * Packing takes scale = max |x| / 127 in fp32 and q = x / scale to the nearest integer, ties to even, so zero stays
 * zero and the same numbers give the same bytes everywhere. A block with a number that is not finite becomes NaN as a
 * whole: what is broken must show in the loss.
 *
 * WEFT_NF4: 1024 numbers that follow each other in the matrix, rows laid end to end, in 4 bits each, as QLoRA holds
 * them (Dettmers et al., arXiv 2305.14314): 64 numbers share a scale, and the scales are packed again.
 *
 *     bytes 0-3     the scale of the 16 scales, fp32
 *     bytes 4-7     what is added to each of them, fp32
 *     bytes 8-23    the 16 scales, as codes of the signed dynamic type of 8 bits (weft/levels.h)
 *     bytes 24-535  the numbers, as codes of NormalFloat4, two a byte, the first one in the upper half
 *
 *     scale k = dynamic[bytes[8 + k]] * scale + added        number i = nf4[code i] * scale (i / 64)
 *
 * in fp32, each operation rounded. What is added is one number for the whole matrix, the mean of its scales, and the
 * scale of the scales is one for 16,384 numbers (256 scales); they stand in every block, so that a block says by itself
 * what its numbers are, wherever a matrix is cut. That costs 8 bytes a block: 4.1875 bits a number, where the two kept
 * apart would be 4.1270.
 *
 * WEFT_NF4X64: 64 numbers that follow each other, as the same codes, under a scale that is not packed again:
 *
 *     bytes 0-3     the scale, max |x|, fp32
 *     bytes 4-35    the codes, two a byte, the first one in the upper half: number i = nf4[code i] * scale
 *
 * WEFT_F8X128: 128 numbers that follow each other, in 8 bits each:
 *
 *     bytes 0-3     the scale, fp32
 *     bytes 4-131   the numbers over that scale as fp8 e4m3 (1 sign, 4 exponent, 3 fraction, bias 7, no infinity;
 *                   Micikevicius et al., arXiv 2209.05433)
 *
 * The scale is max |x| / 448. In the three of them, what room the last block has left is filled with zeros, which
 * nobody reads. */
#ifndef WEFT_BLOCKS_H
#define WEFT_BLOCKS_H

#include <math.h>
#include <weft/base.h>
#include <weft/levels.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_i8x64 {
    float scale;
    int8_t q[64];
} weft_i8x64;

typedef struct weft_nf4 {
    float scale, added;
    uint8_t scales[16];
    uint8_t codes[512];
} weft_nf4;

typedef struct weft_nf4x64 {
    float scale;
    uint8_t codes[32];
} weft_nf4x64;

typedef struct weft_f8x128 {
    float scale;
    uint8_t codes[128];
} weft_f8x128;

/* The largest |x| of n numbers; NaN if one of them is not finite. [any-thread] [hot] */
static inline float weft_largest(const float *x, int64_t n) {
    float most = 0.0f, broken = 0.0f;
    int64_t i;
    for (i = 0; i < n; i++) {
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
        broken += x[i] - x[i]; /* NaN if x is none, or infinite */
    }
    return most + broken;
}

/* Needs the usual rounding mode, as all of a host has. [any-thread] [hot] */
static inline void weft_i8x64_pack(weft_i8x64 *out, const float *x) {
    int i;
    out->scale = weft_largest(x, 64) / 127.0f;
    for (i = 0; i < 64; i++) {
        const float steps = out->scale > 0.0f ? x[i] / out->scale : 0.0f;
        out->q[i] = (int8_t)lrintf(steps < -127.0f ? -127.0f : steps > 127.0f ? 127.0f : steps);
    }
}

/* With one scale for all blocks of a row, as LLM.int8 has it (Dettmers et al., arXiv 2208.07339): q is x * (127 /
 * largest) to the nearest integer. largest: the row's |x|, NaN if one of its numbers is not finite. [any-thread]
 * [hot] */
static inline void weft_i8x64_pack_row(weft_i8x64 *out, const float *x, float largest) {
    const float steps_per_one = largest > 0.0f ? 127.0f / largest : 0.0f;
    int i;
    out->scale = largest / 127.0f;
    for (i = 0; i < 64; i++) {
        const float steps = x[i] * steps_per_one;
        out->q[i] = steps >= -127.0f && steps <= 127.0f ? (int8_t)lrintf(steps) : (int8_t)(steps > 0.0f ? 127 : -127);
    }
}

/* [any-thread] [hot] */
static inline void weft_i8x64_unpack(float *out, const weft_i8x64 *block) {
    int i;
    for (i = 0; i < 64; i++) out[i] = block->scale * (float)block->q[i];
}

/* ---- nf4 ---- */

/* The code of the level that is nearest to x; halfway between two it is the lower one. levels: rising. */
static inline uint8_t weft_nearest_level(const float *levels, int n, float x) {
    int low = 0, high = n - 1; /* of the levels whose border to the next one is not below x, the first */
    while (low < high) {
        const int middle = (low + high) / 2;
        if ((levels[middle] + levels[middle + 1]) / 2.0f < x) low = middle + 1;
        else high = middle;
    }
    return (uint8_t)low;
}

/* 1 / largest, by which numbers come to lie in [-1, 1]; zeros stay zeros. */
static inline float weft_over(float largest) {
    return 1.0f / (largest < 1e-38f ? 1e-38f : largest);
}

static inline float weft_within_one(float x) {
    return x < -1.0f ? -1.0f : x > 1.0f ? 1.0f : x;
}

/* The codes of n numbers, 1 to 64, of which this is the largest |x|; zeros for the rest. */
static inline void weft_nf4_encode(uint8_t *codes, const float *x, int n, float largest) {
    static const float levels[] = {WEFT_NF4_LEVELS};
    int i;
    memset(codes, 0x77, 32); /* zeros */
    for (i = 0; i < n; i++) {
        const uint8_t code = weft_nearest_level(levels, 16, weft_within_one(x[i] * weft_over(largest)));
        const int up = i % 2 == 0 ? 4 : 0;
        codes[i / 2] = (uint8_t)((codes[i / 2] & ~(15 << up)) | code << up);
    }
}

/* The 64 numbers of as many codes. */
static inline void weft_nf4_decode(float *out, const uint8_t *codes, float scale) {
    static const float levels[] = {WEFT_NF4_LEVELS};
    int i;
    for (i = 0; i < 32; i++) {
        out[2 * i] = levels[codes[i] >> 4] * scale;
        out[2 * i + 1] = levels[codes[i] & 15] * scale;
    }
}

/* n numbers, 1 to 1024. added: the mean of the largest |x| of all 64 numbers of the matrix that share a scale; scale:
 * the largest distance from it of those 256 that these are among. [any-thread] [hot] */
static inline void weft_nf4_pack(weft_nf4 *out, const float *x, int n, float scale, float added) {
    static const float dynamic[] = {WEFT_DYNAMIC8_LEVELS};
    int k;
    out->scale = scale;
    out->added = added;
    memset(out->scales, 0, sizeof out->scales);
    memset(out->codes, 0x77, sizeof out->codes); /* zeros */
    for (k = 0; k * 64 < n; k++) {
        const int end = n < k * 64 + 64 ? n : k * 64 + 64;
        const float largest = weft_largest(x + k * 64, end - k * 64);
        if (scale > 0.0f) /* else all are what is added */
            out->scales[k] = weft_nearest_level(dynamic, 256, weft_within_one((largest - added) * weft_over(scale)));
        weft_nf4_encode(out->codes + k * 32, x + k * 64, end - k * 64, largest);
    }
}

/* All 1024 numbers. [any-thread] [hot] */
static inline void weft_nf4_unpack(float *out, const weft_nf4 *block) {
    static const float dynamic[] = {WEFT_DYNAMIC8_LEVELS};
    int k;
    for (k = 0; k < 16; k++)
        weft_nf4_decode(out + k * 64, block->codes + k * 32, dynamic[block->scales[k]] * block->scale + block->added);
}

/* n numbers, 1 to 64. [any-thread] [hot] */
static inline void weft_nf4x64_pack(weft_nf4x64 *out, const float *x, int n) {
    out->scale = weft_largest(x, n);
    weft_nf4_encode(out->codes, x, n, out->scale);
}

/* All 64 numbers. [any-thread] [hot] */
static inline void weft_nf4x64_unpack(float *out, const weft_nf4x64 *block) {
    weft_nf4_decode(out, block->codes, block->scale);
}

/* ---- fp8 ---- */

/* e4m3 that is nearest to x, ties to even; |x| <= 448. */
static inline uint8_t weft_e4m3_from(float x) {
    const float size = fabsf(x);
    uint32_t bits;
    memcpy(&bits, &size, sizeof bits);
    if (size < 0.015625f) bits = (uint32_t)lrintf(size * 512.0f);           /* below 2^-6 in steps of 2^-9 */
    else bits = (bits + 0x7FFFFu + (bits >> 20 & 1u) - (120u << 23)) >> 20; /* the bias from 127 to 7, 20 bits go */
    return (uint8_t)((signbit(x) ? 0x80u : 0u) | (bits > 0x7Eu ? 0x7Eu : bits));
}

static inline float weft_e4m3_to(uint8_t code) {
    const uint32_t size = code & 0x7Fu;
    const uint32_t bits = (size << 20) + (120u << 23);
    float x;
    memcpy(&x, &bits, sizeof x);
    if (size < 8) x = (float)size * 0.001953125f;
    if (size == 0x7F) x = x - x + (float)NAN;
    return code < 0x80 ? x : -x;
}

/* n numbers, 1 to 128. [any-thread] [hot] */
static inline void weft_f8x128_pack(weft_f8x128 *out, const float *x, int n) {
    int i;
    out->scale = weft_largest(x, n) / 448.0f;
    memset(out->codes, 0, sizeof out->codes);
    for (i = 0; i < n; i++) {
        const float over = out->scale > 0.0f ? x[i] / out->scale : 0.0f;
        out->codes[i] = weft_e4m3_from(over < -448.0f ? -448.0f : over > 448.0f ? 448.0f : over);
    }
}

/* All 128 numbers. [any-thread] [hot] */
static inline void weft_f8x128_unpack(float *out, const weft_f8x128 *block) {
    int i;
    for (i = 0; i < 128; i++) out[i] = block->scale * weft_e4m3_to(block->codes[i]);
}

#ifdef __cplusplus
}
#endif
#endif
