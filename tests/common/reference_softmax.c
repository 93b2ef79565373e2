/* tests/common/reference_softmax.c: attention and the head, which use a softmax. */
#include "reference_kernels.h"

#include <math.h>

static int64_t places(const weft_attention *a) {
    return a->cache_rows > 0 ? a->cache_rows : a->length;
}

int64_t reference_attention_workspace(const weft_device *d, const weft_attention *a) {
    return places(a) * (int64_t)sizeof(double);
}

static int64_t queries(const weft_attention *a) {
    return a->batch * a->length * a->heads * a->head_dim;
}

static int64_t keys(const weft_attention *a) {
    return a->batch * a->length * a->kv_heads * a->head_dim;
}

int64_t reference_attention_backward_workspace(const weft_device *d, const weft_attention *a) {
    return (queries(a) + 2 * keys(a)) * (int64_t)sizeof(double);
}

/* Dot product of n elements of a from `at_a` on and of b from `at_b` on. */
static double dot(weft_ref a, int64_t at_a, weft_ref b, int64_t at_b, int64_t n, int32_t dtype) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)reference_load(a, dtype, at_a + i) * (double)reference_load(b, dtype, at_b + i);
    return sum;
}

/* Returns the start of head h at position t of sequence b in (B, n, heads, d). */
static int64_t at(const weft_attention *a, int64_t heads, int64_t n, int64_t b, int64_t t, int64_t h) {
    return ((b * n + t) * heads + h) * a->head_dim;
}

/* Returns the number of positions in the cache before this call. */
static int64_t past_of(const weft_attention *a) {
    return a->cache_rows > 0 ? *(const int64_t *)reference_view(a->past) : 0;
}

static void append(const weft_attention *a, weft_ref cache, weft_ref rows) {
    const size_t place = (size_t)(a->kv_heads * a->head_dim * weft_dtype_bytes(a->dtype)),
                 n = (size_t)a->length * place;
    for (int64_t b = 0; rows.buffer != NULL && b < a->batch; b++)
        memcpy((char *)reference_view(cache) + (size_t)(b * a->cache_rows + past_of(a)) * place,
               (const char *)reference_view(rows) + (size_t)b * n, n);
}

/* Returns the first visible position of query i of sequence b. */
static int64_t first_seen(const weft_attention *a, int64_t b, int64_t i) {
    const int64_t start = ((const int32_t *)reference_view(a->starts))[b * a->length + i];
    const int64_t near = a->window > 0 ? past_of(a) + i - a->window + 1 : 0;
    return near > start ? near : start;
}

/* Writes the probabilities of one query over its visible positions to p. Returns the log-sum-exp. */
static double attend(const weft_attention *a, int64_t b, int64_t h, int64_t i, double *p) {
    const int64_t kv = h / (a->heads / a->kv_heads), iq = at(a, a->heads, a->length, b, i, h),
                  first = first_seen(a, b, i);
    double most = -INFINITY, sum = 0.0;
    for (int64_t t = first; t <= past_of(a) + i; t++) {
        p[t] = a->scale * dot(a->q, iq, a->k, at(a, a->kv_heads, places(a), b, t, kv), a->head_dim, a->dtype);
        p[t] = reference_capped(p[t], a->cap);
        if (p[t] > most) most = p[t];
    }
    for (int64_t t = first; t <= past_of(a) + i; t++) sum += exp(p[t] - most);
    for (int64_t t = first; t <= past_of(a) + i; t++) p[t] = exp(p[t] - most) / sum;
    return most + log(sum);
}

weft_status reference_attention(weft_device *d, weft_stream *s, const weft_attention *a, weft_error *err) {
    float *lse = reference_view(a->lse);
    double *p = reference_view(a->workspace);
    if (a->cache_rows > 0) append(a, a->k, a->new_k);
    if (a->cache_rows > 0) append(a, a->v, a->new_v);
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t h = 0; h < a->heads; h++)
            for (int64_t i = 0; i < a->length; i++) {
                const int64_t kv = h / (a->heads / a->kv_heads);
                const double l = attend(a, b, h, i, p);
                if (lse != NULL) lse[(b * a->heads + h) * a->length + i] = (float)l;
                for (int64_t e = 0; e < a->head_dim; e++) {
                    double sum = 0.0;
                    for (int64_t t = first_seen(a, b, i); t <= past_of(a) + i; t++)
                        sum += p[t] *
                               (double)reference_load(a->v, a->dtype, at(a, a->kv_heads, places(a), b, t, kv) + e);
                    reference_store(a->o, a->dtype, at(a, a->heads, a->length, b, i, h) + e, sum, 0);
                }
            }
    return reference_takes(a->dtype, "attention", err);
}

/* Adds the contribution of one query and one position to dq, dk and dv in the workspace. Scores use the stored lse, and
 * sums of dO O the stored output, as in a device that never materializes (T, T). */
static void contribute(const weft_attention *a, int64_t b, int64_t h, int64_t i, int64_t t, double delta) {
    const int64_t kv = h / (a->heads / a->kv_heads);
    const int64_t iq = at(a, a->heads, a->length, b, i, h), ik = at(a, a->kv_heads, a->length, b, t, kv);
    const double l = ((const float *)reference_view(a->lse))[(b * a->heads + h) * a->length + i];
    const double score = reference_capped(a->scale * dot(a->q, iq, a->k, ik, a->head_dim, a->dtype), a->cap);
    const double slope = a->cap > 0.0 ? 1.0 - score / a->cap * (score / a->cap) : 1.0, p = exp(score - l);
    const double ds = p * (dot(a->d_o, iq, a->v, ik, a->head_dim, a->dtype) - delta) * slope * a->scale;
    double *sums = reference_view(a->workspace);
    for (int64_t e = 0; e < a->head_dim; e++) {
        sums[iq + e] += ds * (double)reference_load(a->k, a->dtype, ik + e);
        sums[queries(a) + ik + e] += ds * (double)reference_load(a->q, a->dtype, iq + e);
        sums[queries(a) + keys(a) + ik + e] += p * (double)reference_load(a->d_o, a->dtype, iq + e);
    }
}

