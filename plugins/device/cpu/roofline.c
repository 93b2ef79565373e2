/* roofline.c: the extension WEFT_DEVICE_ROOFLINE: measures the peak performance of these processors.
 *
 * Each measurement runs a few times and the best counts: a peak lowered by a busy machine would overstate a step's
 * efficiency. oneDNN computes the complete matmul with all threads and its own division, in two of its implementations.
 * This device's kernels do not use that (see product.c). */
#include <omp.h>

#include <weft/roofline.h>

#include "cpu.h"
#include "roofline_library.h"

#define TRIALS      5
#define SECONDS     0.15                                          /* minimum duration of the trials */
#define ROUNDS      ((int64_t)2 << 20)                            /* of multiply_add: a few milliseconds */
#define ARRAY       ((int64_t)32 << 20)                           /* floats per array of the bandwidth test */
#define ARRAY_BYTES (3.0 * (double)ARRAY * (double)sizeof(float)) /* per y = a + b or y += a */
#define MOST_BYTES  ((int64_t)512 << 20) /* bytes; a larger matmul is measured by a part of its rows */
#define PAD         16                   /* floats between the rows in the second try */

static weft_status check_type(const weft_device *device, int32_t dtype, weft_error *err) {
    if (dtype == WEFT_F32 || (dtype == WEFT_BF16 && cpu_multiplies_bf16(device))) return WEFT_OK;
    return weft_error_set(
        err, WEFT_E_UNSUPPORTED,
        "The roofline of device cpu is measured in fp32 and, where its instruction set (%s) multiplies "
        "it, in bf16, not in %s.",
        device->isa, weft_dtype_name(dtype));
}
static double multiply_in_registers(const weft_device *device, int32_t dtype, float *left) {
    if (dtype == WEFT_BF16) return device->panels_bf16->peak(left, ROUNDS / 32);
    return device->loops->multiply_add(left, ROUNDS, 0.999f, 0.001f);
}

static weft_status measure_peak(weft_device *device, double *out, int32_t dtype, weft_error *err) {
    double best = 0, rest = 0, spent = 0;
    if (check_type(device, dtype, err) != WEFT_OK) return WEFT_E_UNSUPPORTED;
    for (int i = 0; i < TRIALS || spent < SECONDS; i++) {
        double operations = 0, seconds = 0, begin = 0;
#pragma omp parallel num_threads(device->threads) reduction(+ : operations, rest)
        {
            float left = 0;
#pragma omp barrier
#pragma omp master
            begin = omp_get_wtime();
            operations += multiply_in_registers(device, dtype, &left);
            rest += (double)left;
#pragma omp barrier
#pragma omp master
            seconds = omp_get_wtime() - begin;
        }
        spent += seconds;
        if (operations / seconds > best) best = operations / seconds;
    }
    if (rest != rest)
        return weft_error_set(err, WEFT_E_DEVICE, "The multiplications of device cpu returned no finite number.");
    *out = best;
    return WEFT_OK;
}

/* Returns the seconds of y = a + b by all threads. */
static double add_arrays(const weft_device *device, float *y, const float *a, const float *b) {
    const int64_t pieces = ARRAY / CPU_GRAIN;
    const double begin = omp_get_wtime();
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t p = 0; p < pieces; p++)
        device->loops->f32.add(y + p * CPU_GRAIN, a + p * CPU_GRAIN, b + p * CPU_GRAIN, CPU_GRAIN);
    return omp_get_wtime() - begin;
}

/* Measures both y = a + b and y += a. For an unread y the processor fetches each line before writing it, and those
 * bytes are not counted; an optimizer reads its outputs. */
static weft_status measure_bandwidth(weft_device *device, double *out, weft_error *err) {
    weft_buffer *buffer = NULL;
    double best = 0, spent = 0;
    float *a = NULL, *b = NULL, *y = NULL;
    const weft_status status = cpu_alloc(device, &buffer, 3 * ARRAY * (int64_t)sizeof(float), err);
    if (status != WEFT_OK) return status;
    a = (float *)(void *)buffer->base;
    b = a + ARRAY;
    y = b + ARRAY;
    (void)add_arrays(device, a, b, y); /* the first write maps the array's pages on the thread that uses them later */
    (void)add_arrays(device, b, y, a);
    (void)add_arrays(device, y, a, b);
    for (int i = 0; i < 2 * TRIALS || spent < 2 * SECONDS; i++) {
        const double seconds = add_arrays(device, y, a, i % 2 == 0 ? b : y);
        spent += seconds;
        if (ARRAY_BYTES / seconds > best) best = ARRAY_BYTES / seconds;
    }
    cpu_release(device, buffer);
    *out = best;
    return WEFT_OK;
}

