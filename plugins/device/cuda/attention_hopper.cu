/* attention_hopper.cu: attention and its backward on compute capability 9.0, for heads of 64 and 128 elements in 16-bit
 * types, without a cache or a cap. The same sums as attention_forward.cu and attention_backward.cu, except that
 * probabilities and score gradients are rounded to the 16-bit type as factors.
 *
 * A block has GROUPS warpgroups with 64 rows of one operand each, and one that loads tiles of the other operand by
 * tensor copies, STAGES ahead. A warp that sees none of a tile's scores only releases it. Blocks with the most
 * tiles start first. */
#include "attention_hopper.h"
#include "attention_places.cuh"
#include "hopper.cuh"

#define OWN_ROWS 64 /* of a warpgroup */

/* ---- a block ---- */

/* Own rows: TENSORS tensors of 64 rows for each warpgroup, whose memory later passes the results to global memory
 * with the pitch of `tile`. Stages: two tensors of ROWS rows. TAKES: registers per thread, of which the loading
 * warpgroup keeps KEEPS. */
template <int D, int GROUPS_, int TENSORS_, int ROWS_> struct hopper_shape {
    enum {
        GROUPS = GROUPS_,
        TENSORS = TENSORS_,
        ROWS = ROWS_,
        STAGES = 2,
        WARPS = GROUPS * 4,
        THREADS = (GROUPS + 1) * WARPGROUP,
        TAKES = GROUPS == 3 ? 160 : 232,
        KEEPS = GROUPS == 3 ? 32 : 40,
        OWN_BYTES = OWN_ROWS * D * 2,
        OWN = OWN_ROWS * tile<bf16, D>::PITCH * 2,
        TILE = ROWS * D * 2,
        STAGES_AT = GROUPS * TENSORS * OWN,
        NUMBERS_AT = STAGES_AT + STAGES * 2 * TILE,
        BARRIERS_AT = NUMBERS_AT + STAGES * 1024,
        BYTES = BARRIERS_AT + 128 /* barriers */ + PANEL_EIGHT /* to align the start */
    };
    static_assert(OWN % PANEL_EIGHT == 0, "tiles begin where the order of chunks repeats");
    static_assert(BYTES <= 227 * 1024, "the shared memory limit of a block");
};
template <int D> using forward_hopper = hopper_shape<D, D == 64 ? 3 : 2, 1, 128>;
template <int D> using queries_hopper = hopper_shape<D, D == 64 ? 3 : 2, 2, 64>;
template <int D> using keys_hopper = hopper_shape<D, 2, 2, 64>;

/* lse, delta and the first key of each query of a stage. */
struct hopper_numbers {
    float lse[64], delta[64];
    int first[64], highest_first;
};

/* A block's shared memory and barriers, and the stage that this thread is at. A stage is filled by the loading warp,
 * which waits at `empty` for all other warps, which wait at `full`. */
template <typename Shape> struct hopper_block {
    unsigned char *shared;
    uint64_t *own_full, *full, *empty, *done; /* done: of each warpgroup */
    int warp, group, stage, parity;

    /* loaders: threads that arrive at `full`. */
    __device__ __forceinline__ void begin(unsigned char *memory, int loaders) {
        shared = memory + (PANEL_EIGHT - reinterpret_cast<uintptr_t>(memory) % PANEL_EIGHT) % PANEL_EIGHT;
        own_full = reinterpret_cast<uint64_t *>(shared + Shape::BARRIERS_AT);
        full = own_full + 1;
        empty = full + Shape::STAGES;
        done = empty + Shape::STAGES;
        warp = __shfl_sync(~0u, warp_index(), 0); /* tells the compiler that it is the warp's */
        group = warp / 4;
        stage = parity = 0;
        if (threadIdx.x == 0) {
            barrier_init(own_full, 1);
            for (int i = 0; i < Shape::STAGES; i++) {
                barrier_init(full + i, loaders);
                barrier_init(empty + i, Shape::WARPS);
            }
            for (int i = 0; i < Shape::GROUPS; i++) barrier_init(done + i, 4);
            barrier_init_end();
        }
        __syncthreads();
    }
    __device__ __forceinline__ unsigned char *own(int of_group, int tensor) const {
        return shared + (of_group * Shape::TENSORS + tensor) * Shape::OWN;
    }
    __device__ __forceinline__ unsigned char *tile_at(int tensor) const {
        return shared + Shape::STAGES_AT + (stage * 2 + tensor) * Shape::TILE;
    }
    __device__ __forceinline__ hopper_numbers *numbers(void) const {
        return reinterpret_cast<hopper_numbers *>(shared + Shape::NUMBERS_AT + stage * 1024);
    }
    __device__ __forceinline__ void next(void) {
        stage++;
        if (stage == Shape::STAGES) stage = 0, parity ^= 1;
    }
    /* Waits for all lanes: one that still waits at `full` could otherwise miss the end of its phase. */
    __device__ __forceinline__ void release(void) {
        __syncwarp();
        if (lane_index() == 0) barrier_arrive(empty + stage);
        next();
    }
    /* Waits until no warp of the warpgroup reads its own rows. Returns memory of this warp for sums_store. */
    template <typename T> __device__ __forceinline__ T *passage(int pitch) const {
        __syncwarp();
        if (lane_index() == 0) barrier_arrive(done + group);
        barrier_wait(done + group, 0);
        return reinterpret_cast<T *>(own(group, 0)) + warp % 4 * WARP_ROWS * pitch;
    }
};

