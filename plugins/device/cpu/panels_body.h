/* panels_body.h: the inner loops of matmuls on packed panels (panels.h), over simd.h. panels_avx2.c and panels_avx512.c
 * include it and define before
 *     BLOCK_ROWS, BLOCK_VECTORS   the block of sums in registers: rows, and vectors per row
 *     BLOCK_TAIL                  rows of a smaller block for the remainder; BLOCK_ROWS: no such block
 *     SLAB_ROWS                   lanes of a slab of a: complete blocks
 *     LOOP_WORDS                  words of the inner dimension per loop iteration
 *     CUT_WORDS                   words per chunk of packed operands. A chunk of b stays in L1 while all rows use
 *                                 it, so that no line of it is prefetched before each use; 0: no chunks
 *     STRIP                       maximum rows of a at a time
 * and the functions
 *     spread_word(at)                           broadcasts one word of a, at any address
 *     multiply_word(sum, left, right, values)   adds a word of a times a vector of b. Inline assembly: gcc 12 changes
 *                                               the registers of some sums between words, and spends up to an
 *                                               eighth of the time on moving and spilling them
 *     vec_pass(p, v)                            non-temporal store of a vector to a complete or half line */
#ifndef WEFT_DEVICE_CPU_PANELS_BODY_H
#define WEFT_DEVICE_CPU_PANELS_BODY_H

#include "panels_finish.h"

#define SLAB_VECTORS   (PANEL_LANES / VEC_LANES) /* per word of a slab */
#define BLOCK_SLABS    (BLOCK_VECTORS / SLAB_VECTORS)
#define HALF           (BLOCK_ROWS / 2)
#define AHEAD_WORDS    16 /* of the inner dimension per line prefetched from memory */
#define NEAR_LINES     12 /* prefetch distance of panels from L2 to L1, in lines, */
#define NEAR_ROW_LINES 2  /* and of rows of a that are read in place */
#define AHEAD_ROWS     24 /* prefetch distance of packing, for uncached rows */

_Static_assert(BLOCK_VECTORS % SLAB_VECTORS == 0 && BLOCK_SLABS <= 3, "a block has one to three complete slabs");
_Static_assert(PANEL_COLUMNS % (BLOCK_VECTORS * VEC_LANES) == 0, "no block reaches into the next columns");
_Static_assert(SLAB_ROWS % BLOCK_ROWS == 0, "no block reaches into the next slab of a");
_Static_assert(STRIP % SLAB_ROWS == 0, "a strip is complete slabs");
_Static_assert(CUT_WORDS % AHEAD_WORDS == 0, "a chunk fetches as many lines ahead as the complete block");
_Static_assert(AHEAD_WORDS % LOOP_WORDS == 0 && LOOP_WORDS % 2 == 0, "the loop visits each AHEAD_WORDSth element");
_Static_assert(AHEAD_WORDS >= 2 * BLOCK_ROWS, "in AHEAD_WORDS, each second element fetches a line of each row");

/* ---- packing ---- */

INLINE int64_t panel_value_bytes(const int32_t dtype) {
    return dtype == WEFT_F32 ? 4 : 2;
}

/* Loads words of the lanes [i, i + VEC_LANES) up to n, zeros after; 16-bit values are widened to fp32. */
INLINE vec panel_values(const void *at, int64_t i, int64_t n, const int32_t dtype) {
    if (i >= n) return vec_set(0.0f);
    if (dtype == WEFT_F16) return f16_get((const uint16_t *)at, i, n);
    return dtype == WEFT_BF16 ? bf16_get((const uint16_t *)at, i, n) : vec_get((const float *)at, i, n);
}

/* Packs lanes stored next to each other, row by row. */
INLINE void pack_across(uint32_t *panel, const panel_source *from, const int32_t dtype) {
    const int64_t room = panel_room(from->k), bytes = panel_value_bytes(dtype), row = from->ld * bytes;
    const char *at = (const char *)from->at;
    int64_t k, i, q;
    for (k = 0; k < from->k; k++, at += row) {
        for (i = 0; i < from->lanes; i += PANEL_LANES) {
            float *out = (float *)(void *)(panel + i * room + k * PANEL_LANES);
            _mm_prefetch(at + AHEAD_ROWS * row + i * bytes, _MM_HINT_T0); /* past the end it has no effect */
#pragma GCC unroll 2
            for (q = 0; q < PANEL_LANES; q += VEC_LANES)
                vec_store(out + q, panel_values(at, i + q, from->lanes, dtype));
        }
    }
}

/* ---- multiplication ---- */

/* Store modes of a finished block that is completely inside an fp32 c, without stored sums. */
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

/* Words [from, from + words) of the inner dimension. Some blocks process them before the next words. Unfinished sums
 * are stored in between; no other additions happen, so they remain one chain. */
typedef struct piece {
    int64_t from, words;
    int first, last;
    float *waiting;    /* (STRIP, PANEL_COLUMNS); unused without chunks */
    const char *ahead; /* of b, prefetched next */
} piece;

