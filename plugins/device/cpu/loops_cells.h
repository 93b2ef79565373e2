/* loops_cells.h: the text of the loops over activations (struct cpu_cells), included by loops_body.h once for each type
 * that activations have in memory: CELL, read by CELL_GET and written by CELL_PUT, which round once. Whatever the
 * type, arithmetic is fp32. Undefines its parameters at the end. */

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

/* ---- swiglu ---- */

static void CELLS(swiglu)(void *y, const void *gate, const void *up, int64_t n) {
    int64_t i;
    for (i = 0; i < n; i += VEC_LANES) {
        const vec g = CELL_GET(gate, i, n);
        CELL_PUT(y, g * sigmoid(g) * CELL_GET(up, i, n), i, n);
    }
}

/* silu'(g) = s + g s (1 - s) with s = sigmoid(g) */
static void CELLS(swiglu_backward)(void *dgate, void *dup, const void *dy, const void *gate, const void *up, int64_t n,
                                   int add_gate, int add_up) {
    int64_t i;
    for (i = 0; i < n; i += VEC_LANES) {
        const vec g = CELL_GET(gate, i, n), u = CELL_GET(up, i, n), d = CELL_GET(dy, i, n);
        const vec s = sigmoid(g), silu = g * s;
        vec to_gate = d * u * vec_fma(silu, vec_set(1.0f) - s, s), to_up = d * silu;
        if (dgate != NULL) {
            if (add_gate) to_gate += CELL_GET(dgate, i, n);
            CELL_PUT(dgate, to_gate, i, n);
        }
        if (dup != NULL) {
            if (add_up) to_up += CELL_GET(dup, i, n);
            CELL_PUT(dup, to_up, i, n);
        }
    }
}

/* ---- rms_norm ---- */

/* Squares that overflow would give a factor of zero, and a row of zeros that nobody notices: it is NaN instead. */
INLINE float CELLS(norm_factor)(const void *x, int64_t width, double eps) {
    const double mean = (double)CELLS(dot)(x, x, width) / (double)width;
    return (float)(1.0 / sqrt(mean + eps) + 0.0 * mean);
}

static float CELLS(norm_row)(void *y, const void *x, const float *gain, int64_t width, double eps) {
    const float r = CELLS(norm_factor)(x, width, eps);
    int64_t i;
    for (i = 0; i < width; i += VEC_LANES) {
        CELL_PUT(y, CELL_GET(x, i, width) * vec_set(r) * vec_get(gain, i, width), i, width);
    }
    return r;
}

/* dx = r (gain dy) - x r^3 / width * sum(gain dy x). dgain first: dx may lie on dy. */
static void CELLS(norm_row_backward)(void *dx, float *dgain, const void *dy, const void *x, const float *gain, float r,
                                     int64_t width, double eps, int add_dx) {
    vec sum = vec_set(0.0f);
    float along = 0;
    int64_t i;
    if (r < 0) r = CELLS(norm_factor)(x, width, eps);
    for (i = 0; i < width; i += VEC_LANES) {
        const vec d = CELL_GET(dy, i, width), v = CELL_GET(x, i, width);
        sum = vec_fma(d * vec_get(gain, i, width), v, sum);
        if (dgain != NULL) vec_put(dgain, vec_get(dgain, i, width) + d * (v * vec_set(r)), i, width);
    }
    if (dx == NULL) return;
    along = (float)((double)vec_sum(sum) * r * r * r / (double)width);
    for (i = 0; i < width; i += VEC_LANES) {
        const vec own = CELL_GET(dy, i, width) * vec_get(gain, i, width) * vec_set(r);
        vec d = own - CELL_GET(x, i, width) * vec_set(along);
        if (add_dx) d += CELL_GET(dx, i, width);
        CELL_PUT(dx, d, i, width);
    }
}

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

/* ---- blocks of attention ---- */

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
