/* algorithm.h: which of cuBLASLt's ways a product takes; of product.c, algorithm.c and choices.c. */
#ifndef WEFT_DEVICE_CUDA_ALGORITHM_H
#define WEFT_DEVICE_CUDA_ALGORITHM_H

#include <pthread.h>

#include "cuda.h"

enum { CUDA_BUCKETS = 256 };

/* All that the choice may depend on. No padding: it is compared by its bytes. */
typedef struct cuda_shape {
    int64_t m, n, k, lda, ldb, ldc;
    int32_t dtype, dtype_c; /* of a and b, and of c */
    int32_t transpose_a, transpose_b;
    int32_t accumulate, has_bias;
    int32_t tf32;
    int32_t a_is_part; /* as of cuda_product */
} cuda_shape;

/* What each row of a matrix begins on, in bytes, where the matrix itself does: by the distance of its rows, so that the
 * choice depends on the shape alone. A power of two; more than CUDA_ALIGNED gives no other ways. */
#define CUDA_ALIGNED 16
static inline uint32_t cuda_row_alignment(int64_t ld, int32_t dtype) {
    const uint64_t bytes = (uint64_t)(ld * cell_bytes(dtype)), lowest = bytes & (~bytes + 1);
    return lowest > CUDA_ALIGNED ? CUDA_ALIGNED : (uint32_t)lowest;
}
/* Of a, which may begin within the rows of a wider matrix, a multiple of its own width from their begin. */
static inline uint32_t cuda_a_alignment(int64_t lda, int64_t width, bool is_part, int32_t dtype) {
    return cuda_row_alignment(is_part ? lda | width : lda, dtype);
}

/* A product's description in cuBLASLt's terms, and its way. There, matrices have columns side by side: our C is C's
 * transpose, made from B's and A's in that order. */
typedef struct cuda_algorithm {
    struct cuda_algorithm *in_bucket, *next; /* the next one in its bucket; the next one that was asked for */
    cuda_shape shape;
    bool has_description, is_chosen;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t b, a, c;
    cublasLtMatmulAlgo_t way;
} cuda_algorithm;

struct cuda_algorithms {
    pthread_mutex_t lock; /* of the list and the buckets: a workspace may be asked for by any thread */
    cuda_algorithm *buckets[CUDA_BUCKETS];
    cuda_algorithm *first, *last; /* in the order in which they were asked for */
    int64_t n;
    cublasLtMatmulPreference_t preference;
};

/* "bf16 to fp32, nt 2048x4096x1024, rows 1024 1024 4096 apart, added" (choices.c). */
void cuda_shape_print(char *out, size_t size, const cuda_shape *s);

/* A product of that shape will be made. Where there is no memory for the note it is chosen when it is made. */
void cuda_algorithm_note(const weft_device *device, const cuda_shape *shape);
/* The one of that shape, with its way, which is chosen now if it was not yet; it lives as long as the device. */
weft_status cuda_algorithm_find(cuda_algorithm **out, weft_device *device, const cuda_shape *shape, weft_error *err);
/* The i-th that was asked for; the one of that shape, or NULL. */
cuda_algorithm *cuda_algorithm_at(const weft_device *device, int64_t i);
cuda_algorithm *cuda_algorithm_known(const weft_device *device, const cuda_shape *shape);
/* From here on the shape's way is this one. WEFT_E_UNSUPPORTED: cuBLASLt does not take it here. */
weft_status cuda_algorithm_take(weft_device *device, cuda_algorithm *a, const cublasLtMatmulAlgo_t *way,
                                weft_error *err);

weft_status cuda_algorithms_open(weft_device *device, weft_error *err);
void cuda_algorithms_close(weft_device *device);

#endif
