/* attention_decode.cu: attention with one query per sequence and head, as in generation, and appending keys and values
 * to a cache.
 *
 * Each query of a head has its own thread block. A team of lanes processes one key at a time, 8 elements of the head
 * per lane. Each team takes every TEAMS-th key, counted from the cache's first. A key's team and the order of combining
 * teams therefore follow from the key's position and the shape. All arithmetic is fp32. */
#include "attention_places.cuh"

#define BLOCK 256
#define EACH  8 /* elements per lane */
#define AHEAD 4 /* keys per team in flight */

/* Running softmax: the largest exponent, the sum of powers, and the weighted sum of values. */
struct running {
    float maximum, sum, values[EACH];
};

static __device__ __forceinline__ void take_in(running &r, float exponent, float sum, const float *values) {
    const float maximum = fmaxf(r.maximum, exponent), base = maximum == -INFINITY ? 0 : maximum;
    const float old = power_of_two(r.maximum - base), weight = power_of_two(exponent - base);
    r.maximum = maximum;
    r.sum = r.sum * old + weight * sum;
#pragma unroll
    for (int i = 0; i < EACH; i++) r.values[i] = r.values[i] * old + weight * values[i];
}

template <typename T, int LANES> static __device__ __forceinline__ float product_of(const float *a, const float *b) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) sum += a[i] * b[i];
#pragma unroll
    for (int mask = 1; mask < LANES; mask *= 2) sum += __shfl_xor_sync(~0u, sum, mask);
    return sum;
}

/* Processes this team's keys of [low, high). All lanes of a warp run the same steps. */
template <typename T, int LANES, bool Wide>
static __device__ __forceinline__ void take_in_keys(const attention_call &c, running &r, const float *q, int64_t batch,
                                                    int64_t kv_head, int low, int high) {
    enum { TEAMS = BLOCK / LANES, STEP = TEAMS * AHEAD };
    const int team = static_cast<int>(threadIdx.x) / LANES, at = lane_index() % LANES * EACH;
    const T *const k = static_cast<const T *>(c.k), *const v = static_cast<const T *>(c.v);
    for (int from = low / STEP * STEP; from < high; from += STEP) {
        float keys[AHEAD][EACH], values[AHEAD][EACH];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const int key = from + i * TEAMS + team;
            const bool there = key >= low && key < high;
            const int64_t row = there ? key_at(c, batch, key, kv_head) : 0;
            load<Wide>(keys[i], k + row, at, there ? c.head_dim : 0);
            load<Wide>(values[i], v + row, at, there ? c.head_dim : 0);
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const int key = from + i * TEAMS + team;
            const float product = product_of<T, LANES>(q, keys[i]);
            if (key >= low && key < high) take_in(r, score_of(c, product).exponent, 1, values[i]);
        }
    }
}

/* Combines the block's teams into the first one, in order. */
template <int LANES> static __device__ __forceinline__ void gather(running &r) {
    enum { TEAMS = BLOCK / LANES };
    CUDA_SHARED(float, maximum, [TEAMS]);
    CUDA_SHARED(float, sum, [TEAMS]);
    CUDA_SHARED(float, values, [BLOCK * EACH]);
    const int thread = static_cast<int>(threadIdx.x), team = thread / LANES;
    maximum[team] = r.maximum; /* equal in all lanes of the team */
    sum[team] = r.sum;
#pragma unroll
    for (int i = 0; i < EACH; i++) values[thread * EACH + i] = r.values[i];
    __syncthreads();
    if (team > 0) return;
    for (int other = 1; other < TEAMS; other++)
        take_in(r, maximum[other], sum[other], values + (other * LANES + thread) * EACH);
}

