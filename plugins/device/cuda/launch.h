/* launch.h: macros that launch a kernel and declare shared memory, for CUDA C++ only.
 *
 *     template <typename T> static __global__ void scale(T *y, const T *x, int64_t n) { ... }
 *     CUDA_LAUNCH((scale<float>), grid, block, 0, stream, y, x, n);
 *     return cudaGetLastError();
 *
 *     CUDA_SHARED(float, partial, [32]);          one array of a fixed size, in the kernel's body
 *     CUDA_SHARED_DYNAMIC(float, tile);           sized by the launch's `shared` bytes; once in a kernel
 *
 * nvcc parses `<<<` and `__shared__`; a host compiler does not. These macros let the CUDA emulator compile the same
 * sources: its cuda_runtime.h defines them.
 *
 * During a dry run (weft/dry_run.h) a launch is counted and nothing starts. */
#ifndef WEFT_DEVICE_CUDA_LAUNCH_H
#define WEFT_DEVICE_CUDA_LAUNCH_H

#include <cstdint>

#include <cuda_runtime.h>

/* Counter of this thread's launches in a dry run; NULL: launches start (convert.cu). */
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
