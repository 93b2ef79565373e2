/* product_panels.c: a matmul on panels (panels.h), by one thread or by a team.
 *
 * The threads pack b together, CHUNK columns and STEP words of the inner dimension at a time. Then they process strips
 * of a's rows in turn and prefetch data for the next strip. a is read in place, or packed if its words are not
 * contiguous or need widening. A team has two buffers for b, so that a ready thread packs the next step while others
 * still work on this one.
 *
 * An element is one chain over a step, and steps are added in order. The assignment to threads and all other divisions
 * change no bit. Sums of more than one step are kept in c itself, or in scratch if c is bf16 or has a value that is
 * added last.
 *
 * Measured with strips of 64 rows on one core of a Zen 5 (register peak 231 GFLOP/s that day) at LLaMA's shapes with
 * uncached operands: 205 to 215 in all layouts. Tiles of oneDNN 2.6.3 reach 190 to 212, less for row distances with
 * larger powers of two. Prefetching is worth a twentieth. On two cores, weight gradients of 134 M take 1 to 4 % less
 * time since the remaining packing and the last strips are divided finely. All matmuls take 1 to 2 % less with steps of
 * 1,024 words than with 512, because c is read and written less often. On AVX2 (123 GFLOP/s) one core reached 110 to
 * 114 with packed rows of a sixteen at a time; the library reaches 94 to 103. On one core of a Cascade Lake (152
 * GFLOP/s), where strips of 96 rows gain 2 % for weight gradients: 116 to 135, the library 112 to 131. Restricted to
 * AVX2 (86 GFLOP/s): 69 to 77, the library 73 to 76. */
#include <omp.h>

#include "product_tile.h"

#define STEP    1024                 /* words */
#define CHUNK   (16 * PANEL_COLUMNS) /* columns of b packed at once, if a is read in place */
#define UNITS   8                    /* target units of a team per turn: strips become shorter, then columns fewer */
#define COLUMNS (2 * PANEL_COLUMNS)  /* approximately, per unit and per packing of a thread; complete slab pairs */
#define FINE    4                    /* factor for the number of units in the last strips, one strip per thread */
#define WAITING 1056                 /* maximum rows of sums in scratch: complete strips */
#define COLLIDE 1024                 /* floats: rows this far apart share few cache lines */
#define FEW     512                  /* rows */

/* True if the library is faster. It reads untransposed fp32 operands in place, unless b's rows conflict in the cache.
 * With few rows that beats packing b. On a Zen 5, 256 rows take 4 % more on panels, 512 the same, and 1,024 to 2,048
 * take 2 to 4 % less; on a Cascade Lake 262 take the same. With a transposed operand, 256 rows take 8 to 25 % less on
 * panels there, restricted to AVX2. */
static bool better_in_place(const product *p) {
    return p->dtype == WEFT_F32 && !p->transpose_a && !p->transpose_b && p->ldb % COLLIDE != 0 && p->m < FEW;
}
const cpu_panels *panels_of(const weft_device *device, const product *p) {
    const cpu_panels *panels = p->dtype == WEFT_BF16  ? device->panels_bf16
                               : p->dtype == WEFT_F16 ? device->panels_f16
                                                      : device->panels_f32;
    if (panels == NULL || p->m < panels->rows || p->k < panels->inner || better_in_place(p)) return NULL;
    return panels;
}

static int64_t words_of(const cpu_panels *panels, int64_t k) {
    return size_ceil_div(k, panels->values);
}
/* Returns the values of a step: a multiple of the words that packing transposes at a time. */
static int64_t step_of(const cpu_panels *panels, int64_t k) {
    const int64_t words = words_of(panels, k);
    return size_round_up(size_ceil_div(words, size_ceil_div(words, STEP)), PANEL_LANES) * panels->values;
}
static int64_t bytes_of_a(const product *p) {
    return weft_dtype_bytes(p->wide_a ? WEFT_F32 : p->dtype);
}
/* True if a is read in place: the words of its rows are contiguous and already in multiplication format, and no word
 * spans two rows. */
