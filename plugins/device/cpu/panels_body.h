/* panels_body.h: the inner loops of products on packed panels (panels.h), over simd.h. Included by panels_avx2.c and
 * panels_avx512.c, which say before it
 *     BLOCK_ROWS, BLOCK_VECTORS   the block of sums that is held in registers: rows, and vectors of each
 *     BLOCK_TAIL                  rows of a smaller block for what is left; BLOCK_ROWS: there is none
 * and define
 *     multiply_word(sum, left, right, values)   sum + one word of a, which may lie anywhere, times a vector of b
 *     vec_pass(p, v)                            stores a vector past the caches, on a whole line or a half
 */
#ifndef WEFT_DEVICE_CPU_PANELS_BODY_H
#define WEFT_DEVICE_CPU_PANELS_BODY_H

#define SLAB_VECTORS (PANEL_LANES / VEC_LANES) /* of a word of a slab */
#define BLOCK_SLABS  (BLOCK_VECTORS / SLAB_VECTORS)
#define AHEAD_WORDS  16 /* of the inner dimension, for which one line is fetched ahead */
#define AHEAD_ROWS   24 /* how far ahead packing fetches what lies in no cache */

_Static_assert(BLOCK_VECTORS % SLAB_VECTORS == 0 && BLOCK_SLABS <= 3, "a block has one to three whole slabs");
_Static_assert(PANEL_COLUMNS % (BLOCK_VECTORS * VEC_LANES) == 0, "no block reaches into the next columns");

/* ---- packing ---- */

/* Words of the lanes [i, i + VEC_LANES) that are there, zeros behind them. bytes: of a value in memory; two are bf16,
 * which become fp32. */
INLINE vec panel_values(const void *at, int64_t i, int64_t n, const int bytes) {
    if (i >= n) return vec_set(0.0f);
    return bytes == 2 ? bf16_get((const uint16_t *)at, i, n) : vec_get((const float *)at, i, n);
}

/* Lanes that lie side by side: row by row, as memory has them. */
INLINE void pack_across(uint32_t *panel, const panel_source *from, const int bytes) {
    const int64_t room = panel_room(from->k), row = from->ld * bytes;
    const char *at = (const char *)from->at;
    int64_t k, i, q;
    for (k = 0; k < from->k; k++, at += row) {
        for (i = 0; i < from->lanes; i += PANEL_LANES) {
            float *out = (float *)(void *)(panel + i * room + k * PANEL_LANES);
            _mm_prefetch(at + AHEAD_ROWS * row + i * bytes, _MM_HINT_T0); /* past the end it is nothing */
#pragma GCC unroll 2
            for (q = 0; q < PANEL_LANES; q += VEC_LANES)
                vec_store(out + q, panel_values(at, i + q, from->lanes, bytes));
        }
    }
}

/* ---- multiplying ---- */

/* Stores one vector of finished sums; n: of its columns that are there. */
INLINE void finish(const panel_block *p, vec v, int64_t row, int64_t column, int64_t n) {
    const int64_t at = row * p->ldc + column;
    uint16_t *narrow = (uint16_t *)p->c + at;
    float *wide = (float *)p->c + at;
    if (n <= 0) return;
    if (p->sum != NULL) v += vec_get(p->sum + row * p->sum_ld + column, 0, n);
    if (p->narrow) {
        if (p->accumulate) v += bf16_get(narrow, 0, n);
        bf16_put(narrow, v, 0, n);
    } else {
        if (p->accumulate) v += vec_get(wide, 0, n);
        vec_put(wide, v, 0, n);
    }
}

/* How the finished sums of a block go into c, where it lies within c, which is fp32, and no sum waits elsewhere. */
typedef enum way { SET, ADD, PASS } way;

INLINE void finish_plain(const panel_block *p, vec sum[BLOCK_ROWS][BLOCK_VECTORS], int64_t i, int64_t j, const int rows,
                         const int vectors, const way how) {
    float *at = (float *)p->c + i * p->ldc + j;
    int r, q;
#pragma GCC unroll 8
    for (r = 0; r < rows; r++, at += p->ldc) {
#pragma GCC unroll 3
        for (q = 0; q < vectors; q++) {
            if (how == ADD) sum[r][q] += vec_load(at + VEC_LANES * q);
            if (how == PASS) {
                vec_pass(at + VEC_LANES * q, sum[r][q]);
            } else {
                vec_store(at + VEC_LANES * q, sum[r][q]);
            }
        }
    }
}

/* c is fetched to be written, so that its lines come as this core's own; a processor without prefetchw ignores it.
 *
 * One block of sums in registers, from row i and column j on; `rows`, `vectors` and `values` are constants where this
 * is called. Rows past the end are the last one again. */
