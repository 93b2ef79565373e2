/* tests/common/reference_rows.c: row norms, activations and scales. */
#include "reference_kernels.h"

#include <math.h>

/* ---- norms ---- */

static double gain_at(const weft_norm *a, int64_t i) {
    return (double)((const float *)reference_view(a->gain))[i] + (a->gain_from_one ? 1.0 : 0.0);
}

/* Returns the norm's input: x, or its sum with the residual, which is stored rounded. */
static weft_ref norm_input(const weft_norm *a) {
    const int64_t n = a->rows * a->width;
    if (a->residual.buffer == NULL) return a->x;
    for (int64_t i = 0; i < n; i++)
        reference_store(a->sum, a->dtype, i,
                        (double)(reference_load(a->x, a->dtype, i) + reference_load(a->residual, a->dtype, i)), 0);
    return a->sum;
}

weft_status reference_norm(weft_device *d, weft_stream *s, const weft_norm *a, weft_error *err) {
    const weft_ref x = norm_input(a);
    const float *bias = reference_view(a->bias);
    float *rstd = reference_view(a->rstd), *means = reference_view(a->mean);
    const int64_t n = a->width;
    for (int64_t r = 0; r < a->rows; r++) {
        double mean = 0.0, sum = 0.0, scale = 0.0;
        for (int64_t i = r * n; i < (r + 1) * n && a->form == WEFT_NORM_LAYER; i++)
            mean += (double)reference_load(x, a->dtype, i) / (double)n;
        for (int64_t i = r * n; i < (r + 1) * n; i++) sum += pow((double)reference_load(x, a->dtype, i) - mean, 2.0);
        scale = 1.0 / sqrt(sum / (double)n + a->eps);
        if (rstd != NULL) rstd[r] = (float)scale;
        if (means != NULL) means[r] = (float)mean;
        for (int64_t i = 0; i < n; i++)
            reference_store(a->y, a->dtype, r * n + i,
                            ((double)reference_load(x, a->dtype, r * n + i) - mean) * scale * gain_at(a, i) +
                                (a->form == WEFT_NORM_LAYER ? (double)bias[i] : 0.0),
                            0);
    }
    return reference_takes(a->dtype, "norm", err);
}

/* Returns the normalized value before the gain: x rstd, or (x - mean) rstd. */
static double normal_at(const weft_norm *a, int64_t r, int64_t i) {
    const float *means = reference_view(a->mean);
    const double mean = a->form == WEFT_NORM_LAYER ? (double)means[r] : 0.0;
    return ((double)reference_load(a->x, a->dtype, r * a->width + i) - mean) *
           (double)((const float *)reference_view(a->rstd))[r];
}

/* With n as above: dx = rstd (dy g - mean(dy g) - n mean(dy g n)); RMS omits mean(dy g). */
static void norm_row_backward(const weft_norm *a, int64_t r) {
    const double scale = ((const float *)reference_view(a->rstd))[r], width = (double)a->width;
    double level = 0.0, along = 0.0;
    for (int64_t i = 0; i < a->width; i++) {
        const double own = (double)reference_load(a->dy, a->dtype, r * a->width + i) * gain_at(a, i);
        if (a->form == WEFT_NORM_LAYER) level += own / width;
        along += own * normal_at(a, r, i) / width;
    }
    for (int64_t i = 0; i < a->width; i++) {
        const double own = (double)reference_load(a->dy, a->dtype, r * a->width + i) * gain_at(a, i);
        reference_store(a->dx, a->dtype, r * a->width + i, scale * (own - level - normal_at(a, r, i) * along),
                        a->accumulate_dx);
    }
}

weft_status reference_norm_backward(weft_device *d, weft_stream *s, const weft_norm *a, weft_error *err) {
    for (int64_t i = 0; i < a->width; i++) {
        double gain = 0.0, bias = 0.0;
        for (int64_t r = 0; r < a->rows; r++) {
            const double dy = reference_load(a->dy, a->dtype, r * a->width + i);
            gain += dy * normal_at(a, r, i);
            bias += dy;
        }
        if (a->dgain.buffer != NULL) reference_store(a->dgain, WEFT_F32, i, gain, a->accumulate_dgain);
        if (a->dbias.buffer != NULL) reference_store(a->dbias, WEFT_F32, i, bias, a->accumulate_dbias);
    }
    for (int64_t r = 0; r < a->rows && a->dx.buffer != NULL; r++) norm_row_backward(a, r);
    return reference_takes(a->dtype, "norm", err);
}

/* ---- activations ---- */

static const double root_half = 0.70710678118654752, root_two_over_pi = 0.79788456080286536;

static double activation_value(int32_t form, double x) {
    if (form == WEFT_GELU) return x * 0.5 * (1.0 + erf(x * root_half));
    if (form == WEFT_GELU_TANH) return x * 0.5 * (1.0 + tanh(root_two_over_pi * (x + 0.044715 * x * x * x)));
    return x / (1.0 + exp(-x));
}

static double activation_slope(int32_t form, double x) {
    const double sigmoid = 1.0 / (1.0 + exp(-x)), t = tanh(root_two_over_pi * (x + 0.044715 * x * x * x));
    if (form == WEFT_GELU) return 0.5 * (1.0 + erf(x * root_half)) + x * 0.5 * root_two_over_pi * exp(-0.5 * x * x);
    if (form == WEFT_GELU_TANH)
        return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * root_two_over_pi * (1.0 + 3.0 * 0.044715 * x * x);
    return sigmoid * (1.0 + x * (1.0 - sigmoid));
}

weft_status reference_activation(weft_device *d, weft_stream *s, const weft_activation *a, weft_error *err) {
    for (int64_t i = 0; i < a->n; i++) {
        const double up = a->up.buffer != NULL ? (double)reference_load(a->up, a->dtype, i) : 1.0;
        reference_store(a->y, a->dtype, i, activation_value(a->form, (double)reference_load(a->x, a->dtype, i)) * up,
                        0);
    }
    return reference_takes(a->dtype, "activation", err);
}

weft_status reference_activation_backward(weft_device *d, weft_stream *s, const weft_activation *a, weft_error *err) {
    for (int64_t i = 0; i < a->n; i++) {
        const double x = reference_load(a->x, a->dtype, i), dy = reference_load(a->dy, a->dtype, i);
        const double up = a->up.buffer != NULL ? (double)reference_load(a->up, a->dtype, i) : 1.0;
        if (a->dx.buffer != NULL)
            reference_store(a->dx, a->dtype, i, dy * up * activation_slope(a->form, x), a->accumulate_dx);
        if (a->dup.buffer != NULL)
            reference_store(a->dup, a->dtype, i, dy * activation_value(a->form, x), a->accumulate_dup);
    }
    return reference_takes(a->dtype, "activation", err);
}

/* ---- scales ---- */

weft_status reference_scale(weft_device *d, weft_stream *s, const weft_scale *a, weft_error *err) {
    for (int64_t i = 0; i < a->n; i++)
        reference_store(a->y, a->dtype, i,
                        reference_capped((double)(float)a->factor * (double)reference_load(a->x, a->dtype, i), a->cap),
                        a->accumulate);
    return reference_takes(a->dtype, "scale", err);
}
