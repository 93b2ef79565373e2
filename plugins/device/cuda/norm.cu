/* norm.cu: RMS and LAYER norms of rows, and their backward. A team (teams.cuh) processes a row: some lanes of a warp
 * for the short rows of heads, up to 512 threads for a long row. The second pass over a row hits in the L1 cache.
 *
 * The backward also sums over rows, for the gradients of gain and bias. A block processes a run of rows. Each thread
 * accumulates its own columns over its team's rows in order, in shared memory, or in the run's global sum if rows are
 * too long. At the end the block adds its teams in order. */
#include "norm.h"

#include "cells.cuh"
#include "row_sums.h"
#include "teams.cuh"

#define BLOCK       256   /* of teams smaller than a warp */
#define MOST        512   /* threads per team */
#define SHARED_SUMS 45056 /* bytes of shared memory for sums over rows */
#define MOST_RUNS   512
#define RUN_ROWS    16 /* minimum rows of a team per run; keeps the partial sums small compared with the input */

static int team_of_row(int64_t width, int32_t dtype) {
    return team_size(blocks_for(width, cells_of_16(dtype)), MOST);
}
static int threads_of_block(int team) {
    return team <= WARP ? BLOCK : team;
}

/* ---- statistics ---- */

typedef struct statistics {
    float mean, rstd;
} statistics;

/* Computes a row's statistics. LAYER computes the mean, then the squares of the differences, because subtracting the
 * squared mean would lose digits. If the squares overflow, the result is NaN rather than a factor of zero, which would
 * hide the error. is_row false: x is not read. */
template <typename T, bool Wide>
static __device__ __forceinline__ statistics statistics_of(const norm_call &c, const T *x, bool is_row, const team &t) {
    enum { N = pack<T>::SIZE };
    const float width = static_cast<float>(c.width);
    statistics s = {0.0f, 0.0f};
    float v[N], sum = 0.0f, square = 0.0f;
    if (c.layer) {
        for (int64_t at = t.lane * N; is_row && at < c.width; at += t.size * N) {
            load<Wide>(v, x, at, c.width);
#pragma unroll
            for (int i = 0; i < N; i++) sum += v[i];
        }
        s.mean = team_sum(sum, t) / width;
    }
    for (int64_t at = t.lane * N; is_row && at < c.width; at += t.size * N) {
        load<Wide>(v, x, at, c.width);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float off = at + i < c.width ? v[i] - s.mean : 0.0f;
            square = fmaf(off, off, square);
        }
    }
    square = team_sum(square, t) / width;
    s.rstd = 1.0f / sqrtf(square + c.eps) + 0.0f * square;
    return s;
}

template <bool Wide, int N>
static __device__ __forceinline__ void load_gain(float (&g)[N], const norm_call &c, int64_t at) {
    load<Wide>(g, c.gain, at, c.width);
    if (!c.from_one) return;
#pragma unroll
    for (int i = 0; i < N; i++) g[i] += 1.0f;
}

/* ---- forward ---- */

/* Writes sum = x + residual for this thread's columns, which it then reads as the row. */
template <typename T, bool Wide>
static __device__ __forceinline__ void add_residual(const norm_call &c, int64_t first, const team &t) {
    enum { N = pack<T>::SIZE };
    for (int64_t at = t.lane * N; at < c.width; at += t.size * N) {
        float v[N], w[N];
        load<Wide>(v, static_cast<const T *>(c.x) + first, at, c.width);
        load<Wide>(w, static_cast<const T *>(c.residual) + first, at, c.width);
#pragma unroll
        for (int i = 0; i < N; i++) v[i] += w[i];
        store<Wide>(static_cast<T *>(c.sum) + first, v, at, c.width);
    }
}

template <typename T, bool Wide>
static __device__ __forceinline__ void write_row(const norm_call &c, T *y, const T *x, const statistics &s,
                                                 const team &t) {
    enum { N = pack<T>::SIZE };
    for (int64_t at = t.lane * N; at < c.width; at += t.size * N) {
        float v[N], g[N], b[N];
        load<Wide>(v, x, at, c.width);
        load_gain<Wide>(g, c, at);
        if (c.layer) {
            load<Wide>(b, c.bias, at, c.width);
#pragma unroll
            for (int i = 0; i < N; i++) v[i] = fmaf((v[i] - s.mean) * s.rstd, g[i], b[i]);
        } else {
#pragma unroll
            for (int i = 0; i < N; i++) v[i] = v[i] * s.rstd * g[i];
        }
        store<Wide>(y, v, at, c.width);
    }
}

