/* attention_backward.cu: gradients of q, k and v; probabilities are recomputed from lse.
 *
 * With p = exp(s - lse), ds = p (do v^T - delta), delta = sum(do o) per query, and a cap's slope on ds:
 *     dv = p^T do,  dk = scale ds^T q,  dq = scale ds k.
 * There are two passes without atomics. In each one, every result has one writer and a fixed order of its sums. A block
 * of the first pass has a tile of queries and loops over keys, as in the forward. A block of the second pass has a tile
 * of keys. It loops over the queries that see some of them, for each head that shares the keys. */
#include "attention_places.cuh"

/* A block holds two tiles of its own rows (q and do, or k and v) and two tiles of loaded rows. HALVES: dk and dv exceed
 * the registers together, so each has its own launch. */
template <typename T, int D> struct backward_shape {
    enum { WARPS = D > 128 ? 1 : D > 64 ? 2 : 4, TAKEN = D > 128 ? 16 : 32, STAGES = 1, HALVES = D > 128 };
};
template <int D> struct backward_shape_of_halves {
    enum { WARPS = D > 128 ? 2 : 4, TAKEN = D > 128 ? 16 : D > 64 ? 32 : 64, STAGES = 2, HALVES = D > 128 };
};
template <int D> struct backward_shape<bf16, D> : backward_shape_of_halves<D> {};
template <int D> struct backward_shape<f16, D> : backward_shape_of_halves<D> {};
/* lse, delta and the first key of each loaded query. */
template <typename T, int D> struct query_numbers {
    enum { N = backward_shape<T, D>::TAKEN };
    float lse[N], delta[N];
    int first[N];
};
template <typename T, int D> struct backward_memory {
    typedef backward_shape<T, D> shape;
    enum {
        ROWS = shape::WARPS * WARP_ROWS,
        PITCH = tile<T, D>::PITCH,
        SECOND = ROWS * PITCH, /* elements: offset of v or do of the block's own rows */
        STAGES_AT = 2 * SECOND,
        TAKEN_SECOND = shape::TAKEN * PITCH,
        STAGE = 2 * TAKEN_SECOND,
        SCRATCH_AT = STAGES_AT + shape::STAGES * STAGE,
        NUMBERS_AT = SCRATCH_AT * sizeof(T) + shape::WARPS * scratch<T, shape::TAKEN>::SIZE * 4, /* bytes */
        ENDS_AT = NUMBERS_AT + shape::STAGES * sizeof(query_numbers<T, D>), /* of the queries that see a key */
        BYTES = ENDS_AT + 2 * sizeof(int)
    };
    static_assert(BYTES <= 99 * 1024, "the shared memory limit of a block on every GPU since 8.0");
};

template <typename T> static __device__ __forceinline__ const T *cells(const void *operand, int64_t at) {
    return static_cast<const T *>(operand) + at;
}

/* ---- delta ---- */

/* Lanes per query: one per 8 elements of a head, rounded up to a power of two. */
template <typename T, int D>
static __global__ void __launch_bounds__(128) attention_delta(const attention_call c, bool wide) {
    enum { EACH = 8, LANES = D > 128 ? 32 : D > 64 ? 16 : D > 32 ? 8 : 4 };
    const int64_t row = (static_cast<int64_t>(blockIdx.x) * 128 + threadIdx.x) / LANES;
    const int64_t head = row % c.heads, place = row / c.heads;
    const bool there = row < c.batch * c.length * c.heads;
    const int64_t at = lane_index() % LANES * EACH, d = there ? c.head_dim : 0;
    float a[EACH], b[EACH], sum = 0;
    if (wide) {
        load<true>(a, cells<T>(c.d_o, row * c.head_dim), at, d);
        load<true>(b, cells<T>(c.o, row * c.head_dim), at, d);
    } else {
        load<false>(a, cells<T>(c.d_o, row * c.head_dim), at, d);
        load<false>(b, cells<T>(c.o, row * c.head_dim), at, d);
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) sum += a[i] * b[i];
#pragma unroll
    for (int mask = 1; mask < LANES; mask *= 2) sum += __shfl_xor_sync(~0u, sum, mask);
    if (there && at == 0) c.delta[number_at(c, place / c.length, place % c.length, head)] = sum;
}

