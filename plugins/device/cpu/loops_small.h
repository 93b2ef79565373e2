/* loops_small.h: source of the small matmuls (struct cpu_small), included over simd.h. SMALL_STEP(left, right, sum)
 * adds one value of the inner dimension, or one word of a bf16 pair, to a vector of sums. */

#define SMALL_ROWS 6

/* Computes one tile of rows x columns (vectors) in registers; both are compile-time constants. */
INLINE void small_sums(vec sum[SMALL_ROWS][VEC_COLUMNS], const cpu_small *p, int64_t i, int64_t j, const int rows,
                       const int columns) {
    const float *a = p->a + i * p->a_row, *b = p->b + j;
    int64_t k;
    int r, q;
#pragma GCC unroll 6
    for (r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (q = 0; q < columns; q++) sum[r][q] = vec_set(0.0f);
    }
    for (k = 0; k < p->k; k++) {
        vec right[VEC_COLUMNS];
#pragma GCC unroll 4
        for (q = 0; q < columns; q++) right[q] = vec_load(b + k * p->ldb + q * VEC_LANES);
#pragma GCC unroll 6
        for (r = 0; r < rows; r++) {
            const vec left = vec_set(a[r * p->a_row + k * p->a_step]);
#pragma GCC unroll 4
            for (q = 0; q < columns; q++) sum[r][q] = SMALL_STEP(left, right[q], sum[r][q]);
        }
    }
}

INLINE void small_tile(const cpu_small *p, int64_t i, int64_t j, const int rows, const int columns) {
    float *c = p->c + i * p->ldc + j;
    vec sum[SMALL_ROWS][VEC_COLUMNS];
    int r, q;
    small_sums(sum, p, i, j, rows, columns);
#pragma GCC unroll 6
    for (r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (q = 0; q < columns; q++) {
            float *at = c + r * p->ldc + q * VEC_LANES;
            if (p->accumulate) sum[r][q] += vec_load(at);
            vec_store(at, sum[r][q]);
        }
    }
}

INLINE void small_rows(const cpu_small *p, int64_t j, const int columns) {
    int64_t i;
    for (i = 0; i + SMALL_ROWS <= p->m; i += SMALL_ROWS) small_tile(p, i, j, SMALL_ROWS, columns);
    switch (p->m - i) {
    case 5: small_tile(p, i, j, 5, columns); break;
    case 4: small_tile(p, i, j, 4, columns); break;
    case 3: small_tile(p, i, j, 3, columns); break;
    case 2: small_tile(p, i, j, 2, columns); break;
    case 1: small_tile(p, i, j, 1, columns); break;
    default: break;
    }
}

static void loop_small(const cpu_small *p) {
    const int64_t wide = VEC_COLUMNS * VEC_LANES;
    int64_t j = 0;
    for (; j + wide <= p->n; j += wide) small_rows(p, j, VEC_COLUMNS);
#if VEC_COLUMNS == 4
    switch ((p->n - j) / VEC_LANES) {
    case 3: small_rows(p, j, 3); break;
    case 2: small_rows(p, j, 2); break;
    case 1: small_rows(p, j, 1); break;
    default: break;
    }
#endif
}
