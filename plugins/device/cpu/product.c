/* product.c: matrix products on oneDNN whose bits do not depend on the number of threads.
 *
 * oneDNN's own threading cuts the inner dimension when it sees fit, and the number of threads is part of what it looks
 * at. So the product is cut here, into tiles that depend on (m, n, k) alone, and each tile is one call that oneDNN
 * makes on one thread: within our parallel region every thread tells OpenMP that a team below it has one member. A
 * product with too few tiles to share out is cut along k as well; the parts lie in the workspace and are added in
 * order.
 *
 * Measured on one core of a Zen 5 (register peak 250 GFLOP/s) at LLaMA's shapes, oneDNN 2.6.3: tiles of 264 x 384 reach
 * 215-240, 144 x 144 the same but for n across (NT) 200-220, 96 x 96 180-240, 48 x 48 110-230. Tiles whose sides are
 * no multiples of oneDNN's own (48 x 8 on AVX-512, 24 x 4 or 16 x 6 on AVX2) lose up to a tenth at their edges.
 *
 * On AVX2 oneDNN reads operands of smaller products where they lie. Columns of a matrix whose rows are a multiple of
 * 1 KiB apart then fall on the same few lines of the cache: 50-70 GFLOP/s of 120. Such operands are copied into panels
 * with padded rows, PANEL_K of the inner dimension at a time, which gives 95-118. AVX-512 kernels copy by themselves.
 */
#include <dnnl.h>
#include <omp.h>

#include "product.h"

#define UNIT_M    24
#define UNIT_N    48
#define TILE_M    (11 * UNIT_M)
#define TILE_N    (8 * UNIT_N)
#define SIDE_MIN  96                 /* a tile is not halved below this */
#define WORK_MIN  ((int64_t)4 << 20) /* multiplications of a tile that are worth a hand-over between threads */
#define TILES     8                  /* wanted, so that a few threads end at the same time */
#define TILES_MIN 4                  /* with fewer the inner dimension is cut as well, */
#define PART_K    512                /* into parts no shorter than this */
#define PANEL_K   1024
#define PANEL_PAD 16

typedef struct grid {
    int64_t m, n, k; /* pieces along each */
} grid;

static grid grid_of(const product *p) {
    const int64_t rows = cpu_max(p->m, 1), columns = cpu_max(p->n, 1), work = rows * columns * p->k;
    grid g = {cpu_ceil_div(rows, TILE_M), cpu_ceil_div(columns, TILE_N), 1};
    while (g.m * g.n < TILES && work / (g.m * g.n) > WORK_MIN) {
        const bool by_m = rows / g.m >= columns / g.n;
        if ((by_m ? rows / (g.m + 1) : columns / (g.n + 1)) < SIDE_MIN) break;
        if (by_m) {
            g.m++;
        } else {
            g.n++;
        }
    }
    if (g.m * g.n < TILES_MIN && p->k >= 2 * PART_K && work > WORK_MIN) {
        g.k = cpu_min(p->k / PART_K, cpu_ceil_div(TILES_MIN, g.m * g.n));
    }
    return g;
}

/* Where piece i of n begins: cut in whole units. */
static int64_t cut_units(int64_t total, int64_t unit, int64_t n, int64_t i) {
    return cpu_min(total, unit * cpu_cut(cpu_ceil_div(total, unit), n, i));
}

typedef struct tile {
    int64_t m0, m1, n0, n1, k0, k1;
} tile;

static tile tile_at(const product *p, const grid *g, int64_t i) {
    const int64_t k = i % g->k, n = i / g->k % g->n, m = i / g->k / g->n;
    const tile t = {cut_units(p->m, UNIT_M, g->m, m), cut_units(p->m, UNIT_M, g->m, m + 1),
                    cut_units(p->n, UNIT_N, g->n, n), cut_units(p->n, UNIT_N, g->n, n + 1),
                    cpu_cut(p->k, g->k, k),           cpu_cut(p->k, g->k, k + 1)};
    return t;
}

/* ---- one thread's scratch: panels of a and b, and a tile of c where it is added in the end ---- */

/* Columns are taken out of a matrix at this distance between rows: worth a panel? And whole rows, which suffer less? */
static bool collides(const weft_device *device, int64_t ld, bool columns) {
    return device->packs && ld % (columns ? 256 : 2048) == 0;
}

typedef struct scratch_sizes {
    int64_t a, b, c; /* bytes */
} scratch_sizes;

static scratch_sizes scratch_of(const weft_device *device, const product *p, const grid *g) {
    const int64_t k = cpu_min(p->k, PANEL_K), m = UNIT_M * cpu_ceil_div(cpu_ceil_div(p->m, UNIT_M), g->m);
    const int64_t n = UNIT_N * cpu_ceil_div(cpu_ceil_div(p->n, UNIT_N), g->n);
    scratch_sizes s = {0, 0, 0};
    if (collides(device, p->lda, p->transpose_a)) s.a = cpu_floats((m + PANEL_PAD) * (k + PANEL_PAD));
    if (collides(device, p->ldb, !p->transpose_b)) s.b = cpu_floats((n + PANEL_PAD) * (k + PANEL_PAD));
    if (p->mode == PRODUCT_ADD && g->k == 1) s.c = cpu_floats(m * n);
    return s;
}

int64_t product_workspace(const weft_device *device, const product *p) {
    const grid g = grid_of(p);
    const scratch_sizes s = scratch_of(device, p, &g);
    if (p->m <= 0 || p->n <= 0 || p->k <= 0) return 0;
    return device->threads * (s.a + s.b + s.c) + (g.k > 1 ? cpu_floats(g.k * p->m * p->n) : 0);
}

