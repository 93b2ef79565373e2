/* host/model/packing.h: packs numbers into blocks (weft/blocks.h) while they are read or drawn.
 *
 * Some types require statistics of the complete matrix: nf4 the mean of all scales and the maximum of each 256 of them,
 * int8 by rows the maximum of each row. So each rank scans the complete matrix before it packs its part: the result
 * does not depend on the number of ranks, without communication. Matrices are scanned and packed in batches of about
 * 256 MB, so that the second read is served from the page cache. */
#ifndef WEFT_HOST_MODEL_PACKING_H
#define WEFT_HOST_MODEL_PACKING_H

#include "model/region.h"

typedef struct weft_packing {
    int32_t dtype;
    int64_t width; /* elements that share a scale; 0: each block has its own scale */
    float *scales; /* [ceil(numel / width)] nf4: the scale of their scales; else the maximum of the elements */
    float added;   /* nf4: offset added to all scales of the matrix */
} weft_packing;

/* Scans a parameter's numbers, if its type requires it. source: called with WEFT_F32. */
weft_status weft_packing_open(weft_packing *out, const weft_declared *declared, int32_t parameter,
                              weft_region_source *source, void *context, weft_error *err);
void weft_packing_close(weft_packing *self);

/* Packs elements [first, first + n) of the parameter; first: the start of a block; n: complete blocks, or up to the
 * last element. */
void weft_packing_put(const weft_packing *self, void *out, const float *numbers, int64_t first, int64_t n);

/* Unpacks n numbers from blocks, starting with the first block. [any-thread] */
void weft_packing_take(float *out, int32_t dtype, const void *blocks, int64_t n);

/* True if the region stores a part of the parameter. */
bool weft_packing_is_kept(const weft_region *region, int32_t parameter);

/* Does weft_region_fill; parameters with is_packed_now[parameter] are packed from the source's numbers in WEFT_F32. */
weft_status weft_packing_fill(const weft_region *region, const int32_t *parameters, int32_t n,
                              const bool *is_packed_now, weft_region_source *source, void *context, weft_error *err);

#endif
