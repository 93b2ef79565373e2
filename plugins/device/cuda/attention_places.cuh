/* attention_places.cuh: the visible keys of a query, row offsets, and the conversion of scores. */
#ifndef WEFT_DEVICE_CUDA_ATTENTION_PLACES_CUH
#define WEFT_DEVICE_CUDA_ATTENTION_PLACES_CUH

#include "attention_tiles.cuh"
#include "kernels.h"

/* Returns the number of cached positions, or -1 if the new ones do not fit after them: nothing is read or written
 * then. */
static __device__ __forceinline__ int past_of(const attention_call &c) {
    const int64_t past = c.past == NULL ? 0 : *c.past;
    return past < 0 || past > c.rows - c.length ? -1 : static_cast<int>(past);
}

/* Returns the first key that the query at `place` sees; the last one is its own. */
static __device__ __forceinline__ int first_seen(const attention_call &c, int place, int32_t start) {
    const int near = c.window > 0 ? place - c.window + 1 : 0;
    return max(max(near, 0), start);
}

/* Return the element offset of a row in q's layout, and in k's. */
static __device__ __forceinline__ int64_t query_at(const attention_call &c, int64_t batch, int64_t query,
                                                   int64_t head) {
    return ((batch * c.length + query) * c.heads + head) * c.head_dim;
}
static __device__ __forceinline__ int64_t key_at(const attention_call &c, int64_t batch, int64_t key, int64_t kv_head) {
    return ((batch * c.rows + key) * c.kv_heads + kv_head) * c.head_dim;
}
static __device__ __forceinline__ int64_t number_at(const attention_call &c, int64_t batch, int64_t query,
                                                    int64_t head) {
    return (batch * c.heads + head) * c.length + query;
}

/* A score as the softmax's exponent of two, and the cap's slope at it. */
struct score {
    float exponent, slope;
};
static __device__ __forceinline__ score score_of(const attention_call &c, float product) {
    if (c.cap_exponent > 0) {
        const float x = tanhf(product * c.to_cap);
        return {x * c.cap_exponent, 1 - x * x};
    }
    return {product * c.to_exponent, 1};
}

/* Visible keys of the queries in this lane's rows. */
template <typename T> struct row_places {
    int first[lanes<T>::ROWS], last[lanes<T>::ROWS]; /* visible keys; an empty range in rows beyond n */
};
template <typename T>
static __device__ __forceinline__ row_places<T> places_of(const attention_call &c, int64_t batch, int from, int n,
                                                          int past) {
    row_places<T> p;
#pragma unroll
    for (int slot = 0; slot < lanes<T>::ROWS; slot++) {
        const int query = from + lanes<T>::row(slot);
        const bool there = past >= 0 && lanes<T>::row(slot) < n;
        p.first[slot] = there ? first_seen(c, past + query, c.starts[batch * c.length + query]) : INT_MAX;
        p.last[slot] = there ? past + query : -1;
    }
    return p;
}
/* True if all rows of this lane see all keys [key, key + keys). */
template <typename T> static __device__ __forceinline__ bool see_all(const row_places<T> &p, int key, int keys) {
    bool all = true;
#pragma unroll
    for (int slot = 0; slot < lanes<T>::ROWS; slot++) all &= p.first[slot] <= key && p.last[slot] >= key + keys - 1;
    return all;
}
template <typename T> static __device__ __forceinline__ bool sees(const row_places<T> &p, int i, int key) {
    const int slot = lanes<T>::slot(i), at = key + lanes<T>::column(i);
    return at >= p.first[slot] && at <= p.last[slot];
}

/* Tiles [begin, end) of N keys that some of the queries [from, from + n) see. Each warp computes them itself. */
struct key_tiles {
    int begin, end;
};
template <int N>
static __device__ __forceinline__ key_tiles tiles_seen(const attention_call &c, int64_t batch, int from, int n,
                                                       int past) {
    int low = INT_MAX;
    if (past < 0) return {0, 0};
    for (int i = lane_index(); i < n; i += 32)
        low = min(low, first_seen(c, past + from + i, c.starts[batch * c.length + from + i]));
    low = warp_minimum(low);
    return {low / N, low >= past + from + n ? 0 : (past + from + n + N - 1) / N};
}

/* Queries [low, high) that may see keys [key, key + keys) of a sequence. */
struct query_range {
    int low, high;
};
static __device__ __forceinline__ query_range queries_that_see(const attention_call &c, int *ends, int64_t batch,
                                                               int key, int keys, int past) {
    const int length = static_cast<int>(c.length);
    int low = INT_MAX, high = 0;
    if (threadIdx.x == 0) ends[0] = INT_MAX, ends[1] = 0;
    __syncthreads();
    for (int i = max(key - past, 0) + static_cast<int>(threadIdx.x); past >= 0 && i < length; i += blockDim.x) {
        if (first_seen(c, past + i, c.starts[batch * length + i]) >= key + keys) continue;
        low = min(low, i);
        high = i + 1;
    }
    low = warp_minimum(low);
    high = -warp_minimum(-high);
    if (lane_index() == 0) {
        atomicMin(&ends[0], low);
        atomicMax(&ends[1], high);
    }
    __syncthreads();
    return {ends[0], ends[1]};
}

/* ---- for launchers ---- */

/* True if rows of a head are aligned to 16 bytes whenever the operands are. */
template <typename T> static inline bool rows_are_wide(const attention_call *call) {
    return call->head_dim % words<T>::CELLS == 0;
}

template <typename Kernel> static cudaError_t allow_shared(Kernel *kernel, int bytes) {
    const cudaError_t code = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (code != cudaSuccess) cuda_note_call("cudaFuncSetAttribute");
    return code;
}

#define ATTENTION_OF_HALVES(T, launch, call, stream)                                                                   \
    return d <= 32    ? launch<T, 32>(call, stream)                                                                    \
           : d <= 64  ? launch<T, 64>(call, stream)                                                                    \
           : d <= 80  ? launch<T, 80>(call, stream)                                                                    \
           : d <= 96  ? launch<T, 96>(call, stream)                                                                    \
           : d <= 128 ? launch<T, 128>(call, stream)                                                                   \
                      : launch<T, 256>(call, stream)
/* Returns launch<T, D>(call, stream) for the smallest D that fits the head. */
#define ATTENTION_OF_HEAD(launch, call, stream)                                                                        \
    do {                                                                                                               \
        const int d = (call)->head_dim;                                                                                \
        if ((call)->dtype == WEFT_F32) {                                                                               \
            return d <= 32    ? launch<float, 32>(call, stream)                                                        \
                   : d <= 64  ? launch<float, 64>(call, stream)                                                        \
                   : d <= 96  ? launch<float, 96>(call, stream)                                                        \
                   : d <= 128 ? launch<float, 128>(call, stream)                                                       \
                              : launch<float, 256>(call, stream);                                                      \
        }                                                                                                              \
        if ((call)->dtype == WEFT_F16) ATTENTION_OF_HALVES(f16, launch, call, stream);                                 \
        ATTENTION_OF_HALVES(bf16, launch, call, stream);                                                               \
    } while (0)

#endif
