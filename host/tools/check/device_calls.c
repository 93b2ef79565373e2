/* host/tools/check/device_calls.c: see device_calls.h. */
#include "tools/check/device_calls.h"

#include "model/convert.h"
#include "plugin/enter.h"
#include "tools/check/rule.h"

#include <math.h>
#include <stdlib.h>
#include <weft/random.h>

weft_status weft_bench_open(weft_bench *self, const weft_device_plugin *kernels, const weft_host *host,
                            const void *config, weft_error *err) {
    weft_status status;
    memset(self, 0, sizeof *self);
    self->kernels = kernels;
    WEFT_PLUGIN_CALL(status, kernels, create, err, &self->device, host, config, 0);
    return status == WEFT_OK && self->device == NULL ? WEFT_BROKEN(err, "create returns WEFT_OK without a device")
                                                     : status;
}

void weft_bench_release(weft_bench *self) {
    while (self->n > 0) self->kernels->release(self->device, self->buffers[--self->n]);
}

void weft_bench_close(weft_bench *self) {
    if (self->device == NULL) return;
    weft_bench_release(self);
    WEFT_PLUGIN_NOTIFY(self->kernels, destroy, self->device);
    self->device = NULL;
}

weft_device_info weft_bench_info(const weft_bench *self) {
    weft_device_info info = {.struct_size = (uint32_t)sizeof info};
    WEFT_PLUGIN_NOTIFY(self->kernels, info, self->device, &info);
    return info;
}

weft_status weft_bench_take(weft_bench *self, weft_ref *out, int64_t bytes, weft_error *err) {
    weft_buffer *buffer = NULL;
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, self->kernels, alloc, err, self->device, &buffer, bytes + 2 * WEFT_BENCH_MARGIN);
    if (status != WEFT_OK) return status;
    self->buffers[self->n++] = buffer;
    *out = (weft_ref){buffer, WEFT_BENCH_MARGIN};
    return WEFT_OK;
}

/* ---- operands ---- */

/* Draws a value in [-1, 1) from the operand and element numbers. */
static float draw(const weft_device_call *c, int64_t i) {
    const uint32_t word = weft_random(977, WEFT_RANDOM_SAMPLE, (uint64_t)c->n, (uint64_t)i).v[0];
    return (float)((double)word / 2147483648.0 - 1.0);
}

static void *add(weft_device_call *c, size_t field, const char *name, int64_t n, int32_t dtype, bool is_result,
                 bool is_filled) {
    weft_call_operand *o = &c->operands[c->n];
    *o = (weft_call_operand){field, name, n, dtype, is_result, NULL};
    if (is_filled) o->data = weft_alloc(weft_dtype_span(dtype, n) + 8, 1);
    for (int64_t i = 0; o->data != NULL && i < n && dtype <= WEFT_F16; i++) {
        const float x = draw(c, i);
        weft_convert((char *)o->data + i * weft_dtype_bytes(dtype), dtype, &x, WEFT_F32, 1);
    }
    c->n++;
    return o->data;
}

/* IN: drawn numbers. OUT: a result. SUM: a result, accumulated if `adds`. The caller fills ints and doubles. */
#define IN(c, type, field, n, dtype)        add(c, offsetof(type, field), #field, n, dtype, false, true)
#define OUT(c, type, field, n, dtype)       add(c, offsetof(type, field), #field, n, dtype, true, false)
#define SUM(c, type, field, n, dtype, adds) add(c, offsetof(type, field), #field, n, dtype, true, adds)

static void fill_ids(int32_t *ids, int64_t n, int32_t most) {
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)((i * 7 + 3) % most);
}

#define BEGIN(c, field, type, called)                                                                                  \
    type *a = &(c)->args.field;                                                                                        \
    a->struct_size = (uint32_t)sizeof *a;                                                                              \
    (c)->name = called

/* ---- kernels; shape: 0, 1, 2 ---- */