/* Loads ROWS rows of a head; rows beyond the sequence are zero. */
template <int D, int ROWS>
static __device__ __forceinline__ void load_tile(unsigned char *to, const CUtensorMap *map, uint64_t *barrier, int head,
                                                 int row, int batch) {
#pragma unroll
    for (int panel = 0; panel < D / PANEL; panel++)
#pragma unroll
        for (int at = 0; at < ROWS; at += TENSOR_BOX_ROWS)
            tensor_load(to + (panel * ROWS + at) * PANEL_ROW, map, barrier, panel * PANEL, head, row + at, batch);
}

/* The queries of a block that loops over keys. */
struct hopper_queries {
    int batch, head, kv_head, from, n;
    key_tiles seen;
};
template <typename Shape> static __device__ __forceinline__ hopper_queries queries_of_block(const attention_call &c) {
    enum { ROWS = Shape::GROUPS * OWN_ROWS };
    const int columns = static_cast<int>(c.batch * c.heads), heads = static_cast<int>(c.heads);
    const int tiles = (static_cast<int>(c.length) + ROWS - 1) / ROWS, column = static_cast<int>(blockIdx.x) % columns;
    hopper_queries q;
    q.batch = column / heads, q.head = column % heads;
    q.kv_head = q.head / (heads / static_cast<int>(c.kv_heads));
    q.from = (tiles - 1 - static_cast<int>(blockIdx.x) / columns) * ROWS;
    q.n = min(ROWS, static_cast<int>(c.length) - q.from);
    q.seen = tiles_seen<Shape::ROWS>(c, q.batch, q.from, q.n, 0);
    return q;
}

/* The loading warp of such a block: q, and do if there are two tensors; then the tiles of k and v. */
template <typename Shape, int D>
static __device__ __forceinline__ void load_keys_for(hopper_block<Shape> block, const attention_maps &maps,
                                                     const hopper_queries &q) {
    if (block.warp != Shape::WARPS || lane_index() != 0) return;
    barrier_arrive_expect(block.own_full, Shape::GROUPS * Shape::TENSORS * Shape::OWN_BYTES);
    for (int g = 0; g < Shape::GROUPS; g++) {
        const int row = q.from + g * OWN_ROWS;
        load_tile<D, OWN_ROWS>(block.own(g, 0), &maps.q, block.own_full, q.head, row, q.batch);
        if (Shape::TENSORS == 2)
            load_tile<D, OWN_ROWS>(block.own(g, 1), &maps.d_o, block.own_full, q.head, row, q.batch);
    }
    for (int i = q.seen.begin; i < q.seen.end; i++, block.next()) {
        uint64_t *const full = block.full + block.stage;
        barrier_wait(block.empty + block.stage, block.parity ^ 1);
        barrier_arrive_expect(full, 2 * Shape::TILE);
        load_tile<D, Shape::ROWS>(block.tile_at(0), &maps.k, full, q.kv_head, i * Shape::ROWS, q.batch);
        load_tile<D, Shape::ROWS>(block.tile_at(1), &maps.v, full, q.kv_head, i * Shape::ROWS, q.batch);
    }
}

