/* product_team.c: a matmul on panels, by all threads.
 *
 * Data written by one thread and read by another costs both, most if they share no cache. On a Zen 5 a core writes 600
 * KB in 6 us. It takes 7 to 23 us if a core of the same L3 has read them before, and 60 to 95 us if the reader is on
 * another L3. A round trip between cores takes 0.1 us, or 0.5 to 1.2 us across L3s. A virtual machine does not know the
 * topology, and it changes at run time. Threads therefore avoid sharing panels of b: if a is read in place, each thread
 * takes its own columns, with all rows of a. On two cores LLaMA's forward matmuls take 3 to 15 % less time than with b
 * packed for all. Two blocks at a time instead of four keep rows of a in an L2 of 1 MB: 1 % on a Cascade Lake. If a
 * must be packed, that would repeat for each group of columns: then all threads pack b together and take strips of a
 * (product_panels.c). 16-bit rows that become fp32 need no packing: they are widened once in place and read like fp32
 * rows. On a Cascade Lake, forward matmuls and input gradients take 4 to 19 % less time than with everything packed.
 *
 * The last blocks, one per thread, are shared by strips of rows, so that no thread waits for a complete block. Without
 * that, 2,048 columns (43 blocks) took two threads as long as 44 blocks. The first thread at a shared block packs its
 * b, once. For LLaMA's forward matmuls, two threads of a Zen 5 were idle 1 % of the time before and 0.3 % since.
 *
 * The assignment of columns to threads changes no bit: an element is the same chain of the same steps. */
#include <omp.h>

#include "product_tile.h"

#define GROUP  2                   /* maximum blocks of PANEL_COLUMNS columns that a thread takes at a time */
#define ENOUGH 4                   /* blocks per thread; with fewer the threads do not finish together */
#define WIDE   ((int64_t)16 << 20) /* maximum bytes of widened rows */
#define SHARED 16                  /* maximum number of last blocks shared by rows, */
#define LONG   ((int64_t)1 << 14)  /* for an inner dimension up to this, all of which fits the buffer of b */
#define MANY   512 /* minimum rows that fit, unless all do; each packing of b then serves at least half as many */

static int64_t blocks_of(const product *p) {
    return size_ceil_div(p->n, PANEL_COLUMNS);
}

/* Returns the floats between widened rows of a: an odd number of lines, to avoid cache conflicts. */
static int64_t wide_row(const product *p) {
    return (size_ceil_div(p->k, PANEL_LANES) | 1) * PANEL_LANES;
}
/* Returns the rows of a widened at a time. 0: no widening, because rows are multiplied in place, are packed anyway, or
 * are so long that b would be packed again for every few of them. */
static int64_t rows_to_widen(const cpu_panels *panels, const product *p) {
    const int64_t most = WIDE / (wide_row(p) * (int64_t)sizeof(float));
    if (p->dtype == WEFT_F32 || panels->values > 1 || p->transpose_a || most < size_min(p->m, MANY)) return 0;
    return size_ceil_div(p->m, size_ceil_div(p->m, most));
}
static bool by_columns(const cpu_panels *panels, const product *p, int threads) {
    return (panels_read_a(panels, p) || rows_to_widen(panels, p) > 0) && blocks_of(p) >= ENOUGH * threads;
}

/* Returns how many of the last blocks are shared by rows. */
static int64_t shared_of(const product *p, int threads) {
    return threads > 1 && p->k <= LONG ? size_min(threads, SHARED) : 0;
}

/* Returns the scratch of one thread (by columns), or of all threads. */
static tile_sizes team_scratch_sizes(const cpu_panels *panels, const product *p, int threads) {
    const bool columns = by_columns(panels, p, threads);
    tile_sizes s = panels_sizes(panels, p, p->m, columns ? size_min(p->n, GROUP * PANEL_COLUMNS) : p->n, true);
    if (columns) s.a = 0;
    else if (threads > 1) s.b *= 2;
    if (columns && shared_of(p, threads) > 0) s.b = size_max(s.b, panels_kept(panels, p));
    return s;
}

int64_t team_workspace(const weft_device *device, const cpu_panels *panels, const product *p) {
    const tile_sizes s = team_scratch_sizes(panels, p, device->threads);
    if (!by_columns(panels, p, device->threads)) return device->threads * s.a + s.b + s.c;
    return device->threads * (s.b + s.c) + cpu_floats(rows_to_widen(panels, p) * wide_row(p));
}

/* Lays out b and the stored sums; sizes.a: bytes of a's panels before them. */
static tile_scratch team_scratch(char *at, const tile_sizes *sizes) {
    const tile_scratch s = {sizes->a > 0 ? at : NULL, at + sizes->a,
                            sizes->c > 0 ? (float *)(void *)(at + sizes->a + sizes->b) : NULL, NULL};
    return s;
}