static void draw_matmul(weft_device_call *c, int shape) {
    static const int64_t m[] = {1, 37, 96}, n[] = {5, 64, 40}, k[] = {3, 40, 129};
    BEGIN(c, kernel.matmul, weft_matmul, "matmul");
    a->m = m[shape], a->n = n[shape], a->k = k[shape] / 8 * 8 + 8;
    a->transpose_a = shape == 2;
    a->transpose_b = shape != 2;
    a->n = a->n / 8 * 8 + 8;
    a->m = shape == 2 ? a->m / 8 * 8 : a->m;
    a->lda = a->transpose_a ? a->m : a->k;
    a->ldb = a->transpose_b ? a->k : a->n;
    a->ldc = a->n;
    a->dtype_a = a->dtype_b = c->dtype;
    a->dtype_c = shape == 2 ? WEFT_F32 : c->dtype;
    a->accumulate = shape == 2;
    a->has_bias = shape == 1;
    (void)IN(c, weft_matmul, a, a->m * a->k, c->dtype);
    (void)IN(c, weft_matmul, b, a->k * a->n, c->dtype);
    if (a->has_bias) (void)IN(c, weft_matmul, bias, a->n, WEFT_F32);
    (void)SUM(c, weft_matmul, c, a->m * a->n, a->dtype_c, a->accumulate);
    c->kernels[0] = &weft_kernel_matmul;
}

static void draw_sum_rows(weft_device_call *c, int shape) {
    BEGIN(c, kernel.sum_rows, weft_sum_rows, "sum_rows");
    a->rows = 1 + 65 * shape, a->width = 3 + 31 * shape;
    a->accumulate = shape == 1, a->dtype = c->dtype;
    (void)IN(c, weft_sum_rows, x, a->rows * a->width, c->dtype);
    (void)SUM(c, weft_sum_rows, out, a->width, WEFT_F32, a->accumulate);
    c->kernels[0] = &weft_kernel_sum_rows;
}

static void draw_norm(weft_device_call *c, int shape) {
    int64_t n;
    BEGIN(c, kernel.norm, weft_norm, "norm");
    a->rows = 1 + 33 * shape, a->width = 24 + 40 * shape, a->eps = 1e-5, a->dtype = c->dtype;
    a->form = shape == 1 ? WEFT_NORM_LAYER : WEFT_NORM_RMS;
    a->gain_from_one = shape == 2;
    n = a->rows * a->width;
    (void)IN(c, weft_norm, x, n, c->dtype);
    (void)IN(c, weft_norm, gain, a->width, WEFT_F32);
    (void)IN(c, weft_norm, dy, n, c->dtype);
    (void)OUT(c, weft_norm, y, n, c->dtype);
    (void)OUT(c, weft_norm, rstd, a->rows, WEFT_F32);
    (void)OUT(c, weft_norm, dx, n, c->dtype);
    (void)OUT(c, weft_norm, dgain, a->width, WEFT_F32);
    if (shape == 1) {
        (void)IN(c, weft_norm, bias, a->width, WEFT_F32);
        (void)OUT(c, weft_norm, mean, a->rows, WEFT_F32);
        (void)OUT(c, weft_norm, dbias, a->width, WEFT_F32);
    }
    c->kernels[0] = &weft_kernel_norm;
    c->kernels[1] = &weft_kernel_norm_backward;
}

static void draw_rope(weft_device_call *c, int shape) {
    BEGIN(c, kernel.rope, weft_rope, "rope");
    a->rows = 1 + 18 * shape, a->heads = 1 + shape, a->head_dim = 16, a->table_rows = 50, a->dtype = c->dtype;
    a->inverse = shape == 1, a->rotary_dim = shape == 2 ? 8 : 0;
    (void)IN(c, weft_rope, x, a->rows * a->heads * a->head_dim, c->dtype);
    (void)IN(c, weft_rope, table, a->table_rows * (shape == 2 ? 8 : 16), WEFT_F32);
    fill_ids(IN(c, weft_rope, positions, a->rows, WEFT_I32), a->rows, (int32_t)a->table_rows);
    (void)OUT(c, weft_rope, y, a->rows * a->heads * a->head_dim, c->dtype);
    c->kernels[0] = &weft_kernel_rope;
}

