/* loops_cells.h: source of the loops over activations (struct cpu_cells). loops_body.h includes it once per memory
 * type: CELL, read by CELL_GET and written by CELL_PUT, which rounds once. All arithmetic is fp32. Undefines its
 * parameters at the end. */

static void CELLS(add)(void *y, const void *a, const void *b, int64_t n) {
    int64_t i;
    for (i = 0; i < n; i += VEC_LANES) CELL_PUT(y, CELL_GET(a, i, n) + CELL_GET(b, i, n), i, n);
}

static void CELLS(take)(float *out, const void *in, int64_t n, int accumulate) {
    int64_t i;
    for (i = 0; i < n; i += VEC_LANES) {
        vec v = CELL_GET(in, i, n);
        if (accumulate) v += vec_get(out, i, n);
        vec_put(out, v, i, n);
    }
}

static void CELLS(put)(void *out, const float *in, int64_t n, int accumulate) {
    int64_t i;
    for (i = 0; i < n; i += VEC_LANES) {
        vec v = vec_get(in, i, n);
        if (accumulate) v += CELL_GET(out, i, n);
        CELL_PUT(out, v, i, n);
    }
}

static float CELLS(dot)(const void *a, const void *b, int64_t n) {
    vec sum = vec_set(0.0f);
    int64_t i;
    for (i = 0; i < n; i += VEC_LANES) sum = vec_fma(CELL_GET(a, i, n), CELL_GET(b, i, n), sum);
    return vec_sum(sum);
}

static void CELLS(scale)(void *y, const void *x, int64_t n, float factor, float cap, int accumulate) {
    int64_t i;
    for (i = 0; i < n; i += VEC_LANES) {
        vec v = CELL_GET(x, i, n) * vec_set(factor);
        if (cap > 0) v = vec_set(cap) * hyperbolic_tangent(v / vec_set(cap));
        if (accumulate) v += CELL_GET(y, i, n);
        CELL_PUT(y, v, i, n);
    }
}

INLINE vec CELLS(factor_at)(const float *by, const float *over, int64_t i, int64_t n) {
    vec v = vec_get(by, i, n);
    if (over != NULL) v = v / vec_get(over, i, n);
    return v;
}

INLINE vec CELLS(shifted_at)(const void *x, const float *shift, int64_t i, int64_t n) {
    vec v = CELL_GET(x, i, n);
    if (shift != NULL) v -= vec_get(shift, i, n);
    return v;
}

static void CELLS(multiply)(void *y, const void *x, const float *by, const float *over, const float *shift, int64_t n) {
    int64_t i;
    for (i = 0; i < n; i += VEC_LANES) {
        vec v = CELLS(shifted_at)(x, shift, i, n) * CELLS(factor_at)(by, over, i, n);
        if (shift != NULL) v += vec_get(shift, i, n);
        CELL_PUT(y, v, i, n);
    }
}

static void CELLS(multiply_backward)(void *dx, float *dby, const void *dy, const void *x, const float *by,
                                     const float *over, const float *shift, int64_t n, int add_dx) {
    int64_t i;
    for (i = 0; i < n; i += VEC_LANES) {
        const vec d = CELL_GET(dy, i, n);
        if (dby != NULL) vec_put(dby, vec_get(dby, i, n) + d * CELLS(shifted_at)(x, shift, i, n), i, n);
        if (dx != NULL) {
            vec own = d * CELLS(factor_at)(by, over, i, n);
            if (add_dx) own += CELL_GET(dx, i, n);
            CELL_PUT(dx, own, i, n);
        }
    }
}

static void CELLS(dropout)(void *y, const void *x, const cpu_drops *p, int64_t from, int64_t n, int accumulate) {
    float keep[CPU_DROPS];
    int64_t at, i;
    for (at = 0; at < n; at += CPU_DROPS) {
        random_keep(keep, p, (from + at) / CPU_DROPS);
        for (i = at; i < n && i < at + CPU_DROPS; i += VEC_LANES) {
            vec v = CELL_GET(x, i, n) * vec_load(keep + (i - at));
            if (accumulate) v += CELL_GET(y, i, n);
            CELL_PUT(y, v, i, n);
        }
    }
}

/* ---- activations; form and gated are compile-time constants ---- */

INLINE void CELLS(activation_any)(void *y, const void *x, const void *up, int64_t n, const int form, const int gated) {
    int64_t i;
    for (i = 0; i < n; i += VEC_LANES) {
        vec value, slope;
        activate(CELL_GET(x, i, n), form, &value, &slope);
        if (gated) value *= CELL_GET(up, i, n);
        CELL_PUT(y, value, i, n);
    }
}

INLINE void CELLS(activation_backward_any)(void *dx, void *dup, const void *dy, const void *x, const void *up,
                                           int64_t n, int add_dx, int add_dup, const int form, const int gated) {
    int64_t i;
    for (i = 0; i < n; i += VEC_LANES) {
        const vec d = CELL_GET(dy, i, n);
        vec value, slope, to_x = d, to_up;
        activate(CELL_GET(x, i, n), form, &value, &slope);
        if (gated) to_x *= CELL_GET(up, i, n);
        to_x *= slope;
        to_up = d * value;
        if (dx != NULL) {
            if (add_dx) to_x += CELL_GET(dx, i, n);
            CELL_PUT(dx, to_x, i, n);
        }
        if (gated && dup != NULL) {
            if (add_dup) to_up += CELL_GET(dup, i, n);
            CELL_PUT(dup, to_up, i, n);
        }
    }
}

