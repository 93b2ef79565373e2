/* hopper.cuh: instructions of compute capability 9.0a without a C++ form: matmuls of a warpgroup (PTX ISA, wgmma),
 * tensor copies to shared memory (cp.async.bulk.tensor) and their barriers (mbarrier).
 *
 * A warpgroup is 4 consecutive warps that call a matmul together: d (64, N) (+)= a (64, 16) b (16, N). Each warp has 16
 * rows of d and of an `a` in registers, distributed over its lanes as those of mma.cuh. b, and an `a` in shared memory,
 * are tiles of rows of 64 elements (128 bytes) that a tensor copy has written: 16-byte chunk c of row r is at chunk c ^
 * (r % 8), and tiles begin at multiples of 1,024 bytes. Wider rows are several tiles ("panels") one after another.
 *
 * Matmuls are asynchronous: registers and tiles that they use may not change before wgmma_wait.
 *
 * Without nvcc the CUDA emulator implements the same from these layouts only. */
#ifndef WEFT_DEVICE_CUDA_HOPPER_CUH
#define WEFT_DEVICE_CUDA_HOPPER_CUH

#include <cuda.h>

#include "cells.cuh"
#include "mma.cuh"

#define WARPGROUP       128  /* threads */
#define PANEL           64   /* elements of a row of a tile */
#define PANEL_ROW       128  /* bytes */
#define PANEL_EIGHT     1024 /* bytes of eight rows, after which the order of chunks repeats */
#define TENSOR_BOX_ROWS 64   /* rows of a tensor copy */

#if defined(__CUDACC__) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define CUDA_HAS_HOPPER 1
#elif !defined(__CUDACC__)
#define CUDA_HAS_HOPPER 1
#else
#define CUDA_HAS_HOPPER 0 /* the kernels' bodies are empty */
#endif

#ifdef __CUDACC__

static __device__ __forceinline__ uint32_t shared_address(const void *p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

/* The warpgroup gives away its registers except N per thread, or takes as many. */
template <int N> static __device__ __forceinline__ void registers_keep(void) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> static __device__ __forceinline__ void registers_take(void) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

/* ---- barriers ---- */

/* A barrier's phase ends when `count` threads have arrived and all expected bytes have been copied. */
static __device__ __forceinline__ void barrier_init(uint64_t *at, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(at)), "r"(count) : "memory");
}
/* Makes initialized barriers visible to tensor copies; __syncthreads follows. */
static __device__ __forceinline__ void barrier_init_end(void) {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
static __device__ __forceinline__ void barrier_arrive(uint64_t *at) {
    asm volatile("{.reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0];}" ::"r"(shared_address(at))
                 : "memory");
}
/* Arrives, and expects that tensor copies write `bytes` more. */
static __device__ __forceinline__ void barrier_arrive_expect(uint64_t *at, int bytes) {
    asm volatile("{.reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;}" ::"r"(
                     shared_address(at)),
                 "r"(bytes)
                 : "memory");
}
/* Waits for the end of the phase of that parity: 0 for the first. */
static __device__ __forceinline__ void barrier_wait(uint64_t *at, int parity) {
    asm volatile("{.reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra.uni end;\n"
                 "bra.uni again;\n"
                 "end:}" ::"r"(shared_address(at)),
                 "r"(parity)
                 : "memory");
}

/* ---- tensor copies ---- */

/* Copies the box at (column, head, row, batch) of a tensor of 4 dimensions; what lies outside the tensor becomes
 * zero. The barrier counts its bytes. One thread calls it. */
static __device__ __forceinline__ void tensor_load(void *to, const CUtensorMap *map, uint64_t *barrier, int column,
                                                   int head, int row, int batch) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
                 "{%3, %4, %5, %6}], [%2];" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(barrier)), "r"(column), "r"(head), "r"(row), "r"(batch)
                 : "memory");
}

/* ---- matmuls ---- */

