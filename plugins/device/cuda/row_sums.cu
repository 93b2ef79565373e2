/* row_sums.cu: see row_sums.h. Within a run, eight threads share a pack of columns: each adds every eighth row in
 * order, then the eight are added in order. */
#include "row_sums.h"

#include "cells.cuh"

#define COLUMNS   32 /* threads along the columns */
#define ROWS      8  /* threads that share a column */
#define MOST_RUNS 128
#define RUN_ROWS  64 /* minimum */

extern "C" int64_t row_sums_runs(int64_t rows) {
    const int64_t runs = (rows + RUN_ROWS - 1) / RUN_ROWS;
    return runs < MOST_RUNS ? runs : MOST_RUNS;
}

/* Block (x, y): run x, columns of tile y. */
template <typename T, bool Wide>
static __global__ void __launch_bounds__(COLUMNS *ROWS) sum_run(const row_sums_call c) {
    enum { N = pack<T>::SIZE };
    CUDA_SHARED(float, partial, [ROWS][COLUMNS * N]);
    const int column = static_cast<int>(threadIdx.x) % COLUMNS, part = static_cast<int>(threadIdx.x) / COLUMNS;
    const int64_t tile = static_cast<int64_t>(blockIdx.y) * COLUMNS * N, at = tile + column * N;
    const int64_t runs = gridDim.x, run = blockIdx.x;
    const int64_t begin = c.rows * run / runs, end = c.rows * (run + 1) / runs;
    float sum[N] = {0.0f};
#pragma unroll 4
    for (int64_t r = begin + part; r < end; r += ROWS) {
        float v[N];
        load<Wide>(v, static_cast<const T *>(c.x) + r * c.ld, at, c.width);
#pragma unroll
        for (int i = 0; i < N; i++) sum[i] += v[i];
    }
#pragma unroll
    for (int i = 0; i < N; i++) partial[part][column * N + i] = sum[i];
    __syncthreads();
    for (int j = threadIdx.x; j < COLUMNS * N && tile + j < c.width; j += COLUMNS * ROWS) {
        float total = 0.0f;
#pragma unroll
        for (int i = 0; i < ROWS; i++) total += partial[i][j];
        c.runs[run * RUNS_DISTANCE(c.width) + tile + j] = total;
    }
}

extern "C" cudaError_t row_sums_launch(const row_sums_call *call, cudaStream_t stream) {
    const int64_t runs = row_sums_runs(call->rows), bytes = cell_bytes(call->dtype);
    const int64_t tiles = blocks_for(call->width, COLUMNS * 16 / bytes);
    const bool wide = is_wide(call->x) && call->ld * bytes % 16 == 0;
    const runs_call all = {call->out, call->runs, runs, call->width, call->accumulate};
    if (runs > 0) {
        const dim3 grid(static_cast<unsigned>(runs), static_cast<unsigned>(tiles));
        LAUNCH_CELLS(sum_run, call->dtype, wide, grid, COLUMNS * ROWS, 0, stream, *call);
        if (const cudaError_t code = cudaGetLastError()) return code;
    }
    return runs_launch(&all, stream);
}

/* ---- sum of the runs ---- */

#define RUNS_COLUMNS 32
#define RUNS_PARTS   16 /* threads that share a column: each adds every sixteenth run in order */

static __global__ void __launch_bounds__(RUNS_COLUMNS *RUNS_PARTS) add_runs(const runs_call c) {
    CUDA_SHARED(float, partial, [RUNS_PARTS][RUNS_COLUMNS]);
    const int column = static_cast<int>(threadIdx.x) % RUNS_COLUMNS,
              part = static_cast<int>(threadIdx.x) / RUNS_COLUMNS;
    const int64_t at = static_cast<int64_t>(blockIdx.x) * RUNS_COLUMNS + column, distance = RUNS_DISTANCE(c.width);
    float sum = 0.0f;
    if (at < c.width)
#pragma unroll 8
        for (int64_t i = part; i < c.n; i += RUNS_PARTS) sum += c.runs[i * distance + at];
    partial[part][column] = sum;
    __syncthreads();
    if (part != 0 || at >= c.width) return;
    for (int i = 1; i < RUNS_PARTS; i++) sum += partial[i][column];
    c.out[at] = c.accumulate ? c.out[at] + sum : sum;
}

extern "C" cudaError_t runs_launch(const runs_call *call, cudaStream_t stream) {
    const dim3 grid(static_cast<unsigned>(blocks_for(call->width, RUNS_COLUMNS)));
    if (call->width == 0 || (call->n == 0 && call->accumulate)) return cudaSuccess;
    CUDA_LAUNCH((add_runs), grid, RUNS_COLUMNS * RUNS_PARTS, 0, stream, *call);
    return cudaGetLastError();
}
