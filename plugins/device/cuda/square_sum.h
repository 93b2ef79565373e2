/* square_sum.h: sums of squares in fp64, in the order that the deterministic-sum contract fixes (square_sum.cu). */
#ifndef WEFT_DEVICE_CUDA_SQUARE_SUM_H
#define WEFT_DEVICE_CUDA_SQUARE_SUM_H

#include <stdbool.h>
#include <stdint.h>

#include <cuda_runtime.h>

#include <weft/device.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SQUARE_BLOCK 64    /* elements summed in order */
#define SQUARE_SPAN  65536 /* maximum elements per thread block: one sub-tree */

/* A unit is the input of one thread block: a cell, a span, or one of the existing sums. */
typedef struct squares_call {
    const void *x; /* fp32, or fp64 sums */
    double *out;
    const char *extents; /* rows `stride` bytes apart, in device memory; NULL: `all` is the only extent */
    int64_t stride, n_extents, n;
    weft_extent all;
    int64_t x_limit, out_limit; /* elements up to the ends of their buffers */
    int64_t unit, most_units;   /* elements per unit; maximum number of units of all extents */
    bool is_cells, is_f64;      /* each unit has its own sum in out; x is fp64 */
    int64_t *first;             /* (n_extents + 2): units before each extent, total; 1 if out of bounds */
    double *sums;               /* (most_units), unless is_cells */
} squares_call;
cudaError_t squares_launch(const squares_call *call, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