/* ---- matmuls of a warpgroup ---- */

/* s (64, N) = a (64, D) b (N, D)^T. */
template <typename T, int D, int N>
static __device__ __forceinline__ void hopper_scores(float (&s)[N / 2], const unsigned char *a,
                                                     const unsigned char *b) {
#pragma unroll
    for (int step = 0; step < D / 16; step++) {
        const int panel = step / 4, at = step % 4 * 32;
        wgmma_tiles(s, tile_part(a + panel * OWN_ROWS * PANEL_ROW + at, 0),
                    tile_part(b + panel * N * PANEL_ROW + at, 0), step > 0, static_cast<const T *>(nullptr));
    }
    wgmma_commit();
}

/* sums (64, D) += p (64, N) b (N, D), p in registers. */
template <typename T, int D, int N>
static __device__ __forceinline__ void hopper_add(float (&sums)[D / 2], const uint32_t (&p)[N / 4],
                                                  const unsigned char *b) {
    wgmma_begin();
#pragma unroll
    for (int step = 0; step < N / 16; step++)
        wgmma_rows(sums, p + step * 4, tile_part(b + step * 16 * PANEL_ROW, N * PANEL_ROW), 1,
                   static_cast<const T *>(nullptr));
    wgmma_commit();
}

template <typename T, int N>
static __device__ __forceinline__ void round_all(uint32_t (&out)[N / 4], const float (&p)[N / 2]) {
#pragma unroll
    for (int i = 0; i < N / 4; i++) out[i] = words<T>::close_two(p + i * 2);
}

/* ---- forward ---- */

template <int D> struct hopper_rows { float maximum[2], sum[2], values[D / 2]; };

/* Converts products to unnormalized probabilities, and rescales the earlier sums to the new maximum. */
template <int D, int N>
static __device__ __forceinline__ void hopper_softmax(const attention_call &c, hopper_rows<D> &rows,
                                                      float (&s)[N / 2]) {
    float decay[2], base[2];
#pragma unroll
    for (int slot = 0; slot < 2; slot++) base[slot] = rows.maximum[slot];
#pragma unroll
    for (int i = 0; i < N / 2; i++) base[i / 2 % 2] = fmaxf(base[i / 2 % 2], s[i]);
#pragma unroll
    for (int slot = 0; slot < 2; slot++) {
        const float maximum = row_maximum<bf16>(base[slot]), finite = maximum == -INFINITY ? 0 : maximum;
        decay[slot] = power_of_two((rows.maximum[slot] - finite) * c.to_exponent);
        base[slot] = finite * c.to_exponent;
        rows.maximum[slot] = maximum;
        rows.sum[slot] *= decay[slot];
    }
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        s[i] = power_of_two(fmaf(s[i], c.to_exponent, -base[i / 2 % 2]));
        rows.sum[i / 2 % 2] += s[i];
    }
#pragma unroll
    for (int i = 0; i < D / 2; i++) rows.values[i] *= decay[i / 2 % 2];
}