/* ---- one matmul ---- */

static int64_t elements_a(const library_operands *p) {
    return p->lda * (p->transpose_a ? p->k : p->m);
}
static int64_t elements_b(const library_operands *p) {
    return p->ldb * (p->transpose_b ? p->n : p->k);
}
static int64_t element_bytes(const library_operands *p) {
    return p->type == dnnl_bf16 ? 2 : 4;
}
/* Returns bytes rounded up, so that the next part starts on a cache line. */
static int64_t bytes_of(const library_operands *p, int64_t elements) {
    return size_round_up(elements * element_bytes(p), PANEL_LINE);
}
static int64_t operand_bytes(const library_operands *p) {
    return bytes_of(p, elements_a(p)) + bytes_of(p, elements_b(p)) + p->m * p->ldc * (int64_t)sizeof(float);
}

static library_operands operands_of(const weft_roofline_product *p, int64_t m, int64_t pad) {
    const library_operands o = {.m = m,
                                .n = p->n,
                                .k = p->k,
                                .lda = (p->transpose_a ? m : p->k) + pad,
                                .ldb = (p->transpose_b ? p->k : p->n) + pad,
                                .ldc = p->n + pad,
                                .transpose_a = p->transpose_a != 0,
                                .transpose_b = p->transpose_b != 0,
                                .type = p->dtype == WEFT_BF16 ? dnnl_bf16 : dnnl_f32};
    return o;
}

/* Returns the fastest of several runs after an uncounted one. */
static dnnl_status_t fastest_run(const library_run *run, double *best) {
    dnnl_status_t status = library_product(run);
    double spent = 0;
    for (int i = 0; (i < TRIALS || spent < SECONDS) && status == dnnl_success; i++) {
        const double begin = omp_get_wtime();
        double seconds = 0;
        status = library_product(run);
        seconds = omp_get_wtime() - begin;
        spent += seconds;
        if (seconds < *best) *best = seconds;
    }
    return status;
}

static double number_at(const library_operands *p, const void *operand, int64_t i) {
    uint32_t bits = 0;
    float number = 0;
    if (p->type == dnnl_bf16) bits = (uint32_t)((const uint16_t *)operand)[i] << 16;
    else memcpy(&bits, (const float *)operand + i, sizeof bits);
    memcpy(&number, &bits, sizeof number);
    return (double)number;
}

/* Checks one element of c. Its operands are integers small enough for every sum to be exact (fill). */
static bool last_is_right(const library_operands *p) {
    double sum = 0;
    for (int64_t k = 0; k < p->k; k++) {
        sum += number_at(p, p->a, p->transpose_a ? k * p->lda + p->m - 1 : (p->m - 1) * p->lda + k) *
               number_at(p, p->b, p->transpose_b ? (p->n - 1) * p->ldb + k : k * p->ldb + p->n - 1);
    }
    return (double)p->c[(p->m - 1) * p->ldc + p->n - 1] == sum;
}

/* Products of such numbers, and sums of up to 1.8 million of them, are exact in fp32. */
static void fill_with_small_numbers(const library_operands *p, void *operand, int64_t elements) {
    for (int64_t i = 0; i < elements; i++) {
        const float number = (float)(i % 7 - 3);
        uint32_t bits = 0;
        memcpy(&bits, &number, sizeof bits);
        if (p->type == dnnl_bf16) ((uint16_t *)operand)[i] = (uint16_t)(bits >> 16); /* the lower half is zero */
        else ((float *)operand)[i] = number;
    }
}