static void draw_attention(weft_device_call *c, int shape) {
    int64_t q, k;
    int32_t *starts = NULL;
    BEGIN(c, kernel.attention, weft_attention, "attention");
    a->batch = 1 + shape, a->length = 1 + 36 * shape, a->heads = 4, a->kv_heads = shape == 0 ? 4 : 2, a->head_dim = 16;
    a->scale = 0.25, a->dtype = c->dtype, a->window = shape == 2 ? 9 : 0, a->cap = shape == 1 ? 3.0 : 0.0;
    q = a->batch * a->length * a->heads * a->head_dim;
    k = a->batch * a->length * a->kv_heads * a->head_dim;
    (void)IN(c, weft_attention, q, q, c->dtype);
    (void)IN(c, weft_attention, k, k, c->dtype);
    (void)IN(c, weft_attention, v, k, c->dtype);
    (void)IN(c, weft_attention, d_o, q, c->dtype);
    starts = IN(c, weft_attention, starts, a->batch * a->length, WEFT_I32);
    for (int64_t i = 0; i < a->batch * a->length; i++) /* two documents per sequence */
        starts[i] = i % a->length >= a->length / 3 ? (int32_t)(a->length / 3) : 0;
    (void)OUT(c, weft_attention, o, q, c->dtype);
    (void)OUT(c, weft_attention, lse, a->batch * a->heads * a->length, WEFT_F32);
    (void)OUT(c, weft_attention, dq, q, c->dtype);
    (void)OUT(c, weft_attention, dk, k, c->dtype);
    (void)OUT(c, weft_attention, dv, k, c->dtype);
    c->kernels[0] = &weft_kernel_attention;
    c->kernels[1] = &weft_kernel_attention_backward;
}

static void draw_activation(weft_device_call *c, int shape) {
    BEGIN(c, kernel.activation, weft_activation, "activation");
    a->n = 1 + 250 * shape, a->form = shape, a->dtype = c->dtype;
    (void)IN(c, weft_activation, x, a->n, c->dtype);
    if (shape != 1) (void)IN(c, weft_activation, up, a->n, c->dtype);
    (void)IN(c, weft_activation, dy, a->n, c->dtype);
    (void)OUT(c, weft_activation, y, a->n, c->dtype);
    (void)OUT(c, weft_activation, dx, a->n, c->dtype);
    if (shape != 1) (void)OUT(c, weft_activation, dup, a->n, c->dtype);
    c->kernels[0] = &weft_kernel_activation;
    c->kernels[1] = &weft_kernel_activation_backward;
}

static void draw_embedding(weft_device_call *c, int shape) {
    BEGIN(c, kernel.embedding, weft_embedding, "embedding");
    a->rows = 1 + 40 * shape, a->width = 8 + 16 * shape, a->vocab = 29, a->dtype = a->dtype_table = c->dtype;
    a->accumulate = shape == 1;
    fill_ids(IN(c, weft_embedding, ids, a->rows, WEFT_I32), a->rows, 13);
    (void)IN(c, weft_embedding, table, a->vocab * a->width, c->dtype);
    (void)IN(c, weft_embedding, dy, a->rows * a->width, c->dtype);
    (void)OUT(c, weft_embedding, y, a->rows * a->width, c->dtype);
    (void)SUM(c, weft_embedding, dtable, a->vocab * a->width, WEFT_F32, a->accumulate);
    c->kernels[0] = &weft_kernel_embedding;
    c->kernels[1] = &weft_kernel_embedding_backward;
}

static void draw_head(weft_device_call *c, int shape) {
    float *weights = NULL;
    BEGIN(c, kernel.head_loss, weft_head, "head");
    a->rows = 1 + 20 * shape, a->width = 16, a->vocab = 40 + 24 * shape, a->dtype = c->dtype;
    a->cap = shape == 1 ? 2.0 : 0.0, a->scale = shape == 1 ? 0.5 : 0.0;
    (void)IN(c, weft_head, x, a->rows * a->width, c->dtype);
    (void)IN(c, weft_head, w, a->vocab * a->width, c->dtype);
    fill_ids(IN(c, weft_head, targets, a->rows, WEFT_I32), a->rows, (int32_t)a->vocab);
    weights = IN(c, weft_head, weights, a->rows, WEFT_F32);
    for (int64_t i = 0; i < a->rows; i++) weights[i] = i % 3 == 1 ? 0.0f : 1.0f;
    (void)OUT(c, weft_head, loss, 1, WEFT_F64);
    (void)OUT(c, weft_head, dx, a->rows * a->width, c->dtype);
    (void)OUT(c, weft_head, dw, a->vocab * a->width, WEFT_F32);
    c->kernels[0] = &weft_kernel_head_loss_grad;
    if (shape == 2) c->kernels[1] = &weft_kernel_head_loss;
}

