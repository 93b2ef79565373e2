/* host/model/packing.h: how numbers become the blocks of a packed type (weft/blocks.h), while they are read or drawn.
 *
 * Some blocks need to know more than their own numbers: nf4 the mean of all scales of its matrix and the largest of 256
 * of them, int8 by rows the largest number of a row. So a matrix is looked through once before it is packed, piece by
 * piece, and what is kept of that is one number for 16,384, or for a row. A rank looks through the whole of each matrix
 * of which it keeps a part: what it packs is then the same on any number of ranks, and nothing is exchanged. The
 * matrices of some 256 MB are looked through, then packed, so that the second reading of a file comes from memory. */
#ifndef WEFT_HOST_MODEL_PACKING_H
#define WEFT_HOST_MODEL_PACKING_H

#include "model/region.h"

typedef struct weft_packing {
    int32_t dtype;
    int64_t width; /* elements of those that share a scale; 0: a block's scale is its own */
    float *scales; /* [ceil(numel / width)] nf4: the scale of their scales; else the largest one of them */
    float added;   /* nf4: to all scales of the matrix */
} weft_packing;

/* Where numbers come from; called by several threads at once. */
typedef struct weft_numbers {
    /* Elements [first, first + n) of a parameter. */
    weft_status (*give)(void *context, int32_t parameter, int64_t first, int64_t n, float *out, weft_error *err);
    void *context;
} weft_numbers;

/* Looks through a parameter's numbers, if its type asks for that. */
weft_status weft_packing_open(weft_packing *out, const weft_declared *declared, int32_t parameter,
                              const weft_numbers *numbers, weft_error *err);
void weft_packing_close(weft_packing *self);

/* Packs elements [first, first + n) of the parameter; first: where a block begins; n: whole blocks, or up to the last
 * element. */
void weft_packing_put(const weft_packing *self, void *out, const float *numbers, int64_t first, int64_t n);

/* The other way round: n numbers of blocks, the first of which begins there. [any-thread] */
void weft_packing_take(float *out, int32_t dtype, const void *blocks, int64_t n);

/* Whether the region keeps a part of the parameter. */
bool weft_packing_is_kept(const weft_region *region, int32_t parameter);

/* weft_region_fill from numbers where is_packed_now[parameter] says so, and from `source` for the rest. */
weft_status weft_packing_fill(const weft_region *region, const int32_t *parameters, int32_t n,
                              const bool *is_packed_now, const weft_numbers *numbers, weft_region_source *source,
                              void *context, weft_error *err);

#endif
