/* norm.cu: RMS and LAYER norms of rows, and their backward. A team (teams.cuh) processes a row in tiles of HELD packs
 * per thread. All loads of a tile are in flight together, and the tile stays in registers: a row of one tile is read
 * once. Longer rows are read again in each pass over them.
 *
 * The backward also sums over rows, for the gradients of gain and bias. A block processes a run of rows. Each thread
 * accumulates its own columns over its team's rows in order, and at the end the block adds its teams in order. The sums
 * are in registers (gain) and shared memory (bias); for rows of several tiles, in the run's global sums. */
#include "norm.h"

#include "cells.cuh"
#include "row_sums.h"
#include "teams.cuh"

#define BLOCK     256
#define HELD      4
#define RUN_ROWS  16  /* minimum rows per run; keeps the partial sums small compared with the input */
#define TEAM_ROWS 4   /* minimum rows per team and run */
#define MOST_RUNS 264 /* two blocks on each of an H100's 132 SMs */

static int team_of_row(int64_t width, int32_t dtype) {
    return team_size(blocks_for(width, 2 * cells_of_16(dtype)), BLOCK);
}

/* Blocks per SM, as registers allow. */
template <typename T, bool Wide> struct resident {
    enum { FORWARD = Wide ? 3 : 1, BACKWARD = Wide ? 2 : 1 };
};
template <> struct resident<f16, true> {
    enum { FORWARD = 3, BACKWARD = 1 };
};

/* ---- tiles ---- */

typedef uint4 tile[HELD];

template <typename T> static __device__ __forceinline__ int64_t tile_width(const team &t) {
    return static_cast<int64_t>(HELD) * t.size * pack<T>::SIZE;
}

/* This thread's packs of a tile: pack i begins at column first + i * step. `left`: columns from first to the tile's
 * end. */
typedef struct columns {
    int64_t first;
    int step, left;
} columns;

/* Returns the end of columns for load and store. The packs of a wide row are whole. */
template <bool Wide> static __device__ __forceinline__ int64_t end_of(const columns &at) {
    return Wide ? INT64_MAX : at.left;
}

/* Returns the columns of the tile that begins at column `from`. */
template <typename T> static __device__ __forceinline__ columns columns_of(int64_t from, int64_t width, const team &t) {
    const int64_t end = width - from < tile_width<T>(t) ? width - from : tile_width<T>(t);
    const int own = t.lane * pack<T>::SIZE;
    columns at = {from + own, t.size * pack<T>::SIZE, static_cast<int>(end) - own};
    asm volatile("" : "+r"(at.step)); /* computes addresses again rather than keeping them in registers */
    return at;
}

template <typename T, bool Wide>
static __device__ __forceinline__ void take(tile &v, const void *rows, int64_t first, const columns &at) {
    const T *own = static_cast<const T *>(rows) + first + at.first;
#pragma unroll
    for (int i = 0; i < HELD; i++) v[i] = load_words<Wide>(own, i * at.step, at.left);
}

/* Call between two passes over a tile. */
static __device__ __forceinline__ void keep(tile &v) {
#pragma unroll
    for (int i = 0; i < HELD; i++) keep_words(v[i]);
}

/* ---- statistics ---- */

typedef struct statistics {
    float mean, rstd;
} statistics;

/* Computes a row's statistics; x has its first tile. LAYER computes the mean, then the squares of the differences,
 * because subtracting the squared mean would lose digits. If the squares overflow, the result is NaN rather than a
 * factor of zero, which would hide the error. is_row false: x is not read. */