/* ---- dq ---- */

/* Converts the products q k^T in `s` to score gradients, with the products do v^T in `dp`. */
template <typename T, int N>
static __device__ __forceinline__ void score_gradients(const attention_call &c, const row_places<T> &places, int key,
                                                       const float *lse, const float *delta, float (&s)[N / 2],
                                                       const float (&dp)[N / 2]) {
    const bool all = see_all(places, key, N);
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        const score x = score_of(c, s[i]);
        const float p = all || sees(places, i, key) ? power_of_two(x.exponent - lse[lanes<T>::slot(i)]) : 0;
        s[i] = p * (dp[i] - delta[lanes<T>::slot(i)]) * x.slope;
    }
}

template <typename T, int D>
static __device__ __forceinline__ void load_taken_keys(const attention_call &c, T *stage, int64_t batch,
                                                       int64_t kv_head, int key, int high, bool wide) {
    enum { TAKEN = backward_shape<T, D>::TAKEN, THREADS = backward_shape<T, D>::WARPS * 32 };
    const int64_t at = key_at(c, batch, key, kv_head), ld = c.kv_heads * c.head_dim;
    tile_load<T, D, TAKEN, THREADS>(stage, cells<T>(c.k, at), ld, high - key, c.head_dim, wide);
    tile_load<T, D, TAKEN, THREADS>(stage + backward_memory<T, D>::TAKEN_SECOND, cells<T>(c.v, at), ld, high - key,
                                    c.head_dim, wide);
}

template <typename T, int D>
static __global__ void __launch_bounds__(backward_shape<T, D>::WARPS * 32)
    attention_backward_queries(const attention_call c, bool wide) {
    typedef backward_shape<T, D> shape;
    typedef backward_memory<T, D> memory;
    enum { TAKEN = shape::TAKEN, STAGES = shape::STAGES, THREADS = shape::WARPS * 32, ROWS = memory::ROWS };
    CUDA_SHARED_DYNAMIC(T, shared);
    const int tiles = static_cast<int>((c.length + ROWS - 1) / ROWS), heads = static_cast<int>(c.heads);
    const int from = (tiles - 1 - static_cast<int>(blockIdx.x) % tiles) * ROWS;
    const int column = static_cast<int>(blockIdx.x) / tiles, batch = column / heads, head = column % heads;
    const int kv_head = head / (heads / static_cast<int>(c.kv_heads));
    const int n = min(ROWS, static_cast<int>(c.length) - from), past = past_of(c), high = past + from + n;
    const int own = warp_index() * WARP_ROWS, own_high = past + from + min(n, own + WARP_ROWS);
    const row_places<T> places = places_of<T>(c, batch, from + own, n - own, past);
    const key_tiles seen = tiles_seen<TAKEN>(c, batch, from, n, past);
    const int64_t query_ld = c.heads * c.head_dim, at = query_at(c, batch, from, head);
    T *const own_rows = shared + own * memory::PITCH, *const stages = shared + memory::STAGES_AT;
    float *const room = reinterpret_cast<float *>(shared + memory::SCRATCH_AT) + warp_index() * scratch<T, TAKEN>::SIZE;
    float lse[lanes<T>::ROWS], delta[lanes<T>::ROWS], factor[lanes<T>::ROWS], dq[D / 2];
    left_rows<T, D, false> q, d_o;
#pragma unroll
    for (int slot = 0; slot < lanes<T>::ROWS; slot++) {
        const bool there = own + lanes<T>::row(slot) < n;
        const int64_t number = number_at(c, batch, from + own + lanes<T>::row(slot), head);
        lse[slot] = there ? c.lse[number] * LOG2_E : 0;
        delta[slot] = there ? c.delta[number] : 0;
        factor[slot] = past < 0 ? NAN : c.scale;
    }
#pragma unroll
    for (int i = 0; i < D / 2; i++) dq[i] = 0;
    tile_load<T, D, ROWS, THREADS>(shared, cells<T>(c.q, at), query_ld, n, c.head_dim, wide);
    tile_load<T, D, ROWS, THREADS>(shared + memory::SECOND, cells<T>(c.d_o, at), query_ld, n, c.head_dim, wide);
    if (seen.begin < seen.end) load_taken_keys<T, D>(c, stages, batch, kv_head, seen.begin * TAKEN, high, wide);
    q.take(own_rows);
    d_o.take(own_rows + memory::SECOND);
    for (int i = seen.begin; i < seen.end; i++) {
        T *const stage = stages + (i - seen.begin) % STAGES * memory::STAGE;
        T *const next = stages + (i - seen.begin + 1) % STAGES * memory::STAGE;
        const int key = i * TAKEN;
        float s[TAKEN / 2], dp[TAKEN / 2];
        if (STAGES == 1 && i > seen.begin) {
            __syncthreads(); /* all threads are done with the previous tile */
            load_taken_keys<T, D>(c, stage, batch, kv_head, key, high, wide);
        }
        copy_async_wait();
        __syncthreads();
        if (STAGES == 2 && i + 1 < seen.end) load_taken_keys<T, D>(c, next, batch, kv_head, key + TAKEN, high, wide);
        if (key >= own_high || own >= n) continue;
        scores<TAKEN>(s, q, stage);
        scores<TAKEN>(dp, d_o, stage + memory::TAKEN_SECOND);
        score_gradients<T, TAKEN>(c, places, key, lse, delta, s, dp);
        add_products<TAKEN, D>(dq, s, stage, room);
    }
    copy_async_wait();
    __syncthreads(); /* if no key is seen, the query copies may still be in flight */
    sums_store<T, D>(own_rows, dq, factor, static_cast<T *>(c.dq) + query_at(c, batch, from + own, head), query_ld,
                     n - own, c.head_dim, wide);
}

