/* cuda_runtime.h of the double: the runtime's calls, and for C++ what device code is written with. */
#ifndef WEFT_DOUBLE_CUDA_RUNTIME_H
#define WEFT_DOUBLE_CUDA_RUNTIME_H

#include "cuda_runtime_api.h"
#include "double_vectors.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__    __attribute__((noinline))
#define __align__(n)    __attribute__((aligned(n)))
#define __grid_constant__
#define __launch_bounds__(...)

#ifdef __cplusplus
#include "double_kernel.h"
#include "double_math.h"
#include "double_warp.h"
#include "double_launch.h"
#endif
#endif
