/* product_panels.c: a product on panels (panels.h), by one thread or by a team.
 *
 * The threads pack b together, CHUNK columns and STEP words of the inner dimension at a time; then they take strips of
 * a's rows in turn, as they lie, or packed where their words do not lie side by side or are widened, and fetch ahead
 * what the next strip needs. b lies twice for a team, so that who is ready packs the next step while others still work
 * on this one.
 *
 * An element is one chain over a step, and steps are added in order: who makes a step of it, and how the rest is cut,
 * changes no bit. Sums of more than one step wait in c itself, or in scratch where c is bf16 or has a value that comes
 * last.
 *
 * Measured with strips of 64 rows on one core of a Zen 5 (register peak 231 GFLOP/s that day) at LLaMA's shapes with
 * operands that lie in no cache: 205 to 215 in all layouts, where tiles of oneDNN 2.6.3 reach 190 to 212, the less
 * the larger a power of two divides the distance of rows. Fetching ahead is worth a twentieth. On two cores weight
 * gradients of 134 M take 1 to 4 parts in a hundred less time since what is left to pack and the last strips are
 * taken in small pieces, and all products 1 to 2 less with steps of 1,024 words than with 512, because c is read and
 * written less often. On AVX2 (123 GFLOP/s) one core reached 110 to 114 where the library reaches 94 to 103, with
 * packed rows of a sixteen at a time. On one core of a Cascade Lake (152 GFLOP/s), where strips of 96 rows give weight
 * gradients 2 parts in a hundred: 116 to 135, where the library reaches 112 to 131; kept to AVX2 (86 GFLOP/s) 69 to
 * 77, where the library reaches 73 to 76.
 */
#include <omp.h>

#include "product_tile.h"

#define STEP    1024                 /* words */
#define CHUNK   (16 * PANEL_COLUMNS) /* columns of b that are packed at once, where a is read as it lies */
#define UNITS   8                    /* a team wants in a turn: strips get shorter for it, then columns fewer */
#define COLUMNS (2 * PANEL_COLUMNS)  /* of a unit, about, and of what a thread packs at a time; whole pairs of slabs */
#define FINE    4                    /* times as many units of the last strips, one for each thread */
#define WAITING 1056                 /* rows of sums in scratch, at most: whole strips */
#define COLLIDE 1024                 /* floats: rows so far apart fall on few lines of the cache */
#define FEW     512                  /* rows */

/* The library reads fp32 operands that are not transposed where they lie, unless b's rows collide in the cache. With
 * few rows that is faster than packing b: on a Zen 5 256 rows take 4 parts in a hundred more on panels, 512 as much as
 * in the library, and 1,024 to 2,048 take 2 to 4 less; on a Cascade Lake 262 take as long either way. Where an operand
 * is transposed 256 rows take 8 to 25 parts less on panels there, kept to AVX2. */
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
/* Values of a step: whole numbers of what packing turns at a time. */
static int64_t step_of(const cpu_panels *panels, int64_t k) {
    const int64_t words = words_of(panels, k);
    return size_round_up(size_ceil_div(words, size_ceil_div(words, STEP)), PANEL_LANES) * panels->values;
}
static int64_t bytes_of_a(const product *p) {
    return weft_dtype_bytes(p->wide_a ? WEFT_F32 : p->dtype);
}
/* a is read where it lies: words of its rows lie side by side, as they are multiplied, and none holds a value of the
 * next row. */
bool panels_read_a(const cpu_panels *panels, const product *p) {
    const bool as_they_are = panels->values * bytes_of_a(p) == (int64_t)sizeof(uint32_t);
    return !panels->packs_a && as_they_are && !p->transpose_a && p->lda % panels->values == 0 &&
           p->k % panels->values == 0;
}
static bool sums_wait_in_c(int32_t dtype, product_mode mode) {
    return dtype == WEFT_F32 && mode != PRODUCT_ADD;
}
/* Of a chunk: as even as they come. Where a is always packed, once for each chunk, they are twice as many: packing a
 * strip of 256 rows for tiles takes 0.04 to 0.06 ms (a Zen 5), multiplying it by CHUNK columns 0.22 at 3.6 TFLOP/s.
 * n > 0. */
static int64_t columns_of(const cpu_panels *panels, int64_t n) {
    const int64_t most = panels->packs_a ? 2 * CHUNK : CHUNK;
    return size_round_up(size_ceil_div(n, size_ceil_div(n, most)), PANEL_COLUMNS);
}

