/* product.c: matmuls with results independent of the number of threads.
 *
 * A library's own threading may split the inner dimension depending on the number of threads. This file therefore
 * divides the matmul into tiles that depend only on (m, n, k). One thread computes each tile (product_tile.h): inside
 * the parallel region, every thread sets OpenMP's nested team size to one. A matmul with too few tiles is split along k
 * as well; the parts are in the workspace and are added in order. A matmul on panels without a split along k is divided
 * by threads (product_team.c): there the order of each sum depends only on k. The choice of panels depends on (m, n,
 * k), the types and the row distances.
 *
 * Measured on one core of a Zen 5 (register peak 250 GFLOP/s) at LLaMA's shapes in the cache, oneDNN 2.6.3: tiles of
 * 264 x 384 reach 215-240. 144 x 144 is the same except for transposed b (NT) with 200-220; 96 x 96 reaches 180-240, 48
 * x 48 110-230. oneDNN's own tiles are 48 x 8 on AVX-512, 24 x 4 or 16 x 6 on AVX2. Sides that are no multiples of them
 * lose up to a tenth at the edges. If a few tiles can be exactly TILES, they are: nine tiles on two threads lose a
 * tenth. */
#include <omp.h>

#include "product_tile.h"

#define UNIT_M    24
#define UNIT_N    48
#define UNIT_K    2 /* bf16 is multiplied in pairs */
#define TILE_M    (11 * UNIT_M)
#define TILE_N    (8 * UNIT_N)
#define SIDE_MIN  96  /* a tile is not halved below this */
#define TILES     8   /* target, so that a few threads finish together */
#define TILES_MIN 4   /* with fewer tiles the inner dimension is split as well, */
#define PART_K    512 /* into parts no shorter than this */

typedef struct grid {
    int64_t m, n, k; /* chunks along each dimension */
} grid;

static bool cut_more(int64_t *pieces, int64_t size) {
    if (size / (*pieces + 1) < SIDE_MIN) return false;
    ++*pieces;
    return true;
}

/* Two separate checks, because the product overflows for extreme sizes. */
static bool has_fewer_tiles(const grid *g, int64_t tiles) {
    return g->m < tiles && g->n < tiles && g->m * g->n < tiles;
}

static grid grid_of(const product *p) {
    const int64_t rows = size_max(p->m, 1), columns = size_max(p->n, 1);
    const double work = (double)rows * (double)columns * (double)p->k; /* each size may be up to 2^40 */
    grid g = {size_ceil_div(rows, TILE_M), size_ceil_div(columns, TILE_N), 1};
    bool more = true;
    while (more && has_fewer_tiles(&g, TILES) && work / (double)(g.m * g.n) > WORK_MIN) {
        const bool even_m = (g.m + 1) * g.n == TILES, even_n = g.m * (g.n + 1) == TILES;
        const bool by_m = even_m != even_n ? even_m : rows / g.m >= columns / g.n;
        more = (by_m && cut_more(&g.m, rows)) || cut_more(&g.n, columns) || (!by_m && cut_more(&g.m, rows));
    }
    if (has_fewer_tiles(&g, TILES_MIN) && p->k >= 2 * PART_K && work > WORK_MIN) {
        g.k = size_min(p->k / PART_K, size_ceil_div(TILES_MIN, g.m * g.n));
    }
    return g;
}

/* Returns the start of chunk i of n, at a multiple of `unit`. */
static int64_t cut_whole_units(int64_t total, int64_t unit, int64_t n, int64_t i) {
    return size_min(total, unit * cpu_cut(size_ceil_div(total, unit), n, i));
}

static tile tile_at(const product *p, const grid *g, int64_t i) {
    const int64_t k = i % g->k, n = i / g->k % g->n, m = i / g->k / g->n;
    const tile t = {cut_whole_units(p->m, UNIT_M, g->m, m), cut_whole_units(p->m, UNIT_M, g->m, m + 1),
                    cut_whole_units(p->n, UNIT_N, g->n, n), cut_whole_units(p->n, UNIT_N, g->n, n + 1),
                    cut_whole_units(p->k, UNIT_K, g->k, k), cut_whole_units(p->k, UNIT_K, g->k, k + 1)};
    return t;
}

/* ---- scratch: one per thread, then the parts ---- */

static tile_sizes tile_scratch_sizes(const weft_device *device, const product *p, const grid *g) {
    const int64_t m = UNIT_M * size_ceil_div(size_ceil_div(p->m, UNIT_M), g->m);
    const int64_t n = UNIT_N * size_ceil_div(size_ceil_div(p->n, UNIT_N), g->n);
    const cpu_panels *panels = panels_of(device, p);
    return panels != NULL ? panels_sizes(panels, p, m, n, false) : library_sizes(device, p, m, n, g->k == 1);
}

/* team_product divides matmuls on panels, unless the inner dimension is split. */
static const cpu_panels *panels_of_all(const weft_device *device, const product *p, const grid *g) {
    return g->k == 1 ? panels_of(device, p) : NULL;
}

