/* panels_amx.c: matmuls of packed panels (panels.h) on AMX tiles, in bf16 pairs.
 *
 * The eight tiles are four of sums, two of a and two of b: four loads and four tile multiplications add 16 words to 32
 * x 32 sums. A tile multiplication takes 16 cycles, a load from L1 takes 8. That is 64 cycles of multiplication and 32
 * of loading 4 KB per 65,536 operations. If all four loads came from L2, they would take its complete bandwidth in
 * these cycles, 64 bytes each. As on AVX2, the inner dimension is therefore split into chunks of CUT_WORDS. A chunk of
 * two slabs of b has 32 KB and stays in L1 (48 KB) while all rows use it. Only a is loaded from L2, 32 bytes a cycle.
 * Between chunks the sums of a block are stored, a load and a store of 4 KB in the 1,024 cycles of a chunk. Cores with
 * tiles look far enough ahead to keep the loads of some steps in flight, so there is no software prefetch from L2 to
 * L1.
 *
 * Both operands are packed. Reading a in place has three costs. 16 rows a power of two apart share cache lines. Each
 * thread reads all of them for every few columns. Row tails are not zero. A tile of a panel is 1 KB without gaps. A
 * strip of STRIP rows of a step (1,024 words) is 1 MB of the 2 MB of L2. Its thread has just written it, and multiplies
 * it by all columns that the team has packed. b is read once per strip from the team's panels: 1 byte per STRIP
 * operations, 14 GB/s at 3.6 TFLOP/s of a core. It is prefetched one chunk ahead. c is written once per step; its lines
 * are prefetched during the last chunk.
 *
 * Panels are padded with zeros in rows, columns and words, so all tiles are complete and one configuration suffices. A
 * thread loads it at the start of a matmul and releases it at the end. The kernel then saves no 8 KB of tiles for other
 * work.
 *
 * Only amx.h's macros, simd.h and panels_words.h depend on the instruction set. A test compiles this file again over
 * tiles in plain C (WEFT_AMX_PLAIN), for processors without tiles. */
#if defined(__x86_64__) || defined(WEFT_AMX_PLAIN)
#include "amx.h"
#if defined(WEFT_AMX_PLAIN)
#include WEFT_AMX_PLAIN
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")
#define LOOPS_AVX512
#endif
#include "panels.h"
#include "simd.h"
#include "panels_finish.h"
#include "panels_words.h"

#define SIDE        32  /* rows and columns of a block of sums: two tiles each */
#define CUT_WORDS   256 /* per chunk: 32 KB of b */
#define STRIP       256 /* maximum rows of a at a time */
#define TILE_FLOATS 256
#define TILE_PACKED 1024 /* bytes of a contiguous tile */
#define LINES_MOST  8    /* maximum lines of each operand prefetched per step */

#if defined(WEFT_AMX_PLAIN) /* plain C has no non-temporal stores */
INLINE void vec_pass(float *p, vec v) {
    vec_put(p, v, 0, VEC_LANES);
}
INLINE void end_passing(void) {}
#else
INLINE void vec_pass(float *p, vec v) {
    _mm512_stream_ps(p, v);
}
INLINE void end_passing(void) {
    _mm_sfence();
}
#endif

/* ---- packing ---- */

/* Stores 16 words of 16 lanes into a slab. A row of `rows` is a lane or a word. A tile of a stores lanes, a tile of b
 * words, so one of the two cases needs a transpose. */
INLINE void put_block(uint32_t *at, const words rows[16], const int turned) {
    int i;
    if (turned) {
        words_turn(at, rows);
        return;
    }
#pragma GCC unroll 16
    for (i = 0; i < 16; i++) words_store(at + i * AMX_WORDS, rows[i]);
}

/* Packs k values of `lanes` lanes, whose values are contiguous, into a slab, starting at `at`. Prefetches the next
 * values; past the end this has no effect. */