bool panels_read_a(const cpu_panels *panels, const product *p) {
    const bool as_they_are = panels->values * bytes_of_a(p) == (int64_t)sizeof(uint32_t);
    return !panels->packs_a && as_they_are && !p->transpose_a && p->lda % panels->values == 0 &&
           p->k % panels->values == 0;
}
static bool sums_wait_in_c(int32_t dtype, product_mode mode) {
    return dtype == WEFT_F32 && mode != PRODUCT_ADD;
}
/* Returns the columns of a chunk, as even as possible. If a is always packed, once per chunk, chunks have twice as
 * many: packing a strip of 256 rows for tiles takes 0.04 to 0.06 ms (a Zen 5), multiplying it by CHUNK columns 0.22 at
 * 3.6 TFLOP/s. n > 0. */
static int64_t columns_of(const cpu_panels *panels, int64_t n) {
    const int64_t most = panels->packs_a ? 2 * CHUNK : CHUNK;
    return size_round_up(size_ceil_div(n, size_ceil_div(n, most)), PANEL_COLUMNS);
}

tile_sizes panels_sizes(const cpu_panels *panels, const product *p, int64_t m, int64_t n, bool whole) {
    const int64_t all = words_of(panels, p->k), words = size_min(all, STEP); /* the maximum step */
    const bool waits = whole && all > STEP && !sums_wait_in_c(p->dtype_c, p->mode);
    const tile_sizes s = {panels_read_a(panels, p) ? 0 : panel_bytes(panels->strip, words),
                          panel_bytes(columns_of(panels, n), words),
                          waits ? cpu_floats(size_min(m, WAITING) * columns_of(panels, n)) : 0};
    return s;
}

int64_t panels_kept(const cpu_panels *panels, const product *p) {
    const int64_t all = words_of(panels, p->k);
    return size_ceil_div(all, STEP) * panel_bytes(PANEL_COLUMNS, size_min(all, STEP));
}

/* ---- shared by all threads ---- */

/* Rows and columns whose sums are computed together, divided into units: `coarse` strips, each in `pieces` groups of
 * columns, and the last strips in finer groups. Groups rotate over `around` strips, so that a thread mostly stays with
 * its packed strip. part: columns that a thread packs at a time. */
typedef struct chunk {
    int64_t m0, m1, n0, n1, strip, strips, coarse, pieces, fine, units, around, part;
} chunk;

typedef struct panel_job {
    const cpu_panels *panels;
    const product *p;
    const tile *t;
    const tile_scratch *s; /* a: one region per thread, consecutive */
    const tile_target *to; /* destination of the tile */
    int64_t step, a_bytes; /* values per step; bytes of a thread's scratch */
    bool ready;            /* b is packed already, kept from a tile of the same columns */
    /* Counters of packed parts of b, for this turn and the next one, and of units; a turn is a step of a chunk. Each
     * write takes the cache line from all threads, so nothing else shares it. */
    _Alignas(PANEL_LINE) int64_t packed[2];
    int64_t taken[2];
} panel_job;

/* A thread, and the first row of the strip of a that it packed in this turn, or -1. */
typedef struct worker {
    int thread, threads;
    int64_t packed;
} worker;

/* Divides a chunk into at least as many units as threads, if possible; the result does not depend on it. A single
 * thread needs no division. Strips are complete slabs, so that packing fills them. */