static void round_sums(weft_ref to, int32_t dtype, const double *sums, int64_t n) {
    for (int64_t i = 0; i < n; i++) reference_store(to, dtype, i, sums[i], 0);
}

weft_status reference_attention_backward(weft_device *d, weft_stream *s, const weft_attention *a, weft_error *err) {
    double *sums = reference_view(a->workspace);
    memset(sums, 0, (size_t)reference_attention_backward_workspace(d, a));
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t h = 0; h < a->heads; h++)
            for (int64_t i = 0; i < a->length; i++) {
                const int64_t row = at(a, a->heads, a->length, b, i, h);
                const double delta = dot(a->o, row, a->d_o, row, a->head_dim, a->dtype);
                for (int64_t t = first_seen(a, b, i); t <= i; t++) contribute(a, b, h, i, t, delta);
            }
    round_sums(a->dq, a->dtype, sums, queries(a));
    round_sums(a->dk, a->dtype, sums + queries(a), keys(a));
    round_sums(a->dv, a->dtype, sums + queries(a) + keys(a), keys(a));
    return reference_takes(a->dtype, "attention", err);
}

int64_t reference_head_loss_workspace(const weft_device *d, const weft_head *a) {
    return a->rows * a->vocab * (int64_t)sizeof(double);
}

int64_t reference_head_loss_grad_workspace(const weft_device *d, const weft_head *a) {
    return reference_head_loss_workspace(d, a);
}

/* Returns the logit of row r for v before its cap. */
static double head_logit(const weft_head *a, int64_t r, int64_t v) {
    const double bias = a->has_bias ? (double)((const float *)reference_view(a->bias))[v] : 0.0;
    const double scale = a->scale != 0.0 ? a->scale : 1.0;
    return scale * (dot(a->x, r * a->width, a->w, v * a->width, a->width, a->dtype) + bias);
}

/* Returns the loss of row r, and stores its weighted derivative by each dot product with W in slope (V). Rows of weight
 * zero have no target. */
static double head_row(const weft_head *a, int64_t r, double *slope) {
    const double weight = ((const float *)reference_view(a->weights))[r], scale = a->scale != 0.0 ? a->scale : 1.0;
    const int32_t target = ((const int32_t *)reference_view(a->targets))[r];
    double most = -INFINITY, sum = 0.0, loss = 0.0;
    for (int64_t v = 0; v < a->vocab; v++) {
        slope[v] = weight == 0.0 ? 0.0 : reference_capped(head_logit(a, r, v), a->cap);
        if (slope[v] > most) most = slope[v];
    }
    if (weight == 0.0) return 0.0;
    for (int64_t v = 0; v < a->vocab; v++) sum += exp(slope[v] - most);
    loss = weight * (most + log(sum) - slope[target]);
    for (int64_t v = 0; v < a->vocab; v++) {
        const double t = a->cap > 0.0 ? slope[v] / a->cap : 0.0;
        slope[v] = weight * (exp(slope[v] - most) / sum - (v == target ? 1.0 : 0.0)) * (1.0 - t * t) * scale;
    }
    return loss;
}

weft_status reference_head_loss(weft_device *d, weft_stream *s, const weft_head *a, weft_error *err) {
    double *slopes = reference_view(a->workspace);
    double loss = 0.0;
    for (int64_t r = 0; r < a->rows; r++) loss += head_row(a, r, slopes + r * a->vocab);
    *(double *)reference_view(a->loss) = loss;
    return reference_takes(a->dtype, "head", err);
}

/* Matmuls with slopes use operands in the head's compute dtype. */
static double slope_at(const weft_head *a, int64_t r, int64_t v) {
    const double slope = ((const double *)reference_view(a->workspace))[r * a->vocab + v];
    return a->dtype == WEFT_F32 ? slope : reference_rounded((float)slope, a->dtype);
}

weft_status reference_head_loss_grad(weft_device *d, weft_stream *s, const weft_head *a, weft_error *err) {
    weft_status status = reference_head_loss(d, s, a, err);
    for (int64_t r = 0; r < a->rows && a->dx.buffer != NULL && status == WEFT_OK; r++)
        for (int64_t i = 0; i < a->width; i++) {
            double sum = 0.0;
            for (int64_t v = 0; v < a->vocab; v++)
                sum += slope_at(a, r, v) * (double)reference_load(a->w, a->dtype, v * a->width + i);
            reference_store(a->dx, a->dtype, r * a->width + i, sum, 0);
        }
    for (int64_t v = 0; v < a->vocab && a->dw.buffer != NULL && status == WEFT_OK; v++)
        for (int64_t i = 0; i < a->width; i++) {
            double sum = 0.0;
            for (int64_t r = 0; r < a->rows; r++)
                sum += slope_at(a, r, v) * (double)reference_load(a->x, a->dtype, r * a->width + i);
            reference_store(a->dw, WEFT_F32, v * a->width + i, sum, a->accumulate_dw);
        }
    for (int64_t v = 0; v < a->vocab && a->dbias.buffer != NULL && status == WEFT_OK; v++) {
        double sum = 0.0;
        for (int64_t r = 0; r < a->rows; r++) sum += slope_at(a, r, v);
        reference_store(a->dbias, WEFT_F32, v, sum, a->accumulate_dbias);
    }
    return status;
}
