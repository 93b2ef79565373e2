/* product.c: matrix products on oneDNN whose bits do not depend on the number of threads.
 *
 * oneDNN's own threading cuts the inner dimension when it sees fit, and the number of threads is part of what it looks
 * at. So the product is cut here, into tiles that depend on (m, n, k) alone, and each tile is one call that oneDNN
 * makes on one thread: within our parallel region every thread tells OpenMP that a team below it has one member. A
 * product with too few tiles to share out is cut along k as well; the parts lie in the workspace and are added in
 * order.
 */
#include <dnnl.h>
#include <omp.h>

#include "product.h"

#define TILE_M 256
#define TILE_N 384
#define TILE_K 512 /* no part of a cut inner dimension is shorter */
#define TILES  8   /* wanted before the inner dimension is cut */

typedef struct grid {
    int64_t m, n, k; /* pieces along each */
} grid;

static grid grid_of(const product *p) {
    grid g = {cpu_ceil_div(p->m, TILE_M), cpu_ceil_div(p->n, TILE_N), 1};
    if (g.m * g.n < TILES && p->k >= 2 * TILE_K) {
        g.k = cpu_min(p->k / TILE_K, cpu_ceil_div(TILES, cpu_max(g.m * g.n, 1)));
    }
    return g;
}

/* The largest tile, in elements. */
static int64_t tile_size(const product *p, const grid *g) {
    return cpu_ceil_div(p->m, g->m) * cpu_ceil_div(p->n, g->n);
}

int64_t product_workspace(const weft_device *device, const product *p) {
    const grid g = grid_of(p);
    if (p->m <= 0 || p->n <= 0 || p->k <= 0) return 0;
    if (g.k > 1) return cpu_floats(g.k * p->m * p->n);
    return p->mode == PRODUCT_ADD ? device->threads * cpu_floats(tile_size(p, &g)) : 0;
}

typedef struct tile {
    int64_t m0, m1, n0, n1, k0, k1;
} tile;

static tile tile_at(const product *p, const grid *g, int64_t i) {
    const int64_t k = i % g->k, n = i / g->k % g->n, m = i / g->k / g->n;
    const tile t = {cpu_cut(p->m, g->m, m),     cpu_cut(p->m, g->m, m + 1), cpu_cut(p->n, g->n, n),
                    cpu_cut(p->n, g->n, n + 1), cpu_cut(p->k, g->k, k),     cpu_cut(p->k, g->k, k + 1)};
    return t;
}

/* c (tile's m, n) = or, with beta 1, += the tile's product. */
static dnnl_status_t multiply(const product *p, const tile *t, float *c, int64_t ldc, float beta) {
    const float *a = p->a + (p->transpose_a ? t->k0 * p->lda + t->m0 : t->m0 * p->lda + t->k0);
    const float *b = p->b + (p->transpose_b ? t->n0 * p->ldb + t->k0 : t->k0 * p->ldb + t->n0);
    return dnnl_sgemm(p->transpose_a ? 'T' : 'N', p->transpose_b ? 'T' : 'N', t->m1 - t->m0, t->n1 - t->n0,
                      t->k1 - t->k0, 1.0f, a, p->lda, b, p->ldb, beta, c, ldc);
}

static void add_rows(const weft_device *device, float *c, int64_t ldc, const float *from, int64_t rows, int64_t width) {
    int64_t r = 0;
    for (r = 0; r < rows; r++)
        device->loops->add(c + r * ldc, c + r * ldc, from + r * width, width);
}

/* One tile that spans the whole inner dimension; scratch: this thread's. */
static dnnl_status_t run_tile(const weft_device *device, const product *p, const tile *t, float *scratch) {
    float *c = p->c + t->m0 * p->ldc + t->n0;
    const int64_t width = t->n1 - t->n0;
    dnnl_status_t status = dnnl_success;
    if (p->mode != PRODUCT_ADD) return multiply(p, t, c, p->ldc, p->mode == PRODUCT_CHAIN ? 1.0f : 0.0f);
    status = multiply(p, t, scratch, width, 0.0f);
    if (status == dnnl_success) add_rows(device, c, p->ldc, scratch, t->m1 - t->m0, width);
    return status;
}

static dnnl_status_t run_whole(const weft_device *device, const product *p, const grid *g, char *scratch) {
    const int64_t tiles = g->m * g->n, bytes = cpu_floats(tile_size(p, g));
    int failed = dnnl_success;
#pragma omp parallel num_threads(device->threads)
    {
        float *own = scratch == NULL ? NULL : (float *)(void *)(scratch + omp_get_thread_num() * bytes);
        omp_set_num_threads(1);
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < tiles; i++) {
            const tile t = tile_at(p, g, i);
            const dnnl_status_t status = run_tile(device, p, &t, own);
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
    const int64_t size = p->m * p->n;
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t r = 0; r < p->m; r++) {
        float *sum = parts + r * p->n, *c = p->c + r * p->ldc;
        for (int64_t k = 1; k < g->k - 1; k++)
            device->loops->add(sum, sum, sum + k * size, p->n);
        if (p->mode == PRODUCT_SET) {
            device->loops->add(c, sum, sum + (g->k - 1) * size, p->n);
        } else {
            device->loops->add(sum, sum, sum + (g->k - 1) * size, p->n);
            device->loops->add(c, c, sum, p->n);
        }
    }
}

static dnnl_status_t run_parts(const weft_device *device, const product *p, const grid *g, float *parts) {
    const int64_t tiles = g->m * g->n * g->k;
    int failed = dnnl_success;
#pragma omp parallel num_threads(device->threads)
    {
        omp_set_num_threads(1);
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < tiles; i++) {
            const tile t = tile_at(p, g, i);
            float *c = parts + (i % g->k) * p->m * p->n + t.m0 * p->n + t.n0;
            const dnnl_status_t status = multiply(p, &t, c, p->n, 0.0f);
            if (status != dnnl_success) {
#pragma omp atomic write
                failed = (int)status;
            }
        }
    }
    if (failed == dnnl_success) add_parts(device, p, g, parts);
    return (dnnl_status_t)failed;
}

/* An empty inner dimension: the product is zero. */
static void clear(const product *p) {
    int64_t r = 0;
    if (p->mode != PRODUCT_SET) return;
    for (r = 0; r < p->m; r++)
        memset(p->c + r * p->ldc, 0, (size_t)p->n * sizeof(float));
}

weft_status product_run(const weft_device *device, const product *p, void *workspace, const char *kernel,
                        weft_error *err) {
    const grid g = grid_of(p);
    dnnl_status_t status = dnnl_success;
    if (p->m <= 0 || p->n <= 0) return WEFT_OK;
    if (p->k <= 0) {
        clear(p);
        return WEFT_OK;
    }
    status = g.k > 1 ? run_parts(device, p, &g, workspace) : run_whole(device, p, &g, workspace);
    if (status == dnnl_success) return WEFT_OK;
    return weft_error_set(err, status == dnnl_out_of_memory ? WEFT_E_MEMORY : WEFT_E_DEVICE,
                          "%s on device cpu: oneDNN refused a product of %lld x %lld x %lld with status %d.", kernel,
                          (long long)p->m, (long long)p->n, (long long)p->k, (int)status);
}