template <typename T, bool Wide>
static __device__ __forceinline__ statistics statistics_of(const norm_call &c, const void *rows, int64_t first,
                                                           bool is_row, const team &t, tile &x) {
    enum { N = pack<T>::SIZE };
    const float width = static_cast<float>(c.width);
    const int64_t span = tile_width<T>(t), end = is_row ? c.width : 0;
    statistics s = {0.0f, 0.0f};
    float v[N], sum = 0.0f, square = 0.0f;
    for (int64_t from = 0; c.layer && from < end; from += span) {
        if (c.width > span) take<T, Wide>(x, rows, first, columns_of<T>(from, c.width, t));
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            words<T>::open(v, x[i]);
#pragma unroll
            for (int j = 0; j < N; j++) sum += v[j]; /* zero after the row's end */
        }
    }
    if (c.layer) s.mean = team_sum(sum, t) / width;
    keep(x);
    for (int64_t from = 0; from < end; from += span) {
        const columns at = columns_of<T>(from, c.width, t);
        if (c.width > span) take<T, Wide>(x, rows, first, at);
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            if (i * at.step >= at.left) break;
            words<T>::open(v, x[i]);
#pragma unroll
            for (int j = 0; j < N; j++) {
                const float off = i * at.step + j < end_of<Wide>(at) ? v[j] - s.mean : 0.0f;
                square = fmaf(off, off, square);
            }
        }
    }
    square = team_sum(square, t) / width;
    keep(x);
    s.rstd = 1.0f / sqrtf(square + c.eps) + 0.0f * square;
    return s;
}

template <bool Wide, int N>
static __device__ __forceinline__ void load_gain(float (&g)[N], const norm_call &c, const columns &at, int i) {
    load<Wide>(g, c.gain + at.first, i * at.step, end_of<Wide>(at));
    if (!c.from_one) return;
#pragma unroll
    for (int i = 0; i < N; i++) g[i] += 1.0f;
}

/* ---- forward ---- */

/* Writes sum = x + residual for this thread's columns, which it then reads as the row; x gets the first tile. */
template <typename T, bool Wide>
static __device__ __forceinline__ void add_residual(const norm_call &c, int64_t first, const team &t, tile &x) {
    enum { N = pack<T>::SIZE };
    tile other;
    const int64_t span = tile_width<T>(t);
    for (int64_t from = (c.width - 1) / span * span; from >= 0; from -= span) {
        const columns at = columns_of<T>(from, c.width, t);
        take<T, Wide>(x, c.x, first, at);
        take<T, Wide>(other, c.residual, first, at);
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            float v[N], w[N];
            if (i * at.step >= at.left) break;
            words<T>::open(v, x[i]);
            words<T>::open(w, other[i]);
#pragma unroll
            for (int j = 0; j < N; j++) v[j] += w[j];
            x[i] = words<T>::close(v);
            store<Wide>(static_cast<T *>(c.sum) + first + at.first, v, i * at.step, end_of<Wide>(at));
        }
    }
}

template <typename T, bool Wide>
static __device__ __forceinline__ void write_tile(const norm_call &c, int64_t first, const columns &at, const tile &x,
                                                  const statistics &s) {
    enum { N = pack<T>::SIZE };
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        float v[N], g[N], b[N];
        if (i * at.step >= at.left) break;
        words<T>::open(v, x[i]);
        load_gain<Wide>(g, c, at, i);
        if (c.layer) {
            load<Wide>(b, c.bias + at.first, i * at.step, end_of<Wide>(at));
#pragma unroll
            for (int j = 0; j < N; j++) v[j] = fmaf((v[j] - s.mean) * s.rstd, g[j], b[j]);
        } else {
#pragma unroll
            for (int j = 0; j < N; j++) v[j] = v[j] * s.rstd * g[j];
        }
        store<Wide>(static_cast<T *>(c.y) + first + at.first, v, i * at.step, end_of<Wide>(at));
    }
}

