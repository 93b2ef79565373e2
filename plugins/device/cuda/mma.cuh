/* mma.cuh: GPU instructions without a C++ form: warp-level matmuls (PTX ISA, mma.sync.m16n8k16 and ldmatrix),
 * asynchronous copies to shared memory (cp.async), and a fast 2^x.
 *
 * All lanes of a warp call a matmul or a matrix load together. With g = lane / 4 and t = lane % 4, and a pair of bf16
 * or fp16 in each word (the lower half is the first):
 *
 *     a (16,16)  words: (g, 2t) (g + 8, 2t) (g, 2t + 8) (g + 8, 2t + 8), each with its right neighbour
 *     b (16,8)   words: (2t, g) (2t + 8, g), each with the one below
 *     d (16,8)   floats: (g, 2t) (g, 2t + 1) (g + 8, 2t) (g + 8, 2t + 1)
 *
 * Without nvcc the CUDA emulator implements the same from these layouts only. */
#ifndef WEFT_DEVICE_CUDA_MMA_CUH
#define WEFT_DEVICE_CUDA_MMA_CUH

#include <stdint.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "launch.h"

#ifdef __CUDACC__

/* d += a b: products of two bf16 or two fp16 are exact, sums are fp32. */
static __device__ __forceinline__ void mma_bf16(float *d, const uint32_t *a, const uint32_t *b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

static __device__ __forceinline__ void mma_f16(float *d, const uint32_t *a, const uint32_t *b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Loads four 8 x 8 matrices from shared memory. Lane 8 i + r passes the address of row r of matrix i, 16 bytes aligned
 * to 16. Word i is then (g, 2t) of matrix i with its right neighbour; transposed, (2t, g) with the one below. */
static __device__ __forceinline__ void mma_load(uint32_t *out, const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
                 : "memory");
}
static __device__ __forceinline__ void mma_load_transposed(uint32_t *out, const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
                 : "memory");
}

/* Copies 16 bytes: reads the first `valid`, zeroes the rest. Both sides are aligned to 16. */
static __device__ __forceinline__ void copy_async(void *shared, const void *global, int valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(shared))), "l"(global), "r"(valid)
                 : "memory");
}
/* Waits for all asynchronous copies of this thread. */
static __device__ __forceinline__ void copy_async_wait(void) {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

/* 2^x with a relative error of 2^-22; zero below 2^-126. */
static __device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#else

struct mma_operands {
    float *d;
    const uint32_t *a, *b;
};
/* The two numbers of a word. */
template <bool Half> static inline double mma_number(uint32_t bits) {
    return static_cast<double>(Half ? emulator_from_f16(static_cast<unsigned short>(bits))
                                    : __uint_as_float(bits << 16));
}
template <bool Half> static inline double mma_low(uint32_t word) {
    return mma_number<Half>(word & 0xFFFFu);
}
template <bool Half> static inline double mma_high(uint32_t word) {
    return mma_number<Half>(word >> 16);
}
template <bool Half> static inline void mma_open(void **lanes, double (&a)[16][16], double (&b)[16][8]) {
    for (int lane = 0; lane < 32; lane++) {
        const mma_operands *from = static_cast<const mma_operands *>(lanes[lane]);
        const int g = lane / 4, t = lane % 4 * 2;
        for (int i = 0; i < 4; i++) {
            a[g + i % 2 * 8][t + i / 2 * 8] = mma_low<Half>(from->a[i]);
            a[g + i % 2 * 8][t + i / 2 * 8 + 1] = mma_high<Half>(from->a[i]);
        }
        for (int i = 0; i < 2; i++) {
            b[t + i * 8][g] = mma_low<Half>(from->b[i]);
            b[t + i * 8 + 1][g] = mma_high<Half>(from->b[i]);
        }
    }
}
template <bool Half> static inline void mma_together(void **lanes, unsigned) {
    double a[16][16], b[16][8];
    mma_open<Half>(lanes, a, b);
    for (int row = 0; row < 16; row++) {
        double sums[8] = {0};
        for (int k = 0; k < 16; k++)
            for (int column = 0; column < 8; column++) sums[column] += a[row][k] * b[k][column];
        for (int column = 0; column < 8; column++) {
            float *d = static_cast<mma_operands *>(lanes[row % 8 * 4 + column / 2])->d + row / 8 * 2 + column % 2;
            *d = emulator_matrix_sum(static_cast<double>(*d) + sums[column]);
        }
    }
}
static inline void mma_bf16(float *d, const uint32_t *a, const uint32_t *b) {
    mma_operands mine = {d, a, b};
    emulator_meet(~0u, "mma.m16n8k16", &mine, mma_together<false>);
}
static inline void mma_f16(float *d, const uint32_t *a, const uint32_t *b) {
    mma_operands mine = {d, a, b};
    emulator_meet(~0u, "mma.m16n8k16", &mine, mma_together<true>);
}

struct mma_rows {
    uint32_t *out;
    const uint16_t *row;
};
static inline uint32_t mma_at(void **lanes, int matrix, int row, int column) {
    return static_cast<const mma_rows *>(lanes[matrix * 8 + row])->row[column];
}
template <bool Transposed> static inline void mma_load_together(void **lanes, unsigned) {
    for (int lane = 0; lane < 32; lane++) {
        const int g = lane / 4, t = lane % 4 * 2;
        for (int i = 0; i < 4; i++) {
            const uint32_t low = Transposed ? mma_at(lanes, i, t, g) : mma_at(lanes, i, g, t);
            const uint32_t high = Transposed ? mma_at(lanes, i, t + 1, g) : mma_at(lanes, i, g, t + 1);
            static_cast<mma_rows *>(lanes[lane])->out[i] = low | high << 16;
        }
    }
}
static inline void mma_load(uint32_t *out, const void *row) {
    mma_rows mine = {out, static_cast<const uint16_t *>(row)};
    emulator_meet(~0u, "ldmatrix", &mine, mma_load_together<false>);
}
static inline void mma_load_transposed(uint32_t *out, const void *row) {
    mma_rows mine = {out, static_cast<const uint16_t *>(row)};
    emulator_meet(~0u, "ldmatrix.trans", &mine, mma_load_together<true>);
}

static inline void copy_async(void *shared, const void *global, int valid) {
    emulator_copy_async(shared, global, 16, static_cast<size_t>(valid));
}
static inline void copy_async_wait(void) {
    emulator_copy_commit();
    emulator_copy_wait(0);
}

static inline float power_of_two(float x) {
    return exp2f(x);
}

#endif
#endif