static void cut_chunk_into_units(const cpu_panels *panels, chunk *c, int threads) {
    const int64_t rows = c->m1 - c->m0, most = size_max(1, (c->n1 - c->n0) / COLUMNS);
    const int64_t wanted = threads > 1 ? size_max(UNITS, threads) : 1, slab = panels->rows_of_a;
    const int64_t least = size_round_up(PANEL_LANES, slab);
    c->strip = panels->strip;
    while (c->strip > least && size_ceil_div(rows, c->strip) < wanted)
        c->strip = size_max(least, size_round_up(c->strip / 2, slab));
    c->strips = size_ceil_div(rows, c->strip);
    c->pieces = size_min(size_ceil_div(wanted, c->strips), most);
    c->coarse = threads > 1 && c->strips > threads ? c->strips - threads : c->strips;
    c->fine = size_min(c->pieces * FINE, most);
    c->units = c->coarse * c->pieces + (c->strips - c->coarse) * c->fine;
    c->around = threads;
    c->part = threads <= most ? COLUMNS : 2 * PANEL_LANES;
}

/* Position of a unit: the first row of its strip, its group of columns and the number of groups. */
typedef struct unit_place {
    int64_t row, piece, pieces;
} unit_place;

/* Returns the unit's position among the strips [from, to). */
static unit_place unit_among(const chunk *c, int64_t from, int64_t to, int64_t pieces, int64_t unit) {
    const int64_t first = from + unit / (c->around * pieces) * c->around, rest = unit % (c->around * pieces);
    const int64_t strips = size_max(1, size_min(c->around, to - first)); /* past the last unit: below all rows */
    const unit_place at = {c->m0 + (first + rest % strips) * c->strip, rest / strips, pieces};
    return at;
}
static unit_place unit_at(const chunk *c, int64_t unit) {
    const int64_t rest = unit - c->coarse * c->pieces;
    return rest < 0 ? unit_among(c, 0, c->coarse, c->pieces, unit) : unit_among(c, c->coarse, c->strips, c->fine, rest);
}

/* Describes an operand's lanes [from, from + lanes) and its inner dimension [k0, k1). */
static panel_source panel_source_of(const void *operand, int64_t bytes, int64_t ld, bool along, int64_t from,
                                    int64_t lanes, int64_t k0, int64_t k1) {
    const panel_source s = {.at = cpu_from(operand, along ? from * ld + k0 : k0 * ld + from, bytes),
                            .ld = ld,
                            .lanes = lanes,
                            .k = k1 - k0,
                            .along = along};
    return s;
}

static panel_source source_of_a(const panel_job *job, int64_t row, int64_t rows, int64_t k0, int64_t k1) {
    const product *p = job->p;
    return panel_source_of(p->a, bytes_of_a(p), p->lda, !p->transpose_a, row, rows, k0, k1);
}

static uint32_t *panel_b(const panel_job *job, int64_t turn, int threads) {
    const int64_t words = size_min(words_of(job->panels, job->p->k), STEP);
    const int64_t copy = job->s->kept != NULL ? turn : threads > 1 ? turn % 2 : 0;
    return cpu_at(job->s->b, copy * panel_bytes(columns_of(job->panels, job->t->n1 - job->t->n0), words), 1);
}

/* Packs a part of the chunk's columns of b, starting at `from`. */
static void pack_b(const panel_job *job, const chunk *c, uint32_t *panel, int64_t from, int64_t k0, int64_t k1) {
    const product *p = job->p;
    const int64_t lanes = size_min(c->n1 - c->n0 - from, c->part);
    const panel_source b =
        panel_source_of(p->b, weft_dtype_bytes(p->dtype), p->ldb, p->transpose_b, c->n0 + from, lanes, k0, k1);
    job->panels->pack_b(panel + from * panel_room(words_of(job->panels, k1 - k0)), &b);
}

/* ---- one unit ---- */

static void take_a(panel_block *block, const panel_job *job, const chunk *c, worker *by, int64_t row, int64_t k0,
                   int64_t k1) {
    uint32_t *packed = cpu_at(job->s->a, by->thread * job->a_bytes, 1);
    const panel_source from = source_of_a(job, row, size_min(c->strip, c->m1 - row), k0, k1);
    if (panels_read_a(job->panels, job->p)) {
        block->a = from.at;
        block->a_row = job->p->lda / job->panels->values;
        block->a_slab = job->panels->rows_of_a * block->a_row;
        block->a_step = 1;
        return;
    }
    if (by->packed != row) job->panels->pack_a(packed, &from);
    by->packed = row;
    block->a = packed;
    block->a_row = 1;
    block->a_slab = job->panels->rows_of_a * block->room;
    block->a_step = job->panels->rows_of_a;
}