static void draw_scale(weft_device_call *c, int shape) {
    BEGIN(c, kernel.scale, weft_scale, "scale");
    a->n = 1 + 130 * shape, a->factor = 1.75, a->cap = shape == 1 ? 1.0 : 0.0, a->accumulate = shape == 2;
    a->dtype = c->dtype;
    (void)IN(c, weft_scale, x, a->n, c->dtype);
    (void)SUM(c, weft_scale, y, a->n, c->dtype, a->accumulate);
    c->kernels[0] = &weft_kernel_scale;
}

static void draw_add(weft_device_call *c, int shape) {
    BEGIN(c, kernel.add, weft_add, "add");
    a->n = 1 + 130 * shape, a->dtype = c->dtype;
    (void)IN(c, weft_add, a, a->n, c->dtype);
    (void)IN(c, weft_add, b, a->n, c->dtype);
    (void)OUT(c, weft_add, y, a->n, c->dtype);
    c->kernels[0] = &weft_kernel_add;
}

static void draw_multiply(weft_device_call *c, int shape) {
    int64_t n;
    BEGIN(c, kernel.multiply, weft_multiply, "multiply");
    a->rows = 1 + 20 * shape, a->width = 24, a->parts = shape == 0 ? 1 : shape == 1 ? 4 : 24, a->dtype = c->dtype;
    n = a->rows * a->width;
    (void)IN(c, weft_multiply, x, n, c->dtype);
    (void)IN(c, weft_multiply, by, a->parts, WEFT_F32);
    (void)IN(c, weft_multiply, dy, n, c->dtype);
    (void)OUT(c, weft_multiply, y, n, c->dtype);
    (void)OUT(c, weft_multiply, dx, n, c->dtype);
    (void)OUT(c, weft_multiply, dby, a->parts, WEFT_F32);
    c->kernels[0] = &weft_kernel_multiply;
    c->kernels[1] = &weft_kernel_multiply_backward;
}

static void draw_dropout(weft_device_call *c, int shape) {
    BEGIN(c, kernel.dropout, weft_dropout, "dropout");
    a->batch = 1 + shape, a->row = 1 + 300 * shape, a->seed = 7, a->p = 0.25, a->site = 3, a->dtype = c->dtype;
    (void)IN(c, weft_dropout, x, a->batch * a->row, c->dtype);
    *(int64_t *)IN(c, weft_dropout, first, 1, WEFT_I64) = 11;
    (void)OUT(c, weft_dropout, y, a->batch * a->row, c->dtype);
    c->kernels[0] = &weft_kernel_dropout;
}

static void draw_row_norms(weft_device_call *c, int shape) {
    BEGIN(c, kernel.row_norms, weft_row_norms, "row_norms");
    a->rows = 5 + 30 * shape, a->width = 16 + 24 * shape, a->rank = 4 * shape, a->factor = 1.5;
    a->dtype = a->dtype_w = c->dtype;
    (void)IN(c, weft_row_norms, w, a->rows * a->width, c->dtype);
    if (a->rank > 0) (void)IN(c, weft_row_norms, down, a->rank * a->width, c->dtype);
    if (a->rank > 0) (void)IN(c, weft_row_norms, up, a->rows * a->rank, c->dtype);
    (void)OUT(c, weft_row_norms, out, a->rows, WEFT_F32);
    c->kernels[0] = &weft_kernel_row_norms;
}