typedef struct scratch {
    float *a, *b, *c; /* NULL: not needed */
} scratch;

static scratch scratch_at(const scratch_sizes *s, char *workspace, int64_t thread) {
    char *base = workspace == NULL ? NULL : workspace + thread * (s->a + s->b + s->c);
    const scratch t = {s->a > 0 ? (float *)(void *)base : NULL, s->b > 0 ? (float *)(void *)(base + s->a) : NULL,
                       s->c > 0 ? (float *)(void *)(base + s->a + s->b) : NULL};
    return t;
}

/* Copies rows x width into a panel, unless there is none; the operand to use and its ld. */
static const float *to_panel(float *panel, const float *from, int64_t *ld, int64_t rows, int64_t width) {
    int64_t r = 0;
    if (panel == NULL) return from;
    for (r = 0; r < rows; r++) {
        memcpy(panel + r * (width + PANEL_PAD), from + r * *ld, (size_t)width * sizeof *panel);
    }
    *ld = width + PANEL_PAD;
    return panel;
}

/* c (tile's m, n) = or, with beta 1, += the tile's product over [k0, k1). */
static dnnl_status_t multiply_part(const product *p, const tile *t, const scratch *s, float *c, int64_t ldc, float beta,
                                   int64_t k0, int64_t k1) {
    const int64_t m = t->m1 - t->m0, n = t->n1 - t->n0, k = k1 - k0;
    const float *a = p->a + (p->transpose_a ? k0 * p->lda + t->m0 : t->m0 * p->lda + k0);
    const float *b = p->b + (p->transpose_b ? t->n0 * p->ldb + k0 : k0 * p->ldb + t->n0);
    int64_t lda = p->lda, ldb = p->ldb;
    a = to_panel(s->a, a, &lda, p->transpose_a ? k : m, p->transpose_a ? m : k);
    b = to_panel(s->b, b, &ldb, p->transpose_b ? n : k, p->transpose_b ? k : n);
    return dnnl_sgemm(p->transpose_a ? 'T' : 'N', p->transpose_b ? 'T' : 'N', m, n, k, 1.0f, a, lda, b, ldb, beta, c,
                      ldc);
}

static dnnl_status_t multiply(const product *p, const tile *t, const scratch *s, float *c, int64_t ldc, float beta) {
    const int64_t step = s->a != NULL || s->b != NULL ? PANEL_K : t->k1 - t->k0;
    dnnl_status_t status = dnnl_success;
    int64_t k = t->k0;
    for (; k < t->k1 && status == dnnl_success; k += step) {
        status = multiply_part(p, t, s, c, ldc, k == t->k0 ? beta : 1.0f, k, cpu_min(k + step, t->k1));
    }
    return status;
}

static void add_rows(const weft_device *device, float *c, int64_t ldc, const float *from, int64_t rows, int64_t width) {
    int64_t r = 0;
    for (r = 0; r < rows; r++)
        device->loops->add(c + r * ldc, c + r * ldc, from + r * width, width);
}

/* One tile that spans the whole inner dimension. */
static dnnl_status_t run_tile(const weft_device *device, const product *p, const tile *t, const scratch *s) {
    float *c = p->c + t->m0 * p->ldc + t->n0;
    const int64_t width = t->n1 - t->n0;
    dnnl_status_t status = dnnl_success;
    if (p->mode != PRODUCT_ADD) return multiply(p, t, s, c, p->ldc, p->mode == PRODUCT_CHAIN ? 1.0f : 0.0f);
    status = multiply(p, t, s, s->c, width, 0.0f);
    if (status == dnnl_success) add_rows(device, c, p->ldc, s->c, t->m1 - t->m0, width);
    return status;
}

/* All tiles, shared out among the threads. parts: (g->k, m, n), or NULL if the inner dimension is whole. */
static dnnl_status_t run_tiles(const weft_device *device, const product *p, const grid *g, char *workspace,
                               float *parts) {
    const scratch_sizes sizes = scratch_of(device, p, g);
    const int64_t tiles = g->m * g->n * g->k;
    int failed = dnnl_success;
#pragma omp parallel num_threads(device->threads) if (tiles > 1)
    {
        const scratch s = scratch_at(&sizes, workspace, omp_get_thread_num());
        omp_set_num_threads(1);
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < tiles; i++) {
            const tile t = tile_at(p, g, i);
            float *part = parts == NULL ? NULL : parts + ((i % g->k) * p->m + t.m0) * p->n + t.n0;
            const dnnl_status_t status =
                parts == NULL ? run_tile(device, p, &t, &s) : multiply(p, &t, &s, part, p->n, 0.0f);
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
    float *parts = NULL;
    if (p->m <= 0 || p->n <= 0) return WEFT_OK;
    if (p->k <= 0) {
        clear(p);
        return WEFT_OK;
    }
    if (g.k > 1) {
        const scratch_sizes sizes = scratch_of(device, p, &g);
        parts = (float *)(void *)((char *)workspace + device->threads * (sizes.a + sizes.b + sizes.c));
    }
    status = run_tiles(device, p, &g, workspace, parts);
    if (status == dnnl_success && parts != NULL) add_parts(device, p, &g, parts);
    if (status == dnnl_success) return WEFT_OK;
    return weft_error_set(err, status == dnnl_out_of_memory ? WEFT_E_MEMORY : WEFT_E_DEVICE,
                          "%s on device cpu: oneDNN refused a product of %lld x %lld x %lld with status %d.", kernel,
                          (long long)p->m, (long long)p->n, (long long)p->k, (int)status);
}
