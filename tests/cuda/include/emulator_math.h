/* emulator_math.h: CUDA's arithmetic beyond <math.h> (C++). No contraction, unlike nvcc's default. */
#ifndef WEFT_EMULATOR_MATH_H
#define WEFT_EMULATOR_MATH_H

#include <cmath>
#include <cstring>
#include <math.h>

template <typename To, typename From> static inline To emulator_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "as many bits");
    To to;
    std::memcpy(static_cast<void *>(&to), static_cast<const void *>(&from), sizeof to);
    return to;
}
static inline float __uint_as_float(unsigned x) {
    return emulator_bits<float>(x);
}
static inline unsigned __float_as_uint(float x) {
    return emulator_bits<unsigned>(x);
}
static inline float __int_as_float(int x) {
    return emulator_bits<float>(x);
}
static inline int __float_as_int(float x) {
    return emulator_bits<int>(x);
}
static inline long long __double_as_longlong(double x) {
    return emulator_bits<long long>(x);
}
static inline double __longlong_as_double(long long x) {
    return emulator_bits<double>(x);
}

#define __expf expf /* the C library has functions of these names */
#define __logf logf

static inline float rsqrtf(float x) {
    return 1.0f / sqrtf(x);
}
static inline double rsqrt(double x) {
    return 1.0 / sqrt(x);
}
static inline float __fdividef(float a, float b) {
    return a / b;
}
static inline float __frcp_rn(float x) {
    return 1.0f / x;
}
static inline float __fsqrt_rn(float x) {
    return sqrtf(x);
}
static inline float __fadd_rn(float a, float b) {
    return a + b;
}
static inline float __fsub_rn(float a, float b) {
    return a - b;
}
static inline float __fmul_rn(float a, float b) {
    return a * b;
}
static inline float __fdiv_rn(float a, float b) {
    return a / b;
}
static inline float __fmaf_rn(float a, float b, float c) {
    return fmaf(a, b, c);
}
static inline double __dadd_rn(double a, double b) {
    return a + b;
}
static inline double __dsub_rn(double a, double b) {
    return a - b;
}
static inline double __dmul_rn(double a, double b) {
    return a * b;
}
static inline double __ddiv_rn(double a, double b) {
    return a / b;
}
static inline double __dsqrt_rn(double x) {
    return sqrt(x);
}
static inline double __fma_rn(double a, double b, double c) {
    return fma(a, b, c);
}
static inline float __double2float_rn(double x) {
    return static_cast<float>(x);
}
static inline float __int2float_rn(int x) {
    return static_cast<float>(x);
}
static inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
static inline int __ffs(int x) {
    return __builtin_ffs(x);
}
static inline int __clz(int x) {
    return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x));
}

#define EMULATOR_EXTREMES(a_type, b_type, type)                                                                        \
    static inline type min(a_type a, b_type b) {                                                                       \
        return static_cast<type>(a) < static_cast<type>(b) ? static_cast<type>(a) : static_cast<type>(b);              \
    }                                                                                                                  \
    static inline type max(a_type a, b_type b) {                                                                       \
        return static_cast<type>(a) > static_cast<type>(b) ? static_cast<type>(a) : static_cast<type>(b);              \
    }
EMULATOR_EXTREMES(int, int, int)
EMULATOR_EXTREMES(unsigned, unsigned, unsigned)
EMULATOR_EXTREMES(int, unsigned, unsigned)
EMULATOR_EXTREMES(unsigned, int, unsigned)
EMULATOR_EXTREMES(long, long, long)
EMULATOR_EXTREMES(unsigned long, unsigned long, unsigned long)
EMULATOR_EXTREMES(long long, long long, long long)
EMULATOR_EXTREMES(unsigned long long, unsigned long long, unsigned long long)
#define EMULATOR_FLOAT_EXTREMES(type, least, most)                                                                     \
    static inline type min(type a, type b) {                                                                           \
        return least(a, b);                                                                                            \
    }                                                                                                                  \
    static inline type max(type a, type b) {                                                                           \
        return most(a, b);                                                                                             \
    }
EMULATOR_FLOAT_EXTREMES(float, fminf, fmaxf)
EMULATOR_FLOAT_EXTREMES(double, fmin, fmax)

#endif