static void draw_prefix(weft_device_call *c, int shape) {
    int64_t q, k;
    BEGIN(c, kernel.prefix, weft_prefix, "prefix");
    a->batch = 1 + shape, a->length = 1 + 20 * shape, a->heads = 4, a->kv_heads = 2, a->head_dim = 16;
    a->places = 1 + 4 * shape, a->scale = 0.25, a->dtype = c->dtype;
    q = a->batch * a->length * a->heads * a->head_dim;
    k = a->places * a->kv_heads * a->head_dim;
    (void)IN(c, weft_prefix, q, q, c->dtype);
    (void)IN(c, weft_prefix, k, k, c->dtype);
    (void)IN(c, weft_prefix, v, k, c->dtype);
    (void)IN(c, weft_prefix, d_o, q, c->dtype);
    (void)OUT(c, weft_prefix, o, q, c->dtype);
    (void)OUT(c, weft_prefix, lse, a->batch * a->heads * a->length, WEFT_F32);
    (void)OUT(c, weft_prefix, dq, q, c->dtype);
    (void)OUT(c, weft_prefix, dk, k, c->dtype);
    (void)OUT(c, weft_prefix, dv, k, c->dtype);
    c->kernels[0] = &weft_kernel_prefix;
    c->kernels[1] = &weft_kernel_prefix_backward;
}

enum { WIDER = 48 }; /* row bytes beyond this host's struct */

/* Draws extents of x with gaps between them; the last one is short. Rows have the width of a newer ABI. */
static void draw_extents(weft_device_call *c, weft_square_sum *a) {
    static const int64_t lengths[] = {100, 64, 5}, outs[] = {0, 2, 3};
    const int64_t stride = (int64_t)sizeof(weft_extent) + WIDER;
    char *rows = NULL;
    a->n = 100 + 64 + 5, a->n_extents = 3, a->cell = 64, a->extent_stride = (uint32_t)stride;
    (void)IN(c, weft_square_sum, x, 3 * 128, WEFT_F32);
    rows = IN(c, weft_square_sum, extents, 3 * stride / (int64_t)sizeof(int32_t), WEFT_I32);
    for (int32_t i = 0; i < 3; i++) {
        const weft_extent row = {(uint32_t)stride, 0, 128 * i, lengths[i], outs[i]};
        memset(rows + i * stride, 0x77, (size_t)stride);
        memcpy(rows + i * stride, &row, sizeof row);
    }
    (void)OUT(c, weft_square_sum, out, 4, WEFT_F64);
}

static void draw_square_sum(weft_device_call *c, int shape) {
    BEGIN(c, kernel.square_sum, weft_square_sum, "square_sum");
    a->dtype = WEFT_F32;
    if (shape == 2) draw_extents(c, a);
    else {
        a->n = shape == 0 ? 1 : 64 * 7 + 5;
        (void)IN(c, weft_square_sum, x, a->n, WEFT_F32);
        (void)OUT(c, weft_square_sum, out, 1, WEFT_F64);
    }
    c->exact = true;
    c->kernels[0] = &weft_kernel_square_sum;
}

static void draw_clip(weft_device_call *c, int shape) {
    double *sums;
    BEGIN(c, kernel.clip, weft_clip, "clip");
    a->n = 1 + 3 * shape, a->clip = shape == 0 ? 0 : 0.5;
    sums = IN(c, weft_clip, square_sums, a->n, WEFT_F64);
    for (int64_t i = 0; i < a->n; i++) sums[i] = shape == 2 && i == 1 ? INFINITY : 3.0 + (double)i;
    *(double *)IN(c, weft_clip, count, 1, WEFT_F64) = 12;
    (void)OUT(c, weft_clip, norm, 1, WEFT_F64);
    (void)OUT(c, weft_clip, coefficient, 1, WEFT_F32);
    (void)OUT(c, weft_clip, skip, 1, WEFT_I32);
    c->exact = true;
    c->kernels[0] = &weft_kernel_clip;
}

/* Momentum SGD with weight decay: about the size of an optimizer's body, and uses every argument. */
WEFT_HP(update_hp, float lr; float momentum; float decay;)
/* clang-format off */
WEFT_ELEMENTWISE(momentum, update_hp, 1,
    s0 = hp->momentum * s0 + g;
    w -= hp->lr * range->lr_scale * (s0 + hp->decay * range->decay * w);
)
/* clang-format on */

