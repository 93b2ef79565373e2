/* prefix.cu: see prefix.h. A warp processes a query of one head and loops over the keys in order; each lane has every
 * 32nd element of the head. Queries are rotated rather than keys: (R q) k is q (R^-1 k).
 *
 * The backward has two passes. First, a warp per query computes the query's gradient and stores probabilities and score
 * gradients. Then a block sums, for a few keys, the terms of a run of rows in the order of rows and heads. Runs are
 * added in order. */
#include "prefix.h"

#include "cells.cuh"
#include "teams.cuh"

#define BLOCK 128
#define EACH  (PREFIX_HEAD / WARP)
#define KEYS  8  /* per block of sums */
#define RUNS  32 /* maximum */
#define ROWS  16 /* minimum per run */

/* Returns element i of a head, rotated by the angles, or back. Divides by the common factor of cosines and sines, which
 * is not part of the rotation. */
template <typename T>
static __device__ __forceinline__ float turned(const prefix_call &c, const T *head, int64_t i, float back) {
    const float x = words<T>::get(head[i]);
    if (c.turn == nullptr || i >= 2 * c.half) return x;
    const int64_t pair = i % c.half;
    const float cosine = c.turn[pair], sine = c.turn[c.half + pair], length = sqrtf(cosine * cosine + sine * sine);
    const float other = words<T>::get(head[i < c.half ? i + c.half : i - c.half]);
    return (x * cosine + (i < c.half ? -back : back) * other * sine) / length;
}

struct place {
    int64_t at, kv, lse; /* offset of the head's first element in q; of its key 0 in k; in lse */
    int64_t index;       /* of the row and head */
    bool there;
    int lane;
};

static __device__ __forceinline__ place place_of_warp(const prefix_call &c) {
    place p;
    p.index = (static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x) / WARP;
    p.there = p.index < c.rows * c.heads;
    const int64_t index = p.there ? p.index : 0, row = index / c.heads, head = index % c.heads;
    p.lane = static_cast<int>(threadIdx.x) % WARP;
    p.at = index * c.head_dim;
    p.kv = head / (c.heads / c.kv_heads) * c.head_dim;
    p.lse = (row / c.length * c.heads + head) * c.length + row % c.length;
    return p;
}

/* Returns the dot product of this lane's elements with a key, summed over all lanes. */
template <typename T>
static __device__ __forceinline__ float dot(const prefix_call &c, const float *mine, const T *with, int lane) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (lane + i * WARP < c.head_dim) sum += mine[i] * words<T>::get(with[lane + i * WARP]);
    return lanes_sum(sum, WARP);
}

template <typename T, bool> static __global__ void __launch_bounds__(BLOCK) attend(const prefix_call c) {
    const place p = place_of_warp(c);
    const int64_t ld = c.kv_heads * c.head_dim;
    float q[EACH], o[EACH], maximum = -INFINITY, sum = 0.0f;
    if (c.join) maximum = c.lse[p.lse], sum = 1.0f;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int64_t e = p.lane + i * WARP;
        const bool there = e < c.head_dim;
        q[i] = there ? turned(c, static_cast<const T *>(c.q) + p.at, e, 1.0f) * c.scale : 0.0f;
        o[i] = there && c.join ? words<T>::get(static_cast<const T *>(c.o)[p.at + e]) : 0.0f;
    }
    for (int64_t key = 0; key < c.places; key++) {
        const float score = dot(c, q, static_cast<const T *>(c.k) + key * ld + p.kv, p.lane);
        const float most = fmaxf(maximum, score), old = expf(maximum - most), weight = expf(score - most);
        const T *v = static_cast<const T *>(c.v) + key * ld + p.kv;
        maximum = most;
        sum = sum * old + weight;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (p.lane + i * WARP < c.head_dim) o[i] = o[i] * old + weight * words<T>::get(v[p.lane + i * WARP]);
    }
    if (!p.there) return;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (p.lane + i * WARP < c.head_dim) static_cast<T *>(c.o)[p.at + p.lane + i * WARP] = words<T>::put(o[i] / sum);
    if (c.lse != nullptr && p.lane == 0) c.lse[p.lse] = maximum + logf(sum);
}

static dim3 warps(const prefix_call *c) {
    return dim3(static_cast<unsigned>(blocks_for(c->rows * c->heads * WARP, BLOCK)));
}

extern "C" cudaError_t prefix_launch(const prefix_call *call, cudaStream_t stream) {
    if (call->rows == 0) return cudaSuccess;
    LAUNCH_CELLS(attend, call->dtype, false, warps(call), BLOCK, 0, stream, *call);
    return cudaGetLastError();
}

/* ---- backward ---- */