INLINE void pack_along(uint32_t *slab, const uint16_t *at, int64_t ld, int64_t lanes, int64_t k, const int turned) {
    words rows[16];
    int64_t v, i;
    for (v = 0; v < k; v += 2 * AMX_WORDS) {
        if (lanes >= PANEL_LANES && k - v >= 2 * AMX_WORDS) {
#pragma GCC unroll 16
            for (i = 0; i < 16; i++) {
                __builtin_prefetch(at + (i + PANEL_LANES) * ld + v, 0, 3);
                rows[i] = words_load(at + i * ld + v, 2 * AMX_WORDS);
            }
        } else {
            for (i = 0; i < 16; i++) rows[i] = words_load(at + (i < lanes ? i : 0) * ld + v, i < lanes ? k - v : 0);
        }
        put_block(slab + v / 2 * PANEL_LANES, rows, turned);
    }
}

/* Packs two slabs, or the last one, of lanes stored next to each other. */
INLINE void pack_across(uint32_t *slab, int64_t room, const uint16_t *at, int64_t ld, int64_t lanes, int64_t k,
                        const int turned) {
    words low[16], high[16];
    int64_t v, i;
    for (v = 0; v < k; v += 2 * AMX_WORDS) {
        const int64_t left = k - v;
        const uint16_t *from = at + v * ld;
        if (left >= 2 * AMX_WORDS) {
#pragma GCC unroll 16
            for (i = 0; i < 16; i++) {
                __builtin_prefetch(from + (2 * i + 2 * AMX_WORDS) * ld, 0, 3);
                __builtin_prefetch(from + (2 * i + 1 + 2 * AMX_WORDS) * ld, 0, 3);
                words_join(&low[i], &high[i], words_load(from + 2 * i * ld, lanes),
                           words_load(from + (2 * i + 1) * ld, lanes));
            }
        } else {
            for (i = 0; i < 16; i++) {
                const int64_t one = 2 * i < left ? lanes : 0, two = 2 * i + 1 < left ? lanes : 0;
                words_join(&low[i], &high[i], words_load(one ? from + 2 * i * ld : at, one),
                           words_load(two ? from + (2 * i + 1) * ld : at, two));
            }
        }
        put_block(slab + v / 2 * PANEL_LANES, low, turned);
        if (lanes > PANEL_LANES) put_block(slab + (room + v / 2) * PANEL_LANES, high, turned);
    }
}

INLINE void pack(uint32_t *panel, const panel_source *from, const int lanes_are_rows) {
    const int64_t room = panel_room((from->k + 1) / 2), step = from->along ? PANEL_LANES : 2 * PANEL_LANES;
    const uint16_t *at = (const uint16_t *)from->at;
    int64_t i;
    for (i = 0; i < from->lanes; i += step) {
        uint32_t *slab = panel + i * room;
        if (from->along) {
            pack_along(slab, at + i * from->ld, from->ld, from->lanes - i, from->k, !lanes_are_rows);
        } else {
            pack_across(slab, room, at + i, from->ld, from->lanes - i, from->k, lanes_are_rows);
        }
    }
}
static void pack_a(uint32_t *panel, const panel_source *from) {
    pack(panel, from, 1);
}
static void pack_b(uint32_t *panel, const panel_source *from) {
    pack(panel, from, 0);
}

/* ---- multiplication ---- */

/* Configures all tiles as complete. */
static void enter(void) {
    amx_configuration all = {.palette = 1};
    int i;
    for (i = 0; i < AMX_TILES; i++) {
        all.rows[i] = AMX_ROWS;
        all.row_bytes[i] = AMX_BYTES;
    }
    TILE_CONFIGURE(&all);
}
static void leave(void) {
    TILE_RELEASE();
}

/* Prefetches during a block, `of_a` and `of_b` lines per step. Of a: the next strip's rows; of b: the next chunk, in
 * two slabs `slab` bytes apart. */
typedef struct fetch {
    const panel_ahead *ahead;
    int64_t row, line, of_a;
    const char *b;
    int64_t slab, b_line, b_lines, of_b;
} fetch;

