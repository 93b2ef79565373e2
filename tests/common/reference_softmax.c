/* tests/common/reference_softmax.c: attention and the head: what goes through a softmax. */
#include "reference_kernels.h"

#include <math.h>

static int64_t places(const weft_attention *a) {
    return a->cache_rows > 0 ? a->cache_rows : a->length;
}

int64_t reference_attention_workspace(const weft_device *d, const weft_attention *a) {
    (void)d;
    return places(a) * (int64_t)sizeof(double);
}

static int64_t queries(const weft_attention *a) {
    return a->batch * a->length * a->heads * a->head_dim;
}

static int64_t keys(const weft_attention *a) {
    return a->batch * a->length * a->kv_heads * a->head_dim;
}

int64_t reference_attention_backward_workspace(const weft_device *d, const weft_attention *a) {
    (void)d;
    return (queries(a) + 2 * keys(a)) * (int64_t)sizeof(double);
}

static double dot(const float *a, const float *b, int64_t n) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* Where head h of place t of row b begins in (B, n, heads, d). */
static int64_t at(const weft_attention *a, int64_t heads, int64_t n, int64_t b, int64_t t, int64_t h) {
    return ((b * n + t) * heads + h) * a->head_dim;
}

/* One query: probabilities over the places that it sees go to p. Returns the log-sum-exp. */
static double attend(const weft_attention *a, int64_t b, int64_t h, int64_t i, double *p) {
    const float *q = (const float *)reference_view(a->q) + at(a, a->heads, a->length, b, i, h);
    const float *k = reference_view(a->k);
    const int64_t kv = h / (a->heads / a->kv_heads),
                  first = ((const int32_t *)reference_view(a->starts))[b * a->length + i];
    double most = -INFINITY, sum = 0.0;
    for (int64_t t = first; t <= a->past + i; t++) {
        p[t] = a->scale * dot(q, k + at(a, a->kv_heads, places(a), b, t, kv), a->head_dim);
        if (p[t] > most) most = p[t];
    }
    for (int64_t t = first; t <= a->past + i; t++)
        sum += exp(p[t] - most);
    for (int64_t t = first; t <= a->past + i; t++)
        p[t] = exp(p[t] - most) / sum;
    return most + log(sum);
}

weft_status reference_attention(weft_device *d, weft_stream *s, const weft_attention *a, weft_error *err) {
    const int32_t *starts = reference_view(a->starts);
    const float *v = reference_view(a->v);
    float *o = reference_view(a->o), *lse = reference_view(a->lse);
    double *p = reference_view(a->workspace);
    (void)d;
    (void)s;
    if (a->dtype != WEFT_F32) return weft_error_set(err, WEFT_E_UNSUPPORTED, "the reference device takes fp32 only");
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t h = 0; h < a->heads; h++)
            for (int64_t i = 0; i < a->length; i++) {
                const int64_t kv = h / (a->heads / a->kv_heads);
                const double l = attend(a, b, h, i, p);
                if (lse != NULL) lse[(b * a->heads + h) * a->length + i] = (float)l;
                for (int64_t e = 0; e < a->head_dim; e++) {
                    double sum = 0.0;
                    for (int64_t t = starts[b * a->length + i]; t <= a->past + i; t++)
                        sum += p[t] * (double)v[at(a, a->kv_heads, places(a), b, t, kv) + e];
                    o[at(a, a->heads, a->length, b, i, h) + e] = (float)sum;
                }
            }
    return WEFT_OK;
}

/* Adds what one query and one place contribute to the sums of dq, dk and dv in the workspace. Scores come from the kept
 * lse and sums of dO O from the kept output, as in a device that never holds (T, T). */
static void contribute(const weft_attention *a, int64_t b, int64_t h, int64_t i, int64_t t, double delta) {
    const int64_t kv = h / (a->heads / a->kv_heads);
    const int64_t iq = at(a, a->heads, a->length, b, i, h), ik = at(a, a->kv_heads, a->length, b, t, kv);
    const float *q = (const float *)reference_view(a->q) + iq, *k = (const float *)reference_view(a->k) + ik;
    const float *v = (const float *)reference_view(a->v) + ik, *d_o = (const float *)reference_view(a->d_o) + iq;
    const double l = ((const float *)reference_view(a->lse))[(b * a->heads + h) * a->length + i];
    const double p = exp(a->scale * dot(q, k, a->head_dim) - l);
    const double ds = p * (dot(d_o, v, a->head_dim) - delta) * a->scale;
    double *sums = reference_view(a->workspace);
    for (int64_t e = 0; e < a->head_dim; e++) {
        sums[iq + e] += ds * (double)k[e];
        sums[queries(a) + ik + e] += ds * (double)q[e];
        sums[queries(a) + keys(a) + ik + e] += p * (double)d_o[e];
    }
}

