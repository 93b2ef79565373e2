/* host/model/region.h: a flat region of fp32 on a device, reached parameter by parameter from the host in bounded
 * pieces: weights, and any optimizer state, which mirrors the trainable part of it. */
#ifndef WEFT_HOST_MODEL_REGION_H
#define WEFT_HOST_MODEL_REGION_H

#include "model/hold.h"
#include "model/peers.h"

enum { WEFT_REGION_PIECE = 1 << 20 }; /* elements that are handled at once; a multiple of 4 */

/* Gives elements [first, first + n) of a parameter that lies on several ranks to all of them. [collective] */
typedef weft_status weft_region_fetch(void *context, int32_t parameter, int64_t first, int64_t n, float *out,
                                      weft_error *err);

/* The rank that writes element `first` of a parameter, which it keeps, and *end, up to where it does. Alike on all
 * ranks; cuts lie on the grid. */
typedef int32_t weft_region_writer(void *context, int32_t parameter, int64_t first, int64_t *end);

/* Told of n elements of a parameter that have just been filled and lie in the device's memory at `values`, while they
 * are in a processor's cache; by several threads. */
typedef void weft_region_filled(void *context, int32_t parameter, int64_t first, int64_t n, const float *values);

typedef struct weft_region {
    const weft_declared *declared;
    const weft_layout *layout;
    const weft_device_plugin *kernels;
    weft_device *device;
    weft_ref ref;               /* element 0 */
    const weft_hold *hold;      /* what this rank keeps of it; NULL: everything, where the layout says */
    const bool *apart;          /* [n_groups] with hold: the group lies on several ranks, or on another one */
    weft_region_fetch *fetch;   /* how to read what is apart; NULL: it is not read */
    weft_region_writer *writer; /* with peers */
    weft_region_filled *filled; /* where the host sees the device's memory; NULL: nobody */
    void *context;              /* of the three */
    const weft_peers *peers;    /* who keep the region together; NULL: this rank alone */
} weft_region;

/* Writes elements [first, first + n) of a parameter to out. Called from several threads at once; n <= WEFT_REGION_PIECE
 * and first a multiple of 4. */
typedef weft_status weft_region_source(void *context, int32_t parameter, int64_t first, int64_t n, float *out,
                                       weft_error *err);

/* Fills n parameters, as far as they are kept here, beginning their pieces in the order of the list, straight into the
 * device's memory where the host sees it, and what lies between each and the next one with zeros. After a failure what
 * they hold is not known. */
weft_status weft_region_fill(const weft_region *self, const int32_t *parameters, int32_t n, weft_region_source *source,
                             void *context, weft_error *err);

/* Elements [first, first + n) of a parameter: *out is the device's memory, or `staging` (n floats) where that is not
 * visible or not here: what is apart is fetched, which is collective. */
weft_status weft_region_read(const weft_region *self, int32_t parameter, int64_t first, int64_t n, float *staging,
                             const float **out, weft_error *err);

/* The same of elements that this rank keeps. */
weft_status weft_region_kept(const weft_region *self, int32_t parameter, int64_t first, int64_t n, float *staging,
                             const float **out, weft_error *err);

/* Who writes element `first` of a parameter; with one rank, rank 0 does, and all of it. */
int32_t weft_region_written_by(const weft_region *self, int32_t parameter, int64_t first, int64_t *end);

#endif