template <typename T, bool Wide>
static __global__ void __launch_bounds__(MOST) norm_rows(const norm_call c, int team_threads) {
    CUDA_SHARED(float, partial, [MOST_WARPS]);
    const team t = team_of(team_threads, partial);
    const int teams = static_cast<int>(blockDim.x) / t.size, own = static_cast<int>(threadIdx.x) / t.size;
    const int64_t r = static_cast<int64_t>(blockIdx.x) * teams + own, first = r * c.width;
    const bool is_row = r < c.rows;
    const T *x = static_cast<const T *>(c.sum != NULL ? c.sum : c.x) + first;
    statistics s;
    if (is_row && c.sum != NULL) add_residual<T, Wide>(c, first, t);
    s = statistics_of<T, Wide>(c, x, is_row, t);
    if (!is_row) return;
    write_row<T, Wide>(c, static_cast<T *>(c.y) + first, x, s, t);
    if (t.lane == 0 && c.rstd != NULL) c.rstd[r] = s.rstd;
    if (t.lane == 0 && c.mean != NULL) c.mean[r] = s.mean;
}

static bool rows_are_wide(const norm_call *c) {
    return c->width * cell_bytes(c->dtype) % 16 == 0;
}

extern "C" cudaError_t norm_launch(const norm_call *call, cudaStream_t stream) {
    const int team = team_of_row(call->width, call->dtype), block = threads_of_block(team);
    const dim3 grid(static_cast<unsigned>(blocks_for(call->rows, block / team)));
    const bool wide = rows_are_wide(call) &&
                      is_wide(call->x, call->residual, call->sum, call->y, call->gain, call->bias);
    if (call->rows == 0) return cudaSuccess;
    LAUNCH_CELLS(norm_rows, call->dtype, wide, grid, block, 0, stream, *call, team);
    return cudaGetLastError();
}

/* ---- backward ---- */

extern "C" int64_t norm_runs(int64_t rows, int64_t width, int32_t dtype) {
    const int team = team_of_row(width, dtype), teams = threads_of_block(team) / team;
    const int64_t runs = blocks_for(rows, static_cast<int64_t>(teams) * RUN_ROWS);
    return runs < MOST_RUNS ? runs : MOST_RUNS;
}

/* A team's sums over its rows. Each column belongs to one thread until the end. */
typedef struct column_sums {
    float *gain, *bias; /* NULL: not needed */
} column_sums;

template <bool Wide, int N>
static __device__ __forceinline__ void add_to_columns(float *sums, const float (&v)[N], int64_t at, int64_t n) {
    float sum[N];
    load<Wide>(sum, sums, at, n);
#pragma unroll
    for (int i = 0; i < N; i++) sum[i] += v[i];
    store<Wide>(sums, sum, at, n);
}

/* Computes the means of g dy h and of g dy, with h = (x - mean) r: the gradient's parts along the row and along a
 * constant. Also adds the row to the sums over rows here, because dx may alias dy. */
template <typename T, bool Wide>
static __device__ __forceinline__ void sum_row(const norm_call &c, int64_t first, bool is_row, const statistics &s,
                                               const column_sums &sums, const team &t, float *level, float *along) {
    enum { N = pack<T>::SIZE };
    float a = 0.0f, b = 0.0f;
    for (int64_t at = t.lane * N; is_row && at < c.width; at += t.size * N) {
        float d[N], h[N], g[N];
        load<Wide>(d, static_cast<const T *>(c.dy) + first, at, c.width);
        load<Wide>(h, static_cast<const T *>(c.x) + first, at, c.width);
        load_gain<Wide>(g, c, at);
        if (sums.bias != NULL) add_to_columns<Wide>(sums.bias, d, at, c.width);
#pragma unroll
        for (int i = 0; i < N; i++) {
            h[i] = (h[i] - s.mean) * s.rstd;
            g[i] *= d[i]; /* zero after the row's end */
            a += g[i];
            b = fmaf(g[i], h[i], b);
            h[i] *= d[i];
        }
        if (sums.gain != NULL) add_to_columns<Wide>(sums.gain, h, at, c.width);
    }
    if (c.dx == NULL) return;
    *level = c.layer ? team_sum(a, t) / static_cast<float>(c.width) : 0.0f;
    *along = team_sum(b, t) / static_cast<float>(c.width);
}

