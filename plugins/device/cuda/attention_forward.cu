/* attention_forward.cu: causal attention in tiles of queries and keys (online softmax: Milakov and Gimelshein, arXiv
 * 1805.02867; Dao, arXiv 2307.08691).
 *
 * A block has a tile of queries of one head, 16 per warp. It loops over the tiles of keys in order and loads the next
 * tile asynchronously. A row's sums depend only on the keys it sees: masked keys add zeros, and a warp skips tiles
 * without visible keys. Blocks whose queries see many keys start first. */
#include "attention_places.cuh"

/* Kernel configuration. STAGES 2: double-buffered key tiles. HOLDS: queries are kept in registers, and the second stage
 * reuses their shared memory. BLOCKS: blocks per SM that fit by registers. */
template <typename T, int D> struct forward_shape {
    enum {
        WIDE_HEAD = D > 128,
        WARPS = WIDE_HEAD ? 2 : 4,
        KEYS = WIDE_HEAD ? 16 : 32,
        STAGES = 1,
        HOLDS = 0,
        BLOCKS = D > 96 ? 2 : 3
    };
};
template <int D> struct forward_shape_of_halves {
    enum {
        WIDE_HEAD = D > 128,
        WARPS = WIDE_HEAD ? 4 : 8,
        KEYS = WIDE_HEAD ? 16
               : D > 64  ? 64
                         : 32,
        STAGES = 2,
        HOLDS = D > 64 && !WIDE_HEAD,
        BLOCKS = D > 64 && !WIDE_HEAD ? 1 : 2
    };
};
template <int D> struct forward_shape<bf16, D> : forward_shape_of_halves<D> {};
template <int D> struct forward_shape<f16, D> : forward_shape_of_halves<D> {};
template <typename T, int D> struct forward_memory {
    typedef forward_shape<T, D> shape;
    enum {
        ROWS = shape::WARPS * WARP_ROWS,
        PITCH = tile<T, D>::PITCH,
        QUERIES = ROWS * PITCH,          /* elements */
        STAGE = 2 * shape::KEYS * PITCH, /* keys, then values */
        STAGES_AT = shape::HOLDS ? 0 : QUERIES,
        QUERIES_AT = shape::HOLDS ? STAGE : 0,
        SCRATCH_AT = STAGES_AT + shape::STAGES * STAGE,
        BYTES = SCRATCH_AT * sizeof(T) + shape::WARPS * scratch<T, shape::KEYS>::SIZE * 4
    };
    static_assert(!shape::HOLDS || QUERIES <= STAGE, "queries fit the second stage");
    static_assert(BYTES <= 99 * 1024, "the shared memory limit of a block on every GPU since 8.0");
};

/* A warp's state per row: maximum, sum of this lane's exponentials, and the weighted sum of values. */
template <typename T, int D> struct forward_rows { float maximum[lanes<T>::ROWS], sum[lanes<T>::ROWS], values[D / 2]; };
template <typename T, int D> static __device__ __forceinline__ void begin_rows(forward_rows<T, D> &rows) {
#pragma unroll
    for (int slot = 0; slot < lanes<T>::ROWS; slot++) rows.maximum[slot] = -INFINITY, rows.sum[slot] = 0;
#pragma unroll
    for (int i = 0; i < D / 2; i++) rows.values[i] = 0;
}

/* Converts products to exponents of two; -inf for invisible keys. */
template <typename T, int N>
static __device__ __forceinline__ void mask_scores(const attention_call &c, const row_places<T> &places,
                                                   float (&s)[N / 2], int key) {
#pragma unroll
    for (int i = 0; i < N / 2; i++) s[i] = score_of(c, s[i]).exponent;
    if (see_all(places, key, N)) return;
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        if (!sees(places, i, key)) s[i] = -INFINITY;
}

/* Converts exponents to unnormalized probabilities, and rescales the earlier sums to the new maximum. */
template <typename T, int D, int N>
static __device__ __forceinline__ void softmax(forward_rows<T, D> &rows, float (&s)[N / 2]) {
    float decay[lanes<T>::ROWS], base[lanes<T>::ROWS];
#pragma unroll
    for (int slot = 0; slot < lanes<T>::ROWS; slot++) base[slot] = -INFINITY;
#pragma unroll
    for (int i = 0; i < N / 2; i++) base[lanes<T>::slot(i)] = fmaxf(base[lanes<T>::slot(i)], s[i]);
#pragma unroll
    for (int slot = 0; slot < lanes<T>::ROWS; slot++) {
        const float maximum = fmaxf(rows.maximum[slot], row_maximum<T>(base[slot]));
        base[slot] = maximum == -INFINITY ? 0 : maximum;
        decay[slot] = power_of_two(rows.maximum[slot] - base[slot]);
        rows.maximum[slot] = maximum;
        rows.sum[slot] *= decay[slot];
    }
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        s[i] = power_of_two(s[i] - base[lanes<T>::slot(i)]);
        rows.sum[lanes<T>::slot(i)] += s[i];
    }
#pragma unroll
    for (int i = 0; i < D / 2; i++) rows.values[i] *= decay[lanes<T>::sum_slot(i)];
}

/* factor: multiplier of the values. A row that sees no key becomes zeros; NaN if the new positions did not fit. */
template <typename T, int D>
static __device__ __forceinline__ void end_rows(forward_rows<T, D> &rows, float *factor, float *lse, int n, int past) {
#pragma unroll
    for (int slot = 0; slot < lanes<T>::ROWS; slot++) {
        const float sum = row_sum<T>(rows.sum[slot]);
        factor[slot] = past < 0 ? NAN : sum != 0 ? 1 / sum : 1;
        if (lse != NULL && lane_index() % lanes<T>::ACROSS == 0 && lanes<T>::row(slot) < n)
            lse[lanes<T>::row(slot)] = past < 0 ? NAN : (rows.maximum[slot] + log2f(sum)) * LN_2;
    }
}

