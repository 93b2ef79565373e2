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
 * Who comes next: 4-bit blocks (nf4). Their type has a row here as well; scales that lie apart from the values (because
 * they are packed again, Dettmers et al., arXiv 2305.14314) are a further parameter of the same weight object, which
 * travels and is bound with it (weft/model.h). */
#ifndef WEFT_BLOCKS_H
#define WEFT_BLOCKS_H

#include <math.h>
#include <weft/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_i8x64 {
    float scale;
    int8_t q[64];
} weft_i8x64;

/* Needs the usual rounding mode, as all of a host has. [any-thread] [hot] */
static inline void weft_i8x64_pack(weft_i8x64 *out, const float *x) {
    float most = 0.0f, broken = 0.0f;
    int i;
    for (i = 0; i < 64; i++) {
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
        broken += x[i] - x[i]; /* NaN if x is none, or infinite */
    }
    out->scale = most / 127.0f + broken;
    for (i = 0; i < 64; i++) {
        const float steps = out->scale > 0.0f ? x[i] / out->scale : 0.0f;
        out->q[i] = (int8_t)lrintf(steps < -127.0f ? -127.0f : steps > 127.0f ? 127.0f : steps);
    }
}

/* [any-thread] [hot] */
static inline void weft_i8x64_unpack(float *out, const weft_i8x64 *block) {
    int i;
    for (i = 0; i < 64; i++) out[i] = block->scale * (float)block->q[i];
}

#ifdef __cplusplus
}
#endif
#endif
