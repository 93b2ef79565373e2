/* roofline_library.c: oneDNN's two matmuls with different kernels: sgemm, and the primitive matmul, which on AVX-512
 * has its own (2.6.3: for rows without gaps; others use sgemm). Neither is faster at all shapes. A second operand in
 * the primitive's preferred layout is no third variant: a step would have to reorder each one, and with that it was
 * slower than the better of the two for all 18 tested LLaMA matmuls. */
#include "roofline_library.h"

#include <string.h>

typedef struct matrix {
    dnnl_dims_t sizes, strides;
    dnnl_data_type_t type;
} matrix;

static matrix matrix_of(dnnl_data_type_t type, int64_t rows, int64_t columns, int64_t ld, bool transposed) {
    const matrix m = {{rows, columns}, {transposed ? 1 : ld, transposed ? ld : 1}, type};
    return m;
}

#if DNNL_VERSION_MAJOR >= 3

typedef dnnl_memory_desc_t description;

static dnnl_status_t describe_matrix(description *d, const matrix *m) {
    return dnnl_memory_desc_create_with_strides(d, 2, m->sizes, m->type, m->strides);
}

static void forget_description(description *d) {
    if (*d != NULL) (void)dnnl_memory_desc_destroy(*d);
}

static dnnl_status_t choose_product(dnnl_primitive_desc_t *chosen, dnnl_engine_t engine, const description d[3]) {
    return dnnl_matmul_primitive_desc_create(chosen, engine, d[0], d[1], NULL, d[2], NULL);
}

static dnnl_status_t wrap_operand(dnnl_memory_t *memory, const description *d, dnnl_engine_t engine, void *at) {
    return dnnl_memory_create(memory, *d, engine, at);
}

#else

typedef dnnl_memory_desc_t description;

static dnnl_status_t describe_matrix(description *d, const matrix *m) {
    return dnnl_memory_desc_init_by_strides(d, 2, m->sizes, m->type, m->strides);
}

static void forget_description(description *d) {
    (void)d;
}

static dnnl_status_t choose_product(dnnl_primitive_desc_t *chosen, dnnl_engine_t engine, const description d[3]) {
    dnnl_matmul_desc_t operation;
    const dnnl_status_t status = dnnl_matmul_desc_init(&operation, &d[0], &d[1], NULL, &d[2]);
    if (status != dnnl_success) return status;
    return dnnl_primitive_desc_create(chosen, &operation, NULL, engine, NULL);
}

static dnnl_status_t wrap_operand(dnnl_memory_t *memory, const description *d, dnnl_engine_t engine, void *at) {
    return dnnl_memory_create(memory, d, engine, at);
}

#endif

static dnnl_status_t create_product(library_run *run, const description d[3]) {
    const library_operands *of = &run->of;
    dnnl_primitive_desc_t chosen = NULL;
    dnnl_status_t status = choose_product(&chosen, run->engine, d);
    if (status == dnnl_success) status = dnnl_primitive_create(&run->primitive, chosen);
    if (chosen != NULL) (void)dnnl_primitive_desc_destroy(chosen);
    if (status == dnnl_success) status = wrap_operand(&run->a, &d[0], run->engine, of->a);
    if (status == dnnl_success) status = wrap_operand(&run->b, &d[1], run->engine, of->b);
    if (status == dnnl_success) status = wrap_operand(&run->c, &d[2], run->engine, of->c);
    return status;
}

dnnl_status_t library_begin(library_run *run, library_way way, const library_operands *of) {
    const matrix m[3] = {matrix_of(of->type, of->m, of->k, of->lda, of->transpose_a),
                         matrix_of(of->type, of->k, of->n, of->ldb, of->transpose_b),
                         matrix_of(dnnl_f32, of->m, of->n, of->ldc, false)};
    description d[3];
    dnnl_status_t status = dnnl_success;
    memset(run, 0, sizeof *run);
    memset(d, 0, sizeof d);
    run->of = *of;
    run->way = way;
    if (way == LIBRARY_SGEMM) return dnnl_success;
    status = dnnl_engine_create(&run->engine, dnnl_cpu, 0);
    if (status == dnnl_success) {
        status = dnnl_stream_create(&run->stream, run->engine, dnnl_stream_default_flags);
    }
    for (int i = 0; i < 3 && status == dnnl_success; i++) status = describe_matrix(&d[i], &m[i]);
    if (status == dnnl_success) status = create_product(run, d);
    for (int i = 0; i < 3; i++) forget_description(&d[i]);
    return status;
}

static dnnl_status_t execute_product(const library_run *run) {
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, run->a}, {DNNL_ARG_WEIGHTS, run->b}, {DNNL_ARG_DST, run->c}};
    const dnnl_status_t status = dnnl_primitive_execute(run->primitive, run->stream, 3, args);
    return status == dnnl_success ? dnnl_stream_wait(run->stream) : status;
}

dnnl_status_t library_product(const library_run *run) {
    const library_operands *p = &run->of;
    if (run->way == LIBRARY_MATMUL) return execute_product(run);
    return dnnl_sgemm(p->transpose_a ? 'T' : 'N', p->transpose_b ? 'T' : 'N', p->m, p->n, p->k, 1.0f, p->a, p->lda,
                      p->b, p->ldb, 0.0f, p->c, p->ldc);
}

void library_end(library_run *run) {
    if (run->a != NULL) (void)dnnl_memory_destroy(run->a);
    if (run->b != NULL) (void)dnnl_memory_destroy(run->b);
    if (run->c != NULL) (void)dnnl_memory_destroy(run->c);
    if (run->primitive != NULL) (void)dnnl_primitive_destroy(run->primitive);
    if (run->stream != NULL) (void)dnnl_stream_destroy(run->stream);
    if (run->engine != NULL) (void)dnnl_engine_destroy(run->engine);
}
