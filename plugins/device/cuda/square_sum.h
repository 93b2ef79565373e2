/* square_sum.h: sums of squares in fp64, in the order that the contract of numbers fixes (square_sum.cu). */
#ifndef WEFT_DEVICE_CUDA_SQUARE_SUM_H
#define WEFT_DEVICE_CUDA_SQUARE_SUM_H

#include <stdbool.h>
#include <stdint.h>

#include <cuda_runtime.h>

#include <weft/device.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SQUARE_BLOCK 64    /* elements that are summed in order */
#define SQUARE_SPAN  65536 /* elements that a block of threads takes at most: a sub-tree of their own */

/* A unit is what one block of threads sums: a cell, or a span, or one of the sums that are there already. */
typedef struct squares_call {
    const void *x; /* fp32; or fp64 sums */
    double *out;
    const char *extents; /* rows `stride` bytes apart, on the card; NULL: `all` is the only one */
    int64_t stride, n_extents, n;
    weft_extent all;
    int64_t x_limit, out_limit; /* elements up to the ends of their buffers */
    int64_t unit, most_units;   /* elements of one; how many all extents have at most */
    bool is_cells, is_f64;      /* each unit has a sum of its own in out; x is fp64 */
    int64_t *first;             /* (n_extents + 2): units before each extent, and in all; 1 if the table does not fit */
    double *sums;               /* (most_units), unless is_cells */
} squares_call;
cudaError_t squares_launch(const squares_call *call, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