tile_sizes panels_sizes(const cpu_panels *panels, const product *p, int64_t m, int64_t n, bool whole) {
    const int64_t all = words_of(panels, p->k), words = size_min(all, STEP); /* as long as a step can be */
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

/* ---- what all threads see ---- */

/* Rows and columns whose sums are made together, and their cut into units: `coarse` strips of so many rows, each in
 * pieces of the columns, and the last ones in finer pieces. Pieces are taken around `around` strips, so that a thread
 * mostly stays with the strip that it has packed. part: columns that a thread packs at a time. */
typedef struct chunk {
    int64_t m0, m1, n0, n1, strip, strips, coarse, pieces, fine, units, around, part;
} chunk;

typedef struct panel_job {
    const cpu_panels *panels;
    const product *p;
    const tile *t;
    const tile_scratch *s; /* a: one after the other for each thread */
    const tile_target *to; /* of the tile */
    int64_t step, a_bytes; /* values; of a thread's scratch */
    bool ready;            /* b is packed: kept from a tile of the same columns */
    /* Parts of b that are taken to be packed, for this turn and for the next one, and units; a turn is a step of a
     * chunk. Each write takes the line from all threads, so nothing else lies there. */
    _Alignas(PANEL_LINE) int64_t packed[2];
    int64_t taken[2];
} panel_job;

/* One of the threads, and the first row of the strip of a that it has packed in this turn, or -1. */
typedef struct worker {
    int thread, threads;
    int64_t packed;
} worker;

/* As many as there are threads at least, if they can be had: who makes an element is all the same to it. One thread
 * has nobody to share with. Strips are whole slabs, so that packing fills them. */
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

/* Where a unit lies: the first row of its strip, and which of how many pieces of the columns it is. */
typedef struct unit_place {
    int64_t row, piece, pieces;
} unit_place;

/* Of the strips [from, to). */
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

/* An operand's lanes [from, from + lanes) and its inner dimension [k0, k1). */
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

/* A part of the chunk's columns of b, from the given one on. */
static void pack_b(const panel_job *job, const chunk *c, uint32_t *panel, int64_t from, int64_t k0, int64_t k1) {
    const product *p = job->p;
    const int64_t lanes = size_min(c->n1 - c->n0 - from, c->part);
    const panel_source b =
        panel_source_of(p->b, weft_dtype_bytes(p->dtype), p->ldb, p->transpose_b, c->n0 + from, lanes, k0, k1);
    job->panels->pack_b(panel + from * panel_room(words_of(job->panels, k1 - k0)), &b);
}

/* ---- a unit ---- */

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

/* What of a the strip from `row` on needs. */
static void look_ahead(panel_block *block, const panel_job *job, const chunk *c, int64_t row, int64_t k0, int64_t k1) {
    const int64_t bytes = bytes_of_a(job->p);
    const int64_t end = job->s->kept != NULL ? job->p->m : c->m1; /* the tile below is next, perhaps */
    const panel_source from = source_of_a(job, row, size_min(c->strip, end - row), k0, k1);
    const int64_t rows = from.along ? from.lanes : from.k, width = from.along ? from.k : from.lanes;
    const panel_ahead ahead = {from.at, from.ld * bytes, rows, size_ceil_div(width * bytes, PANEL_LINE)};
    if (row < end) block->ahead = ahead;
}

/* A product whose a is transposed is a sum over places: a gradient of weights, as large as these, which waits for the
 * norm of all. The caches would fetch each line of it from memory to overwrite it, and drop for it what is read again
 * soon: at 134 M a step is 1 to 3 parts in a hundred shorter without that. */
static bool passes_caches(const panel_job *job, const panel_block *block, bool whole) {
    const tile_target *to = job->to;
    return job->p->transpose_a && whole && to->mode == PRODUCT_SET && to->dtype == WEFT_F32 &&
           to->ldc % PANEL_LANES == 0 && (uintptr_t)block->c % PANEL_LINE == 0;
}

/* Where the sums of a step come from and go to. row and column: of the tile. */
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

/* ---- all of it ---- */

/* All steps of a chunk, by one of the threads; turn: how many steps there were before. A turn's counters are used
 * again two turns later, and set back in between: that of packing before the barrier, which others may leave to pack
 * for the next turn, and that of units behind it, when nobody is left in the turn before. */
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

/* The tile, by one of the threads. */
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
