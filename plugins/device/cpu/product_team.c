/* product_team.c: a product on panels, by all threads.
 *
 * What one thread writes and another reads costs both of them, and most where they share no cache: on a Zen 5 a core
 * writes 600 KB in 6 us, in 7 to 23 where a neighbour has read them before, and in 60 to 95 where the reader's core
 * lies behind another last level of the cache (core to core there and back: 0.1 us, 0.5 to 1.2 us). Which of the two
 * it is, a virtual machine is not told, and it changes under way. So threads share no panels of b where they need
 * not: where a is read in place, each takes columns for itself, with all of a's rows. On two cores LLaMA's forward
 * products take 3 to 15 parts in a hundred less time than with b packed for all. Two blocks at a time, not four,
 * leave room in a second cache of 1 MB for rows of a: 1 part in a hundred on a Cascade Lake. Where a is packed, that
 * would be done once for each taking: then all pack b together, and take strips of a (product_panels.c). Rows of 16
 * bits that become fp32 have no need of packing for that: they are widened once, as they lie, and read like fp32's. On
 * a Cascade Lake forward products and input gradients take 4 to 19 parts in a hundred less time than with all packed.
 *
 * The last blocks, one for each thread, are shared by strips of their rows, so that nobody waits for a whole block:
 * without it 2,048 columns, which are 43 blocks, took two threads as long as 44. Who comes to one packs its b, once.
 * Of LLaMA's forward products two threads of a Zen 5 were idle for 1 part in a hundred before and 0.3 since.
 *
 * Who takes which columns changes no bit: an element is the same chain of the same steps.
 */
#include <omp.h>

#include "product_tile.h"

#define GROUP  2                   /* blocks of PANEL_COLUMNS columns, at most, that a thread takes at a time */
#define ENOUGH 4                   /* blocks for each thread: with fewer not all end at the same time */
#define WIDE   ((int64_t)16 << 20) /* bytes of widened rows, at most */
#define SHARED 16                  /* last blocks at most that are shared by rows, */
#define LONG   ((int64_t)1 << 14)  /* with an inner dimension up to this, for all of which b has room */
#define MANY   512 /* rows that fit there, or all: each time that b is packed serves half as many at least */

static int64_t blocks_of(const product *p) {
    return size_ceil_div(p->n, PANEL_COLUMNS);
}

/* Floats from one widened row of a to the next: an odd number of lines, so that rows do not collide in the caches. */
static int64_t wide_row(const product *p) {
    return (size_ceil_div(p->k, PANEL_LANES) | 1) * PANEL_LANES;
}
/* Rows of a that are widened at a time; 0: none are, because they are multiplied as they lie, or are packed in any
 * case, or are so long that b would be packed anew for every few of them. */
static int64_t rows_to_widen(const cpu_panels *panels, const product *p) {
    const int64_t most = WIDE / (wide_row(p) * (int64_t)sizeof(float));
    if (p->dtype == WEFT_F32 || panels->values > 1 || p->transpose_a || most < size_min(p->m, MANY)) return 0;
    return size_ceil_div(p->m, size_ceil_div(p->m, most));
}
static bool by_columns(const cpu_panels *panels, const product *p, int threads) {
    return (panels_read_a(panels, p) || rows_to_widen(panels, p) > 0) && blocks_of(p) >= ENOUGH * threads;
}

/* How many of the last blocks are shared by rows. */
static int64_t shared_of(const product *p, int threads) {
    return threads > 1 && p->k <= LONG ? size_min(threads, SHARED) : 0;
}

/* For one thread, by columns, or for all of them. */
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

/* Of b and of what waits; sizes.a: bytes of a's panels before them. */
static tile_scratch team_scratch(char *at, const tile_sizes *sizes) {
    const tile_scratch s = {sizes->a > 0 ? at : NULL, at + sizes->a,
                            sizes->c > 0 ? (float *)(void *)(at + sizes->a + sizes->b) : NULL, NULL};
    return s;
}

/* Columns for one thread: ever fewer of what is left, so that all threads end at the same time. */
static int64_t next_taking(int64_t left, int threads) {
    return size_max(1, size_min(GROUP, left / (2 * threads)));
}

/* What the threads have taken: columns, and of each shared block strips of rows. */
typedef struct takings {
    int64_t columns, strips[SHARED];
} takings;

/* Blocks [from, to) of the columns and rows [m0, m1). */
static void make_tile(const cpu_panels *panels, const product *p, const tile_scratch *s, int64_t from, int64_t to,
                      int64_t m0, int64_t m1) {
    const tile t = {m0, m1, from * PANEL_COLUMNS, size_min(p->n, to * PANEL_COLUMNS), 0, p->k};
    const tile_target target = {cpu_at(p->c, m0 * p->ldc + t.n0, weft_dtype_bytes(p->dtype_c)), p->ldc, p->dtype_c,
                                p->mode};
    panels_tile(panels, p, &t, s, &target);
}

/* One thread's part. All of them walk along the same takings, and each makes those whose numbers it was given. */
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

/* One thread's part of the shared blocks: strips of one that it begins alone with, then of those that the others have
 * not ended. */
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

/* p's rows [from, to) of a and c; where wide is not NULL, of a as it is to be widened there. */
static product product_of_rows(const product *p, int64_t from, int64_t to, float *wide) {
    product part = *p;
    part.m = to - from;
    part.a = wide != NULL ? wide : cpu_from(p->a, from * p->lda, weft_dtype_bytes(p->dtype));
    part.lda = wide != NULL ? wide_row(p) : p->lda;
    part.wide_a = wide != NULL;
    part.c = cpu_at(p->c, from * p->ldc, weft_dtype_bytes(p->dtype_c));
    return part;
}

/* Some rows of c, by columns. */
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
