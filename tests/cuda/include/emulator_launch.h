/* emulator_launch.h: queues a kernel with a copy of its arguments, as the driver does (C++). */
#ifndef WEFT_EMULATOR_LAUNCH_H
#define WEFT_EMULATOR_LAUNCH_H

#include <tuple>
#include <type_traits>

#include "cuda_runtime_api.h"
#include "emulator_vectors.h"

struct emulator_launch {
    const char *name, *file;
    int line;
    dim3 grid, block;
    size_t shared;
    const void *kernel;
    void (*call)(const void *kernel, const void *arguments); /* runs one thread */
    size_t bytes;                                            /* of the arguments */
};
extern "C" cudaError_t emulator_launch_queue(const struct emulator_launch *what, const void *arguments,
                                             cudaStream_t stream);

template <typename... P> struct emulator_arguments {
    static_assert((std::is_trivially_copyable<P>::value && ...), "a kernel's arguments are copied bit by bit");
    static_assert((!std::is_reference<P>::value && ...), "a kernel takes no references");
    std::tuple<P...> values;
    static void call(const void *kernel, const void *arguments) {
        std::apply(reinterpret_cast<void (*)(P...)>(const_cast<void *>(kernel)),
                   static_cast<const emulator_arguments *>(arguments)->values);
    }
};

template <typename... P, typename... A>
static inline void emulator_start(const char *name, const char *file, int line, void (*kernel)(P...), dim3 grid,
                                  dim3 block, size_t shared, cudaStream_t stream, A... arguments) {
    const emulator_arguments<P...> copy = {std::tuple<P...>(arguments...)};
    const emulator_launch what = {name,
                                  file,
                                  line,
                                  grid,
                                  block,
                                  shared,
                                  reinterpret_cast<const void *>(kernel),
                                  emulator_arguments<P...>::call,
                                  sizeof copy};
    (void)emulator_launch_queue(&what, &copy, stream);
}

#define CUDA_START(kernel, grid, block, shared, stream, ...)                                                           \
    emulator_start(#kernel, __FILE__, __LINE__, kernel, (grid), (block), (shared), (stream), __VA_ARGS__)
#define CUDA_LAUNCH CUDA_START /* launch.h defines one that may count instead */

template <typename... P>
static inline cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), enum cudaFuncAttribute attribute, int value) {
    return cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel), attribute, value);
}
template <typename... P>
static inline cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, void (*kernel)(P...)) {
    return cudaFuncGetAttributes(out, reinterpret_cast<const void *>(kernel));
}
template <typename... P>
static inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void (*kernel)(P...), int block,
                                                                        size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, reinterpret_cast<const void *>(kernel), block, shared);
}
template <typename T> static inline cudaError_t cudaMalloc(T **out, size_t bytes) {
    return cudaMalloc(reinterpret_cast<void **>(out), bytes);
}

#endif