/* Layout of a block's rows of a: contiguous in a slab (PACKED), at a constant distance (EVEN), or ANYWHERE. */
typedef enum lie { PACKED, EVEN, ANYWHERE } lie;

/* Pointers of a block: the next words of each row of a and of each slab of b. */
typedef struct place {
    const char *a[BLOCK_ROWS];
    const uint32_t *b[BLOCK_SLABS];
    int64_t row, step; /* bytes between EVEN rows, and between words */
    const char *near;  /* of a: next prefetch, for EVEN rows */
    const char *c;     /* next prefetch */
    int64_t c_row, c_rows;
} place;

/* Returns the pointers of a block. Rows past the end repeat the last row, or are the panel's zeros. */
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
    if (how == EVEN) at.step = 4; /* equal to a_step, but a constant */
    if (p->pass || (pieces && !part->last)) at.c_rows = 0;
    return at;
}

/* Returns a word of row r, at `offset` bytes. EVEN rows need few registers instead of a pointer each: the first row of
 * each half, their distance, which an address can scale by two, and three times it. */
INLINE const char *left_word(const place *at, int64_t offset, int r, const lie how) {
    if (how == PACKED) return at->a[0] + offset + r * 4;
    if (how == EVEN) return at->a[r < HALF ? 0 : HALF] + offset + (r < HALF ? r : r - HALF) * at->row;
    return at->a[r] + offset;
}

/* Adds one word of the inner dimension: the next one, or a later one. */
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

/* Prefetches c for writing, row by row, so that this core owns its lines; a processor without prefetchw ignores it. All
 * rows at once would delay the panels' lines. */
INLINE void fetch_c(place *at, const int vectors, const int narrow) {
    int q;
    if (at->c_rows <= 0) return;
#pragma GCC unroll 3
    for (q = 0; q < vectors; q += SLAB_VECTORS)
        __builtin_prefetch(at->c + (narrow ? q * VEC_LANES * 2 : q * VEC_LANES * 4), 1, 3);
    at->c += at->c_row;
    at->c_rows--;
}

/* Computes all sums of a block over a chunk. */
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

/* Finishes sums that are partly outside c, or that need an addition. */
INLINE void finish_any(const panel_block *p, vec sum[BLOCK_ROWS][BLOCK_VECTORS], int64_t i, int64_t j, const int rows,
                       const int vectors) {
    vec rest[BLOCK_ROWS][BLOCK_VECTORS]; /* a copy, so that only this function needs memory for a loop over rows */
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

/* Load or store the unfinished sums of a block, whose first one is at `at`. */
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

/* Computes one block of sums in registers, starting at row i and column j. `rows`, `vectors`, `how` and `pieces` are
 * compile-time constants, for AVX-512 `values` too. */
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

/* Computes the block of the columns [j, to), or of the first of them: as many complete slabs as possible. */
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

/* Remaining prefetches: the next line in each of the rows. */
typedef struct fetch {
    const panel_ahead *ahead;
    int64_t row, line, once;
} fetch;

/* Returns a block's next prefetch; if nothing is left, an address already in use. */
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

/* Computes the block of the rows from i on, and of the columns [j, to) or the first of them; `pieces` is a compile-time
 * constant. */
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

/* Computes the columns [from, to) without chunks. They stay in L2 while all rows use them, and a block's rows stay in
 * L1 across the columns. */
INLINE void multiply_whole(const panel_block *p, fetch *f, int64_t from, int64_t to, const int values) {
    piece all = {.words = p->words, .first = 1, .last = 1};
    int64_t i, j;
    f->once = (p->words + AHEAD_WORDS - 1) / AHEAD_WORDS;
    for (i = 0; i < p->rows; i += BLOCK_ROWS) {
        for (j = from; j < to; j += BLOCK_VECTORS * VEC_LANES) block_of_rows(p, &all, f, i, j, to, values, 0);
    }
}

/* Returns the start of the chunk after `part` of the columns from j on: the same chunk of the next columns, or the next
 * chunk. */
INLINE const char *behind(const panel_block *p, const piece *part, int64_t from, int64_t j, int64_t to) {
    const int64_t next = j + BLOCK_VECTORS * VEC_LANES, word = part->from + part->words;
    const uint32_t *at = next < to ? p->b + next * p->room + part->from * PANEL_LANES
                                   : p->b + from * p->room + word * PANEL_LANES;
    return (const char *)(part->last && next >= to ? p->b + to * p->room : at);
}

/* Same with chunks: a block's columns of one chunk stay in L1 while all rows use them. A separate function, because gcc
 * 12 spills sums in the loops of the other one if both are in one. */
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

/* Computes all blocks. Each block prefetches a part of the next rows of a, line by line down the rows. */
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
    if (p->pass) _mm_sfence(); /* another thread may read c after the next barrier */
}
static void multiply_f32(const panel_block *p) {
    multiply(p, 1);
}

#endif