/* dx = r (g dy - level - h along) */
template <typename T, bool Wide>
static __device__ __forceinline__ void write_dx(const norm_call &c, int64_t first, const statistics &s, float level,
                                                float along, const team &t) {
    enum { N = pack<T>::SIZE };
    for (int64_t at = t.lane * N; at < c.width; at += t.size * N) {
        float d[N], x[N], g[N];
        load<Wide>(d, static_cast<const T *>(c.dy) + first, at, c.width);
        load<Wide>(x, static_cast<const T *>(c.x) + first, at, c.width);
        load_gain<Wide>(g, c, at);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float h = (x[i] - s.mean) * s.rstd;
            d[i] = (d[i] * g[i] - level - h * along) * s.rstd;
        }
        store_or_add<Wide>(static_cast<T *>(c.dx) + first, d, at, c.width, c.accumulate_dx);
    }
}

/* Adds a block's teams in order into the run's sums. */
static __device__ __forceinline__ void add_teams(float *run, const float *sums, int teams, int64_t apart,
                                                 int64_t width) {
    for (int64_t j = threadIdx.x; j < width; j += blockDim.x) {
        float sum = 0.0f;
        for (int i = 0; i < teams; i++) sum += sums[i * apart + j];
        run[j] = sum;
    }
}

template <typename T, bool Wide>
static __global__ void __launch_bounds__(MOST, 1)
    norm_rows_backward(const norm_call c, int team_threads, bool sums_are_shared) {
    CUDA_SHARED(float, partial, [MOST_WARPS]);
    CUDA_SHARED_DYNAMIC(float, shared_sums);
    const team t = team_of(team_threads, partial);
    const int teams = static_cast<int>(blockDim.x) / t.size, own = static_cast<int>(threadIdx.x) / t.size;
    const int64_t runs = gridDim.x, run = blockIdx.x, distance = RUNS_DISTANCE(c.width);
    const int64_t begin = c.rows * run / runs, end = c.rows * (run + 1) / runs;
    float *const gain_run = c.gain_runs == NULL ? NULL : c.gain_runs + run * distance;
    float *const bias_run = c.bias_runs == NULL ? NULL : c.bias_runs + run * distance;
    float *const bias_sums = shared_sums + (gain_run != NULL ? teams * distance : 0);
    column_sums sums = {gain_run, bias_run};
    if (sums_are_shared) {
        if (gain_run != NULL) sums.gain = shared_sums + own * distance;
        if (bias_run != NULL) sums.bias = bias_sums + own * distance;
    }
    for (int64_t at = t.lane * pack<T>::SIZE; at < c.width; at += t.size * pack<T>::SIZE) {
        for (int i = 0; i < pack<T>::SIZE && at + i < c.width; i++) {
            if (sums.gain != NULL) sums.gain[at + i] = 0.0f;
            if (sums.bias != NULL) sums.bias[at + i] = 0.0f;
        }
    }
    for (int64_t r0 = begin; r0 < end; r0 += teams) {
        const int64_t r = r0 + own, first = r * c.width;
        const bool is_row = r < end;
        statistics s = {0.0f, 0.0f};
        float level = 0.0f, along = 0.0f;
        if (c.rstd == NULL) s = statistics_of<T, Wide>(c, static_cast<const T *>(c.x) + first, is_row, t);
        else if (is_row) s.rstd = c.rstd[r], s.mean = c.layer ? c.mean[r] : 0.0f;
        sum_row<T, Wide>(c, first, is_row, s, sums, t, &level, &along);
        if (is_row && c.dx != NULL) write_dx<T, Wide>(c, first, s, level, along, t);
    }
    if (!sums_are_shared) return;
    __syncthreads();
    if (gain_run != NULL) add_teams(gain_run, shared_sums, teams, distance, c.width);
    if (bias_run != NULL) add_teams(bias_run, bias_sums, teams, distance, c.width);
}

extern "C" cudaError_t norm_backward_launch(const norm_call *call, cudaStream_t stream) {
    const int team = team_of_row(call->width, call->dtype), block = threads_of_block(team);
    const int n_sums = (call->gain_runs != NULL) + (call->bias_runs != NULL);
    const int64_t bytes = block / team * n_sums * RUNS_DISTANCE(call->width) * 4;
    const bool shared = n_sums > 0 && (team <= WARP || bytes <= SHARED_SUMS);
    const bool wide = rows_are_wide(call) && is_wide(call->x, call->dy, call->dx, call->gain);
    const dim3 grid(static_cast<unsigned>(norm_runs(call->rows, call->width, call->dtype)));
    if (call->rows == 0) return cudaSuccess;
    LAUNCH_CELLS(norm_rows_backward, call->dtype, wide, grid, block, shared ? static_cast<size_t>(bytes) : 0, stream,
                 *call, team, shared);
    return cudaGetLastError();
}