template <typename T, int D>
static __device__ __forceinline__ void forward_rows_of(hopper_block<forward_hopper<D>> block, const attention_call &c,
                                                       const hopper_queries &q) {
    enum { KEYS = forward_hopper<D>::ROWS };
    const int own = block.group * OWN_ROWS, own_warp = block.warp * WARP_ROWS, high = q.from + min(q.n, own + OWN_ROWS);
    const row_places<T> places = places_of<T>(c, q.batch, q.from + own_warp, q.n - own_warp, 0);
    float factor[2];
    hopper_rows<D> rows;
#pragma unroll
    for (int slot = 0; slot < 2; slot++) rows.maximum[slot] = -INFINITY, rows.sum[slot] = 0;
#pragma unroll
    for (int i = 0; i < D / 2; i++) rows.values[i] = 0;
    barrier_wait(block.own_full, 0);
    for (int i = q.seen.begin; i < q.seen.end; i++, block.release()) {
        const int key = i * KEYS;
        float s[KEYS / 2];
        uint32_t p[KEYS / 4];
        barrier_wait(block.full + block.stage, block.parity);
        if (key >= high || own >= q.n) continue;
        wgmma_begin();
        hopper_scores<T, D, KEYS>(s, block.own(block.group, 0), block.tile_at(0));
        wgmma_wait<0>();
        if (!see_all(places, key, KEYS)) {
#pragma unroll
            for (int j = 0; j < KEYS / 2; j++)
                if (!sees(places, j, key)) s[j] = -INFINITY;
        }
        hopper_softmax<D, KEYS>(c, rows, s);
        round_all<T, KEYS>(p, s);
        hopper_add<T, D, KEYS>(rows.values, p, block.tile_at(1));
        wgmma_wait<0>();
    }
#pragma unroll
    for (int slot = 0; slot < 2; slot++) {
        const float sum = row_sum<T>(rows.sum[slot]);
        const int row = own_warp + lanes<T>::row(slot);
        factor[slot] = sum != 0 ? 1 / sum : 1;
        if (c.lse != NULL && lane_index() % 4 == 0 && row < q.n)
            c.lse[number_at(c, q.batch, q.from + row, q.head)] = (rows.maximum[slot] * c.to_exponent + log2f(sum)) *
                                                                 LN_2;
    }
    sums_store<T, D>(block.template passage<T>(tile<T, D>::PITCH), rows.values, factor,
                     static_cast<T *>(c.o) + query_at(c, q.batch, q.from + own_warp, q.head), c.heads * c.head_dim,
                     q.n - own_warp, D, true);
}

template <typename T, int D>
static __global__ void __launch_bounds__(forward_hopper<D>::THREADS, 1)
    attention_forward_hopper(const attention_call c, const __grid_constant__ attention_maps maps) {
#if CUDA_HAS_HOPPER
    typedef forward_hopper<D> shape;
    CUDA_SHARED_DYNAMIC(unsigned char, memory);
    const hopper_queries q = queries_of_block<shape>(c);
    hopper_block<shape> block;
    block.begin(memory, 1);
    if (block.group == shape::GROUPS) {
        registers_keep<shape::KEEPS>();
        load_keys_for<shape, D>(block, maps, q);
    } else {
        registers_take<shape::TAKES>();
        forward_rows_of<T, D>(block, c, q);
    }
#endif
}

/* ---- dq ---- */

template <typename T, int D>
static __device__ __forceinline__ void query_gradients_of(hopper_block<queries_hopper<D>> block,
                                                          const attention_call &c, const hopper_queries &q) {
    enum { KEYS = queries_hopper<D>::ROWS };
    const int own = block.group * OWN_ROWS, own_warp = block.warp * WARP_ROWS, high = q.from + min(q.n, own + OWN_ROWS);
    const row_places<T> places = places_of<T>(c, q.batch, q.from + own_warp, q.n - own_warp, 0);
    float factor[2], lse[2], delta[2], dq[D / 2];
#pragma unroll
    for (int slot = 0; slot < 2; slot++) {
        const bool there = own_warp + lanes<T>::row(slot) < q.n;
        const int64_t number = number_at(c, q.batch, q.from + own_warp + lanes<T>::row(slot), q.head);
        lse[slot] = there ? c.lse[number] * LOG2_E : 0;
        delta[slot] = there ? c.delta[number] : 0;
        factor[slot] = c.scale;
    }
#pragma unroll
    for (int i = 0; i < D / 2; i++) dq[i] = 0;
    barrier_wait(block.own_full, 0);
    for (int i = q.seen.begin; i < q.seen.end; i++, block.release()) {
        const int key = i * KEYS;
        const bool all = see_all(places, key, KEYS);
        float s[KEYS / 2], dp[KEYS / 2];
        uint32_t ds[KEYS / 4];
        barrier_wait(block.full + block.stage, block.parity);
        if (key >= high || own >= q.n) continue;
        wgmma_begin();
        hopper_scores<T, D, KEYS>(s, block.own(block.group, 0), block.tile_at(0));
        hopper_scores<T, D, KEYS>(dp, block.own(block.group, 1), block.tile_at(1));
        wgmma_wait<1>();
#pragma unroll
        for (int j = 0; j < KEYS / 2; j++) {
            s[j] = power_of_two(fmaf(s[j], c.to_exponent, -lse[j / 2 % 2]));
            if (!all && !sees(places, j, key)) s[j] = 0;
        }
        wgmma_wait<0>();
#pragma unroll
        for (int j = 0; j < KEYS / 2; j++) s[j] *= dp[j] - delta[j / 2 % 2];
        round_all<T, KEYS>(ds, s);
        hopper_add<T, D, KEYS>(dq, ds, block.tile_at(0));
        wgmma_wait<0>();
    }
    sums_store<T, D>(block.template passage<T>(tile<T, D>::PITCH), dq, factor,
                     static_cast<T *>(c.dq) + query_at(c, q.batch, q.from + own_warp, q.head), c.heads * c.head_dim,
                     q.n - own_warp, D, true);
}