template <typename T, bool Wide>
static __global__ void __launch_bounds__(BLOCK, resident<T, Wide>::FORWARD)
    norm_rows(const norm_call c, int team_threads) {
    CUDA_SHARED(float, partial, [MOST_WARPS]);
    const team t = team_of(team_threads, partial);
    const int teams = BLOCK / t.size, own = static_cast<int>(threadIdx.x) / t.size;
    const int64_t r = static_cast<int64_t>(blockIdx.x) * teams + own, first = r * c.width, span = tile_width<T>(t);
    const bool is_row = r < c.rows;
    const void *rows = c.sum != NULL ? c.sum : c.x;
    statistics s;
    tile x = {};
    if (is_row && c.sum != NULL) add_residual<T, Wide>(c, first, t, x);
    else if (is_row) take<T, Wide>(x, rows, first, columns_of<T>(0, c.width, t));
    s = statistics_of<T, Wide>(c, rows, first, is_row, t, x);
    if (!is_row) return;
    for (int64_t from = 0; from < c.width; from += span) {
        const columns at = columns_of<T>(from, c.width, t);
        if (c.width > span) take<T, Wide>(x, rows, first, at);
        write_tile<T, Wide>(c, first, at, x, s);
    }
    if (t.lane == 0 && c.rstd != NULL) c.rstd[r] = s.rstd;
    if (t.lane == 0 && c.mean != NULL) c.mean[r] = s.mean;
}

static bool rows_are_wide(const norm_call *c) {
    return c->width * cell_bytes(c->dtype) % 16 == 0;
}

extern "C" cudaError_t norm_launch(const norm_call *call, cudaStream_t stream) {
    const int team = team_of_row(call->width, call->dtype);
    const dim3 grid(static_cast<unsigned>(blocks_for(call->rows, BLOCK / team)));
    const bool wide = rows_are_wide(call) &&
                      is_wide(call->x, call->residual, call->sum, call->y, call->gain, call->bias);
    if (call->rows == 0) return cudaSuccess;
    LAUNCH_CELLS(norm_rows, call->dtype, wide, grid, BLOCK, 0, stream, *call, team);
    return cudaGetLastError();
}

/* ---- backward ---- */

extern "C" int64_t norm_runs(int64_t rows, int64_t width, int32_t dtype) {
    const int64_t teams = BLOCK / team_of_row(width, dtype);
    const int64_t runs = blocks_for(rows, teams * TEAM_ROWS > RUN_ROWS ? teams * TEAM_ROWS : RUN_ROWS);
    return runs < MOST_RUNS ? runs : MOST_RUNS;
}

/* The sums over a team's rows. Each column belongs to one thread until the end. */
template <int N> struct column_sums {
    float held[HELD][N]; /* of the gain, for rows of one tile */
    float *gain, *bias;  /* memory of the other sums; NULL: not needed */
};

template <bool Wide, int N>
static __device__ __forceinline__ void add_to_columns(float *sums, const float (&v)[N], int64_t at, int64_t n) {
    float sum[N];
    load<Wide>(sum, sums, at, n);
#pragma unroll
    for (int i = 0; i < N; i++) sum[i] += v[i];
    store<Wide>(sums, sum, at, n);
}

/* A tile of the operands of a row's backward. */
typedef struct tiles {
    tile d, x;
} tiles;

template <typename T, bool Wide>
static __device__ __forceinline__ void take_all(tiles &v, const norm_call &c, int64_t first, const columns &at) {
    take<T, Wide>(v.d, c.dy, first, at);
    take<T, Wide>(v.x, c.x, first, at);
}

/* Adds to a the sum of g dy and to b that of g dy h, with h = (x - mean) r: the gradient's parts along a constant and
 * along the row. Also adds the row to the sums over rows. */
template <typename T, bool Wide, bool One>
static __device__ __forceinline__ void sum_tile(const norm_call &c, tiles &v, const columns &at, const statistics &s,
                                                column_sums<pack<T>::SIZE> &sums, float *a, float *b) {
    enum { N = pack<T>::SIZE };
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        float d[N], h[N], g[N];
        if (i * at.step >= at.left) break;
        keep_words(v.d[i]);
        keep_words(v.x[i]);
        words<T>::open(d, v.d[i]);
        if (sums.bias != NULL) add_to_columns<Wide>(sums.bias + at.first, d, i * at.step, end_of<Wide>(at));
        words<T>::open(h, v.x[i]);
        load_gain<Wide>(g, c, at, i);
#pragma unroll
        for (int j = 0; j < N; j++) {
            h[j] = (h[j] - s.mean) * s.rstd;
            g[j] *= d[j]; /* zero after the row's end */
            *a += g[j];
            *b = fmaf(g[j], h[j], *b);
            h[j] *= d[j];
            if (One) sums.held[i][j] += h[j];
        }
        if (!One && sums.gain != NULL) add_to_columns<Wide>(sums.gain + at.first, h, i * at.step, end_of<Wide>(at));
    }
}

