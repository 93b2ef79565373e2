/* panels_body.h: the inner loops of products on packed panels (panels.h), over simd.h. Included by panels_avx2.c and
 * panels_avx512.c, which say before it
 *     BLOCK_ROWS, BLOCK_VECTORS   the block of sums that is held in registers: rows, and vectors of each
 *     BLOCK_TAIL                  rows of a smaller block for what is left; BLOCK_ROWS: there is none
 *     SLAB_ROWS                   lanes of a slab of a: whole blocks
 *     LOOP_WORDS                  words of the inner dimension that the loop takes at once
 *     CUT_WORDS                   words of a piece of packed operands whose b the first cache keeps while all rows meet
 *                                 it, so that no line of it is fetched ahead of each use; 0: they are not cut
 *     STRIP                       rows of a at a time, at most
 * and define
 *     spread_word(at)                           a vector of one word of a, which may lie anywhere
 *     multiply_word(sum, left, right, values)   adds a word of a times a vector of b. As assembly: gcc 12 takes other
 *                                               registers for some of the sums in a word than in the next one, and
 *                                               spends up to an eighth of the time on moving and spilling them
 *     vec_pass(p, v)                            stores a vector past the caches, on a whole line or a half
 */
#ifndef WEFT_DEVICE_CPU_PANELS_BODY_H
#define WEFT_DEVICE_CPU_PANELS_BODY_H

#include "panels_finish.h"

#define SLAB_VECTORS   (PANEL_LANES / VEC_LANES) /* of a word of a slab */
#define BLOCK_SLABS    (BLOCK_VECTORS / SLAB_VECTORS)
#define HALF           (BLOCK_ROWS / 2)
#define AHEAD_WORDS    16 /* of the inner dimension, for which one line is fetched ahead from far */
#define NEAR_LINES     12 /* how many lines ahead panels are fetched from the second cache into the first, */
#define NEAR_ROW_LINES 2  /* and in rows of a that are read in place */
#define AHEAD_ROWS     24 /* how far ahead packing fetches what lies in no cache */

_Static_assert(BLOCK_VECTORS % SLAB_VECTORS == 0 && BLOCK_SLABS <= 3, "a block has one to three whole slabs");
_Static_assert(PANEL_COLUMNS % (BLOCK_VECTORS * VEC_LANES) == 0, "no block reaches into the next columns");
_Static_assert(SLAB_ROWS % BLOCK_ROWS == 0, "no block reaches into the next slab of a");
_Static_assert(STRIP % SLAB_ROWS == 0, "a strip is whole slabs");
_Static_assert(CUT_WORDS % AHEAD_WORDS == 0, "in a piece as many lines are fetched ahead as in the whole");
_Static_assert(AHEAD_WORDS % LOOP_WORDS == 0 && LOOP_WORDS % 2 == 0, "the loop sees each AHEAD_WORDSth word");
_Static_assert(AHEAD_WORDS >= 2 * BLOCK_ROWS, "in AHEAD_WORDS, at each second one, a line of each row is fetched");

/* ---- packing ---- */

/* Bytes of a value in memory. */
INLINE int64_t panel_value_bytes(const int32_t dtype) {
    return dtype == WEFT_F32 ? 4 : 2;
}

/* Words of the lanes [i, i + VEC_LANES) that are there, zeros behind them; values of 16 bits become fp32. */
INLINE vec panel_values(const void *at, int64_t i, int64_t n, const int32_t dtype) {
    if (i >= n) return vec_set(0.0f);
    if (dtype == WEFT_F16) return f16_get((const uint16_t *)at, i, n);
    return dtype == WEFT_BF16 ? bf16_get((const uint16_t *)at, i, n) : vec_get((const float *)at, i, n);
}

