/* weft/blocks.h: block layouts of the packed storage types, and functions that pack and unpack them.
 *
 * WEFT_I8X64: 64 consecutive numbers of a row, each an integer from -127 to 127 times the block's scale:
 *
 *     bytes 0-3    the scale, fp32
 *     bytes 4-67   q[0] to q[63], int8: the numbers are scale * q[i], in fp32
 *
 * in the machine's byte order. A row of n elements is n / 64 blocks. A matrix (out, in) has in / 64 blocks per row and
 * uses 8.5 bits per number. The device multiplies directly with the blocks and expands them only inside the matmul, in
 * the type of the other operand (weft_matmul in weft/device.h).
 *
 * Packing computes scale = max |x| / 127 in fp32 and q = x / scale, rounded to the nearest integer, ties to even. Zero
 * stays zero, and equal inputs produce equal bytes on every machine. A block with a non-finite number becomes NaN
 * completely, so that the error is visible in the loss.
 *
 * WEFT_NF4: 1024 consecutive numbers of the matrix in row-major order, 4 bits each, as in QLoRA (Dettmers et al., arXiv
 * 2305.14314). Each group of 64 numbers has a scale, and the scales are quantized again (double quantization).
 *
 *     bytes 0-3     the scale of the 16 scales, fp32
 *     bytes 4-7     offset added to each of the scales, fp32
 *     bytes 8-23    the 16 scales, as codes of the signed dynamic 8-bit type (weft/levels.h)
 *     bytes 24-535  the numbers, as NormalFloat4 codes, two per byte, the first one in the upper half
 *
 *     scale k = dynamic[bytes[8 + k]] * scale + added        number i = nf4[code i] * scale (i / 64)
 *
 * in fp32, each operation rounded. The offset is the mean of all scales of the matrix. The scale of the scales is
 * shared by 16,384 numbers (256 scales). Every block contains both, so that a block can be decoded wherever a matrix is
 * sharded. This costs 8 bytes per block: 4.1875 bits per number, compared with 4.1270 if both were stored separately.
 *
 * WEFT_NF4X64: 64 consecutive numbers, as the same codes, with a scale that is not quantized:
 *
 *     bytes 0-3     the scale, max |x|, fp32
 *     bytes 4-35    the codes, two per byte, the first one in the upper half: number i = nf4[code i] * scale
 *
 * WEFT_F8X128: 128 consecutive numbers, 8 bits each:
 *
 *     bytes 0-3     the scale, fp32
 *     bytes 4-131   the numbers divided by the scale, as fp8 e4m3 (1 sign, 4 exponent, 3 fraction bits, bias 7, no
 *                   infinity; Micikevicius et al., arXiv 2209.05433)
 *
 * The scale is max |x| / 448. In NF4, NF4X64 and F8X128, unused space of the last block is filled with zeros and never
 * read. */
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

/* Returns the largest |x| of n numbers, or NaN if one of them is not finite. [any-thread] [hot] */
static inline float weft_largest(const float *x, int64_t n) {
    float most = 0.0f, broken = 0.0f;
    int64_t i;
    for (i = 0; i < n; i++) {
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
        broken += x[i] - x[i]; /* NaN if x is NaN or infinite */
    }
    return most + broken;
}

/* Packs one block. Requires the default rounding mode, which the host always uses. [any-thread] [hot] */
static inline void weft_i8x64_pack(weft_i8x64 *out, const float *x) {
    int i;
    out->scale = weft_largest(x, 64) / 127.0f;
    for (i = 0; i < 64; i++) {
        const float steps = out->scale > 0.0f ? x[i] / out->scale : 0.0f;
        out->q[i] = (int8_t)lrintf(steps < -127.0f ? -127.0f : steps > 127.0f ? 127.0f : steps);
    }
}

/* Packs a row with one scale for all its blocks, as LLM.int8 does (Dettmers et al., arXiv 2208.07339): q is x * (127 /
 * largest), rounded to the nearest integer. largest: max |x| of the row, or NaN if a number is not finite. [any-thread]
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

/* Returns the code of the level nearest to x; a tie takes the lower level. levels: ascending. */
static inline uint8_t weft_nearest_level(const float *levels, int n, float x) {
    int low = 0, high = n - 1; /* binary search for the first level whose upper border is not below x */
    while (low < high) {
        const int middle = (low + high) / 2;
        if ((levels[middle] + levels[middle + 1]) / 2.0f < x) low = middle + 1;
        else high = middle;
    }
    return (uint8_t)low;
}