static weft_status try_way(library_way way, const library_operands *p, double *best, weft_error *err) {
    const char *name = way == LIBRARY_SGEMM ? "sgemm" : "matmul";
    library_run run;
    dnnl_status_t status = dnnl_success;
    p->c[(p->m - 1) * p->ldc + p->n - 1] = 0.5f; /* not a possible sum */
    status = library_begin(&run, way, p);
    if (status == dnnl_success) status = fastest_run(&run, best);
    library_end(&run);
    if (status != dnnl_success) {
        return weft_error_set(err, WEFT_E_DEVICE,
                              "oneDNN rejected a product of %lld x %lld x %lld by %s for the roofline: status %d.",
                              (long long)p->m, (long long)p->n, (long long)p->k, name, (int)status);
    }
    if (last_is_right(p)) return WEFT_OK;
    return weft_error_set(err, WEFT_E_DEVICE,
                          "oneDNN returned a wrong product of %lld x %lld x %lld by %s for the roofline.",
                          (long long)p->m, (long long)p->n, (long long)p->k, name);
}

/* Tries rows as in the model, and rows with padding, which reduces cache conflicts; the fastest counts. */
static weft_status try_all(const weft_roofline_product *product, int64_t m, char *memory, double *best,
                           weft_error *err) {
    weft_status status = WEFT_OK;
    for (int64_t pad = 0; pad <= PAD && status == WEFT_OK; pad += PAD) {
        library_operands p = operands_of(product, m, pad);
        p.a = memory;
        p.b = memory + bytes_of(&p, elements_a(&p));
        p.c = (float *)(void *)((char *)p.b + bytes_of(&p, elements_b(&p)));
        fill_with_small_numbers(&p, p.a, elements_a(&p));
        fill_with_small_numbers(&p, p.b, elements_b(&p));
        memset(p.c, 0, (size_t)(p.m * p.ldc) * sizeof *p.c); /* maps its pages before the measurement */
        if (p.type == dnnl_f32) status = try_way(LIBRARY_SGEMM, &p, best, err);
        if (status == WEFT_OK) status = try_way(LIBRARY_MATMUL, &p, best, err);
    }
    return status;
}

/* Returns the rows of c to measure: all, unless the operands would be too large. */
static int64_t rows_of(const weft_roofline_product *product) {
    int64_t m = product->m;
    library_operands p = operands_of(product, m, PAD);
    while (operand_bytes(&p) > MOST_BYTES && m > 1024) {
        m = size_ceil_div(m, 2);
        p = operands_of(product, m, PAD);
    }
    return m;
}

static weft_status measure_rows(weft_device *device, double *best, const weft_roofline_product *product, int64_t m,
                                weft_error *err) {
    const int threads = omp_get_max_threads();
    const library_operands padded = operands_of(product, m, PAD);
    weft_buffer *buffer = NULL;
    weft_status status = cpu_alloc(device, &buffer, operand_bytes(&padded), err);
    if (status != WEFT_OK) return status;
    omp_set_num_threads(device->threads);
    status = try_all(product, m, buffer->base, best, err);
    omp_set_num_threads(threads);
    cpu_release(device, buffer);
    return status;
}

static weft_status measure_product(weft_device *device, double *out, const weft_roofline_product *product,
                                   weft_error *err) {
    operands c = OPERANDS("roofline", weft_roofline_product, product, err);
    int64_t m = 0;
    double best = 1e300;
    if (c.status == WEFT_OK) c.status = check_type(device, product->dtype, err);
    operands_size(&c, "m", product->m, 1);
    operands_size(&c, "n", product->n, 1);
    operands_size(&c, "k", product->k, 1);
    if (c.status != WEFT_OK) return c.status;
    m = rows_of(product);
    c.status = measure_rows(device, &best, product, m, err);
    if (c.status == WEFT_OK) *out = best * (double)product->m / (double)m;
    return c.status;
}

static const weft_device_roofline roofline = {
    .struct_size = (uint32_t)sizeof(weft_device_roofline),
    .peak = measure_peak,
    .product = measure_product,
    .bandwidth = measure_bandwidth,
};

const void *cpu_extension(const weft_device *device, const char *id) {
    (void)device;
    if (strcmp(id, WEFT_DEVICE_TEAM) == 0) return &cpu_team;
    return strcmp(id, WEFT_DEVICE_ROOFLINE) == 0 ? &roofline : NULL;
}