enum { RANGES = 2, PARTS = sizeof(weft_range) + WIDER };

/* Fills table rows as the host of an optimizer does: with gaps between them, and with the width of a newer ABI. */
static void fill_ranges(char *rows, int64_t stride, int64_t n) {
    for (int32_t r = 0; r < RANGES; r++) {
        const weft_range row = {.struct_size = (uint32_t)stride,
                                .offset = r == 0 ? 0 : n - n / 3,
                                .length = r == 0 ? n / 2 : n / 3,
                                .lr_scale = r == 0 ? 1.0f : 0.25f,
                                .decay = r == 0 ? 1.0f : 0.0f};
        memset(rows + r * stride, 0x77, (size_t)stride);
        memcpy(rows + r * stride, &row, sizeof row);
    }
}

#define REGION(i, field) (offsetof(weft_call_update, regions[i].region.field))

static void draw_region(weft_device_call *c, int32_t i, int64_t n, bool is_later) {
    const int64_t stride = is_later ? PARTS : (int64_t)sizeof(weft_range);
    weft_update_region *region = &c->args.update.regions[i].region;
    region->struct_size = (uint32_t)(is_later ? sizeof(weft_call_region) : sizeof *region);
    region->n = n, region->n_ranges = RANGES, region->range_stride = (uint32_t)stride;
    (void)add(c, REGION(i, weight), "weight", n, WEFT_F32, true, true);
    (void)add(c, REGION(i, gradient), "gradient", n, WEFT_F32, false, true);
    (void)add(c, REGION(i, states[0]), "state", n, WEFT_F32, true, true);
    region->copy_dtype = c->dtype != WEFT_F32 ? c->dtype : 0;
    if (i == 0 && region->copy_dtype != 0) (void)add(c, REGION(i, copy), "copy", n, c->dtype, true, true);
    fill_ranges(add(c, REGION(i, ranges), "ranges", RANGES * stride / (int64_t)sizeof(int32_t), WEFT_I32, false, true),
                stride, n);
}

/* Draws an update. Shape 0 is a skipped step, without any change. The last shape uses newer-ABI structs. */
static void draw_update(weft_device_call *c, int shape) {
    const update_hp hp = {0.125f, 0.9f, 0.25f};
    void *at;
    BEGIN(c, update.args, weft_update, "update");
    a->kernel = &momentum;
    a->regions = &c->args.update.regions[0].region;
    a->n_regions = WEFT_CALL_REGIONS;
    a->region_stride = (uint32_t)sizeof(weft_call_region);
    draw_region(c, 0, shape == 2 ? 1027 : 96, shape == 2);
    draw_region(c, 1, shape == 0 ? 3 : 515, shape == 2);
    at = IN(c, weft_update, hp, (int64_t)(sizeof hp / sizeof(float)), WEFT_F32);
    memcpy(at, &hp, sizeof hp);
    *(float *)IN(c, weft_update, coefficient, 1, WEFT_F32) = 0.5f;
    *(int32_t *)IN(c, weft_update, skip, 1, WEFT_I32) = shape == 0;
    c->kernels[0] = &weft_kernel_update;
}

bool weft_device_call_draw(weft_device_call *out, int32_t number, int32_t dtype) {
    static void (*const kernels[])(weft_device_call * c, int shape) = {
        draw_matmul,    draw_sum_rows, draw_norm,       draw_rope, draw_attention, draw_activation,
        draw_embedding, draw_head,     draw_scale,      draw_add,  draw_multiply,  draw_dropout,
        draw_row_norms, draw_prefix,   draw_square_sum, draw_clip, draw_update};
    memset(out, 0, sizeof *out);
    if (number >= WEFT_CALL_SHAPES * (int32_t)(sizeof kernels / sizeof kernels[0])) return false;
    out->dtype = dtype;
    kernels[number / WEFT_CALL_SHAPES](out, number % WEFT_CALL_SHAPES);
    return true;
}

void weft_device_call_free(weft_device_call *call) {
    for (int i = 0; i < call->n; i++) free(call->operands[i].data);
}
