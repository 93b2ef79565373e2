/* host/report/precision.c: see precision.h. Runs one medium-sized GEMM with the device's own kernel, alternating
 * between both types, so that both run under the same load; the best time of each counts. */
#include "report/precision.h"

#include "base/clock.h"
#include "base/sizes.h"
#include "report/rater.h"
#include "plugin/enter.h"

/* c (ROWS, COLUMNS) = x w^T, as in a linear layer: 0.1 GFLOP with operands in the cache. */
enum { ROWS = 256, COLUMNS = 384, INNER = 512, LEAST_ROUNDS = 3, MOST_ROUNDS = 15 };
static const double enough_seconds = 0.01;
static const double clearly = 1.05;

typedef struct pair {
    const weft_engine *engine;
    weft_buffer *buffer;
    weft_matmul f32, half;
} pair;

/* Describes the GEMM: operands at the offsets of fp32, followed by the workspace. */
static weft_matmul product_of(int32_t dtype) {
    const int64_t x = weft_f32_bytes((int64_t)ROWS * INNER), w = weft_f32_bytes((int64_t)COLUMNS * INNER);
    const int64_t c = weft_f32_bytes((int64_t)ROWS * COLUMNS);
    const weft_matmul args = {.struct_size = (uint32_t)sizeof args,
                              .b = {NULL, x},
                              .c = {NULL, x + w},
                              .workspace = {NULL, x + w + c},
                              .m = ROWS,
                              .n = COLUMNS,
                              .k = INNER,
                              .lda = INNER,
                              .ldb = INNER,
                              .ldc = COLUMNS,
                              .dtype_a = dtype,
                              .dtype_b = dtype,
                              .dtype_c = dtype,
                              .transpose_b = 1};
    return args;
}

static weft_status take_memory(pair *self, weft_error *err) {
    const weft_engine *engine = self->engine;
    weft_matmul *const both[] = {&self->f32, &self->half};
    int64_t workspace = 0;
    weft_status status = WEFT_OK;
    for (int i = 0; i < 2; i++) {
        const int64_t bytes = engine->kernels->matmul_workspace(engine->device, both[i]);
        workspace = bytes > workspace ? bytes : workspace;
    }
    status = weft_rater_take(engine, &self->buffer, self->f32.workspace.offset + weft_cache_lines(workspace), err);
    for (int i = 0; i < 2; i++)
        both[i]->a.buffer = both[i]->b.buffer = both[i]->c.buffer = both[i]->workspace.buffer = self->buffer;
    return status;
}

static weft_status time_product(const pair *self, double *least, const weft_matmul *args, weft_error *err) {
    const weft_engine *engine = self->engine;
    const double begin = weft_clock_seconds();
    double seconds = 0.0;
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, engine->kernels, matmul, err, engine->device, NULL, args);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, engine->kernels, synchronize, err, engine->device, NULL);
    seconds = weft_clock_seconds() - begin;
    if (seconds < *least) *least = seconds;
    return status;
}

/* Times both types; the first run of each is a warm-up. */
static weft_status time_both(const pair *self, weft_precision_speeds *out, weft_error *err) {
    const double operations = 2.0 * ROWS * COLUMNS * INNER, begin = weft_clock_seconds();
    double f32 = 1e300, half = 1e300;
    weft_status status = WEFT_OK;
    for (int i = 0; status == WEFT_OK && i < MOST_ROUNDS; i++) {
        if (i > LEAST_ROUNDS && weft_clock_seconds() - begin > enough_seconds) break;
        status = time_product(self, &f32, &self->f32, err);
        if (status == WEFT_OK) status = time_product(self, &half, &self->half, err);
        if (i == 0) f32 = half = 1e300;
    }
    if (status != WEFT_OK) return status;
    out->f32 = operations / f32;
    out->half = operations / half;
    return WEFT_OK;
}

weft_status weft_precision_compare(weft_precision_speeds *out, weft_engine *engine, weft_error *err) {
    const weft_precision_speeds none = {0};
    pair self = {.engine = engine, .f32 = product_of(WEFT_F32), .half = product_of(engine->plan.dtype)};
    weft_status status = WEFT_OK;
    *out = none;
    if (engine->plan.dtype == WEFT_F32 || (engine->device_info.flags & WEFT_DEVICE_SHARES_MACHINE) == 0) return WEFT_OK;
    status = take_memory(&self, err);
    if (status == WEFT_OK) status = time_both(&self, out, err);
    weft_rater_give(engine, self.buffer);
    return status;
}

bool weft_precision_is_slower(const weft_precision_speeds *self) {
    return self->half > 0.0 && self->f32 > clearly * self->half;
}