/* dx = r (g dy - level - h along), plus the residual */
template <typename T, bool Wide>
static __device__ __forceinline__ void write_dx(const norm_call &c, tiles &v, const tile &residual, int64_t first,
                                                const columns &at, const statistics &s, float level, float along) {
    enum { N = pack<T>::SIZE };
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        float d[N], x[N], g[N], old[N] = {0.0f};
        if (i * at.step >= at.left) break;
        keep_words(v.d[i]);
        keep_words(v.x[i]);
        words<T>::open(d, v.d[i]);
        words<T>::open(x, v.x[i]);
        if (c.residual != NULL) words<T>::open(old, residual[i]);
        load_gain<Wide>(g, c, at, i);
#pragma unroll
        for (int j = 0; j < N; j++) {
            const float h = (x[j] - s.mean) * s.rstd;
            d[j] = (d[j] * g[j] - level - h * along) * s.rstd;
            if (c.residual != NULL) d[j] += old[j];
        }
        store<Wide>(static_cast<T *>(c.dx) + first + at.first, d, i * at.step, end_of<Wide>(at));
    }
}

/* Processes a row: its terms of the sums over rows, then dx, which may alias dy, x or the residual. One: rows are of
 * one tile. */
template <typename T, bool Wide, bool One>
static __device__ __forceinline__ void row_backward(const norm_call &c, int64_t r, bool is_row,
                                                    column_sums<pack<T>::SIZE> &sums, const team &t) {
    const int64_t first = r * c.width, end = is_row ? c.width : 0, span = One ? INT64_MAX / 2 : tile_width<T>(t);
    statistics s = {0.0f, 0.0f};
    float level = 0.0f, along = 0.0f;
    tiles v = {};
    tile residual = {};
    if (is_row) take_all<T, Wide>(v, c, first, columns_of<T>(0, c.width, t));
    if (c.rstd == NULL) s = statistics_of<T, Wide>(c, c.x, first, is_row, t, v.x);
    else if (is_row) s.rstd = c.rstd[r], s.mean = c.layer ? c.mean[r] : 0.0f;
    for (int64_t from = 0; from < end; from += span) {
        const columns at = columns_of<T>(from, c.width, t);
        if (!One) take_all<T, Wide>(v, c, first, at);
        sum_tile<T, Wide, One>(c, v, at, s, sums, &level, &along);
    }
    if (c.dx == NULL) return;
    if (One && is_row && c.residual != NULL) take<T, Wide>(residual, c.residual, first, columns_of<T>(0, c.width, t));
    level = c.layer ? team_sum(level, t) / static_cast<float>(c.width) : 0.0f;
    along = team_sum(along, t) / static_cast<float>(c.width);
    for (int64_t from = 0; from < end; from += span) {
        const columns at = columns_of<T>(from, c.width, t);
        if (!One) take_all<T, Wide>(v, c, first, at);
        if (!One && c.residual != NULL) take<T, Wide>(residual, c.residual, first, at);
        write_dx<T, Wide>(c, v, residual, first, at, s, level, along);
    }
}

/* Adds a block's teams in order into the run's sums. */
static __device__ __forceinline__ void add_teams(float *run, const float *sums, int teams, int64_t apart,
                                                 int64_t width) {
    for (int64_t j = threadIdx.x; j < width; j += BLOCK) {
        float sum = 0.0f;
        for (int i = 0; i < teams; i++) sum += sums[i * apart + j];
        run[j] = sum;
    }
}