INLINE void block(const panel_block *p, int64_t i, int64_t j, const char *ahead, int64_t ahead_ld, const int rows,
                  const int vectors, const int values) {
    const char *a[BLOCK_ROWS];
    const uint32_t *b = p->b + j * p->room;
    const int64_t step = p->a_step * 4;
    const int whole = i + rows <= p->rows && j + VEC_LANES * vectors <= p->columns;
    vec sum[BLOCK_ROWS][BLOCK_VECTORS];
    int64_t k, at = 0;
    int r, q;
#pragma GCC unroll 8
    for (r = 0; r < rows; r++) {
        const int64_t row = i + r < p->rows ? i + r : p->rows - 1;
        a[r] = (const char *)p->a + (row / PANEL_LANES * p->a_slab + row % PANEL_LANES * p->a_row) * 4;
#pragma GCC unroll 3
        for (q = 0; q < vectors; q++) {
            sum[r][q] = vec_set(0.0f);
            if (q % SLAB_VECTORS == 0 && i + r < p->rows && !p->pass)
                __builtin_prefetch((const char *)p->c + ((i + r) * p->ldc + j + VEC_LANES * q) * (p->narrow ? 2 : 4), 1,
                                   3);
        }
    }
    for (k = 0; k < p->words; k++, at += step) {
        vec right[BLOCK_VECTORS];
        if (k % AHEAD_WORDS == 0) {
            _mm_prefetch(ahead, _MM_HINT_T1);
            ahead += ahead_ld;
        }
#pragma GCC unroll 3
        for (q = 0; q < vectors; q++) {
            const uint32_t *slab = b + (q / SLAB_VECTORS * p->room + k) * PANEL_LANES;
            right[q] = vec_load((const float *)(const void *)slab + q % SLAB_VECTORS * VEC_LANES);
        }
#pragma GCC unroll 8
        for (r = 0; r < rows; r++) {
#pragma GCC unroll 3
            for (q = 0; q < vectors; q++) sum[r][q] = multiply_word(sum[r][q], a[r] + at, right[q], values);
        }
    }
    if (whole && !p->narrow && p->sum == NULL) {
        if (p->accumulate) {
            finish_plain(p, sum, i, j, rows, vectors, ADD);
        } else if (p->pass) {
            finish_plain(p, sum, i, j, rows, vectors, PASS);
        } else {
            finish_plain(p, sum, i, j, rows, vectors, SET);
        }
        return;
    }
    for (r = 0; r < rows && i + r < p->rows; r++) {
#pragma GCC unroll 3
        for (q = 0; q < vectors; q++) finish(p, sum[r][q], i + r, j + VEC_LANES * q, p->columns - j - VEC_LANES * q);
    }
}

/* The block of the columns [j, to), or of the first of them: whole slabs, as many as it can be. */
INLINE void block_of_slabs(const panel_block *p, int64_t i, int64_t j, int64_t to, const char *ahead, int64_t ahead_ld,
                           const int rows, const int values) {
    const int64_t left = to - j;
    if (BLOCK_SLABS >= 3 && left > 2 * PANEL_LANES) {
        block(p, i, j, ahead, ahead_ld, rows, BLOCK_VECTORS, values);
    } else if (BLOCK_SLABS >= 2 && left > PANEL_LANES) {
        block(p, i, j, ahead, ahead_ld, rows, BLOCK_SLABS == 2 ? BLOCK_VECTORS : 2 * SLAB_VECTORS, values);
    } else {
        block(p, i, j, ahead, ahead_ld, rows, SLAB_VECTORS, values);
    }
}

/* What is still to be fetched: the next line of so many rows. */
typedef struct fetch {
    const panel_ahead *ahead;
    int64_t row, line, once;
} fetch;

/* What a block fetches; when all is fetched, a word that is in use anyway. */
INLINE const char *next_fetch(fetch *f, const void *in_use, int64_t *ld) {
    const panel_ahead *ahead = f->ahead;
    const int more = f->row < ahead->rows && f->line < ahead->lines;
    const char *at = more ? ahead->at + f->row * ahead->ld + f->line * 64 : (const char *)in_use;
    *ld = more ? ahead->ld : 0;
    f->row += f->once;
    if (f->row >= ahead->rows) {
        f->row = 0;
        f->line++;
    }
    return at;
}

/* Some columns of b stay in the cache while all rows meet them, and the rows of a block while it goes along them. Each
 * block fetches a part of what comes next, line by line down the rows. */
INLINE void multiply(const panel_block *p, const int values) {
    fetch f = {&p->ahead, 0, 0, (p->words + AHEAD_WORDS - 1) / AHEAD_WORDS};
    int64_t i, j, from, to, ld = 0;
    for (from = 0; from < p->columns; from = to) {
        to = from + PANEL_COLUMNS < p->columns ? from + PANEL_COLUMNS : p->columns;
        for (i = 0; i < p->rows; i += BLOCK_ROWS) {
            for (j = from; j < to; j += BLOCK_VECTORS * VEC_LANES) {
                const char *ahead = next_fetch(&f, p->a, &ld);
                if (BLOCK_TAIL < BLOCK_ROWS && p->rows - i <= BLOCK_TAIL) {
                    block_of_slabs(p, i, j, to, ahead, ld, BLOCK_TAIL, values);
                } else {
                    block_of_slabs(p, i, j, to, ahead, ld, BLOCK_ROWS, values);
                }
            }
        }
    }
    if (p->pass) _mm_sfence(); /* another thread may read c as soon as it is told to */
}
static void multiply_f32(const panel_block *p) {
    multiply(p, 1);
}

#endif
