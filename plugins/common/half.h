/* plugins/common/half.h: conversion between fp16 and fp32 in integer arithmetic, for processors without an instruction
 * for it. Rounds to nearest, ties to even; a NaN remains a NaN. */
#ifndef WEFT_PLUGINS_COMMON_HALF_H
#define WEFT_PLUGINS_COMMON_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t half_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static inline float half_of_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Below 2^-14, fp16 values are multiples of 2^-24, the last digit of 0.5f: adding 0.5f makes the adder round. Above,
 * drop 13 mantissa bits and subtract 112 from the exponent. */
static inline uint16_t half_narrow(float x) {
    const uint32_t u = half_bits(x), sign = (u >> 16) & 0x8000u, a = u & 0x7FFFFFFFu;
    const uint32_t small = half_bits(half_of_bits(a) + 0.5f) - half_bits(0.5f);
    const uint32_t normal = (a + 0xFFFu + ((a >> 13) & 1u) - (112u << 23)) >> 13;
    uint32_t h = a < (113u << 23) ? small : normal;
    if (a >= 0x477FF000u) h = 0x7C00u; /* 65520 and above round to infinity */
    if (a > 0x7F800000u) h = 0x7E00u | ((a >> 13) & 0x1FFu);
    return (uint16_t)(sign | h);
}

static inline float half_widen(uint16_t h) {
    const uint32_t sign = ((uint32_t)h & 0x8000u) << 16, e = ((uint32_t)h >> 10) & 31u, m = (uint32_t)h & 0x3FFu;
    const uint32_t small = half_bits((float)m * 0x1p-24f);
    if (e == 0) return half_of_bits(sign | small);
    if (e == 31) return half_of_bits(sign | 0x7F800000u | m << 13 | (m != 0 ? 0x400000u : 0u));
    return half_of_bits(sign | (e + 112u) << 23 | m << 13);
}

#endif