template <typename T, int D>
static __global__ void __launch_bounds__(queries_hopper<D>::THREADS, 1)
    attention_backward_queries_hopper(const attention_call c, const __grid_constant__ attention_maps maps) {
#if CUDA_HAS_HOPPER
    typedef queries_hopper<D> shape;
    CUDA_SHARED_DYNAMIC(unsigned char, memory);
    const hopper_queries q = queries_of_block<shape>(c);
    hopper_block<shape> block;
    block.begin(memory, 1);
    if (block.group == shape::GROUPS) {
        registers_keep<shape::KEEPS>();
        load_keys_for<shape, D>(block, maps, q);
    } else {
        registers_take<shape::TAKES>();
        query_gradients_of<T, D>(block, c, q);
    }
#endif
}

/* ---- dk and dv ---- */

/* The keys of a block, and the tiles [begin, end) of queries that see some of them, for each of their heads. */
struct hopper_keys {
    int batch, kv_head, heads, from, n, begin, end;
};

template <typename Shape>
static __device__ __forceinline__ void load_numbers(hopper_numbers *to, const attention_call &c, int batch, int head,
                                                    int from) {
    int highest = 0;
#pragma unroll
    for (int at = lane_index(); at < Shape::ROWS; at += 32) {
        const int64_t number = number_at(c, batch, from + at, head);
        const bool there = from + at < c.length;
        const int first = there ? first_seen(c, from + at, c.starts[batch * c.length + from + at]) : INT_MAX;
        to->lse[at] = there ? c.lse[number] * LOG2_E : 0;
        to->delta[at] = there ? c.delta[number] : 0;
        to->first[at] = first;
        highest = max(highest, first);
    }
    highest = -warp_minimum(-highest);
    if (lane_index() == 0) to->highest_first = highest;
}

/* The loading warp: k and v, then the tiles of q and do with their numbers. */
template <typename Shape, int D>
static __device__ __forceinline__ void load_queries_for(hopper_block<Shape> block, const attention_call &c,
                                                        const attention_maps &maps, const hopper_keys &k) {
    const int first_head = k.kv_head * k.heads;
    if (block.warp != Shape::WARPS) return;
    if (lane_index() == 0) {
        barrier_arrive_expect(block.own_full, Shape::GROUPS * Shape::TENSORS * Shape::OWN_BYTES);
        for (int g = 0; g < Shape::GROUPS; g++) {
            const int row = k.from + g * OWN_ROWS;
            load_tile<D, OWN_ROWS>(block.own(g, 0), &maps.k, block.own_full, k.kv_head, row, k.batch);
            load_tile<D, OWN_ROWS>(block.own(g, 1), &maps.v, block.own_full, k.kv_head, row, k.batch);
        }
    }
    for (int head = first_head; head < first_head + k.heads; head++) {
        for (int i = k.begin; i < k.end; i++, block.next()) {
            const int from = i * Shape::ROWS;
            uint64_t *const full = block.full + block.stage;
            barrier_wait(block.empty + block.stage, block.parity ^ 1);
            load_numbers<Shape>(block.numbers(), c, k.batch, head, from);
            if (lane_index() > 0) {
                barrier_arrive(full);
                continue;
            }
            barrier_arrive_expect(full, 2 * Shape::TILE);
            load_tile<D, Shape::ROWS>(block.tile_at(0), &maps.q, full, head, from, k.batch);
            load_tile<D, Shape::ROWS>(block.tile_at(1), &maps.d_o, full, head, from, k.batch);
        }
    }
}

