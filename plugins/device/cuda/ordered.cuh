/* ordered.cuh: a sequential sum of fp64 numbers; the block's threads load them. */
#ifndef WEFT_DEVICE_CUDA_ORDERED_CUH
#define WEFT_DEVICE_CUDA_ORDERED_CUH

#include <stdint.h>

#include "launch.h"

#define ORDERED_BLOCK 256

/* Returns ((x[0] + x[1]) + x[2]) + ... of n numbers to the first of the block's ORDERED_BLOCK threads. */
static __device__ double ordered_sum(const double *x, int64_t n) {
    CUDA_SHARED(double, fetched, [ORDERED_BLOCK]);
    double sum = 0.0;
    for (int64_t at = 0; at < n; at += ORDERED_BLOCK) {
        const int64_t left = n - at;
        const int some = static_cast<int>(left < ORDERED_BLOCK ? left : ORDERED_BLOCK);
        if (static_cast<int>(threadIdx.x) < some) fetched[threadIdx.x] = x[at + threadIdx.x];
        __syncthreads();
        for (int i = 0; threadIdx.x == 0 && i < some; i++) sum += fetched[i];
        __syncthreads();
    }
    return sum;
}

#endif