/* ---- dk and dv ---- */

template <typename T, int D>
static __device__ __forceinline__ void load_taken_queries(const attention_call &c, T *stage, query_numbers<T, D> *to,
                                                          int64_t batch, int64_t head, int from, int past, bool wide) {
    enum { TAKEN = backward_shape<T, D>::TAKEN, THREADS = backward_shape<T, D>::WARPS * 32 };
    const int64_t at = query_at(c, batch, from, head), ld = c.heads * c.head_dim;
    const int n = static_cast<int>(c.length) - from;
    tile_load<T, D, TAKEN, THREADS>(stage, cells<T>(c.q, at), ld, n, c.head_dim, wide);
    tile_load<T, D, TAKEN, THREADS>(stage + backward_memory<T, D>::TAKEN_SECOND, cells<T>(c.d_o, at), ld, n, c.head_dim,
                                    wide);
    for (int i = static_cast<int>(threadIdx.x); i < TAKEN; i += THREADS) {
        const int64_t number = number_at(c, batch, from + i, head);
        to->lse[i] = i < n ? c.lse[number] * LOG2_E : 0;
        to->delta[i] = i < n ? c.delta[number] : 0;
        to->first[i] = i < n ? first_seen(c, past + from + i, c.starts[batch * c.length + from + i]) : INT_MAX;
    }
}

/* Converts the products k q^T in `s` to probabilities, and to those times a cap's slopes. key: of the warp's first row;
 * place: of the first query. */
template <typename T, int D, int N = backward_shape<T, D>::TAKEN>
static __device__ __forceinline__ void probabilities(const attention_call &c, const query_numbers<T, D> &of, int key,
                                                     int place, float (&s)[N / 2], float (&sloped)[N / 2]) {
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        const int query = lanes<T>::column(i), at = key + lanes<T>::row(lanes<T>::slot(i));
        const score x = score_of(c, s[i]);
        const bool seen = at >= of.first[query] && at <= place + query;
        s[i] = seen ? power_of_two(x.exponent - of.lse[query]) : 0;
        sloped[i] = s[i] * x.slope;
    }
}