template <typename T, bool> static __global__ void __launch_bounds__(BLOCK) query_gradients(const prefix_call c) {
    CUDA_SHARED(float, heads, [BLOCK / WARP][PREFIX_HEAD]);
    const place p = place_of_warp(c);
    const int64_t ld = c.kv_heads * c.head_dim;
    float *const head = heads[threadIdx.x / WARP];
    const float lse = c.lse[p.lse];
    float q[EACH], d_o[EACH], dq[EACH] = {0.0f}, delta = 0.0f;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int64_t e = p.lane + i * WARP;
        const bool there = e < c.head_dim;
        q[i] = there ? turned(c, static_cast<const T *>(c.q) + p.at, e, 1.0f) * c.scale : 0.0f;
        d_o[i] = there ? words<T>::get(static_cast<const T *>(c.d_o)[p.at + e]) : 0.0f;
        if (there) delta += d_o[i] * words<T>::get(static_cast<const T *>(c.o)[p.at + e]);
    }
    delta = lanes_sum(delta, WARP);
    for (int64_t key = 0; key < c.places; key++) {
        const T *k = static_cast<const T *>(c.k) + key * ld + p.kv;
        const float weight = expf(dot(c, q, k, p.lane) - lse);
        const float slope = weight * (dot(c, d_o, static_cast<const T *>(c.v) + key * ld + p.kv, p.lane) - delta);
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (p.lane + i * WARP < c.head_dim) dq[i] += slope * words<T>::get(k[p.lane + i * WARP]);
        if (p.there && p.lane == 0) {
            c.weights[p.index * c.places + key] = weight;
            c.slopes[p.index * c.places + key] = slope;
        }
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) head[p.lane + i * WARP] = dq[i] * c.scale;
    __syncwarp();
    if (!p.there || c.dq == nullptr) return;
    for (int64_t e = p.lane; e < c.head_dim; e += WARP) {
        T *const to = static_cast<T *>(c.dq) + p.at + e;
        float v = turned(c, head, e, -1.0f);
        if (c.accumulate_dq) v += words<T>::get(*to);
        *to = words<T>::put(v);
    }
}

extern "C" int64_t prefix_runs(int64_t rows) {
    const int64_t runs = (rows + ROWS - 1) / ROWS;
    return runs < RUNS ? runs : RUNS;
}

/* Block (x, y, z): keys [x KEYS, x KEYS + KEYS), run y, key head z; a thread has one element of the head. */
template <typename T, bool> static __global__ void __launch_bounds__(PREFIX_HEAD) key_gradients(const prefix_call c) {
    const int64_t first = static_cast<int64_t>(blockIdx.x) * KEYS, run = blockIdx.y, runs = gridDim.y, kv = blockIdx.z;
    const int64_t begin = c.rows * run / runs, end = c.rows * (run + 1) / runs, group = c.heads / c.kv_heads;
    const int64_t e = threadIdx.x;
    float dk[KEYS] = {0.0f}, dv[KEYS] = {0.0f};
    if (e >= c.head_dim) return;
    for (int64_t row = begin; row < end; row++) {
        for (int64_t head = kv * group; head < (kv + 1) * group; head++) {
            const int64_t index = row * c.heads + head, at = index * c.head_dim, weight = index * c.places + first;
            const float q = turned(c, static_cast<const T *>(c.q) + at, e, 1.0f) * c.scale;
            const float d_o = words<T>::get(static_cast<const T *>(c.d_o)[at + e]);
#pragma unroll
            for (int j = 0; j < KEYS; j++) {
                if (first + j < c.places) {
                    dk[j] += c.slopes[weight + j] * q;
                    dv[j] += c.weights[weight + j] * d_o;
                }
            }
        }
    }
#pragma unroll
    for (int j = 0; j < KEYS; j++) {
        const int64_t to = ((run * c.places + first + j) * c.kv_heads + kv) * c.head_dim + e;
        if (first + j < c.places) c.key_runs[to] = dk[j], c.value_runs[to] = dv[j];
    }
}

/* Adds the runs in order; block y: keys or values. */
template <typename T, bool>
static __global__ void __launch_bounds__(BLOCK) add_key_runs(const prefix_call c, int64_t runs) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x, n = c.places * c.kv_heads * c.head_dim;
    const float *from = blockIdx.y == 0 ? c.key_runs : c.value_runs;
    float sum = 0.0f;
    if (i >= n) return;
    for (int64_t r = 0; r < runs; r++) sum += from[r * n + i];
    static_cast<T *>(blockIdx.y == 0 ? c.dk : c.dv)[i] = words<T>::put(sum);
}

extern "C" cudaError_t prefix_backward_launch(const prefix_call *call, cudaStream_t stream) {
    const int64_t runs = prefix_runs(call->rows), n = call->places * call->kv_heads * call->head_dim;
    const int threads = static_cast<int>(blocks_for(call->head_dim, WARP) * WARP);
    if (call->rows > 0) {
        const dim3 grid(static_cast<unsigned>(blocks_for(call->places, KEYS)), static_cast<unsigned>(runs),
                        static_cast<unsigned>(call->kv_heads));
        LAUNCH_CELLS(query_gradients, call->dtype, false, warps(call), BLOCK, 0, stream, *call);
        if (const cudaError_t code = cudaGetLastError()) return code;
        LAUNCH_CELLS(key_gradients, call->dtype, false, grid, threads, 0, stream, *call);
        if (const cudaError_t code = cudaGetLastError()) return code;
    }
    LAUNCH_CELLS(add_key_runs, call->dtype, false, dim3(static_cast<unsigned>(blocks_for(n, BLOCK)), 2), BLOCK, 0,
                 stream, *call, runs);
    return cudaGetLastError();
}
