/* roofline_library.h: one complete matmul by the matrix library, in one of two implementations; bf16 has only the
 * second. It uses OpenMP's number of threads at begin and at run. */
#ifndef WEFT_DEVICE_CPU_ROOFLINE_LIBRARY_H
#define WEFT_DEVICE_CPU_ROOFLINE_LIBRARY_H

#include <dnnl.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum library_way { LIBRARY_SGEMM, LIBRARY_MATMUL } library_way;

/* c (m, n; rows ldc apart) = op(a) op(b), row-major; op(a) is (m, k) and op(b) (k, n), of `type`; c is fp32. */
typedef struct library_operands {
    int64_t m, n, k, lda, ldb, ldc;
    bool transpose_a, transpose_b;
    dnnl_data_type_t type; /* dnnl_f32 or dnnl_bf16 */
    void *a, *b;
    float *c;
} library_operands;

typedef struct library_run {
    library_operands of;
    library_way way;
    dnnl_engine_t engine; /* this and the following are NULL with LIBRARY_SGEMM */
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    dnnl_memory_t a, b, c;
} library_run;

/* The caller ends `run` even after a failure. */
dnnl_status_t library_begin(library_run *run, library_way way, const library_operands *of);
dnnl_status_t library_product(const library_run *run);
void library_end(library_run *run);

#endif
