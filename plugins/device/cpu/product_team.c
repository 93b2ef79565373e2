/* product_team.c: a product on panels, by all threads.
 *
 * What one thread writes and another reads costs both of them, and most where they share no cache: on a Zen 5 a core
 * writes 600 KB in 6 us, in 7 to 23 where a neighbour has read them before, and in 60 to 95 where the reader's core
 * lies behind another last level of the cache (core to core there and back: 0.1 us, 0.5 to 1.2 us). Which of the two
 * it is, a virtual machine is not told, and it changes under way. So threads share no panels of b where they need
 * not: where a is read in place, each takes columns for itself, with all of a's rows. On two cores LLaMA's forward
 * products take 3 to 15 parts in a hundred less time than with b packed for all. Two blocks at a time, not four,
 * leave room in a second cache of 1 MB for rows of a: 1 part in a hundred on a Cascade Lake. Where a is packed, that
 * would be done once for each taking: then all pack b together, and take strips of a (product_panels.c).
 *
 * Who takes which columns changes no bit: an element is the same chain of the same steps.
 */
#include <omp.h>

#include "product_tile.h"

#define GROUP  2 /* blocks of PANEL_COLUMNS columns, at most, that a thread takes at a time */
#define ENOUGH 4 /* blocks for each thread: with fewer not all end at the same time */

static int64_t blocks_of(const product *p) {
    return cpu_ceil_div(p->n, PANEL_COLUMNS);
}
static bool by_columns(const cpu_panels *panels, const product *p, int threads) {
    return panels_read_a(panels, p) && blocks_of(p) >= ENOUGH * threads;
}

/* For one thread, by columns, or for all of them. */
static tile_sizes sizes_of(const cpu_panels *panels, const product *p, int threads) {
    const bool columns = by_columns(panels, p, threads);
    tile_sizes s = panels_sizes(panels, p, p->m, columns ? cpu_min(p->n, GROUP * PANEL_COLUMNS) : p->n, true);
    if (!columns && threads > 1) s.b *= 2;
    return s;
}

int64_t team_workspace(const cpu_panels *panels, const product *p, int threads) {
    const tile_sizes s = sizes_of(panels, p, threads);
    return by_columns(panels, p, threads) ? threads * (s.b + s.c) : threads * s.a + s.b + s.c;
}

/* Of b and of what waits; sizes.a: bytes of a's panels before them. */
static tile_scratch scratch_at(char *at, const tile_sizes *sizes) {
    const tile_scratch s = {sizes->a > 0 ? at : NULL, at + sizes->a,
                            sizes->c > 0 ? (float *)(void *)(at + sizes->a + sizes->b) : NULL};
    return s;
}

/* Columns for one thread: ever fewer of what is left, so that all threads end at the same time. */
static int64_t next_taking(int64_t left, int threads) {
    return cpu_max(1, cpu_min(GROUP, left / (2 * threads)));
}

/* One thread's part. All of them walk along the same takings, and each makes those whose numbers it was given. */
static void take_columns(const cpu_panels *panels, const product *p, const tile_scratch *s, int64_t *taken,
                         int threads) {
    const int64_t blocks = blocks_of(p);
    int64_t mine = tile_take(taken), taking = 0, at = 0, end = 0;
    for (; at < blocks; at = end, taking++) {
        end = at + next_taking(blocks - at, threads);
        if (taking == mine) {
            const tile t = {0, p->m, at * PANEL_COLUMNS, cpu_min(p->n, end * PANEL_COLUMNS), 0, p->k};
            const tile_target to = {cpu_at(p->c, t.n0, weft_dtype_bytes(p->dtype_c)), p->ldc, p->dtype_c, p->mode};
            panels_tile(panels, p, &t, s, &to);
            mine = tile_take(taken);
        }
    }
}

void team_product(const cpu_panels *panels, const product *p, char *workspace, int threads) {
    const int team = (double)p->m * (double)p->n * (double)p->k > WORK_MIN ? threads : 1;
    tile_sizes sizes = sizes_of(panels, p, threads);
    int64_t taken = 0;
    if (by_columns(panels, p, threads)) {
#pragma omp parallel num_threads(team)
        {
            const tile_scratch s = scratch_at(workspace + omp_get_thread_num() * (sizes.b + sizes.c), &sizes);
            take_columns(panels, p, &s, &taken, omp_get_num_threads());
        }
    } else {
        sizes.a *= threads;
        const tile_scratch s = scratch_at(workspace, &sizes);
        panels_together(panels, p, &s, team);
    }
}