/* Converts the products k q^T in `s` to probabilities. from: the first query. all: each sees all keys of the
 * warpgroup. */
template <typename T, int N>
static __device__ __forceinline__ void hopper_probabilities(const attention_call &c, const hopper_numbers *of, int key,
                                                            int from, bool all, float (&s)[N / 2]) {
#pragma unroll
    for (int j = 0; j < N / 2; j += 4) {
        const float2 lse = *reinterpret_cast<const float2 *>(of->lse + lanes<T>::column(j));
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[j + i] = power_of_two(fmaf(s[j + i], c.to_exponent, -(i % 2 == 0 ? lse.x : lse.y)));
    }
    if (all) return;
#pragma unroll
    for (int j = 0; j < N / 2; j++) {
        const int query = lanes<T>::column(j), at = key + lanes<T>::row(lanes<T>::slot(j));
        if (at < of->first[query] || at > from + query) s[j] = 0;
    }
}

/* s = p (dp - delta). */
template <typename T, int N>
static __device__ __forceinline__ void hopper_gradients(const hopper_numbers *of, float (&s)[N / 2],
                                                        const float (&dp)[N / 2]) {
#pragma unroll
    for (int j = 0; j < N / 2; j += 4) {
        const float2 delta = *reinterpret_cast<const float2 *>(of->delta + lanes<T>::column(j));
#pragma unroll
        for (int i = 0; i < 4; i++) s[j + i] *= dp[j + i] - (i % 2 == 0 ? delta.x : delta.y);
    }
}

template <typename T, int D>
static __device__ __forceinline__ void key_gradients_of(hopper_block<keys_hopper<D>> block, const attention_call &c,
                                                        const hopper_keys &k) {
    enum { QUERIES = keys_hopper<D>::ROWS };
    const int own = block.group * OWN_ROWS, low = k.from + own, key = k.from + block.warp * WARP_ROWS;
    const int64_t at = key_at(c, k.batch, key, k.kv_head), ld = c.kv_heads * c.head_dim;
    const int left = k.n - block.warp * WARP_ROWS, span = k.end - k.begin;
    float factor[2] = {c.scale, c.scale}, dk[D / 2], dv[D / 2];
    T *passage = NULL;
#pragma unroll
    for (int i = 0; i < D / 2; i++) dk[i] = dv[i] = 0;
    barrier_wait(block.own_full, 0);
    for (int i = 0, now = k.begin; i < k.heads * span; i++, block.release()) {
        const hopper_numbers *const of = block.numbers();
        const int from = now * QUERIES;
        float s[QUERIES / 2], dp[QUERIES / 2];
        uint32_t p[QUERIES / 4], ds[QUERIES / 4];
        if (++now == k.end) now = k.begin;
        barrier_wait(block.full + block.stage, block.parity);
        if (low >= from + QUERIES || own >= k.n) continue;
        wgmma_begin();
        hopper_scores<T, D, QUERIES>(s, block.own(block.group, 0), block.tile_at(0));
        hopper_scores<T, D, QUERIES>(dp, block.own(block.group, 1), block.tile_at(1));
        wgmma_wait<1>();
        hopper_probabilities<T, QUERIES>(c, of, key, from, from >= low + OWN_ROWS - 1 && of->highest_first <= low, s);
        round_all<T, QUERIES>(p, s);
        hopper_add<T, D, QUERIES>(dv, p, block.tile_at(1));
        wgmma_wait<1>(); /* dp */
        hopper_gradients<T, QUERIES>(of, s, dp);
        round_all<T, QUERIES>(ds, s);
        hopper_add<T, D, QUERIES>(dk, ds, block.tile_at(0));
        wgmma_wait<0>();
    }
    passage = block.template passage<T>(tile<T, D>::PITCH);
    if (c.dk != NULL) sums_store<T, D>(passage, dk, factor, static_cast<T *>(c.dk) + at, ld, left, D, true);
    factor[0] = factor[1] = 1;
    if (c.dv != NULL) sums_store<T, D>(passage, dv, factor, static_cast<T *>(c.dv) + at, ld, left, D, true);
}

