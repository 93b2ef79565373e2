/* product_tile.h: one tile of a matmul, by the matrix library (product_library.c: fp32, and 16 bits with few rows,
 * widened) or on panels (product_panels.c), and a complete matmul on panels by a team. */
#ifndef WEFT_DEVICE_CPU_PRODUCT_TILE_H
#define WEFT_DEVICE_CPU_PRODUCT_TILE_H

#include <dnnl.h>

#include "product.h"

#define WORK_MIN 4e6 /* multiplications that justify a hand-over between threads */

typedef struct tile {
    int64_t m0, m1, n0, n1, k0, k1;
} tile;

/* Destination of a tile: its first element, row distance, type and mode. */
typedef struct tile_target {
    void *c;
    int64_t ldc;
    int32_t dtype;
    product_mode mode;
} tile_target;

/* Scratch: panels of a and b, and the tile itself, in bytes and as pointers (NULL: not needed). If several threads
 * compute a tile together, each has its own region for a, consecutive, and the rest is shared. */
typedef struct tile_sizes {
    int64_t a, b, c;
} tile_sizes;
typedef struct tile_scratch {
    void *a, *b;
    float *c;
    int64_t *kept; /* NULL, or: b holds the complete inner dimension, packed for the tile that starts at this column;
                    * -1: empty */
} tile_scratch;

/* Returns a number from 0 on, unique among all callers. */
static inline int64_t tile_take(int64_t *taken) {
    int64_t one = 0;
#pragma omp atomic capture
    one = (*taken)++;
    return one;
}

/* Return sizes for any tile of up to m x n; on panels, of this n or of up to 1,536. whole: a tile spans the inner
 * dimension and goes to p's own c. */
tile_sizes library_sizes(const weft_device *device, const product *p, int64_t m, int64_t n, bool whole);
tile_sizes panels_sizes(const cpu_panels *panels, const product *p, int64_t m, int64_t n, bool whole);
dnnl_status_t library_tile(const weft_device *device, const product *p, const tile *t, const tile_scratch *s,
                           const tile_target *to);
void panels_tile(const cpu_panels *panels, const product *p, const tile *t, const tile_scratch *s,
                 const tile_target *to);

/* Returns the panels for this matmul, or NULL: the library computes it. */
const cpu_panels *panels_of(const weft_device *device, const product *p);
/* True if a is read in place, so that adjacent tiles do not pack it several times. */
bool panels_read_a(const cpu_panels *panels, const product *p);
/* Returns the bytes of b for the complete inner dimension of PANEL_COLUMNS columns (tile_scratch.kept). */
int64_t panels_kept(const cpu_panels *panels, const product *p);
/* Computes p as one tile, by all threads. Scratch: panels_sizes, with double the size for b. */
void panels_together(const cpu_panels *panels, const product *p, const tile_scratch *s, int threads);

/* Compute p on panels, by the device's threads (product_team.c). */
int64_t team_workspace(const weft_device *device, const cpu_panels *panels, const product *p);
void team_product(const weft_device *device, const cpu_panels *panels, const product *p, char *workspace);

#endif
