/* cuda_runtime.h of the CUDA emulator: the runtime's calls, and for C++ the language of device code. */
#ifndef WEFT_EMULATOR_CUDA_RUNTIME_H
#define WEFT_EMULATOR_CUDA_RUNTIME_H

#include "cuda_runtime_api.h"
#include "emulator_vectors.h"

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
#include "emulator_kernel.h"
#include "emulator_math.h"
#include "emulator_warp.h"
#include "emulator_launch.h"
#endif
#endif