/* Computes dk, dv or both. */
template <typename T, int D, bool DK, bool DV>
static __global__ void __launch_bounds__(backward_shape<T, D>::WARPS * 32)
    attention_backward_keys(const attention_call c, bool wide) {
    typedef backward_shape<T, D> shape;
    typedef backward_memory<T, D> memory;
    enum { TAKEN = shape::TAKEN, STAGES = shape::STAGES, THREADS = shape::WARPS * 32, ROWS = memory::ROWS };
    CUDA_SHARED_DYNAMIC(T, shared);
    const int tiles = static_cast<int>((c.rows + ROWS - 1) / ROWS), kv_heads = static_cast<int>(c.kv_heads);
    const int key = static_cast<int>(blockIdx.x) % tiles * ROWS, column = static_cast<int>(blockIdx.x) / tiles;
    const int batch = column / kv_heads, kv_head = column % kv_heads, group = static_cast<int>(c.heads) / kv_heads;
    const int n = min(ROWS, static_cast<int>(c.rows) - key), past = past_of(c);
    const int own = warp_index() * WARP_ROWS;
    const query_range range =
        queries_that_see(c, reinterpret_cast<int *>(reinterpret_cast<unsigned char *>(shared) + memory::ENDS_AT), batch,
                         key, n, past);
    const int begin = range.low / TAKEN, span = range.low < range.high ? (range.high + TAKEN - 1) / TAKEN - begin : 0;
    const int64_t key_ld = c.kv_heads * c.head_dim, at = key_at(c, batch, key, kv_head);
    const int64_t own_at = key_at(c, batch, key + own, kv_head);
    T *const own_rows = shared + own * memory::PITCH, *const stages = shared + memory::STAGES_AT;
    float *const room = reinterpret_cast<float *>(shared + memory::SCRATCH_AT) + warp_index() * scratch<T, TAKEN>::SIZE;
    query_numbers<T, D> *const numbers =
        reinterpret_cast<query_numbers<T, D> *>(reinterpret_cast<unsigned char *>(shared) + memory::NUMBERS_AT);
    float factor[lanes<T>::ROWS], dk[D / 2], dv[D / 2];
    left_rows<T, D, false> k, v;
#pragma unroll
    for (int i = 0; i < D / 2; i++) dk[i] = dv[i] = 0;
    tile_load<T, D, ROWS, THREADS>(shared, cells<T>(c.k, at), key_ld, n, c.head_dim, wide);
    if (DK) tile_load<T, D, ROWS, THREADS>(shared + memory::SECOND, cells<T>(c.v, at), key_ld, n, c.head_dim, wide);
    if (span > 0) {
        load_taken_queries<T, D>(c, stages, numbers, batch, kv_head * group, begin * TAKEN, past, wide);
    }
    k.take(own_rows);
    v.take(own_rows + memory::SECOND);
    for (int i = 0, from = begin * TAKEN, head = kv_head * group; i < group * span; i++) {
        const bool ends = from + TAKEN >= range.high;
        const int now = from, of_head = head;
        T *const stage = stages + i % STAGES * memory::STAGE, *const next = stages + (i + 1) % STAGES * memory::STAGE;
        float s[TAKEN / 2], ds[TAKEN / 2];
        const query_numbers<T, D> &of = numbers[i % STAGES];
        if (STAGES == 1 && i > 0) {
            __syncthreads(); /* all threads are done with the previous tile */
            load_taken_queries<T, D>(c, stage, numbers, batch, of_head, now, past, wide);
        }
        copy_async_wait();
        __syncthreads();
        from = ends ? begin * TAKEN : from + TAKEN;
        head += ends;
        if (STAGES == 2 && i + 1 < group * span) {
            load_taken_queries<T, D>(c, next, numbers + (i + 1) % STAGES, batch, head, from, past, wide);
        }
        if (key + own > past + now + TAKEN - 1 || own >= n) continue;
        scores<TAKEN>(s, k, stage);
        probabilities<T, D>(c, of, key + own, past + now, s, ds);
        if (DV) add_products<TAKEN, D>(dv, s, stage + memory::TAKEN_SECOND, room);
        if (!DK) continue;
        scores<TAKEN>(s, v, stage + memory::TAKEN_SECOND);
#pragma unroll
        for (int j = 0; j < TAKEN / 2; j++) ds[j] *= s[j] - of.delta[lanes<T>::column(j)];
        add_products<TAKEN, D>(dk, ds, stage, room);
    }
    copy_async_wait();
    __syncthreads(); /* if no query sees them, the key copies may still be in flight */
#pragma unroll
    for (int slot = 0; slot < lanes<T>::ROWS; slot++) factor[slot] = past < 0 ? NAN : c.scale;
    if (DK && c.dk != NULL) {
        sums_store<T, D>(own_rows, dk, factor, static_cast<T *>(c.dk) + own_at, key_ld, n - own, c.head_dim, wide);
    }
#pragma unroll
    for (int slot = 0; slot < lanes<T>::ROWS; slot++) factor[slot] = past < 0 ? NAN : 1;
    if (DV && c.dv != NULL) {
        sums_store<T, D>(own_rows, dv, factor, static_cast<T *>(c.dv) + own_at, key_ld, n - own, c.head_dim, wide);
    }
}