/* Zeroes this thread's columns. */
template <int N> static __device__ __forceinline__ void clear_columns(float *sums, int64_t width, const team &t) {
    for (int64_t at = t.lane * N; sums != NULL && at < width; at += t.size * N)
        for (int i = 0; i < N && at + i < width; i++) sums[at + i] = 0.0f;
}

template <typename T, bool Wide, bool One>
static __device__ __forceinline__ void run_backward(const norm_call &c, int team_threads, float *partial,
                                                    float *of_teams) {
    enum { N = pack<T>::SIZE };
    const team t = team_of(team_threads, partial);
    const int teams = BLOCK / t.size, own = static_cast<int>(threadIdx.x) / t.size;
    const int64_t runs = gridDim.x, run = blockIdx.x, apart = RUNS_DISTANCE(c.width);
    const int64_t begin = c.rows * run / runs;
    const int n = static_cast<int>(c.rows * (run + 1) / runs - begin);
    float *const gain_run = c.gain_runs == NULL ? NULL : c.gain_runs + run * apart;
    float *const bias_run = c.bias_runs == NULL ? NULL : c.bias_runs + run * apart;
    column_sums<N> sums = {};
    sums.gain = One ? NULL : gain_run;
    sums.bias = One && bias_run != NULL ? of_teams + own * apart : bias_run;
    clear_columns<N>(sums.gain, c.width, t);
    clear_columns<N>(sums.bias, c.width, t);
    for (int i = own; i - own < n; i += teams) row_backward<T, Wide, One>(c, begin + i, i < n, sums, t);
    if (!One) return;
    if (bias_run != NULL) {
        __syncthreads();
        add_teams(bias_run, of_teams, teams, apart, c.width);
        __syncthreads();
    }
    if (gain_run == NULL) return;
    const columns at = columns_of<T>(0, c.width, t);
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        if (i * at.step >= at.left) break;
        store<Wide>(of_teams + own * apart + at.first, sums.held[i], i * at.step, end_of<Wide>(at));
    }
    __syncthreads();
    add_teams(gain_run, of_teams, teams, apart, c.width);
}

template <typename T, bool Wide>
static __global__ void __launch_bounds__(BLOCK, resident<T, Wide>::BACKWARD)
    norm_rows_backward(const norm_call c, int team_threads) {
    CUDA_SHARED(float, partial, [MOST_WARPS]);
    CUDA_SHARED_DYNAMIC(float, of_teams);
    run_backward<T, Wide, true>(c, team_threads, partial, of_teams);
}

template <typename T, bool Wide>
static __global__ void __launch_bounds__(BLOCK, 1) norm_long_rows_backward(const norm_call c, int team_threads) {
    CUDA_SHARED(float, partial, [MOST_WARPS]);
    run_backward<T, Wide, false>(c, team_threads, partial, NULL);
}

extern "C" cudaError_t norm_backward_launch(const norm_call *call, cudaStream_t stream) {
    const int team = team_of_row(call->width, call->dtype);
    const bool one_tile = call->width <= static_cast<int64_t>(HELD) * team * cells_of_16(call->dtype);
    const bool has_sums = call->gain_runs != NULL || call->bias_runs != NULL;
    const size_t shared = has_sums ? static_cast<size_t>(BLOCK / team * RUNS_DISTANCE(call->width) * 4) : 0;
    const bool wide = rows_are_wide(call) && is_wide(call->x, call->dy, call->dx, call->residual, call->gain);
    const dim3 grid(static_cast<unsigned>(norm_runs(call->rows, call->width, call->dtype)));
    if (call->rows == 0) return cudaSuccess;
    if (one_tile) LAUNCH_CELLS(norm_rows_backward, call->dtype, wide, grid, BLOCK, shared, stream, *call, team);
    else LAUNCH_CELLS(norm_long_rows_backward, call->dtype, wide, grid, BLOCK, 0, stream, *call, team);
    return cudaGetLastError();
}
