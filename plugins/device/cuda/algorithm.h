/* algorithm.h: selects a cuBLASLt algorithm per matmul shape; shared by product.c, algorithm.c, measure.c and
 * choices.c. */
#ifndef WEFT_DEVICE_CUDA_ALGORITHM_H
#define WEFT_DEVICE_CUDA_ALGORITHM_H

#include <pthread.h>

#include "cuda.h"

enum { CUDA_BUCKETS = 256, CUDA_RESULTS = 8 /* of the heuristic, that are measured */ };

/* All inputs of the selection. No padding, because it is compared by bytes. */
typedef struct cuda_shape {
    int64_t m, n, k, lda, ldb, ldc;
    int32_t dtype, dtype_c; /* of a and b, and of c */
    int32_t transpose_a, transpose_b;
    int32_t accumulate, has_bias;
    int32_t tf32;
    int32_t a_is_part; /* see cuda_product */
} cuda_shape;

/* Alignment in bytes of every row of an aligned matrix. It follows from the row distance, so the selection depends only
 * on the shape. A power of two; alignments above CUDA_ALIGNED enable no further algorithms. */
#define CUDA_ALIGNED 16
static inline uint32_t cuda_row_alignment(int64_t ld, int32_t dtype) {
    const uint64_t bytes = (uint64_t)(ld * cell_bytes(dtype)), lowest = bytes & (~bytes + 1);
    return lowest > CUDA_ALIGNED ? CUDA_ALIGNED : (uint32_t)lowest;
}
/* For `a`, which may start inside the rows of a wider matrix, at a multiple of its own width. */
static inline uint32_t cuda_a_alignment(int64_t lda, int64_t width, bool is_part, int32_t dtype) {
    return cuda_row_alignment(is_part ? lda | width : lda, dtype);
}

/* A matmul's description for cuBLASLt, and its algorithm. cuBLASLt is column-major: our C is its C transposed, computed
 * from B and A in that order. */
typedef struct cuda_algorithm {
    struct cuda_algorithm *in_bucket, *next; /* next in the bucket; next in order of registration */
    cuda_shape shape;
    bool has_description, is_chosen;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t b, a, c;
    cublasLtMatmulAlgo_t way;
} cuda_algorithm;

struct cuda_algorithms {
    pthread_mutex_t lock; /* guards the list and the buckets: any thread may query a workspace */
    cuda_algorithm *buckets[CUDA_BUCKETS];
    cuda_algorithm *first, *last; /* in order of registration */
    int64_t n;
    cublasLtMatmulPreference_t preference;
    bool cannot_store; /* measured algorithms: nothing is measured */
};

/* "bf16 to fp32, nt 2048x4096x1024, rows 1024 1024 4096 apart, added" (choices.c). */
void cuda_shape_print(char *out, size_t size, const cuda_shape *s);

/* Registers a shape that will be multiplied. If memory for the entry is missing, the algorithm is selected at the first
 * matmul. */
void cuda_algorithm_note(const weft_device *device, const cuda_shape *shape);
/* Returns the entry of that shape, and selects its algorithm if there is none: by the shape only, or with `measures`
 * the fastest. It lives as long as the device. */
weft_status cuda_algorithm_find(cuda_algorithm **out, weft_device *device, const cuda_shape *shape, bool measures,
                                weft_error *err);
/* Return the i-th registered entry, or the entry of that shape; NULL: no such entry. */
cuda_algorithm *cuda_algorithm_at(const weft_device *device, int64_t i);
cuda_algorithm *cuda_algorithm_known(const weft_device *device, const cuda_shape *shape);
/* Sets the shape's algorithm. Fails with WEFT_E_UNSUPPORTED if cuBLASLt rejects it on this GPU. */
weft_status cuda_algorithm_take(weft_device *device, cuda_algorithm *a, const cublasLtMatmulAlgo_t *way,
                                weft_error *err);

/* measure.c: sets the fastest of the heuristic's n results, or the one that an earlier run on this machine has stored.
 * Keeps the first one without the key `measure`, for small matmuls, and without free memory for the operands. */
weft_status cuda_algorithm_measure(weft_device *device, cuda_algorithm *a, const cublasLtMatmulHeuristicResult_t *found,
                                   int n, weft_error *err);

weft_status cuda_algorithms_open(weft_device *device, weft_error *err);
void cuda_algorithms_close(weft_device *device);

#endif
