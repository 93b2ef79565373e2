/* emulator_kernel.h: thread indices, shared memory, barriers and late copies in kernels (C++). */
#ifndef WEFT_EMULATOR_KERNEL_H
#define WEFT_EMULATOR_KERNEL_H

#include "emulator_vectors.h"

/* Indices of the running thread. Threads switch only at waits for each other. */
struct emulator_place {
    uint3 thread, block;
    dim3 block_dim, grid_dim;
};

extern "C" {
extern struct emulator_place emulator_here;

/* Barrier of the block. what: the call's name; vote: this thread's vote. Returns the number of votes of 1. */
int emulator_barrier(const char *what, int vote, const char *file, int line);
/* Returns the block's array of that name; `site` identifies it. Poisoned at the block's start. */
void *emulator_shared(const void *site, const char *name, size_t bytes, size_t align);
void *emulator_shared_dynamic(const char *name);
void emulator_evicted_first(size_t bytes); /* by the thread's last access */

/* Lets other threads run, before this one looks at a condition in shared memory again. */
void emulator_wait_again(const char *what, const char *file, int line);

/* cp.async: copies `bytes` (4, 8, 16), the first `valid` from global memory and zeros after. The copy completes only at
 * the wait that needs it. */
void emulator_copy_async(void *shared, const void *global, size_t bytes, size_t valid);
void emulator_copy_commit(void);
void emulator_copy_wait(int groups_left); /* all groups except the newest groups_left have arrived */

[[noreturn]] void emulator_trap(const char *file, int line);
}

#define __grid_constant__
#define threadIdx (emulator_here.thread)
#define blockIdx  (emulator_here.block)
#define blockDim  (emulator_here.block_dim)
#define gridDim   (emulator_here.grid_dim)
static const int warpSize = 32;

#define EMULATOR_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

static inline void __syncthreads(EMULATOR_SITE) {
    (void)emulator_barrier("__syncthreads", 0, file, line);
}
static inline int __syncthreads_or(int vote, EMULATOR_SITE) {
    return emulator_barrier("__syncthreads_or", vote != 0, file, line) > 0;
}
static inline int __syncthreads_count(int vote, EMULATOR_SITE) {
    return emulator_barrier("__syncthreads_count", vote != 0, file, line);
}
static inline int __syncthreads_and(int vote, EMULATOR_SITE) {
    return emulator_barrier("__syncthreads_and", vote == 0, file, line) == 0;
}
static inline void __threadfence(void) {}
static inline void __threadfence_block(void) {}
static inline void __trap(EMULATOR_SITE) {
    emulator_trap(file, line);
}

#define CUDA_SHARED(type, name, extents)                                                                               \
    static const char name##_site = 0;                                                                                 \
    typedef type name##_type extents;                                                                                  \
    name##_type &name =                                                                                                \
        *static_cast<name##_type *>(emulator_shared(&name##_site, #name, sizeof(name##_type), alignof(name##_type)))
#define CUDA_SHARED_DYNAMIC(type, name) type *const name = static_cast<type *>(emulator_shared_dynamic(#name))

template <typename T> static inline T __ldg(const T *p) {
    return *p;
}
template <typename T> static inline T __ldcs(const T *p) {
    const T value = *p;
    emulator_evicted_first(sizeof value);
    return value;
}
template <typename T> static inline T __ldcg(const T *p) {
    return *p;
}
template <typename T> static inline void __stcs(T *p, T value) {
    *p = value;
    emulator_evicted_first(sizeof value);
}
template <typename T> static inline void __stcg(T *p, T value) {
    *p = value;
}

/* Threads switch only at barriers, so a plain update is atomic. Integers only: no atomic adds a float. */
#define EMULATOR_ATOMIC(name, expression)                                                                              \
    template <typename T> static inline T name(T *at, T value) {                                                       \
        static_assert(T(1) / T(2) == T(0), "atomics are of integers alone");                                           \
        const T old = *at;                                                                                             \
        *at = (expression);                                                                                            \
        return old;                                                                                                    \
    }
EMULATOR_ATOMIC(atomicAdd, old + value)
EMULATOR_ATOMIC(atomicMax, old > value ? old : value)
EMULATOR_ATOMIC(atomicMin, old < value ? old : value)
EMULATOR_ATOMIC(atomicOr, old | value)
EMULATOR_ATOMIC(atomicAnd, old &value)
EMULATOR_ATOMIC(atomicExch, value)
template <typename T> static inline T atomicCAS(T *at, T expected, T value) {
    const T old = *at;
    if (old == expected) *at = value;
    return old;
}

#endif