/* Sets the prefetch of a's rows for the strip at `row`. */
static void look_ahead(panel_block *block, const panel_job *job, const chunk *c, int64_t row, int64_t k0, int64_t k1) {
    const int64_t bytes = bytes_of_a(job->p);
    const int64_t end = job->s->kept != NULL ? job->p->m : c->m1; /* probably the tile below is next */
    const panel_source from = source_of_a(job, row, size_min(c->strip, end - row), k0, k1);
    const int64_t rows = from.along ? from.lanes : from.k, width = from.along ? from.k : from.lanes;
    const panel_ahead ahead = {from.at, from.ld * bytes, rows, size_ceil_div(width * bytes, PANEL_LINE)};
    if (row < end) block->ahead = ahead;
}

/* True if c is written with non-temporal stores. A matmul with transposed a is a sum over positions: a weight gradient,
 * as large as the weights, that is not read before the global norm. Cached stores would first read each line from
 * memory and evict data that is needed soon. At 134 M a step is 1 to 3 % shorter without that. */
static bool passes_caches(const panel_job *job, const panel_block *block, bool whole) {
    const tile_target *to = job->to;
    return job->p->transpose_a && whole && to->mode == PRODUCT_SET && to->dtype == WEFT_F32 &&
           to->ldc % PANEL_LANES == 0 && (uintptr_t)block->c % PANEL_LINE == 0;
}

/* Sets source and destination of a step's sums. row and column: within the tile. */
static void take_c(panel_block *block, const panel_job *job, const chunk *c, int64_t row, int64_t column, bool first,
                   bool last) {
    const tile_target *to = job->to;
    const int64_t width = columns_of(job->panels, job->t->n1 - job->t->n0), bytes = weft_dtype_bytes(to->dtype);
    const bool wait_in_c = sums_wait_in_c(to->dtype, to->mode), in_c = last || wait_in_c;
    float *sums = job->s->c == NULL ? NULL : job->s->c + (row - c->m0) * width + column - c->n0;
    block->c = in_c ? cpu_at(to->c, (row - job->t->m0) * to->ldc + column - job->t->n0, bytes) : (void *)sums;
    block->ldc = in_c ? to->ldc : width;
    block->sum = !first && !wait_in_c ? sums : NULL;
    block->sum_ld = width;
    block->accumulate = wait_in_c ? !first || to->mode != PRODUCT_SET : last && to->mode != PRODUCT_SET;
    block->narrow = in_c && to->dtype != WEFT_F32 ? to->dtype : 0;
    block->pass = passes_caches(job, block, first && last);
}

static void run_unit(const panel_job *job, const chunk *c, const uint32_t *panel, int64_t unit, int64_t k0, int64_t k1,
                     worker *by) {
    const unit_place at = unit_at(c, unit), next = unit_at(c, unit + by->threads);
    const int64_t wide = c->n1 - c->n0, n = size_ceil_div(wide, PANEL_COLUMNS);
    const int64_t from = PANEL_COLUMNS * cpu_cut(n, at.pieces, at.piece);
    const int64_t to = size_min(wide, PANEL_COLUMNS * cpu_cut(n, at.pieces, at.piece + 1));
    const int64_t room = panel_room(words_of(job->panels, k1 - k0));
    panel_block block = {.b = panel + from * room,
                         .room = room,
                         .words = words_of(job->panels, k1 - k0),
                         .rows = size_min(c->strip, c->m1 - at.row),
                         .columns = to - from};
    take_a(&block, job, c, by, at.row, k0, k1);
    if (next.row != at.row) look_ahead(&block, job, c, next.row, k0, k1);
    take_c(&block, job, c, at.row, c->n0 + from, k0 == job->t->k0, k1 == job->t->k1);
    job->panels->multiply(&block);
}