INLINE void fetch_some(fetch *f) {
    int64_t i;
    for (i = 0; i < f->of_a && f->row < f->ahead->rows; i++) {
        __builtin_prefetch(f->ahead->at + f->row * f->ahead->ld + f->line * PANEL_LINE, 0, 2);
        if (++f->line < f->ahead->lines) continue;
        f->line = 0;
        f->row++;
    }
    for (i = 0; i < f->of_b && f->b_line < f->b_lines; i++, f->b_line++) {
        __builtin_prefetch(f->b + f->b_line * PANEL_LINE, 0, 2);
        __builtin_prefetch(f->b + f->slab + f->b_line * PANEL_LINE, 0, 2);
    }
}

/* Words [from, from + words) of the inner dimension. All rows of a strip process them with two slabs of b before the
 * next words. A block's sums are stored in between, tile by tile. */
typedef struct piece {
    int64_t from, words;
    int first, last;
    float *waiting; /* (STRIP / SIDE, 4, TILE_FLOATS) */
} piece;

/* Prefetches c's block for writing, two rows per step. */
INLINE void fetch_c(const panel_block *p, const piece *part, int64_t i, int64_t j, int64_t step) {
    const int64_t bytes = p->narrow ? 2 : 4;
    int64_t row;
    if (!part->last || p->pass) return;
    for (row = i + 2 * step; row < i + 2 * step + 2 && row < i + SIDE && row < p->rows; row++) {
        const char *at = (const char *)p->c + (row * p->ldc + j) * bytes;
        __builtin_prefetch(at, 1, 3);
        __builtin_prefetch(at + PANEL_LINE, 1, 3); /* 16 bits: the next block's line, needed soon */
    }
}

/* Loads sums into tiles. two_a and two_b are compile-time constants: two tiles of it exist. Sums: 0 and 1 belong to a's
 * first tile, 2 and 3 to its second. They start at zero (`first`) or are loaded. `right` and `below` are the distances
 * in floats to the next tiles, `apart` the bytes between rows. */
INLINE void take_up(const float *at, int64_t right, int64_t below, int64_t apart, const int first, const int two_a,
                    const int two_b) {
    if (first) {
        TILE_ZERO(0);
        if (two_b) TILE_ZERO(1);
        if (two_a) TILE_ZERO(2);
        if (two_a && two_b) TILE_ZERO(3);
        return;
    }
    TILE_LOAD(0, at, apart);
    if (two_b) TILE_LOAD(1, at + right, apart);
    if (two_a) TILE_LOAD(2, at + below, apart);
    if (two_a && two_b) TILE_LOAD(3, at + below + right, apart);
}
INLINE void put_down(float *at, int64_t right, int64_t below, int64_t apart, const int two_a, const int two_b) {
    TILE_STORE(0, at, apart);
    if (two_b) TILE_STORE(1, at + right, apart);
    if (two_a) TILE_STORE(2, at + below, apart);
    if (two_a && two_b) TILE_STORE(3, at + below + right, apart);
}

/* Processes 16 words. `next`: bytes to the second tile. */
INLINE void add_step(const char *a, int64_t a_next, int64_t a_apart, const char *b, int64_t b_next, int64_t b_apart,
                     const int two_a, const int two_b) {
    TILE_LOAD(4, a, a_apart);
    TILE_LOAD(6, b, b_apart);
    TILE_DOT(0, 4, 6);
    if (two_b) {
        TILE_LOAD(7, b + b_next, b_apart);
        TILE_DOT(1, 4, 7);
    }
    if (two_a) {
        TILE_LOAD(5, a + a_next, a_apart);
        TILE_DOT(2, 5, 6);
    }
    if (two_a && two_b) TILE_DOT(3, 5, 7);
}

/* Stores a vector of a finished block; n: its valid columns. Non-temporal stores need complete lines. */
INLINE void put_vector(const panel_block *p, vec v, int64_t row, int64_t column, int64_t n) {
    if (p->pass && n >= AMX_WORDS) vec_pass((float *)p->c + row * p->ldc + column, v);
    else finish(p, v, row, column, n);
}

