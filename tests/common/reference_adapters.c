/* tests/common/reference_adapters.c: adapter kernels in fp64, directly from their formulas: factors, dropout, row
 * norms, attention to a prefix. */
#include "reference_kernels.h"

#include <math.h>
#include <stdbool.h>
#include <weft/random.h>

/* ---- factors ---- */

static double factor_of(const weft_multiply *a, int64_t i) {
    const int64_t p = i % a->width / (a->width / a->parts);
    const double by = (double)((const float *)reference_view(a->by))[p];
    return a->over.buffer == NULL ? by : by / (double)((const float *)reference_view(a->over))[p];
}

static double shift_of(const weft_multiply *a, int64_t i) {
    const int64_t p = i % a->width / (a->width / a->parts);
    return a->shift.buffer == NULL ? 0.0 : (double)((const float *)reference_view(a->shift))[p];
}

weft_status reference_multiply(weft_device *d, weft_stream *s, const weft_multiply *a, weft_error *err) {
    for (int64_t i = 0; i < a->rows * a->width; i++)
        reference_store(a->y, a->dtype, i,
                        ((double)reference_load(a->x, a->dtype, i) - shift_of(a, i)) * factor_of(a, i) + shift_of(a, i),
                        0);
    return reference_takes(a->dtype, "multiply", err);
}

int64_t reference_multiply_backward_workspace(const weft_device *d, const weft_multiply *a) {
    return a->parts * (int64_t)sizeof(double);
}

weft_status reference_multiply_backward(weft_device *d, weft_stream *s, const weft_multiply *a, weft_error *err) {
    double *sums = reference_view(a->workspace);
    for (int64_t p = 0; p < a->parts; p++) sums[p] = 0.0;
    for (int64_t i = 0; i < a->rows * a->width; i++) {
        const double dy = (double)reference_load(a->dy, a->dtype, i);
        sums[i % a->width / (a->width / a->parts)] += dy * ((double)reference_load(a->x, a->dtype, i) - shift_of(a, i));
        if (a->dx.buffer != NULL) reference_store(a->dx, a->dtype, i, dy * factor_of(a, i), a->accumulate_dx);
    }
    for (int64_t p = 0; p < a->parts && a->dby.buffer != NULL; p++)
        reference_store(a->dby, WEFT_F32, p,
                        a->over.buffer == NULL ? sums[p]
                                               : sums[p] / (double)((const float *)reference_view(a->over))[p],
                        a->accumulate_dby);
    return reference_takes(a->dtype, "multiply", err);
}

weft_status reference_dropout(weft_device *d, weft_stream *s, const weft_dropout *a, weft_error *err) {
    const uint64_t first = (uint64_t) * (const int64_t *)reference_view(a->first);
    for (int64_t i = 0; i < a->batch * a->row; i++) {
        const uint64_t row = first + (uint64_t)(i / a->row), e = (uint64_t)(i % a->row);
        const weft_random4 words =
            weft_random(a->seed, WEFT_RANDOM_DROPOUT, row, (uint64_t)a->site << 40 | (e / 256 * 64 + e % 64));
        const bool kept = (double)words.v[e % 256 / 64] >= floor(a->p * 4294967296.0);
        const float factor = kept ? (float)(1.0 / (1.0 - a->p)) : 0.0f;
        reference_store(a->y, a->dtype, i, (double)(reference_load(a->x, a->dtype, i) * factor), a->accumulate);
    }
    return reference_takes(a->dtype, "dropout", err);
}

/* ---- row norms ---- */

int64_t reference_row_norms_workspace(const weft_device *d, const weft_row_norms *a) {
    return 0;
}

static double row_element(const weft_row_norms *a, int64_t r, int64_t i) {
    const int64_t at = r * a->width + i;
    double sum = 0.0;
    for (int64_t j = 0; j < a->rank; j++)
        sum += (double)reference_load(a->up, a->dtype, r * a->rank + j) *
               (double)reference_load(a->down, a->dtype, j * a->width + i);
    return a->factor * sum + (double)(weft_dtype_is_packed(a->dtype_w) ? reference_unpack(a->w, a->dtype_w, at)
                                                                       : reference_load(a->w, a->dtype_w, at));
}

weft_status reference_row_norms(weft_device *d, weft_stream *s, const weft_row_norms *a, weft_error *err) {
    for (int64_t r = 0; r < a->rows; r++) {
        double sum = 0.0;
        for (int64_t i = 0; i < a->width; i++) sum += pow(row_element(a, r, i), 2.0);
        reference_store(a->out, WEFT_F32, r, sqrt(sum), 0);
    }
    return reference_takes(a->dtype, "row_norms", err);
}

/* ---- prefix ---- */

typedef struct prefix {
    double *keys, *dk, *dv; /* (positions, kv_heads, head_dim) */
    double *weights, *dq;   /* (positions), (head_dim) of one query */
} prefix;

int64_t reference_prefix_workspace(const weft_device *d, const weft_prefix *a) {
    return ((3 * a->kv_heads * a->head_dim + 1) * a->places + a->head_dim) * (int64_t)sizeof(double);
}

int64_t reference_prefix_backward_workspace(const weft_device *d, const weft_prefix *a) {
    return reference_prefix_workspace(d, a);
}