template <typename T, int D>
static __device__ __forceinline__ void load_keys(const attention_call &c, T *stage, int64_t batch, int64_t kv_head,
                                                 int key, int high, bool wide) {
    enum { KEYS = forward_shape<T, D>::KEYS, THREADS = forward_shape<T, D>::WARPS * 32 };
    const int64_t at = key_at(c, batch, key, kv_head), ld = c.kv_heads * c.head_dim;
    tile_load<T, D, KEYS, THREADS>(stage, static_cast<const T *>(c.k) + at, ld, high - key, c.head_dim, wide);
    tile_load<T, D, KEYS, THREADS>(stage + KEYS * tile<T, D>::PITCH, static_cast<const T *>(c.v) + at, ld, high - key,
                                   c.head_dim, wide);
}

template <typename T, int D>
static __global__ void __launch_bounds__(forward_shape<T, D>::WARPS * 32, forward_shape<T, D>::BLOCKS)
    attention_forward(const attention_call c, bool wide) {
    typedef forward_shape<T, D> shape;
    typedef forward_memory<T, D> memory;
    enum { KEYS = shape::KEYS, STAGES = shape::STAGES, THREADS = shape::WARPS * 32, ROWS = memory::ROWS };
    CUDA_SHARED_DYNAMIC(T, shared);
    const int tiles = static_cast<int>((c.length + ROWS - 1) / ROWS), heads = static_cast<int>(c.heads);
    const int from = (tiles - 1 - static_cast<int>(blockIdx.x) % tiles) * ROWS;
    const int column = static_cast<int>(blockIdx.x) / tiles, batch = column / heads, head = column % heads;
    const int kv_head = head / (heads / static_cast<int>(c.kv_heads));
    const int n = min(ROWS, static_cast<int>(c.length) - from), past = past_of(c), high = past + from + n;
    const int own = warp_index() * WARP_ROWS, own_high = past + from + min(n, own + WARP_ROWS);
    const row_places<T> places = places_of<T>(c, batch, from + own, n - own, past);
    const key_tiles seen = tiles_seen<KEYS>(c, batch, from, n, past);
    const int64_t query_ld = c.heads * c.head_dim;
    T *const stages = shared + memory::STAGES_AT, *const queries = shared + memory::QUERIES_AT;
    float *const room = reinterpret_cast<float *>(shared + memory::SCRATCH_AT) + warp_index() * scratch<T, KEYS>::SIZE;
    float factor[lanes<T>::ROWS];
    forward_rows<T, D> rows;
    left_rows<T, D, shape::HOLDS> q;
    begin_rows<T, D>(rows);
    tile_load<T, D, ROWS, THREADS>(queries, static_cast<const T *>(c.q) + query_at(c, batch, from, head), query_ld, n,
                                   c.head_dim, wide);
    if (seen.begin < seen.end) load_keys<T, D>(c, stages, batch, kv_head, seen.begin * KEYS, high, wide);
    copy_async_wait();
    __syncthreads();
    q.take(queries + own * memory::PITCH);
    for (int i = seen.begin; i < seen.end; i++) {
        T *const stage = stages + (i - seen.begin) % STAGES * memory::STAGE;
        T *const next = stages + (i - seen.begin + 1) % STAGES * memory::STAGE;
        const int key = i * KEYS;
        float s[KEYS / 2];
        if (STAGES == 1 && i > seen.begin) {
            __syncthreads(); /* all threads are done with the previous tile */
            load_keys<T, D>(c, stage, batch, kv_head, key, high, wide);
        }
        copy_async_wait();
        __syncthreads();
        if (STAGES == 2 && i + 1 < seen.end) load_keys<T, D>(c, next, batch, kv_head, key + KEYS, high, wide);
        if (key >= own_high || own >= n) continue;
        scores<KEYS>(s, q, stage);
        mask_scores<T, KEYS>(c, places, s, key);
        softmax<T, D, KEYS>(rows, s);
        add_products<KEYS, D>(rows.values, s, stage + KEYS * memory::PITCH, room);
    }
    end_rows(rows, factor, c.lse == NULL ? NULL : c.lse + number_at(c, batch, from + own, head), n - own, past);
    __syncthreads(); /* the queries' memory may become a stage */
    sums_store<T, D>(queries + own * memory::PITCH, rows.values, factor,
                     static_cast<T *>(c.o) + query_at(c, batch, from + own, head), query_ld, n - own, c.head_dim, wide);
}

template <typename T, int D> static cudaError_t launch_forward(const attention_call *call, cudaStream_t stream) {
    typedef forward_memory<T, D> memory;
    const int64_t blocks = call->batch * call->heads * blocks_for(call->length, memory::ROWS);
    const bool wide = rows_are_wide<T>(call) && is_wide(call->q, call->k, call->v, call->o);
    const cudaError_t code = allow_shared(attention_forward<T, D>, memory::BYTES);
    if (code != cudaSuccess) return code;
    CUDA_LAUNCH((attention_forward<T, D>), dim3(static_cast<unsigned>(blocks)), dim3(forward_shape<T, D>::WARPS * 32),
                memory::BYTES, stream, *call, wide);
    return cudaGetLastError();
}

extern "C" cudaError_t attention_forward_launch(const attention_call *call, cudaStream_t stream) {
    if (call->batch == 0 || call->length == 0) return cudaSuccess;
    ATTENTION_OF_HEAD(launch_forward, call, stream);
}