/* Returns a thread's next number of columns: decreasing with the remainder, so that all threads finish together. */
static int64_t next_taking(int64_t left, int threads) {
    return size_max(1, size_min(GROUP, left / (2 * threads)));
}

/* Progress of the threads: columns, and strips of rows of each shared block. */
typedef struct takings {
    int64_t columns, strips[SHARED];
} takings;

/* Computes blocks [from, to) of the columns and rows [m0, m1). */
static void make_tile(const cpu_panels *panels, const product *p, const tile_scratch *s, int64_t from, int64_t to,
                      int64_t m0, int64_t m1) {
    const tile t = {m0, m1, from * PANEL_COLUMNS, size_min(p->n, to * PANEL_COLUMNS), 0, p->k};
    const tile_target target = {cpu_at(p->c, m0 * p->ldc + t.n0, weft_dtype_bytes(p->dtype_c)), p->ldc, p->dtype_c,
                                p->mode};
    panels_tile(panels, p, &t, s, &target);
}

/* Runs one thread's part. All threads enumerate the same takings, and each computes those whose numbers it drew. */
static void take_columns(const cpu_panels *panels, const product *p, const tile_scratch *s, takings *taken,
                         int threads) {
    const int64_t blocks = blocks_of(p) - shared_of(p, threads);
    int64_t mine = tile_take(&taken->columns), taking = 0, at = 0, end = 0;
    for (; at < blocks; at = end, taking++) {
        end = at + next_taking(blocks - at, threads);
        if (taking != mine) continue;
        make_tile(panels, p, s, at, end, 0, p->m);
        mine = tile_take(&taken->columns);
    }
}

/* Runs one thread's part of the shared blocks: strips of its own first block, then of unfinished blocks of other
 * threads. */
static void take_strips(const cpu_panels *panels, const product *p, const tile_scratch *s, takings *taken, int thread,
                        int threads) {
    const int64_t shared = shared_of(p, threads), first = blocks_of(p) - shared;
    int64_t kept = -1, i = 0, strip = 0;
    tile_scratch keeping = *s;
    keeping.kept = &kept;
    for (i = 0; i < shared; i++) {
        const int64_t block = (thread + i) % shared;
        while ((strip = panels->strip * tile_take(&taken->strips[block])) < p->m)
            make_tile(panels, p, &keeping, first + block, first + block + 1, strip,
                      size_min(p->m, strip + panels->strip));
    }
}

/* Returns p with rows [from, to) of a and c; with `wide` not NULL, a is its widened copy there. */
static product product_of_rows(const product *p, int64_t from, int64_t to, float *wide) {
    product part = *p;
    part.m = to - from;
    part.a = wide != NULL ? wide : cpu_from(p->a, from * p->lda, weft_dtype_bytes(p->dtype));
    part.lda = wide != NULL ? wide_row(p) : p->lda;
    part.wide_a = wide != NULL;
    part.c = cpu_at(p->c, from * p->ldc, weft_dtype_bytes(p->dtype_c));
    return part;
}

static void make_rows(const weft_device *device, const cpu_panels *panels, const product *p, int64_t from, int64_t to,
                      const tile_sizes *sizes, char *workspace, int team) {
    const int64_t each = sizes->b + sizes->c;
    float *wide = rows_to_widen(panels, p) > 0 ? (float *)(void *)(workspace + device->threads * each) : NULL;
    const product part = product_of_rows(p, from, to, wide);
    takings taken = {0};
#pragma omp parallel num_threads(team)
    {
        const tile_scratch s = team_scratch(workspace + omp_get_thread_num() * each, sizes);
        if (wide != NULL) {
#pragma omp for schedule(static)
            for (int64_t r = 0; r < part.m; r++)
                cpu_cells_of(device, p->dtype)
                    ->take(wide + r * part.lda, (const uint16_t *)p->a + (from + r) * p->lda, p->k, 0);
        }
        take_columns(panels, &part, &s, &taken, omp_get_num_threads());
        take_strips(panels, &part, &s, &taken, omp_get_thread_num(), omp_get_num_threads());
    }
}

void team_product(const weft_device *device, const cpu_panels *panels, const product *p, char *workspace) {
    const int team = (double)p->m * (double)p->n * (double)p->k > WORK_MIN ? device->threads : 1;
    tile_sizes sizes = team_scratch_sizes(panels, p, device->threads);
    if (by_columns(panels, p, device->threads)) {
        const int64_t widened = rows_to_widen(panels, p), rows = widened > 0 ? widened : p->m;
        int64_t from = 0;
        for (from = 0; from < p->m; from += rows)
            make_rows(device, panels, p, from, size_min(p->m, from + rows), &sizes, workspace, team);
    } else {
        sizes.a *= device->threads;
        const tile_scratch s = team_scratch(workspace, &sizes);
        panels_together(panels, p, &s, team);
    }
}