/* ---- launchers ---- */

template <typename T> static bool is_wide_backward(const attention_call *c) {
    return rows_are_wide<T>(c) && is_wide(c->q, c->k, c->v, c->o, c->d_o, c->dq, c->dk, c->dv);
}

template <typename T, int D> static cudaError_t launch_delta(const attention_call *call, cudaStream_t stream) {
    enum { LANES = D > 128 ? 32 : D > 64 ? 16 : D > 32 ? 8 : 4 };
    const int64_t blocks = blocks_for(call->batch * call->length * call->heads, 128 / LANES);
    CUDA_LAUNCH((attention_delta<T, D>), dim3(static_cast<unsigned>(blocks)), dim3(128), 0, stream, *call,
                is_wide_backward<T>(call));
    return cudaGetLastError();
}

template <typename T, int D> static cudaError_t launch_queries(const attention_call *call, cudaStream_t stream) {
    typedef backward_memory<T, D> memory;
    const int64_t blocks = call->batch * call->heads * blocks_for(call->length, memory::ROWS);
    const cudaError_t code = allow_shared(attention_backward_queries<T, D>, memory::BYTES);
    if (code != cudaSuccess) return code;
    CUDA_LAUNCH((attention_backward_queries<T, D>), dim3(static_cast<unsigned>(blocks)),
                dim3(backward_shape<T, D>::WARPS * 32), memory::BYTES, stream, *call, is_wide_backward<T>(call));
    return cudaGetLastError();
}

template <typename T, int D, bool DK, bool DV>
static cudaError_t launch_keys_of(const attention_call *call, cudaStream_t stream) {
    typedef backward_memory<T, D> memory;
    const int64_t blocks = call->batch * call->kv_heads * blocks_for(call->rows, memory::ROWS);
    const cudaError_t code = allow_shared(attention_backward_keys<T, D, DK, DV>, memory::BYTES);
    if (code != cudaSuccess) return code;
    CUDA_LAUNCH((attention_backward_keys<T, D, DK, DV>), dim3(static_cast<unsigned>(blocks)),
                dim3(backward_shape<T, D>::WARPS * 32), memory::BYTES, stream, *call, is_wide_backward<T>(call));
    return cudaGetLastError();
}
template <typename T, int D> static cudaError_t launch_keys(const attention_call *call, cudaStream_t stream) {
    enum { HALVES = backward_shape<T, D>::HALVES };
    cudaError_t code = cudaSuccess;
    if (!HALVES) return launch_keys_of<T, D, true, !HALVES>(call, stream);
    if (call->dk != NULL) code = launch_keys_of<T, D, true, !HALVES>(call, stream);
    if (call->dv != NULL && code == cudaSuccess) code = launch_keys_of<T, D, !HALVES, true>(call, stream);
    return code;
}

extern "C" cudaError_t attention_delta_launch(const attention_call *call, cudaStream_t stream) {
    if (call->batch == 0 || call->length == 0) return cudaSuccess;
    ATTENTION_OF_HEAD(launch_delta, call, stream);
}

extern "C" cudaError_t attention_backward_queries_launch(const attention_call *call, cudaStream_t stream) {
    if (call->batch == 0 || call->length == 0 || call->dq == NULL) return cudaSuccess;
    ATTENTION_OF_HEAD(launch_queries, call, stream);
}

extern "C" cudaError_t attention_backward_keys_launch(const attention_call *call, cudaStream_t stream) {
    if (call->batch == 0 || call->rows == 0 || (call->dk == NULL && call->dv == NULL)) return cudaSuccess;
    ATTENTION_OF_HEAD(launch_keys, call, stream);
}