/* ---- all units ---- */

/* Runs all steps of a chunk in one of the threads; turn: number of earlier steps. A turn's counters are reused two
 * turns later and reset in between. The packing counter is reset before the barrier, because other threads may leave it
 * and pack for the next turn. The unit counter is reset after the barrier, when no thread is left in the previous
 * turn. */
static void run_chunk(panel_job *job, const chunk *c, int64_t turn, worker *by) {
    int64_t k0 = 0, column = 0, unit = 0;
    for (k0 = job->t->k0; k0 < job->t->k1; k0 += job->step, turn++) {
        const int64_t k1 = size_min(job->t->k1, k0 + job->step);
        uint32_t *panel = panel_b(job, turn, by->threads);
        by->packed = -1;
        while (!job->ready && (column = c->part * tile_take(&job->packed[turn % 2])) < c->n1 - c->n0)
            pack_b(job, c, panel, column, k0, k1);
        if (by->thread == 0) job->packed[(turn + 1) % 2] = 0;
        if (by->threads > 1) {
#pragma omp barrier
        }
        if (by->thread == 0) job->taken[(turn + 1) % 2] = 0;
        while ((unit = tile_take(&job->taken[turn % 2])) < c->units) run_unit(job, c, panel, unit, k0, k1, by);
    }
}

static void run_job(panel_job *job, worker by) {
    const tile *t = job->t;
    const int64_t wide = columns_of(job->panels, t->n1 - t->n0), steps = size_ceil_div(t->k1 - t->k0, job->step);
    const int64_t high = job->s->c == NULL ? t->m1 - t->m0 : WAITING / job->panels->strip * job->panels->strip;
    chunk c = {0};
    int64_t turn = 0;
    if (job->panels->enter != NULL) job->panels->enter();
    for (c.m0 = t->m0; c.m0 < t->m1; c.m0 = c.m1) {
        c.m1 = size_min(t->m1, c.m0 + high);
        for (c.n0 = t->n0; c.n0 < t->n1; c.n0 = c.n1, turn += steps) {
            c.n1 = size_min(t->n1, c.n0 + wide);
            cut_chunk_into_units(job->panels, &c, by.threads);
            run_chunk(job, &c, turn, &by);
        }
    }
    if (job->panels->leave != NULL) job->panels->leave();
}

static panel_job job_of(const cpu_panels *panels, const product *p, const tile *t, const tile_scratch *s,
                        const tile_target *to) {
    const panel_job job = {.panels = panels,
                           .p = p,
                           .t = t,
                           .s = s,
                           .to = to,
                           .step = step_of(panels, t->k1 - t->k0),
                           .a_bytes = panels_sizes(panels, p, t->m1 - t->m0, t->n1 - t->n0, false).a};
    return job;
}

void panels_tile(const cpu_panels *panels, const product *p, const tile *t, const tile_scratch *s,
                 const tile_target *to) {
    panel_job job = job_of(panels, p, t, s, to);
    const worker alone = {0, 1, -1};
    if (s->kept != NULL) {
        job.ready = *s->kept == t->n0;
        *s->kept = t->n0;
    }
    run_job(&job, alone);
}

void panels_together(const cpu_panels *panels, const product *p, const tile_scratch *s, int threads) {
    const tile whole = {0, p->m, 0, p->n, 0, p->k};
    const tile_target to = {p->c, p->ldc, p->dtype_c, p->mode};
    panel_job job = job_of(panels, p, &whole, s, &to);
#pragma omp parallel num_threads(threads)
    {
        const worker one = {omp_get_thread_num(), omp_get_num_threads(), -1};
        run_job(&job, one);
    }
}