int64_t product_workspace(const weft_device *device, const product *p) {
    const grid g = grid_of(p);
    const cpu_panels *panels = panels_of_all(device, p, &g);
    tile_sizes s = {0, 0, 0};
    if (p->m <= 0 || p->n <= 0 || p->k <= 0) return 0;
    if (panels != NULL) return team_workspace(device, panels, p);
    s = tile_scratch_sizes(device, p, &g);
    return device->threads * (s.a + s.b + s.c) + (g.k > 1 ? cpu_floats(g.k * p->m * p->n) : 0);
}

static tile_scratch scratch_of_thread(const tile_sizes *s, char *workspace, int64_t thread) {
    char *base = workspace == NULL ? NULL : workspace + thread * (s->a + s->b + s->c);
    const tile_scratch t = {s->a > 0 ? base : NULL, s->b > 0 ? base + s->a : NULL,
                            s->c > 0 ? (float *)(void *)(base + s->a + s->b) : NULL, NULL};
    return t;
}

/* ---- tiles and parts ---- */

/* Returns a tile's destination in c, or in its part. */
static tile_target target_of(const product *p, const grid *g, float *parts, const tile *t, int64_t i) {
    const int64_t at = t->m0 * p->ldc + t->n0;
    const tile_target to = {cpu_at(p->c, at, weft_dtype_bytes(p->dtype_c)), p->ldc, p->dtype_c, p->mode};
    const tile_target part = {parts, p->n, WEFT_F32, PRODUCT_SET};
    tile_target out = parts == NULL ? to : part;
    if (parts != NULL) out.c = parts + ((i % g->k) * p->m + t->m0) * p->n + t->n0;
    return out;
}

/* Computes all tiles on all threads. parts: (g->k, m, n), or NULL without a split. */
static dnnl_status_t run_tiles(const weft_device *device, const product *p, const grid *g, char *workspace,
                               float *parts) {
    const tile_sizes sizes = tile_scratch_sizes(device, p, g);
    const cpu_panels *panels = panels_of(device, p);
    const int64_t tiles = g->m * g->n * g->k;
    int failed = dnnl_success;
#pragma omp parallel num_threads(device->threads) if (tiles > 1)
    {
        const tile_scratch s = scratch_of_thread(&sizes, workspace, omp_get_thread_num());
        omp_set_num_threads(1);
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < tiles; i++) {
            const tile t = tile_at(p, g, i);
            const tile_target to = target_of(p, g, parts, &t, i);
            dnnl_status_t status = dnnl_success;
            if (panels != NULL) {
                panels_tile(panels, p, &t, &s, &to);
            } else {
                status = library_tile(device, p, &t, &s, &to);
            }
            if (status != dnnl_success) {
#pragma omp atomic write
                failed = (int)status;
            }
        }
    }
    return (dnnl_status_t)failed;
}

/* parts: (g->k, m, n). c = part 0 + part 1 + ..., or c + that sum. */
static void add_parts(const weft_device *device, const product *p, const grid *g, float *parts) {
    const int64_t size = p->m * p->n, bytes = weft_dtype_bytes(p->dtype_c);
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t r = 0; r < p->m; r++) {
        float *sum = parts + r * p->n;
        for (int64_t k = 1; k < g->k; k++) device->loops->f32.add(sum, sum, sum + k * size, p->n);
        cpu_cells_of(device, p->dtype_c)->put(cpu_at(p->c, r * p->ldc, bytes), sum, p->n, p->mode != PRODUCT_SET);
    }
}

/* For an empty inner dimension the product is zero. */
static void clear_result(const product *p) {
    const int64_t bytes = weft_dtype_bytes(p->dtype_c);
    int64_t r = 0;
    if (p->mode != PRODUCT_SET) return;
    for (r = 0; r < p->m; r++) memset(cpu_at(p->c, r * p->ldc, bytes), 0, (size_t)(p->n * bytes));
}

weft_status product_run(const weft_device *device, const product *p, void *workspace, const char *kernel,
                        weft_error *err) {
    const grid g = grid_of(p);
    const cpu_panels *panels = panels_of_all(device, p, &g);
    dnnl_status_t status = dnnl_success;
    float *parts = NULL;
    if (p->m <= 0 || p->n <= 0) return WEFT_OK;
    if (p->k <= 0) {
        clear_result(p);
        return WEFT_OK;
    }
    if (panels != NULL) {
        team_product(device, panels, p, workspace);
        return WEFT_OK;
    }
    if (g.k > 1) {
        const tile_sizes sizes = tile_scratch_sizes(device, p, &g);
        parts = (float *)(void *)((char *)workspace + device->threads * (sizes.a + sizes.b + sizes.c));
    }
    status = run_tiles(device, p, &g, workspace, parts);
    if (status == dnnl_success && parts != NULL) add_parts(device, p, &g, parts);
    if (status == dnnl_success) return WEFT_OK;
    return weft_error_set(err, status == dnnl_out_of_memory ? WEFT_E_MEMORY : WEFT_E_DEVICE,
                          "%s on device cpu: oneDNN rejected a product of %lld x %lld x %lld with status %d.", kernel,
                          (long long)p->m, (long long)p->n, (long long)p->k, (int)status);
}