static void round_sums(float *to, const double *sums, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        to[i] = (float)sums[i];
}

weft_status reference_attention_backward(weft_device *d, weft_stream *s, const weft_attention *a, weft_error *err) {
    const int32_t *starts = reference_view(a->starts);
    const float *o = reference_view(a->o), *d_o = reference_view(a->d_o);
    double *sums = reference_view(a->workspace);
    (void)d;
    (void)s;
    if (a->dtype != WEFT_F32) return weft_error_set(err, WEFT_E_UNSUPPORTED, "the reference device takes fp32 only");
    memset(sums, 0, (size_t)reference_attention_backward_workspace(d, a));
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t h = 0; h < a->heads; h++)
            for (int64_t i = 0; i < a->length; i++) {
                const int64_t row = at(a, a->heads, a->length, b, i, h);
                const double delta = dot(o + row, d_o + row, a->head_dim);
                for (int64_t t = starts[b * a->length + i]; t <= i; t++)
                    contribute(a, b, h, i, t, delta);
            }
    round_sums(reference_view(a->dq), sums, queries(a));
    round_sums(reference_view(a->dk), sums + queries(a), keys(a));
    round_sums(reference_view(a->dv), sums + queries(a) + keys(a), keys(a));
    return WEFT_OK;
}

int64_t reference_head_workspace(const weft_device *d, const weft_head *a) {
    (void)d;
    return a->rows * a->vocab * (int64_t)sizeof(double);
}

/* Row r: its loss, and its weighted derivative by each logit into slope (V). Rows of weight zero have no target. */
static double head_row(const weft_head *a, int64_t r, double *slope) {
    const float *x = (const float *)reference_view(a->x) + r * a->width, *w = reference_view(a->w);
    const double weight = ((const float *)reference_view(a->weights))[r];
    const int32_t target = ((const int32_t *)reference_view(a->targets))[r];
    double most = -INFINITY, sum = 0.0, loss = 0.0;
    for (int64_t v = 0; v < a->vocab; v++) {
        slope[v] = weight == 0.0 ? 0.0 : dot(x, w + v * a->width, a->width);
        if (slope[v] > most) most = slope[v];
    }
    if (weight == 0.0) return 0.0;
    for (int64_t v = 0; v < a->vocab; v++)
        sum += exp(slope[v] - most);
    loss = weight * (most + log(sum) - slope[target]);
    for (int64_t v = 0; v < a->vocab; v++)
        slope[v] = weight * (exp(slope[v] - most) / sum - (v == target ? 1.0 : 0.0));
    return loss;
}

weft_status reference_head_loss(weft_device *d, weft_stream *s, const weft_head *a, weft_error *err) {
    double *slopes = reference_view(a->workspace);
    double loss = 0.0;
    (void)d;
    (void)s;
    if (a->dtype != WEFT_F32) return weft_error_set(err, WEFT_E_UNSUPPORTED, "the reference device takes fp32 only");
    for (int64_t r = 0; r < a->rows; r++)
        loss += head_row(a, r, slopes + r * a->vocab);
    *(double *)reference_view(a->loss) = loss;
    return WEFT_OK;
}

weft_status reference_head_loss_grad(weft_device *d, weft_stream *s, const weft_head *a, weft_error *err) {
    const float *x = reference_view(a->x), *w = reference_view(a->w);
    const double *slopes = reference_view(a->workspace);
    float *dx = reference_view(a->dx), *dw = reference_view(a->dw);
    weft_status status = reference_head_loss(d, s, a, err);
    for (int64_t r = 0; r < a->rows && dx != NULL && status == WEFT_OK; r++)
        for (int64_t i = 0; i < a->width; i++) {
            double sum = 0.0;
            for (int64_t v = 0; v < a->vocab; v++)
                sum += slopes[r * a->vocab + v] * (double)w[v * a->width + i];
            dx[r * a->width + i] = (float)sum;
        }
    for (int64_t v = 0; v < a->vocab && dw != NULL && status == WEFT_OK; v++)
        for (int64_t i = 0; i < a->width; i++) {
            double sum = 0.0;
            for (int64_t r = 0; r < a->rows; r++)
                sum += slopes[r * a->vocab + v] * (double)x[r * a->width + i];
            reference_store(&dw[v * a->width + i], sum, a->accumulate_dw);
        }
    return status;
}
