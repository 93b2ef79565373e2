/* tests/common/reference_kernels.c: matmuls, sums, rotations, lookups and optimizer kernels. */
#include "reference_kernels.h"

#include <math.h>

weft_status reference_takes(int32_t dtype, const char *kernel, weft_error *err) {
    if (dtype == WEFT_F32 || dtype == WEFT_BF16) return WEFT_OK;
    return weft_error_set(err, WEFT_E_UNSUPPORTED, "the reference device's %s takes fp32 and bf16 only", kernel);
}

/* A packed B has its decoded values, rounded to A's dtype. */
static double element_of_b(const weft_matmul *a, int64_t i) {
    if (weft_dtype_is_packed(a->dtype_b)) return reference_rounded(reference_unpack(a->b, a->dtype_b, i), a->dtype_a);
    return (double)reference_load(a->b, a->dtype_b, i);
}

weft_status reference_matmul(weft_device *d, weft_stream *s, const weft_matmul *a, weft_error *err) {
    weft_status status = reference_takes(a->dtype_a, "matmul", err);
    if (status == WEFT_OK && !weft_dtype_is_packed(a->dtype_b)) status = reference_takes(a->dtype_b, "matmul", err);
    if (status == WEFT_OK) status = reference_takes(a->dtype_c, "matmul", err);
    for (int64_t i = 0; i < a->m && status == WEFT_OK; i++)
        for (int64_t j = 0; j < a->n; j++) {
            double sum = 0.0;
            for (int64_t k = 0; k < a->k; k++)
                sum += (double)reference_load(a->a, a->dtype_a, a->transpose_a ? k * a->lda + i : i * a->lda + k) *
                       element_of_b(a, a->transpose_b ? j * a->ldb + k : k * a->ldb + j);
            if (a->has_bias) sum += reference_rounded(((const float *)reference_view(a->bias))[j], a->dtype_c);
            reference_store(a->c, a->dtype_c, i * a->ldc + j, sum, a->accumulate);
        }
    return status;
}

weft_status reference_sum_rows(weft_device *d, weft_stream *s, const weft_sum_rows *a, weft_error *err) {
    for (int64_t i = 0; i < a->width; i++) {
        double sum = 0.0;
        for (int64_t r = 0; r < a->rows; r++) sum += (double)reference_load(a->x, a->dtype, r * a->width + i);
        reference_store(a->out, WEFT_F32, i, sum, a->accumulate);
    }
    return reference_takes(a->dtype, "sum_rows", err);
}

weft_status reference_rope(weft_device *d, weft_stream *s, const weft_rope *a, weft_error *err) {
    const float *table = reference_view(a->table);
    const int32_t *positions = reference_view(a->positions);
    const int64_t turned = a->rotary_dim > 0 ? a->rotary_dim : a->head_dim, half = turned / 2;
    for (int64_t r = 0; r < a->rows; r++) {
        const float *row = table + positions[r] * turned;
        if (positions[r] < 0 || positions[r] >= a->table_rows)
            return weft_error_set(err, WEFT_E_USER, "position %d lies outside the table", positions[r]);
        for (int64_t h = 0; h < a->heads; h++) {
            const int64_t at = (r * a->heads + h) * a->head_dim;
            for (int64_t i = 0; i < half; i++) {
                const double c = row[i], turn = a->inverse ? -(double)row[half + i] : (double)row[half + i];
                const double low = reference_load(a->x, a->dtype, at + i),
                             high = reference_load(a->x, a->dtype, at + half + i);
                reference_store(a->y, a->dtype, at + i, low * c - high * turn, a->accumulate);
                reference_store(a->y, a->dtype, at + half + i, high * c + low * turn, a->accumulate);
            }
            for (int64_t i = turned; i < a->head_dim; i++)
                reference_store(a->y, a->dtype, at + i, (double)reference_load(a->x, a->dtype, at + i), a->accumulate);
        }
    }
    return reference_takes(a->dtype, "rope", err);
}

weft_status reference_embedding(weft_device *d, weft_stream *s, const weft_embedding *a, weft_error *err) {
    const int32_t *ids = reference_view(a->ids);
    for (int64_t r = 0; r < a->rows; r++) {
        if (ids[r] < 0 || ids[r] >= a->vocab)
            return weft_error_set(err, WEFT_E_USER, "id %d lies outside the vocabulary", ids[r]);
        for (int64_t i = 0; i < a->width; i++)
            reference_store(a->y, a->dtype, r * a->width + i,
                            (double)reference_load(a->table, a->dtype_table, ids[r] * a->width + i), 0);
    }
    return reference_takes(a->dtype, "embedding", err);
}

weft_status reference_embedding_backward(weft_device *d, weft_stream *s, const weft_embedding *a, weft_error *err) {
    const int32_t *ids = reference_view(a->ids);
    for (int64_t v = 0; v < a->vocab; v++)
        for (int64_t i = 0; i < a->width; i++) {
            double sum = 0.0;
            for (int64_t r = 0; r < a->rows; r++)
                if (ids[r] == v && !(a->has_padding && v == a->padding))
                    sum += (double)reference_load(a->dy, a->dtype, r * a->width + i);
            reference_store(a->dtable, WEFT_F32, v * a->width + i, sum, a->accumulate);
        }
    return reference_takes(a->dtype, "embedding", err);
}