template <typename T, int LANES, bool Wide>
static __global__ void __launch_bounds__(BLOCK) attention_decode(const attention_call c) {
    const int heads = static_cast<int>(c.heads), batch = static_cast<int>(blockIdx.x) / heads;
    const int head = static_cast<int>(blockIdx.x) % heads, kv_head = head / (heads / static_cast<int>(c.kv_heads));
    const int past = past_of(c), low = past < 0 ? 0 : first_seen(c, past, c.starts[batch]);
    const int at = lane_index() % LANES * EACH;
    const int64_t row = query_at(c, batch, 0, head);
    float q[EACH];
    running r = {-INFINITY, 0, {0}};
    load<Wide>(q, static_cast<const T *>(c.q) + row, at, c.head_dim);
    take_in_keys<T, LANES, Wide>(c, r, q, batch, kv_head, low, past < 0 ? 0 : past + 1);
    gather<LANES>(r);
    if (threadIdx.x >= LANES) return;
#pragma unroll
    for (int i = 0; i < EACH; i++) r.values[i] = past < 0 ? NAN : r.sum != 0 ? r.values[i] / r.sum : 0;
    store<Wide>(static_cast<T *>(c.o) + row, r.values, at, c.head_dim);
    if (threadIdx.x == 0 && c.lse != NULL)
        c.lse[number_at(c, batch, 0, head)] = past < 0 ? NAN : (r.maximum + log2f(r.sum)) * LN_2;
}

template <typename T, int LANES> static cudaError_t launch_decode_by(const attention_call *call, cudaStream_t stream) {
    const dim3 grid(static_cast<unsigned>(call->batch * call->heads));
    if (rows_are_wide<T>(call) && is_wide(call->q, call->k, call->v, call->o))
        CUDA_LAUNCH((attention_decode<T, LANES, true>), grid, dim3(BLOCK), 0, stream, *call);
    else CUDA_LAUNCH((attention_decode<T, LANES, false>), grid, dim3(BLOCK), 0, stream, *call);
    return cudaGetLastError();
}
template <typename T> static cudaError_t launch_decode(const attention_call *call, cudaStream_t stream) {
    if (call->head_dim <= 64) return launch_decode_by<T, 8>(call, stream);
    if (call->head_dim <= 128) return launch_decode_by<T, 16>(call, stream);
    return launch_decode_by<T, 32>(call, stream);
}

extern "C" cudaError_t attention_decode_launch(const attention_call *call, cudaStream_t stream) {
    if (call->batch == 0) return cudaSuccess;
    if (call->dtype == WEFT_BF16) return launch_decode<bf16>(call, stream);
    return call->dtype == WEFT_F16 ? launch_decode<f16>(call, stream) : launch_decode<float>(call, stream);
}

/* ---- the cache ---- */

/* A unit is 16 bytes, or one element if rows are not aligned to 16 bytes. */
template <typename Unit>
static __global__ void __launch_bounds__(BLOCK) attention_append(const attention_call c, int64_t units) {
    const int64_t each = c.length * units, total = c.batch * each, past = past_of(c);
    int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
    const bool values = i >= total;
    const Unit *const from = static_cast<const Unit *>(values ? c.new_v : c.new_k);
    Unit *const to = static_cast<Unit *>(values ? c.v : c.k);
    if (values) i -= total;
    if (i >= total || past < 0 || from == NULL) return;
    to[(i / each * c.rows + past) * units + i % each] = from[i];
}
template <typename Unit>
static cudaError_t launch_append(const attention_call *call, int64_t units, cudaStream_t stream) {
    const int64_t blocks = blocks_for(2 * call->batch * call->length * units, BLOCK);
    CUDA_LAUNCH(attention_append<Unit>, dim3(static_cast<unsigned>(blocks)), dim3(BLOCK), 0, stream, *call, units);
    return cudaGetLastError();
}

extern "C" cudaError_t attention_append_launch(const attention_call *call, cudaStream_t stream) {
    const int64_t row = call->kv_heads * call->head_dim, bytes = row * cell_bytes(call->dtype);
    if (call->batch == 0 || call->length == 0 || (call->new_k == NULL && call->new_v == NULL)) return cudaSuccess;
    if (bytes % 16 == 0 && is_wide(call->k, call->v, call->new_k, call->new_v))
        return launch_append<uint4>(call, bytes / 16, stream);
    return cell_bytes(call->dtype) == 2 ? launch_append<uint16_t>(call, row, stream)
                                        : launch_append<uint32_t>(call, row, stream);
}