#define ACTIVATION(name, form)                                                                                         \
    static void CELLS(name)(void *y, const void *x, const void *up, int64_t n) {                                       \
        if (up != NULL) {                                                                                              \
            CELLS(activation_any)(y, x, up, n, form, 1);                                                               \
        } else {                                                                                                       \
            CELLS(activation_any)(y, x, NULL, n, form, 0);                                                             \
        }                                                                                                              \
    }
#define ACTIVATION_BACKWARD(name, form)                                                                                \
    static void CELLS(name)(void *dx, void *dup, const void *dy, const void *x, const void *up, int64_t n, int add_dx, \
                            int add_dup) {                                                                             \
        if (up != NULL) {                                                                                              \
            CELLS(activation_backward_any)(dx, dup, dy, x, up, n, add_dx, add_dup, form, 1);                           \
        } else {                                                                                                       \
            CELLS(activation_backward_any)(dx, NULL, dy, x, NULL, n, add_dx, 0, form, 0);                              \
        }                                                                                                              \
    }
ACTIVATION(silu, WEFT_SILU)
ACTIVATION(gelu, WEFT_GELU)
ACTIVATION(gelu_tanh, WEFT_GELU_TANH)
ACTIVATION_BACKWARD(silu_backward, WEFT_SILU)
ACTIVATION_BACKWARD(gelu_backward, WEFT_GELU)
ACTIVATION_BACKWARD(gelu_tanh_backward, WEFT_GELU_TANH)
#undef ACTIVATION
#undef ACTIVATION_BACKWARD

/* ---- norms; from_one is a compile-time constant ---- */

/* If the squares overflow, the result is NaN rather than a factor of zero, which would hide the error. */
INLINE float CELLS(rms_factor)(const void *x, int64_t width, double eps) {
    const double mean = (double)CELLS(dot)(x, x, width) / (double)width;
    return (float)(1.0 / sqrt(mean + eps) + 0.0 * mean);
}

INLINE float CELLS(rms_any)(void *y, const void *x, const float *gain, int64_t width, double eps, const int from_one) {
    const float r = CELLS(rms_factor)(x, width, eps);
    int64_t i;
    for (i = 0; i < width; i += VEC_LANES) {
        CELL_PUT(y, CELL_GET(x, i, width) * vec_set(r) * gain_at(gain, i, width, from_one), i, width);
    }
    return r;
}

/* dx = r (gain dy) - x r^3 / width * sum(gain dy x). Computes dgain first, because dx may alias dy. */
INLINE void CELLS(rms_backward_any)(void *dx, float *dgain, const void *dy, const void *x, const float *gain, float r,
                                    int64_t width, double eps, int add_dx, const int from_one) {
    vec sum = vec_set(0.0f);
    float along = 0;
    int64_t i;
    if (r < 0) r = CELLS(rms_factor)(x, width, eps);
    for (i = 0; i < width; i += VEC_LANES) {
        const vec d = CELL_GET(dy, i, width), v = CELL_GET(x, i, width);
        sum = vec_fma(d * gain_at(gain, i, width, from_one), v, sum);
        if (dgain != NULL) vec_put(dgain, vec_get(dgain, i, width) + d * (v * vec_set(r)), i, width);
    }
    if (dx == NULL) return;
    along = (float)((double)vec_sum(sum) * r * r * r / (double)width);
    for (i = 0; i < width; i += VEC_LANES) {
        const vec own = CELL_GET(dy, i, width) * gain_at(gain, i, width, from_one) * vec_set(r);
        vec d = own - CELL_GET(x, i, width) * vec_set(along);
        if (add_dx) d += CELL_GET(dx, i, width);
        CELL_PUT(dx, d, i, width);
    }
}

/* Computes the mean, then the squares of the differences, because subtracting the squared mean would lose digits. */
INLINE float CELLS(layer_factor)(const void *x, int64_t width, double eps, float *mean) {
    vec sum = vec_set(0.0f);
    double square = 0;
    int64_t i;
    for (i = 0; i < width; i += VEC_LANES) sum += CELL_GET(x, i, width);
    *mean = (float)((double)vec_sum(sum) / (double)width);
    sum = vec_set(0.0f);
    for (i = 0; i < width; i += VEC_LANES) {
        const vec off = vec_first(CELL_GET(x, i, width) - vec_set(*mean), width - i);
        sum = vec_fma(off, off, sum);
    }
    square = (double)vec_sum(sum) / (double)width;
    return (float)(1.0 / sqrt(square + eps) + 0.0 * square);
}

