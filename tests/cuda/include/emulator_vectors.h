/* emulator_vectors.h: CUDA's vector types, aligned as on the GPU. C and C++. */
#ifndef WEFT_EMULATOR_VECTORS_H
#define WEFT_EMULATOR_VECTORS_H

#include <stddef.h>

#define EMULATOR_VECTOR(type, name, align2, align4)                                                                    \
    struct name##1 {                                                                                                   \
        type x;                                                                                                        \
    };                                                                                                                 \
    struct __attribute__((aligned(align2))) name##2 {                                                                  \
        type x, y;                                                                                                     \
    };                                                                                                                 \
    struct name##3 {                                                                                                   \
        type x, y, z;                                                                                                  \
    };                                                                                                                 \
    struct __attribute__((aligned(align4))) name##4 {                                                                  \
        type x, y, z, w;                                                                                               \
    };                                                                                                                 \
    typedef struct name##1 name##1;                                                                                    \
    typedef struct name##2 name##2;                                                                                    \
    typedef struct name##3 name##3;                                                                                    \
    typedef struct name##4 name##4;
EMULATOR_VECTOR(signed char, char, 2, 4)
EMULATOR_VECTOR(unsigned char, uchar, 2, 4)
EMULATOR_VECTOR(short, short, 4, 8)
EMULATOR_VECTOR(unsigned short, ushort, 4, 8)
EMULATOR_VECTOR(int, int, 8, 16)
EMULATOR_VECTOR(unsigned int, uint, 8, 16)
EMULATOR_VECTOR(long long, longlong, 16, 16)
EMULATOR_VECTOR(unsigned long long, ulonglong, 16, 16)
EMULATOR_VECTOR(float, float, 8, 16)
EMULATOR_VECTOR(double, double, 16, 16)

typedef struct dim3 {
    unsigned int x, y, z;
#ifdef __cplusplus
    constexpr dim3(unsigned int x_ = 1, unsigned int y_ = 1, unsigned int z_ = 1) : x(x_), y(y_), z(z_) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
#endif
} dim3;

#ifdef __cplusplus
#define EMULATOR_MAKE(type, name)                                                                                      \
    static inline name##1 make_##name##1(type x) {                                                                     \
        return {x};                                                                                                    \
    }                                                                                                                  \
    static inline name##2 make_##name##2(type x, type y) {                                                             \
        return {x, y};                                                                                                 \
    }                                                                                                                  \
    static inline name##3 make_##name##3(type x, type y, type z) {                                                     \
        return {x, y, z};                                                                                              \
    }                                                                                                                  \
    static inline name##4 make_##name##4(type x, type y, type z, type w) {                                             \
        return {x, y, z, w};                                                                                           \
    }
EMULATOR_MAKE(signed char, char)
EMULATOR_MAKE(unsigned char, uchar)
EMULATOR_MAKE(short, short)
EMULATOR_MAKE(unsigned short, ushort)
EMULATOR_MAKE(int, int)
EMULATOR_MAKE(unsigned int, uint)
EMULATOR_MAKE(long long, longlong)
EMULATOR_MAKE(unsigned long long, ulonglong)
EMULATOR_MAKE(float, float)
EMULATOR_MAKE(double, double)
#endif
#endif