/* Finishes a block, through memory, that cannot be stored to c directly. */
INLINE void finish_block(const panel_block *p, int64_t i, int64_t j, const int two_a, const int two_b) {
    _Alignas(PANEL_LINE) float sums[SIDE * SIDE];
    int64_t row, column;
    put_down(sums, AMX_WORDS, AMX_ROWS * SIDE, SIDE * 4, two_a, two_b);
    for (row = 0; row < (two_a ? SIDE : AMX_ROWS) && i + row < p->rows; row++) {
        for (column = 0; column < (two_b ? SIDE : AMX_WORDS); column += VEC_LANES)
            put_vector(p, vec_load(sums + row * SIDE + column), i + row, j + column, p->columns - j - column);
    }
}

/* Computes one block of sums over a chunk, starting at row i and column j. */
INLINE void block(const panel_block *p, const piece *part, fetch *f, int64_t i, int64_t j, const int two_a,
                  const int two_b) {
    const int64_t a_next = p->a_slab * 4, b_next = p->room * PANEL_LANES * 4;
    const char *a = (const char *)p->a + i / AMX_ROWS * a_next + part->from * PANEL_LINE;
    const char *b = (const char *)(p->b + j * p->room) + part->from * PANEL_LINE;
    const int64_t rows = two_a ? SIDE : AMX_ROWS, columns = two_b ? SIDE : AMX_WORDS;
    const int plain = i + rows <= p->rows && j + columns <= p->columns && !p->narrow && !p->accumulate && !p->pass &&
                      p->sum == NULL;
    float *waiting = part->waiting + i / SIDE * 4 * TILE_FLOATS;
    int64_t word;
    take_up(waiting, TILE_FLOATS, 2 * TILE_FLOATS, AMX_BYTES, part->first, two_a, two_b);
    for (word = 0; word < part->words; word += AMX_WORDS) {
        add_step(a, a_next, AMX_BYTES, b, b_next, AMX_BYTES, two_a, two_b);
        a += TILE_PACKED;
        b += TILE_PACKED;
        fetch_some(f);
        fetch_c(p, part, i, j, word / AMX_WORDS);
    }
    if (!part->last) {
        put_down(waiting, TILE_FLOATS, 2 * TILE_FLOATS, AMX_BYTES, two_a, two_b);
    } else if (plain) {
        put_down((float *)p->c + i * p->ldc + j, AMX_WORDS, AMX_ROWS * p->ldc, p->ldc * 4, two_a, two_b);
    } else {
        finish_block(p, i, j, two_a, two_b);
    }
}

static void block_of(const panel_block *p, const piece *part, fetch *f, int64_t i, int64_t j) {
    const int two_a = p->rows - i > AMX_ROWS, two_b = p->columns - j > AMX_WORDS;
    if (two_a && two_b) {
        block(p, part, f, i, j, 1, 1);
    } else if (two_a) {
        block(p, part, f, i, j, 1, 0);
    } else if (two_b) {
        block(p, part, f, i, j, 0, 1);
    } else {
        block(p, part, f, i, j, 0, 0);
    }
}

/* Sets the prefetch of the chunk after `part`: of the same columns, or the first chunk of the next columns. Past the
 * last column the prefetch has no effect. */
static void fetch_next_piece(fetch *f, const panel_block *p, const piece *part, int64_t j, int64_t blocks) {
    const int64_t column = part->last ? j + SIDE : j, word = part->last ? 0 : part->from + part->words;
    f->b = (const char *)(p->b + column * p->room) + word * PANEL_LINE;
    f->slab = p->room * PANEL_LANES * 4;
    f->b_line = 0;
    f->b_lines = part->last && j + SIDE >= p->columns ? 0 : part->words;
    f->of_b = (AMX_WORDS + blocks - 1) / blocks;
    if (f->of_b > LINES_MOST) f->of_b = LINES_MOST;
}

static int64_t cut_up(int64_t n, int64_t of) {
    return (n + of - 1) / of;
}