/* Before the first matmul, and whenever other instructions have written its registers. */
static __device__ __forceinline__ void wgmma_begin(void) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
/* Ends a group of matmuls. */
static __device__ __forceinline__ void wgmma_commit(void) {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Waits for all groups except the newest LEFT. */
template <int LEFT> static __device__ __forceinline__ void wgmma_wait(void) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

/* Describes a tile's part for a matmul. Rows along the sum's dimension or across it are eight to PANEL_EIGHT bytes;
 * panel: bytes between panels, for an N above 64 that lies along the rows' elements. */
static __device__ __forceinline__ uint64_t tile_part(const void *at, int panel) {
    return static_cast<uint64_t>(shared_address(at) >> 4 & 0x3FFF) | static_cast<uint64_t>(panel >> 4) << 16 |
           static_cast<uint64_t>(PANEL_EIGHT >> 4) << 32 | static_cast<uint64_t>(1) << 62;
}

#define WGMMA_SUMS_8(d, i)                                                                                             \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]),        \
        "+f"(d[i + 7])
#define WGMMA_SUMS_32(d, i) WGMMA_SUMS_8(d, i), WGMMA_SUMS_8(d, i + 8), WGMMA_SUMS_8(d, i + 16), WGMMA_SUMS_8(d, i + 24)
#define WGMMA_SUMS_64(d, i) WGMMA_SUMS_32(d, i), WGMMA_SUMS_32(d, i + 32)
#define WGMMA_NAMES_32                                                                                                 \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,"                       \
    "%25,%26,%27,%28,%29,%30,%31"
#define WGMMA_NAMES_64                                                                                                 \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,"                       \
    "%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%4"                       \
    "7,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"

/* Two forms: `a` in shared memory, with both operands' rows along the sum's dimension; and `a` in registers, with
 * b's rows across it. accumulate 0: d is set. */
#define WGMMA(type, name, N, SUMS, a0, a1, a2, a3, a4, a5)                                                             \
    static __device__ __forceinline__ void wgmma_tiles(float(&d)[SUMS], uint64_t a, uint64_t b, int accumulate,        \
                                                       const type *) {                                                 \
        asm volatile("{.reg .pred p; setp.ne.b32 p, " a2 ", 0;\n"                                                      \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." name "." name " {" WGMMA_NAMES_##SUMS           \
                     "}, " a0 ", " a1 ", p, 1, 1, 0, 0;}"                                                              \
                     : WGMMA_SUMS_##SUMS(d, 0)                                                                         \
                     : "l"(a), "l"(b), "r"(accumulate));                                                               \
    }                                                                                                                  \
    static __device__ __forceinline__ void wgmma_rows(float(&d)[SUMS], const uint32_t *a, uint64_t b, int accumulate,  \
                                                      const type *) {                                                  \
        asm volatile("{.reg .pred p; setp.ne.b32 p, " a5 ", 0;\n"                                                      \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." name "." name " {" WGMMA_NAMES_##SUMS           \
                     "}, {" a0 "," a1 "," a2 "," a3 "}, " a4 ", p, 1, 1, 1;}"                                          \
                     : WGMMA_SUMS_##SUMS(d, 0)                                                                         \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));                           \
    }
WGMMA(bf16, "bf16", 64, 32, "%32", "%33", "%34", "%35", "%36", "%37")
WGMMA(f16, "f16", 64, 32, "%32", "%33", "%34", "%35", "%36", "%37")
WGMMA(bf16, "bf16", 128, 64, "%64", "%65", "%66", "%67", "%68", "%69")
WGMMA(f16, "f16", 128, 64, "%64", "%65", "%66", "%67", "%68", "%69")

#else

template <int N> static inline void registers_keep(void) {}
template <int N> static inline void registers_take(void) {}

/* The 64 bits of a barrier. */
struct barrier_state {
    uint16_t count, left;
    int32_t phase_and_bytes; /* the phase's parity is the lowest bit */
};
static inline void barrier_put(uint64_t *at, barrier_state state) {
    if (state.left == 0 && state.phase_and_bytes >> 1 == 0) state.phase_and_bytes ^= 1, state.left = state.count;
    memcpy(at, &state, sizeof state);
}
static inline barrier_state barrier_get(const uint64_t *at) {
    barrier_state state;
    memcpy(&state, at, sizeof state);
    return state;
}
static inline void barrier_init(uint64_t *at, int count) {
    const uint16_t n = static_cast<uint16_t>(count);
    barrier_put(at, {n, n, 0});
}
static inline void barrier_init_end(void) {}
static inline void barrier_change(uint64_t *at, int arrivals, int bytes) {
    barrier_state state = barrier_get(at);
    state.left = static_cast<uint16_t>(state.left - arrivals);
    state.phase_and_bytes += 2 * bytes;
    barrier_put(at, state);
}
static inline void barrier_arrive(uint64_t *at) {
    barrier_change(at, 1, 0);
}
static inline void barrier_arrive_expect(uint64_t *at, int bytes) {
    barrier_change(at, 1, bytes);
}
static inline void barrier_wait(uint64_t *at, int parity, EMULATOR_SITE) {
    while ((barrier_get(at).phase_and_bytes & 1) == parity) emulator_wait_again("mbarrier.try_wait", file, line);
}

/* The address of a tile's element, from its address without the order of chunks. */
static inline const uint16_t *tile_element(uintptr_t at) {
    return reinterpret_cast<const uint16_t *>(at ^ (at / PANEL_ROW % 8 * 16));
}
static inline void tensor_load(void *to, const CUtensorMap *map, uint64_t *barrier, int column, int head, int row,
                               int batch) {
    const int64_t start[4] = {column, head, row, batch};
    const uintptr_t at = reinterpret_cast<uintptr_t>(to);
    if (at % PANEL_EIGHT != 0) __trap();
    for (int i = 0; i < TENSOR_BOX_ROWS * PANEL; i++) {
        const uint16_t *from = emulator_tensor_at(map, start, i / PANEL, i % PANEL);
        *const_cast<uint16_t *>(tile_element(at + static_cast<uintptr_t>(i) * 2)) = from == nullptr ? 0 : *from;
    }
    barrier_change(barrier, 0, -TENSOR_BOX_ROWS * PANEL_ROW);
}

static inline void wgmma_begin(void) {}
static inline void wgmma_commit(void) {}
template <int LEFT> static inline void wgmma_wait(void) {}

static inline uint64_t tile_part(const void *at, int panel) {
    return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(at)) | static_cast<uint64_t>(panel) / 16 << 48;
}

struct wgmma_operands {
    float *d;
    const uint32_t *words; /* of a, or NULL */
    uint64_t a, b;
    int accumulate, n;
};
/* Fills a (16, 16), the rows of this warp. */
template <bool Half> static inline void wgmma_open(void **lanes, double (&a)[16][16]) {
    const wgmma_operands *of = static_cast<const wgmma_operands *>(lanes[0]);
    const uintptr_t rows = static_cast<uintptr_t>(of->a & 0xFFFFFFFFFFFF) + threadIdx.x / 32 % 4 * 16 * PANEL_ROW;
    for (uintptr_t row = 0; row < 16 && of->words == nullptr; row++)
        for (uintptr_t k = 0; k < 16; k++) a[row][k] = mma_number<Half>(*tile_element(rows + row * PANEL_ROW + k * 2));
    for (int lane = 0; lane < 32 && of->words != nullptr; lane++) {
        const uint32_t *words = static_cast<const wgmma_operands *>(lanes[lane])->words;
        for (int i = 0; i < 4; i++) {
            a[lane / 4 + i % 2 * 8][lane % 4 * 2 + i / 2 * 8] = mma_low<Half>(words[i]);
            a[lane / 4 + i % 2 * 8][lane % 4 * 2 + i / 2 * 8 + 1] = mma_high<Half>(words[i]);
        }
    }
}
/* Element (k, n) of b: of row n of a tile, or of row k if b's rows lie across the sum's dimension. */
template <bool Half> static inline double wgmma_b(const wgmma_operands *of, uintptr_t k, uintptr_t n) {
    const uintptr_t at = static_cast<uintptr_t>(of->b & 0xFFFFFFFFFFFF),
                    panel = static_cast<uintptr_t>(of->b >> 48) * 16;
    return mma_number<Half>(*tile_element(
        of->words == nullptr ? at + n * PANEL_ROW + k * 2 : at + n / PANEL * panel + k * PANEL_ROW + n % PANEL * 2));
}
template <bool Half> static inline void wgmma_together(void **lanes, unsigned) {
    const wgmma_operands *of = static_cast<const wgmma_operands *>(lanes[0]);
    double a[16][16], b[16];
    wgmma_open<Half>(lanes, a);
    for (int n = 0; n < of->n; n++) {
        for (uintptr_t k = 0; k < 16; k++) b[k] = wgmma_b<Half>(of, k, static_cast<uintptr_t>(n));
        for (int row = 0; row < 16; row++) {
            const wgmma_operands *to = static_cast<const wgmma_operands *>(lanes[row % 8 * 4 + n % 8 / 2]);
            float *d = to->d + n / 8 * 4 + row / 8 * 2 + n % 2;
            double sum = 0;
            for (int k = 0; k < 16; k++) sum += a[row][k] * b[k];
            *d = emulator_matrix_sum((to->accumulate != 0 ? static_cast<double>(*d) : 0) + sum);
        }
    }
}
template <int SUMS>
static inline void wgmma_tiles(float (&d)[SUMS], uint64_t a, uint64_t b, int accumulate, const bf16 *) {
    wgmma_operands mine = {d, nullptr, a, b, accumulate, SUMS * 2};
    emulator_meet(~0u, "wgmma", &mine, wgmma_together<false>);
}
template <int SUMS>
static inline void wgmma_tiles(float (&d)[SUMS], uint64_t a, uint64_t b, int accumulate, const f16 *) {
    wgmma_operands mine = {d, nullptr, a, b, accumulate, SUMS * 2};
    emulator_meet(~0u, "wgmma", &mine, wgmma_together<true>);
}
template <int SUMS>
static inline void wgmma_rows(float (&d)[SUMS], const uint32_t *a, uint64_t b, int accumulate, const bf16 *) {
    wgmma_operands mine = {d, a, 0, b, accumulate, SUMS * 2};
    emulator_meet(~0u, "wgmma", &mine, wgmma_together<false>);
}
template <int SUMS>
static inline void wgmma_rows(float (&d)[SUMS], const uint32_t *a, uint64_t b, int accumulate, const f16 *) {
    wgmma_operands mine = {d, a, 0, b, accumulate, SUMS * 2};
    emulator_meet(~0u, "wgmma", &mine, wgmma_together<true>);
}

#endif
#endif