/* Rotates the pairs of a head by the angles of the table's row, or back. */
static void turn_head(const weft_prefix *a, double *head, bool back) {
    const float *turn = reference_view(a->turn);
    const int64_t half = a->rotary_dim / 2;
    for (int64_t i = 0; turn != NULL && i < half; i++) {
        const double angle = atan2((double)turn[half + i], (double)turn[i]), low = head[i], high = head[half + i];
        const double sine = back ? -sin(angle) : sin(angle);
        head[i] = low * cos(angle) - high * sine;
        head[half + i] = high * cos(angle) + low * sine;
    }
}

static prefix take_prefix(const weft_prefix *a) {
    const int64_t n = a->places * a->kv_heads * a->head_dim;
    prefix p = {.keys = reference_view(a->workspace)};
    p.dk = p.keys + n;
    p.dv = p.dk + n;
    p.weights = p.dv + n;
    p.dq = p.weights + a->places;
    for (int64_t i = 0; i < n; i++) {
        p.keys[i] = (double)reference_load(a->k, a->dtype, i);
        p.dk[i] = p.dv[i] = 0.0;
    }
    for (int64_t i = 0; i < n; i += a->head_dim) turn_head(a, p.keys + i, true);
    return p;
}

/* Returns the index of head h's key at prefix position p. */
static int64_t key_at(const weft_prefix *a, int64_t p, int64_t h) {
    return (p * a->kv_heads + h / (a->heads / a->kv_heads)) * a->head_dim;
}

static void take_scores(const weft_prefix *a, const prefix *x, int64_t q, int64_t h) {
    for (int64_t p = 0; p < a->places; p++) {
        x->weights[p] = 0.0;
        for (int64_t i = 0; i < a->head_dim; i++)
            x->weights[p] += a->scale * (double)reference_load(a->q, a->dtype, q + i) * x->keys[key_at(a, p, h) + i];
    }
}

weft_status reference_prefix(weft_device *d, weft_stream *s, const weft_prefix *a, weft_error *err) {
    const prefix x = take_prefix(a);
    float *lses = reference_view(a->lse);
    for (int64_t r = 0; r < a->batch * a->length; r++)
        for (int64_t h = 0; h < a->heads; h++) {
            const int64_t q = (r * a->heads + h) * a->head_dim;
            const int64_t l = (r / a->length * a->heads + h) * a->length + r % a->length;
            double sum = a->join ? exp((double)lses[l]) : 0.0;
            const double before = sum;
            take_scores(a, &x, q, h);
            for (int64_t p = 0; p < a->places; p++) sum += exp(x.weights[p]);
            for (int64_t i = 0; i < a->head_dim; i++) {
                double o = a->join ? before / sum * (double)reference_load(a->o, a->dtype, q + i) : 0.0;
                for (int64_t p = 0; p < a->places; p++)
                    o += exp(x.weights[p]) / sum * (double)reference_load(a->v, a->dtype, key_at(a, p, h) + i);
                reference_store(a->o, a->dtype, q + i, o, 0);
            }
            if (lses != NULL) lses[l] = (float)log(sum);
        }
    return reference_takes(a->dtype, "prefix", err);
}

/* Adds one key's contribution to a query's gradients. */
static void key_gradients(const weft_prefix *a, const prefix *x, int64_t q, int64_t at, double weight, double delta) {
    double dp = 0.0, ds = 0.0;
    for (int64_t i = 0; i < a->head_dim; i++)
        dp += (double)reference_load(a->d_o, a->dtype, q + i) * (double)reference_load(a->v, a->dtype, at + i);
    ds = weight * (dp - delta) * a->scale;
    for (int64_t i = 0; i < a->head_dim; i++) {
        x->dv[at + i] += weight * (double)reference_load(a->d_o, a->dtype, q + i);
        x->dk[at + i] += ds * (double)reference_load(a->q, a->dtype, q + i);
        x->dq[i] += ds * x->keys[at + i];
    }
}

weft_status reference_prefix_backward(weft_device *d, weft_stream *s, const weft_prefix *a, weft_error *err) {
    const prefix x = take_prefix(a);
    const float *lses = reference_view(a->lse);
    const int64_t n = a->places * a->kv_heads * a->head_dim;
    for (int64_t r = 0; r < a->batch * a->length; r++)
        for (int64_t h = 0; h < a->heads; h++) {
            const int64_t q = (r * a->heads + h) * a->head_dim;
            const double lse = (double)lses[(r / a->length * a->heads + h) * a->length + r % a->length];
            double delta = 0.0;
            for (int64_t i = 0; i < a->head_dim; i++)
                delta += (double)reference_load(a->d_o, a->dtype, q + i) *
                         (double)reference_load(a->o, a->dtype, q + i);
            take_scores(a, &x, q, h);
            for (int64_t i = 0; i < a->head_dim; i++) x.dq[i] = 0.0;
            for (int64_t p = 0; p < a->places; p++)
                key_gradients(a, &x, q, key_at(a, p, h), exp(x.weights[p] - lse), delta);
            for (int64_t i = 0; i < a->head_dim && a->dq.buffer != NULL; i++)
                reference_store(a->dq, a->dtype, q + i, x.dq[i], a->accumulate_dq);
        }
    for (int64_t i = 0; i < n; i += a->head_dim) turn_head(a, x.dk + i, false);
    for (int64_t i = 0; i < n; i++) {
        reference_store(a->dk, a->dtype, i, x.dk[i], 0);
        reference_store(a->dv, a->dtype, i, x.dv[i], 0);
    }
    return reference_takes(a->dtype, "prefix", err);
}