static void multiply(const panel_block *p) {
    _Alignas(PANEL_LINE) float waiting[STRIP / SIDE * 4 * TILE_FLOATS];
    const int64_t pieces = cut_up(p->words, CUT_WORDS);
    const int64_t some = cut_up(cut_up(p->words, pieces), AMX_WORDS) * AMX_WORDS; /* words per chunk */
    const int64_t blocks = cut_up(p->rows, SIDE);
    const int64_t steps = blocks * cut_up(p->columns, SIDE) * cut_up(p->words, AMX_WORDS);
    piece part = {.waiting = waiting};
    fetch f = {.ahead = &p->ahead, .of_a = cut_up(p->ahead.rows * p->ahead.lines, steps)};
    int64_t i, j;
    if (f.of_a > LINES_MOST) f.of_a = LINES_MOST;
    for (j = 0; j < p->columns; j += SIDE) {
        for (part.from = 0; part.from < p->words; part.from += part.words) {
            const int64_t left = p->words - part.from;
            part.words = left < some ? left : some;
            part.first = part.from == 0;
            part.last = part.words == left;
            fetch_next_piece(&f, p, &part, j, blocks);
            for (i = 0; i < p->rows; i += SIDE) block_of(p, &part, &f, i, j);
        }
    }
    if (p->pass) end_passing(); /* another thread may read c after the next barrier */
}

/* ---- small matmuls ---- */

/* Reads a's rows and writes c's in complete tiles; both have the padding. */
INLINE void small_block(const cpu_small *p, int64_t i, int64_t j, const int two_a, const int two_b) {
    const char *a = (const char *)(p->a + i * p->a_row), *b = (const char *)(p->b + j);
    float *c = p->c + i * p->ldc + j;
    int64_t word;
    take_up(c, AMX_WORDS, AMX_ROWS * p->ldc, p->ldc * 4, !p->accumulate, two_a, two_b);
    for (word = 0; word < p->k; word += AMX_WORDS) {
        add_step(a, AMX_ROWS * p->a_row * 4, p->a_row * 4, b, AMX_BYTES, p->ldb * 4, two_a, two_b);
        a += AMX_BYTES;
        b += AMX_WORDS * p->ldb * 4;
    }
    put_down(c, AMX_WORDS, AMX_ROWS * p->ldc, p->ldc * 4, two_a, two_b);
}

static void small(const cpu_small *p) {
    int64_t i, j;
    for (i = 0; i < p->m; i += SIDE) {
        const int two_a = p->m - i > AMX_ROWS;
        for (j = 0; j < p->n; j += SIDE) {
            const int two_b = p->n - j > AMX_WORDS;
            if (two_a && two_b) {
                small_block(p, i, j, 1, 1);
            } else if (two_a) {
                small_block(p, i, j, 1, 0);
            } else if (two_b) {
                small_block(p, i, j, 0, 1);
            } else {
                small_block(p, i, j, 0, 0);
            }
        }
    }
}

/* Four chains with a latency of 52 cycles each; four multiplications of 16 cycles cover it. */
static double peak(float *left, int64_t rounds) {
    float sums[TILE_FLOATS];
    int64_t round;
    enter();
    take_up(sums, 0, 0, 0, 1, 1, 1);
    TILE_ZERO(4);
    TILE_ZERO(5);
    TILE_ZERO(6);
    TILE_ZERO(7);
    for (round = 0; round < rounds; round++) {
        TILE_DOT(0, 4, 6);
        TILE_DOT(1, 4, 7);
        TILE_DOT(2, 5, 6);
        TILE_DOT(3, 5, 7);
    }
    TILE_STORE(0, sums, AMX_BYTES);
    leave();
    *left = sums[0];
    return (double)rounds * 4 * AMX_ROWS * AMX_WORDS * AMX_WORDS * 4;
}

const cpu_panels cpu_panels_bf16_amx = {.pack_a = pack_a,
                                        .pack_b = pack_b,
                                        .multiply = multiply,
                                        .small = small,
                                        .peak = peak,
                                        .enter = enter,
                                        .leave = leave,
                                        .values = 2,
                                        .packs_a = 1,
                                        .rows_of_a = AMX_ROWS,
                                        .strip = STRIP,
                                        .rows = 1,
                                        .inner = 1};
#else
typedef int panels_amx_has_no_code_here;
#endif
