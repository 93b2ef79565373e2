/* double_vectors.h: CUDA's vector types, aligned as on the card. C and C++. */
#ifndef WEFT_DOUBLE_VECTORS_H
#define WEFT_DOUBLE_VECTORS_H

#include <stddef.h>

#define DOUBLE_VECTOR(type, name, align2, align4)                                                                      \
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
DOUBLE_VECTOR(signed char, char, 2, 4)
DOUBLE_VECTOR(unsigned char, uchar, 2, 4)
DOUBLE_VECTOR(short, short, 4, 8)
DOUBLE_VECTOR(unsigned short, ushort, 4, 8)
DOUBLE_VECTOR(int, int, 8, 16)
DOUBLE_VECTOR(unsigned int, uint, 8, 16)
DOUBLE_VECTOR(long long, longlong, 16, 16)
DOUBLE_VECTOR(unsigned long long, ulonglong, 16, 16)
DOUBLE_VECTOR(float, float, 8, 16)
DOUBLE_VECTOR(double, double, 16, 16)

typedef struct dim3 {
    unsigned int x, y, z;
#ifdef __cplusplus
    constexpr dim3(unsigned int x_ = 1, unsigned int y_ = 1, unsigned int z_ = 1) : x(x_), y(y_), z(z_) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
#endif
} dim3;

#ifdef __cplusplus
#define DOUBLE_MAKE(type, name)                                                                                        \
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
DOUBLE_MAKE(signed char, char)
DOUBLE_MAKE(unsigned char, uchar)
DOUBLE_MAKE(short, short)
DOUBLE_MAKE(unsigned short, ushort)
DOUBLE_MAKE(int, int)
DOUBLE_MAKE(unsigned int, uint)
DOUBLE_MAKE(long long, longlong)
DOUBLE_MAKE(unsigned long long, ulonglong)
DOUBLE_MAKE(float, float)
DOUBLE_MAKE(double, double)
#endif
#endif