INLINE float CELLS(layer_any)(void *y, const void *x, const float *gain, const float *bias, int64_t width, double eps,
                              float *mean, const int from_one) {
    const float r = CELLS(layer_factor)(x, width, eps, mean);
    int64_t i;
    for (i = 0; i < width; i += VEC_LANES) {
        const vec own = (CELL_GET(x, i, width) - vec_set(*mean)) * vec_set(r);
        CELL_PUT(y, vec_fma(own, gain_at(gain, i, width, from_one), vec_get(bias, i, width)), i, width);
    }
    return r;
}

/* With h = (x - mean) r: dx = r (gain dy - mean(gain dy) - h mean(gain dy h)). Computes the sums first, because dx may
 * alias dy. */
INLINE void CELLS(layer_backward_any)(void *dx, float *dgain, float *dbias, const void *dy, const void *x,
                                      const float *gain, float r, float mean, int64_t width, double eps, int add_dx,
                                      const int from_one) {
    vec sum = vec_set(0.0f), along = vec_set(0.0f), level, slope;
    int64_t i;
    if (r < 0) r = CELLS(layer_factor)(x, width, eps, &mean);
    for (i = 0; i < width; i += VEC_LANES) {
        const vec d = CELL_GET(dy, i, width), h = (CELL_GET(x, i, width) - vec_set(mean)) * vec_set(r);
        const vec own = d * gain_at(gain, i, width, from_one);
        sum += own;
        along = vec_fma(own, h, along);
        if (dgain != NULL) vec_put(dgain, vec_fma(d, h, vec_get(dgain, i, width)), i, width);
        if (dbias != NULL) vec_put(dbias, vec_get(dbias, i, width) + d, i, width);
    }
    if (dx == NULL) return;
    level = vec_set((float)((double)vec_sum(sum) / (double)width));
    slope = vec_set((float)((double)vec_sum(along) / (double)width));
    for (i = 0; i < width; i += VEC_LANES) {
        const vec h = (CELL_GET(x, i, width) - vec_set(mean)) * vec_set(r);
        vec d = CELL_GET(dy, i, width) * gain_at(gain, i, width, from_one) - level;
        d = (d - h * slope) * vec_set(r);
        if (add_dx) d += CELL_GET(dx, i, width);
        CELL_PUT(dx, d, i, width);
    }
}

#define NORM(suffix, from_one)                                                                                         \
    static float CELLS(rms##suffix)(void *y, const void *x, const float *gain, int64_t width, double eps) {            \
        return CELLS(rms_any)(y, x, gain, width, eps, from_one);                                                       \
    }                                                                                                                  \
    static void CELLS(rms_backward##suffix)(void *dx, float *dgain, const void *dy, const void *x, const float *gain,  \
                                            float r, int64_t width, double eps, int add_dx) {                          \
        CELLS(rms_backward_any)(dx, dgain, dy, x, gain, r, width, eps, add_dx, from_one);                              \
    }                                                                                                                  \
    static float CELLS(layer##suffix)(void *y, const void *x, const float *gain, const float *bias, int64_t width,     \
                                      double eps, float *mean) {                                                       \
        return CELLS(layer_any)(y, x, gain, bias, width, eps, mean, from_one);                                         \
    }                                                                                                                  \
    static void CELLS(layer_backward##suffix)(void *dx, float *dgain, float *dbias, const void *dy, const void *x,     \
                                              const float *gain, float r, float mean, int64_t width, double eps,       \
                                              int add_dx) {                                                            \
        CELLS(layer_backward_any)(dx, dgain, dbias, dy, x, gain, r, mean, width, eps, add_dx, from_one);               \
    }
NORM(_plain, 0)
NORM(_from_one, 1)
#undef NORM

/* ---- rope ---- */

static void CELLS(rope_head)(void *to, const void *from, const float *cosine, const float *sine, int64_t half,
                             int inverse, int accumulate) {
    const CELL *x = from;
    CELL *y = to;
    int64_t i;
    for (i = 0; i < half; i += VEC_LANES) {
        const vec a = CELL_GET(x, i, half), b = CELL_GET(x + half, i, half);
        const vec c = vec_get(cosine, i, half), s = vec_get(sine, i, half) * vec_set(inverse ? -1.0f : 1.0f);
        vec low = a * c - b * s, high = b * c + a * s;
        if (accumulate) {
            low += CELL_GET(y, i, half);
            high += CELL_GET(y + half, i, half);
        }
        CELL_PUT(y, low, i, half);
        CELL_PUT(y + half, high, i, half);
    }
}

/* ---- attention blocks ---- */

static void CELLS(pack)(float *out, const void *from, int64_t ld, int64_t rows, int64_t width, float factor) {
    const int64_t padded = (width + CPU_WIDTH - 1) / CPU_WIDTH * CPU_WIDTH;
    const CELL *in = from;
    int64_t i, j;
    for (i = 0; i < rows; i++) {
        for (j = 0; j < padded; j += VEC_LANES) {
            const vec v = j < width ? CELL_GET(in + i * ld, j, width) : vec_set(0.0f);
            vec_store(out + i * padded + j, v * vec_set(factor));
        }
    }
}

#undef CELL
#undef CELL_GET
#undef CELL_PUT
#undef CELLS