/* Returns 1 / largest, which scales numbers to [-1, 1]; for largest = 0 the numbers stay 0. */
static inline float weft_over(float largest) {
    return 1.0f / (largest < 1e-38f ? 1e-38f : largest);
}

static inline float weft_within_one(float x) {
    return x < -1.0f ? -1.0f : x > 1.0f ? 1.0f : x;
}

/* Writes the codes of n numbers, 1 to 64, with max |x| = largest; the remaining codes are zero. */
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

/* Decodes 64 codes to numbers. */
static inline void weft_nf4_decode(float *out, const uint8_t *codes, float scale) {
    static const float levels[] = {WEFT_NF4_LEVELS};
    int i;
    for (i = 0; i < 32; i++) {
        out[2 * i] = levels[codes[i] >> 4] * scale;
        out[2 * i + 1] = levels[codes[i] & 15] * scale;
    }
}

/* Packs n numbers, 1 to 1024. added: the mean over the matrix of max |x| of each group of 64 numbers. scale: the
 * largest distance from that mean among the 256 groups to which these belong. [any-thread] [hot] */
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
        if (scale > 0.0f) /* otherwise all scales equal the offset */
            out->scales[k] = weft_nearest_level(dynamic, 256, weft_within_one((largest - added) * weft_over(scale)));
        weft_nf4_encode(out->codes + k * 32, x + k * 64, end - k * 64, largest);
    }
}

/* Unpacks all 1024 numbers. [any-thread] [hot] */
static inline void weft_nf4_unpack(float *out, const weft_nf4 *block) {
    static const float dynamic[] = {WEFT_DYNAMIC8_LEVELS};
    int k;
    for (k = 0; k < 16; k++)
        weft_nf4_decode(out + k * 64, block->codes + k * 32, dynamic[block->scales[k]] * block->scale + block->added);
}

/* Packs n numbers, 1 to 64. [any-thread] [hot] */
static inline void weft_nf4x64_pack(weft_nf4x64 *out, const float *x, int n) {
    out->scale = weft_largest(x, n);
    weft_nf4_encode(out->codes, x, n, out->scale);
}

/* Unpacks all 64 numbers. [any-thread] [hot] */
static inline void weft_nf4x64_unpack(float *out, const weft_nf4x64 *block) {
    weft_nf4_decode(out, block->codes, block->scale);
}

/* ---- fp8 ---- */

/* Returns the e4m3 number nearest to x, ties to even; |x| <= 448. */
static inline uint8_t weft_e4m3_from(float x) {
    const float size = fabsf(x);
    uint32_t bits;
    memcpy(&bits, &size, sizeof bits);
    if (size < 0.015625f) bits = (uint32_t)lrintf(size * 512.0f);           /* below 2^-6 the step is 2^-9 */
    else bits = (bits + 0x7FFFFu + (bits >> 20 & 1u) - (120u << 23)) >> 20; /* bias from 127 to 7, round 20 bits */
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

/* Packs n numbers, 1 to 128. [any-thread] [hot] */
static inline void weft_f8x128_pack(weft_f8x128 *out, const float *x, int n) {
    int i;
    out->scale = weft_largest(x, n) / 448.0f;
    memset(out->codes, 0, sizeof out->codes);
    for (i = 0; i < n; i++) {
        const float over = out->scale > 0.0f ? x[i] / out->scale : 0.0f;
        out->codes[i] = weft_e4m3_from(over < -448.0f ? -448.0f : over > 448.0f ? 448.0f : over);
    }
}

/* Unpacks all 128 numbers. [any-thread] [hot] */
static inline void weft_f8x128_unpack(float *out, const weft_f8x128 *block) {
    int i;
    for (i = 0; i < 128; i++) out[i] = block->scale * weft_e4m3_to(block->codes[i]);
}

#ifdef __cplusplus
}
#endif
#endif