template <typename T, int D>
static __global__ void __launch_bounds__(keys_hopper<D>::THREADS, 1)
    attention_backward_keys_hopper(const attention_call c, const __grid_constant__ attention_maps maps) {
#if CUDA_HAS_HOPPER
    typedef keys_hopper<D> shape;
    enum { ROWS = shape::GROUPS * OWN_ROWS, QUERIES = shape::ROWS };
    CUDA_SHARED_DYNAMIC(unsigned char, memory);
    const int kv_heads = static_cast<int>(c.kv_heads), columns = static_cast<int>(c.batch) * kv_heads;
    const int column = static_cast<int>(blockIdx.x) % columns, from = static_cast<int>(blockIdx.x) / columns * ROWS;
    const int batch = column / kv_heads, n = min(ROWS, static_cast<int>(c.length) - from);
    const query_range range = queries_that_see(c, reinterpret_cast<int *>(memory), batch, from, n, 0);
    const hopper_keys k = {batch,
                           column % kv_heads,
                           static_cast<int>(c.heads) / kv_heads,
                           from,
                           n,
                           range.low < range.high ? range.low / QUERIES : 0,
                           range.low < range.high ? (range.high + QUERIES - 1) / QUERIES : 0};
    hopper_block<shape> block;
    block.begin(memory, 32);
    if (block.group == shape::GROUPS) {
        registers_keep<shape::KEEPS>();
        load_queries_for<shape, D>(block, c, maps, k);
    } else {
        registers_take<shape::TAKES>();
        key_gradients_of<T, D>(block, c, k);
    }
#endif
}

/* ---- launchers ---- */

template <typename Shape> static dim3 hopper_grid(const attention_call *call, int64_t heads) {
    return dim3(static_cast<unsigned>(call->batch * heads * blocks_for(call->length, Shape::GROUPS * OWN_ROWS)));
}

/* A launcher of a kernel, whose blocks have GROUPS times 64 rows of one of these heads. */
#define HOPPER_LAUNCHER(name, kernel, shape, heads)                                                                    \
    template <typename T, int D>                                                                                       \
    static cudaError_t name(const attention_call *call, const attention_maps *maps, cudaStream_t stream) {             \
        const cudaError_t code = allow_shared(kernel<T, D>, shape<D>::BYTES);                                          \
        if (code != cudaSuccess) return code;                                                                          \
        CUDA_LAUNCH((kernel<T, D>), hopper_grid<shape<D>>(call, call->heads), dim3(shape<D>::THREADS),                 \
                    shape<D>::BYTES, stream, *call, *maps);                                                            \
        return cudaGetLastError();                                                                                     \
    }
HOPPER_LAUNCHER(launch_forward, attention_forward_hopper, forward_hopper, heads)
HOPPER_LAUNCHER(launch_queries, attention_backward_queries_hopper, queries_hopper, heads)
HOPPER_LAUNCHER(launch_keys, attention_backward_keys_hopper, keys_hopper, kv_heads)

template <typename T, int D>
static cudaError_t launch_backward(const attention_call *call, const attention_maps *maps, cudaStream_t stream) {
    const cudaError_t code = call->dq == NULL ? cudaSuccess : launch_queries<T, D>(call, maps, stream);
    if (code != cudaSuccess || (call->dk == NULL && call->dv == NULL)) return code;
    return launch_keys<T, D>(call, maps, stream);
}

#define OF_HEAD(launch)                                                                                                \
    return call->dtype == WEFT_F16                                                                                     \
               ? (call->head_dim == 64 ? launch<f16, 64>(call, maps, stream) : launch<f16, 128>(call, maps, stream))   \
               : (call->head_dim == 64 ? launch<bf16, 64>(call, maps, stream) : launch<bf16, 128>(call, maps, stream))

extern "C" cudaError_t attention_forward_hopper_launch(const attention_call *call, const attention_maps *maps,
                                                       cudaStream_t stream) {
    if (call->batch == 0 || call->length == 0) return cudaSuccess;
    OF_HEAD(launch_forward);
}

extern "C" cudaError_t attention_backward_hopper_launch(const attention_call *call, const attention_maps *maps,
                                                        cudaStream_t stream) {
    if (call->batch == 0 || call->length == 0) return cudaSuccess;
    OF_HEAD(launch_backward);
}