weft_status reference_add(weft_device *d, weft_stream *s, const weft_add *a, weft_error *err) {
    for (int64_t i = 0; i < a->n; i++)
        reference_store(a->y, a->dtype, i,
                        (double)(reference_load(a->a, a->dtype, i) + reference_load(a->b, a->dtype, i)), 0);
    return reference_takes(a->dtype, "add", err);
}

int64_t reference_square_sum_workspace(const weft_device *d, const weft_square_sum *a) {
    return (a->dtype == WEFT_F64 ? a->n : (a->n + 63) / 64) * (int64_t)sizeof(double);
}

/* Sums n values as a tree, in place. */
static double neighbours(double *sums, int64_t n) {
    for (; n > 1; n = (n + 1) / 2) {
        for (int64_t i = 0; i < n / 2; i++) sums[i] = sums[2 * i] + sums[2 * i + 1];
        if (n % 2 == 1) sums[n / 2] = sums[n - 1];
    }
    return n > 0 ? sums[0] : 0.0;
}

static double squares_of(const float *x, int64_t n, double *sums) {
    for (int64_t i = 0; i < n; i++) {
        if (i % 64 == 0) sums[i / 64] = 0.0;
        sums[i / 64] += (double)x[i] * (double)x[i];
    }
    return neighbours(sums, (n + 63) / 64);
}

static double nodes_of(const double *x, int64_t n, double *sums) {
    memcpy(sums, x, (size_t)n * sizeof *sums);
    return neighbours(sums, n);
}

static void extent_sums(const weft_square_sum *a, const weft_extent *e, double *out, double *sums) {
    const int64_t cell = a->cell > 0 ? a->cell : e->length;
    const float *x = (const float *)reference_view(a->x) + e->offset;
    out += e->out;
    if (a->dtype == WEFT_F64) *out = nodes_of((const double *)reference_view(a->x) + e->offset, e->length, sums);
    else if (e->length == 0) *out = 0.0;
    else
        for (int64_t at = 0; at < e->length; at += cell)
            *out++ = squares_of(x + at, e->length - at < cell ? e->length - at : cell, sums);
}

weft_status reference_square_sum(weft_device *d, weft_stream *s, const weft_square_sum *a, weft_error *err) {
    const weft_extent all = {.struct_size = (uint32_t)sizeof all, .length = a->n};
    const weft_extent *extents = a->extents.buffer == NULL ? &all : reference_view(a->extents);
    const int64_t n = a->extents.buffer == NULL ? 1 : a->n_extents;
    for (int64_t i = 0; i < n; i++) extent_sums(a, &extents[i], reference_view(a->out), reference_view(a->workspace));
    return WEFT_OK;
}

weft_status reference_clip(weft_device *d, weft_stream *s, const weft_clip *a, weft_error *err) {
    const double *sums = reference_view(a->square_sums);
    const double count = *(const double *)reference_view(a->count);
    double sum = 0.0, norm = 0.0, factor = 1.0;
    for (int64_t i = 0; i < a->n; i++) sum += sums[i];
    norm = sqrt(sum) / count;
    if (a->clip > 0.0 && a->clip / (norm + 1e-6) < 1.0) factor = a->clip / (norm + 1e-6);
    *(double *)reference_view(a->norm) = norm;
    *(float *)reference_view(a->coefficient) = (float)(factor / count);
    *(int32_t *)reference_view(a->skip) = isfinite(norm) ? 0 : 1;
    return WEFT_OK;
}

static weft_status update_region(const weft_elementwise *kernel, weft_elementwise_call *call,
                                 const weft_update_region *region, weft_error *err) {
    const char *ranges = reference_view(region->ranges);
    call->weight = reference_view(region->weight);
    call->gradient = reference_view(region->gradient);
    for (int i = 0; i < WEFT_MAX_STATES; i++) {
        if (region->state_dtypes[i] > WEFT_F32)
            return weft_error_set(err, WEFT_E_UNSUPPORTED, "device plain keeps states in fp32 alone");
        call->states[i] = reference_view(region->states[i]);
    }
    for (int64_t i = 0; i < region->n_ranges; i++) {
        call->range = (const weft_range *)(const void *)(ranges + i * region->range_stride);
        call->begin = call->range->offset;
        call->end = call->range->offset + call->range->length;
        kernel->cpu(call);
        for (int64_t k = call->begin; k < call->end && region->copy.buffer != NULL; k++)
            reference_store(region->copy, region->copy_dtype, k, (double)call->weight[k], 0);
    }
    return WEFT_OK;
}

weft_status reference_update(weft_device *d, weft_stream *s, const weft_update *a, weft_error *err) {
    weft_elementwise_call call = {.struct_size = (uint32_t)sizeof call,
                                  .hp = reference_view(a->hp),
                                  .coefficient = *(const float *)reference_view(a->coefficient)};
    weft_status status = WEFT_OK;
    if (*(const int32_t *)reference_view(a->skip) != 0) return WEFT_OK;
    for (int32_t i = 0; i < a->n_regions && status == WEFT_OK; i++)
        status = update_region(a->kernel, &call, weft_update_region_at(a, i), err);
    return status;
}
