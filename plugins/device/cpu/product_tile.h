/* product_tile.h: one tile of a product, in the two ways that there are: by the matrix library
 * (product_library.c: fp32, and 16 bits of few rows, widened) and on panels (product_panels.c); and the whole of one on
 * panels by a team. */
#ifndef WEFT_DEVICE_CPU_PRODUCT_TILE_H
#define WEFT_DEVICE_CPU_PRODUCT_TILE_H

#include <dnnl.h>

#include "product.h"

#define WORK_MIN 4e6 /* multiplications that are worth a hand-over between threads */

typedef struct tile {
    int64_t m0, m1, n0, n1, k0, k1;
} tile;

/* Where the tile's result goes: its first element, the distance between rows, and how. */
typedef struct tile_target {
    void *c;
    int64_t ldc;
    int32_t dtype;
    product_mode mode;
} tile_target;

/* Scratch: panels of a and b, and the tile itself. Bytes, and where they lie (NULL: none). Where threads make a tile
 * together, each has as much for a, one after another, and the rest is everybody's. */
typedef struct tile_sizes {
    int64_t a, b, c;
} tile_sizes;
typedef struct tile_scratch {
    void *a, *b;
    float *c;
    int64_t *kept; /* NULL, or: b has room for all of the inner dimension, and holds what was packed for the tile that
                    * began at this column; -1: nothing yet */
} tile_scratch;

/* Who asks is given a number, from 0, that nobody else is given. */
static inline int64_t tile_take(int64_t *taken) {
    int64_t one = 0;
#pragma omp atomic capture
    one = (*taken)++;
    return one;
}

/* Enough for any tile of up to m x n; on panels, of this n or of up to 1,536. whole: a tile spans the inner dimension
 * and goes to p's own c. */
tile_sizes library_sizes(const weft_device *device, const product *p, int64_t m, int64_t n, bool whole);
tile_sizes panels_sizes(const cpu_panels *panels, const product *p, int64_t m, int64_t n, bool whole);
dnnl_status_t library_tile(const weft_device *device, const product *p, const tile *t, const tile_scratch *s,
                           const tile_target *to);
void panels_tile(const cpu_panels *panels, const product *p, const tile *t, const tile_scratch *s,
                 const tile_target *to);

/* The panels that a product goes through here, or NULL: it is left to the library. */
const cpu_panels *panels_of(const weft_device *device, const product *p);
/* a is read where it lies, so that several tiles side by side do not pack it several times. */
bool panels_read_a(const cpu_panels *panels, const product *p);
/* Bytes of b for all of the inner dimension of PANEL_COLUMNS columns (tile_scratch.kept). */
int64_t panels_kept(const cpu_panels *panels, const product *p);
/* All of p as one tile, by all threads. Scratch: of panels_sizes, with twice as much for b. */
void panels_together(const cpu_panels *panels, const product *p, const tile_scratch *s, int threads);

/* All of p on panels, by the device's threads (product_team.c). */
int64_t team_workspace(const weft_device *device, const cpu_panels *panels, const product *p);
void team_product(const weft_device *device, const cpu_panels *panels, const product *p, char *workspace);

#endif