/* Lanes that lie side by side: row by row, as memory has them. */
INLINE void pack_across(uint32_t *panel, const panel_source *from, const int32_t dtype) {
    const int64_t room = panel_room(from->k), bytes = panel_value_bytes(dtype), row = from->ld * bytes;
    const char *at = (const char *)from->at;
    int64_t k, i, q;
    for (k = 0; k < from->k; k++, at += row) {
        for (i = 0; i < from->lanes; i += PANEL_LANES) {
            float *out = (float *)(void *)(panel + i * room + k * PANEL_LANES);
            _mm_prefetch(at + AHEAD_ROWS * row + i * bytes, _MM_HINT_T0); /* past the end it is nothing */
#pragma GCC unroll 2
            for (q = 0; q < PANEL_LANES; q += VEC_LANES)
                vec_store(out + q, panel_values(at, i + q, from->lanes, dtype));
        }
    }
}

/* ---- multiplying ---- */

/* How the finished sums of a block go into c, where it lies within c, which is fp32, and no sum waits elsewhere. */
typedef enum way { SET, ADD, PASS } way;

INLINE void finish_one_way(const panel_block *p, vec sum[BLOCK_ROWS][BLOCK_VECTORS], int64_t i, int64_t j,
                           const int rows, const int vectors, const way how) {
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

INLINE void finish_plain(const panel_block *p, vec sum[BLOCK_ROWS][BLOCK_VECTORS], int64_t i, int64_t j, const int rows,
                         const int vectors) {
    if (p->accumulate) {
        finish_one_way(p, sum, i, j, rows, vectors, ADD);
    } else if (p->pass) {
        finish_one_way(p, sum, i, j, rows, vectors, PASS);
    } else {
        finish_one_way(p, sum, i, j, rows, vectors, SET);
    }
}

/* Words [from, from + words) of the inner dimension, for which some blocks are made before the next words. Sums that
 * are not finished wait: as nothing else is added in between, they are the same chain. */
typedef struct piece {
    int64_t from, words;
    int first, last;
    float *waiting;    /* (STRIP, PANEL_COLUMNS); not used where nothing is cut */
    const char *ahead; /* of b, fetched next */
} piece;

/* How a block's rows of a lie: side by side in a slab (PACKED), one distance apart (EVEN), or anywhere. */
typedef enum lie { PACKED, EVEN, ANYWHERE } lie;

/* Where a block has come to. Of a and of b: the words that come next, of each row and of each slab. */
typedef struct place {
    const char *a[BLOCK_ROWS];
    const uint32_t *b[BLOCK_SLABS];
    int64_t row, step; /* bytes from row to row where they are EVEN, and from word to word */
    const char *near;  /* of a: fetched next, where rows are EVEN */
    const char *c;     /* fetched next */
    int64_t c_row, c_rows;
} place;

/* Rows past the end are the last one again, or zeros of the panel. */
INLINE place place_of(const panel_block *p, const piece *part, int64_t i, int64_t j, const int rows, const int vectors,
                      const lie how, const int pieces) {
    const int64_t c_bytes = p->narrow ? 2 : 4, left = p->rows - i;
    place at = {.row = p->a_row * 4,
                .step = (how == PACKED ? SLAB_ROWS : p->a_step) * 4,
                .c = (const char *)p->c + (i * p->ldc + j) * c_bytes,
                .c_row = p->ldc * c_bytes,
                .c_rows = left < rows ? left : rows};
    int r, q;
#pragma GCC unroll 8
    for (r = 0; r < rows; r++) {
        const int64_t row = how != ANYWHERE || r < left ? i + r : p->rows - 1;
        at.a[r] = (const char *)p->a + (row / SLAB_ROWS * p->a_slab + row % SLAB_ROWS * p->a_row) * 4 +
                  (pieces ? part->from * at.step : 0);
    }
#pragma GCC unroll 3
    for (q = 0; q < vectors / SLAB_VECTORS; q++)
        at.b[q] = p->b + (j + q * PANEL_LANES) * p->room + (pieces ? part->from * PANEL_LANES : 0);
    if (how == EVEN) at.step = 4; /* as a_step says, but a constant */
    if (p->pass || (pieces && !part->last)) at.c_rows = 0;
    return at;
}

/* A word of row r, `offset` bytes on. EVEN rows take a few registers in place of a pointer each: one to the first row
 * of each half, their distance, which an address can count twice, and three times it. */
INLINE const char *left_word(const place *at, int64_t offset, int r, const lie how) {
    if (how == PACKED) return at->a[0] + offset + r * 4;
    if (how == EVEN) return at->a[r < HALF ? 0 : HALF] + offset + (r < HALF ? r : r - HALF) * at->row;
    return at->a[r] + offset;
}

/* One word of the inner dimension: the next one, or the one behind it. */
INLINE void add_word(vec sum[BLOCK_ROWS][BLOCK_VECTORS], const place *at, int64_t word, const int rows,
                     const int vectors, const int values, const lie how) {
    const int64_t offset = word * at->step;
    const int near = how != PACKED || CUT_WORDS == 0;
    vec right[BLOCK_VECTORS];
    int r, q;
    if (near && how == PACKED) _mm_prefetch(at->a[0] + offset + NEAR_LINES * PANEL_LINE, _MM_HINT_T0);
#pragma GCC unroll 3
    for (q = 0; q < vectors; q++) {
        const uint32_t *slab = at->b[q / SLAB_VECTORS] + word * PANEL_LANES;
        right[q] = vec_load((const float *)(const void *)slab + q % SLAB_VECTORS * VEC_LANES);
        if (near && q % SLAB_VECTORS == 0) _mm_prefetch((const char *)slab + NEAR_LINES * PANEL_LINE, _MM_HINT_T0);
    }
#pragma GCC unroll 8
    for (r = 0; r < rows; r++) {
        const vec left = spread_word(left_word(at, offset, r, how));
#pragma GCC unroll 3
        for (q = 0; q < vectors; q++) multiply_word(&sum[r][q], left, right[q], values);
    }
}
INLINE void step_on(place *at, const int rows, const int vectors, const int words) {
    int r, q;
#pragma GCC unroll 8
    for (r = 0; r < rows; r++) at->a[r] += words * at->step;
#pragma GCC unroll 3
    for (q = 0; q < vectors / SLAB_VECTORS; q++) at->b[q] += words * PANEL_LANES;
}

/* c is fetched to be written, row by row, so that its lines come as this core's own; a processor without prefetchw
 * ignores it. All at once they would keep lines of the panels waiting. */
INLINE void fetch_c(place *at, const int vectors, const int narrow) {
    int q;
    if (at->c_rows <= 0) return;
#pragma GCC unroll 3
    for (q = 0; q < vectors; q += SLAB_VECTORS)
        __builtin_prefetch(at->c + (narrow ? q * VEC_LANES * 2 : q * VEC_LANES * 4), 1, 3);
    at->c += at->c_row;
    at->c_rows--;
}

/* All sums of a block, over a piece. */
INLINE void add_words(vec sum[BLOCK_ROWS][BLOCK_VECTORS], const panel_block *p, piece *part, place *at,
                      const char *ahead, int64_t ahead_ld, const int rows, const int vectors, const int values,
                      const lie how) {
    int64_t k = 0, w;
    for (; k + LOOP_WORDS <= part->words; k += LOOP_WORDS) {
        if (k % AHEAD_WORDS == 0) {
            _mm_prefetch(ahead, _MM_HINT_T1);
            ahead += ahead_ld;
            if (CUT_WORDS > 0 && how == PACKED) {
                _mm_prefetch(part->ahead, _MM_HINT_T1);
                part->ahead += PANEL_LINE;
            }
            at->near = at->a[0] + NEAR_ROW_LINES * PANEL_LINE;
            fetch_c(at, vectors, p->narrow);
        }
        if (how == EVEN) {
#pragma GCC unroll 2
            for (w = 0; w < LOOP_WORDS; w += 2, at->near += at->row) _mm_prefetch(at->near, _MM_HINT_T0);
        }
#pragma GCC unroll 4
        for (w = 0; w < LOOP_WORDS; w++) add_word(sum, at, w, rows, vectors, values, how);
        step_on(at, rows, vectors, LOOP_WORDS);
    }
    for (; k < part->words; k++) {
        add_word(sum, at, 0, rows, vectors, values, how);
        step_on(at, rows, vectors, 1);
    }
}

/* Sums that do not lie within c, or that something is added to. */
INLINE void finish_any(const panel_block *p, vec sum[BLOCK_ROWS][BLOCK_VECTORS], int64_t i, int64_t j, const int rows,
                       const int vectors) {
    vec rest[BLOCK_ROWS][BLOCK_VECTORS]; /* a copy, so that memory for a loop over rows is taken here alone */
    int r, q;
#pragma GCC unroll 8
    for (r = 0; r < rows; r++) {
#pragma GCC unroll 3
        for (q = 0; q < vectors; q++) rest[r][q] = sum[r][q];
    }
    for (r = 0; r < rows && i + r < p->rows; r++) {
#pragma GCC unroll 3
        for (q = 0; q < vectors; q++) finish(p, rest[r][q], i + r, j + VEC_LANES * q, p->columns - j - VEC_LANES * q);
    }
}

/* Sums that wait, of a block whose first one lies at `at`: taken up, or left there. */
INLINE void take_up(vec sum[BLOCK_ROWS][BLOCK_VECTORS], const float *at, const int rows, const int vectors) {
    int r, q;
#pragma GCC unroll 8
    for (r = 0; r < rows; r++) {
#pragma GCC unroll 3
        for (q = 0; q < vectors; q++)
            sum[r][q] = at == NULL ? vec_set(0.0f) : vec_load(at + r * PANEL_COLUMNS + q * VEC_LANES);
    }
}
INLINE void leave(float *at, vec sum[BLOCK_ROWS][BLOCK_VECTORS], const int rows, const int vectors) {
    int r, q;
#pragma GCC unroll 8
    for (r = 0; r < rows; r++) {
#pragma GCC unroll 3
        for (q = 0; q < vectors; q++) vec_store(at + r * PANEL_COLUMNS + q * VEC_LANES, sum[r][q]);
    }
}

/* One block of sums in registers, from row i and column j on; `rows`, `vectors`, `how` and `pieces` are constants where
 * this is called, and so is `values` for AVX-512. */
INLINE void block(const panel_block *p, piece *part, int64_t i, int64_t j, const char *ahead, int64_t ahead_ld,
                  const int rows, const int vectors, const int values, const lie how, const int pieces) {
    const int whole = i + rows <= p->rows && j + VEC_LANES * vectors <= p->columns;
    float *waiting = pieces ? part->waiting + i * PANEL_COLUMNS + j % PANEL_COLUMNS : NULL;
    place at = place_of(p, part, i, j, rows, vectors, how, pieces);
    vec sum[BLOCK_ROWS][BLOCK_VECTORS];
    take_up(sum, pieces && !part->first ? waiting : NULL, rows, vectors);
    add_words(sum, p, part, &at, ahead, ahead_ld, rows, vectors, values, how);
    if (pieces && !part->last) {
        leave(waiting, sum, rows, vectors);
    } else if (whole && !p->narrow && p->sum == NULL) {
        finish_plain(p, sum, i, j, rows, vectors);
    } else {
        finish_any(p, sum, i, j, rows, vectors);
    }
}

/* The block of the columns [j, to), or of the first of them: whole slabs, as many as it can be. */
INLINE void block_of_slabs(const panel_block *p, piece *part, int64_t i, int64_t j, int64_t to, const char *ahead,
                           int64_t ahead_ld, const int rows, const int values, const lie how, const int pieces) {
    const int64_t left = to - j;
    if (BLOCK_SLABS >= 3 && left > 2 * PANEL_LANES) {
        block(p, part, i, j, ahead, ahead_ld, rows, BLOCK_VECTORS, values, how, pieces);
    } else if (BLOCK_SLABS >= 2 && left > PANEL_LANES) {
        block(p, part, i, j, ahead, ahead_ld, rows, BLOCK_SLABS == 2 ? BLOCK_VECTORS : 2 * SLAB_VECTORS, values, how,
              pieces);
    } else {
        block(p, part, i, j, ahead, ahead_ld, rows, SLAB_VECTORS, values, how, pieces);
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
    const char *at = more ? ahead->at + f->row * ahead->ld + f->line * PANEL_LINE : (const char *)in_use;
    *ld = more ? ahead->ld : 0;
    f->row += f->once;
    if (f->row >= ahead->rows) {
        f->row = 0;
        f->line++;
    }
    return at;
}

/* The block of the rows from i on, and of the columns [j, to) or the first of them; whether by pieces is a constant. */
INLINE void block_of_rows(const panel_block *p, piece *part, fetch *f, int64_t i, int64_t j, int64_t to,
                          const int values, const int pieces) {
    int64_t ld = 0;
    const char *ahead = next_fetch(f, p->a, &ld);
    if (BLOCK_TAIL < BLOCK_ROWS && p->rows - i <= BLOCK_TAIL) {
        block_of_slabs(p, part, i, j, to, ahead, ld, BLOCK_TAIL, values, ANYWHERE, pieces);
    } else if (pieces || (CUT_WORDS == 0 && p->a_step == SLAB_ROWS)) {
        block_of_slabs(p, part, i, j, to, ahead, ld, BLOCK_ROWS, values, PACKED, pieces);
    } else if (i + BLOCK_ROWS <= p->rows) {
        block_of_slabs(p, part, i, j, to, ahead, ld, BLOCK_ROWS, values, EVEN, pieces);
    } else {
        block_of_slabs(p, part, i, j, to, ahead, ld, BLOCK_ROWS, values, ANYWHERE, pieces);
    }
}

/* The columns [from, to): they stay in the second cache while all rows meet them, and the rows of a block in the first
 * one while it goes along them. */
INLINE void multiply_whole(const panel_block *p, fetch *f, int64_t from, int64_t to, const int values) {
    piece all = {.words = p->words, .first = 1, .last = 1};
    int64_t i, j;
    f->once = (p->words + AHEAD_WORDS - 1) / AHEAD_WORDS;
    for (i = 0; i < p->rows; i += BLOCK_ROWS) {
        for (j = from; j < to; j += BLOCK_VECTORS * VEC_LANES) block_of_rows(p, &all, f, i, j, to, values, 0);
    }
}

/* What follows a piece of the columns from j on: the same piece of the next columns, or the next piece. */
INLINE const char *behind(const panel_block *p, const piece *part, int64_t from, int64_t j, int64_t to) {
    const int64_t next = j + BLOCK_VECTORS * VEC_LANES, word = part->from + part->words;
    const uint32_t *at = next < to ? p->b + next * p->room + part->from * PANEL_LANES
                                   : p->b + from * p->room + word * PANEL_LANES;
    return (const char *)(part->last && next >= to ? p->b + to * p->room : at);
}

/* The same by pieces: a block's columns of one stay in the first cache while all rows meet them. A function of its own,
 * because gcc 12 spills sums in the loops of the other one where both are in the same. */
static __attribute__((noinline)) void multiply_pieces(const panel_block *p, fetch *f, int64_t from, int64_t to,
                                                      const int values) {
    _Alignas(PANEL_LINE) float waiting[STRIP * PANEL_COLUMNS];
    piece part = {.waiting = waiting};
    int64_t i, j;
    for (part.from = 0; part.from < p->words; part.from += part.words) {
        const int64_t left = p->words - part.from;
        part.words = left < CUT_WORDS ? left : CUT_WORDS;
        part.first = part.from == 0;
        part.last = part.words == left;
        f->once = (part.words + AHEAD_WORDS - 1) / AHEAD_WORDS;
        for (j = from; j < to; j += BLOCK_VECTORS * VEC_LANES) {
            part.ahead = behind(p, &part, from, j, to);
            for (i = 0; i < p->rows; i += BLOCK_ROWS) block_of_rows(p, &part, f, i, j, to, values, 1);
        }
    }
}

/* Each block fetches a part of what comes next of a, line by line down the rows. */
INLINE void multiply(const panel_block *p, const int values) {
    fetch f = {&p->ahead, 0, 0, 0};
    int64_t from, to;
    for (from = 0; from < p->columns; from = to) {
        to = from + PANEL_COLUMNS < p->columns ? from + PANEL_COLUMNS : p->columns;
        if (CUT_WORDS > 0 && p->a_step == SLAB_ROWS) {
            multiply_pieces(p, &f, from, to, values);
        } else {
            multiply_whole(p, &f, from, to, values);
        }
    }
    if (p->pass) _mm_sfence(); /* another thread may read c as soon as it is told to */
}
static void multiply_f32(const panel_block *p) {
    multiply(p, 1);
}

#endif
