/* panels_finish.h: stores finished sums of a matmul to c, for all instruction sets. Included over simd.h. */
#ifndef WEFT_DEVICE_CPU_PANELS_FINISH_H
#define WEFT_DEVICE_CPU_PANELS_FINISH_H

/* Stores one vector of finished sums; n: its valid columns. */
INLINE void finish(const panel_block *p, vec v, int64_t row, int64_t column, int64_t n) {
    const int64_t at = row * p->ldc + column;
    if (n <= 0) return;
    if (p->sum != NULL) v += vec_get(p->sum + row * p->sum_ld + column, 0, n);
    if (p->narrow == WEFT_BF16) {
        uint16_t *narrow = (uint16_t *)p->c + at;
        if (p->accumulate) v += bf16_get(narrow, 0, n);
        bf16_put(narrow, v, 0, n);
    } else if (p->narrow == WEFT_F16) {
        uint16_t *narrow = (uint16_t *)p->c + at;
        if (p->accumulate) v += f16_get(narrow, 0, n);
        f16_put(narrow, v, 0, n);
    } else {
        float *wide = (float *)p->c + at;
        if (p->accumulate) v += vec_get(wide, 0, n);
        vec_put(wide, v, 0, n);
    }
}

#endif
