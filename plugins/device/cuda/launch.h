/* launch.h: how a .cu file starts a kernel and names shared memory; of device code alone (CUDA C++).
 *
 *     template <typename T> static __global__ void scale(T *y, const T *x, int64_t n) { ... }
 *     CUDA_LAUNCH((scale<float>), grid, block, 0, stream, y, x, n);
 *     return cudaGetLastError();
 *
 *     CUDA_SHARED(float, partial, [32]);          one array of a fixed size, in the kernel's body
 *     CUDA_SHARED_DYNAMIC(float, tile);           what the launch gave bytes for; once in a kernel
 *
 * nvcc reads `<<<` and `__shared__`. A host compiler reads neither, so the sources that it is to compile as well say it
 * by these two macros; a runtime that runs kernels on a processor defines them in its own cuda_runtime.h.
 *
 * While a dry run counts (weft/dry_run.h) a launch is noted and nothing starts.
 */
#ifndef WEFT_DEVICE_CUDA_LAUNCH_H
#define WEFT_DEVICE_CUDA_LAUNCH_H

#include <cstdint>

#include <cuda_runtime.h>

/* Where this thread's launches are counted instead of started; NULL: they start (convert.cu). */
inline thread_local int64_t *cuda_counted_launches = nullptr;

#ifdef __CUDACC__
#define CUDA_START(kernel, grid, block, shared, stream, ...)                                                           \
    kernel<<<(grid), (block), (shared), (stream)>>>(__VA_ARGS__)
#define CUDA_SHARED(type, name, extents) __shared__ type name extents
#define CUDA_SHARED_DYNAMIC(type, name)                                                                                \
    extern __shared__ __align__(16) unsigned char name##_bytes[];                                                      \
    type *const name = reinterpret_cast<type *>(name##_bytes)
#endif

#undef CUDA_LAUNCH
#define CUDA_LAUNCH(kernel, grid, block, shared, stream, ...)                                                          \
    do {                                                                                                               \
        if (cuda_counted_launches != nullptr) ++*cuda_counted_launches;                                                \
        else CUDA_START(kernel, (grid), (block), (shared), (stream), __VA_ARGS__);                                     \
    } while (0)

#endif
