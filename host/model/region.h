/* host/model/region.h: a flat region on a device, reached parameter by parameter from the host in bounded pieces: the
 * weights, each group in the type that it is stored in, and any optimizer state, fp32, which mirrors the trainable part
 * of them. Elements are given and taken in their own type; a piece is whole blocks of it. */
#ifndef WEFT_HOST_MODEL_REGION_H
#define WEFT_HOST_MODEL_REGION_H

#include "base/safetensors.h"
#include "model/hold.h"
#include "model/peers.h"
#include "model/staged.h"

enum {
    WEFT_REGION_PIECE = 1 << 20
}; /* elements that are handled at once; whole blocks of any type, none of which
                                          has more bytes an element than fp32 */

/* The rank that writes element `first` of a parameter, which it keeps, and *end, up to where it does. Alike on all
 * ranks; cuts lie on the grid. */
typedef int32_t weft_region_writer(void *context, int32_t parameter, int64_t first, int64_t *end);

/* Told of n elements of a parameter that have just been filled and lie in the device's memory at `values`, while they
 * are in a processor's cache; by several threads. */
typedef void weft_region_filled(void *context, int32_t parameter, int64_t first, int64_t n, const void *values);

typedef struct weft_region {
    const weft_declared *declared;
    const weft_layout *layout;
    const weft_device_plugin *kernels;
    weft_device *device;
    weft_ref ref;               /* element 0 */
    int32_t dtype;              /* weft_dtype of all elements; 0: what each group is stored in */
    const weft_hold *hold;      /* what this rank keeps of it; NULL: everything, where the layout says */
    const bool *apart;          /* [n_groups] with hold: the group lies on several ranks, or on another one */
    weft_region_writer *writer; /* with peers */
    weft_region_filled *filled; /* where the host sees the device's memory; NULL: nobody */
    void *context;              /* of the two */
    const weft_peers *peers;    /* who keep the region together; NULL: this rank alone */
} weft_region;

/* weft_dtype in which the region has a parameter. */
int32_t weft_region_dtype(const weft_region *self, int32_t parameter);

/* Writes elements [first, first + n) of a parameter to out, in dtype, which is the region's for it. Called from several
 * threads at once; n <= WEFT_REGION_PIECE and first a multiple of 4. */
typedef weft_status weft_region_source(void *context, int32_t parameter, int64_t first, int64_t n, int32_t dtype,
                                       void *out, weft_error *err);

/* Fills n parameters, as far as they are kept here, beginning their pieces in the order of the list, straight into the
 * device's memory where the host sees it, and what lies between each and the next one with zeros. After a failure what
 * they hold is not known. */
weft_status weft_region_fill(const weft_region *self, const int32_t *parameters, int32_t n, weft_region_source *source,
                             void *context, weft_error *err);

/* Elements [first, first + n) of a parameter: *out is the device's memory, or `staging` (room for n of them) where
 * that is not visible or not here: what is apart comes from who writes it, which is collective. */
weft_status weft_region_read(const weft_region *self, int32_t parameter, int64_t first, int64_t n, void *staging,
                             const void **out, weft_error *err);

/* The same of elements that this rank keeps. */
weft_status weft_region_kept(const weft_region *self, int32_t parameter, int64_t first, int64_t n, void *staging,
                             const void **out, weft_error *err);

/* The same in two steps, so that a piece is brought while the one before is worked on: `ask` begins, `take` has it
 * there. ago: how many have been asked for since, 0 or 1. */
weft_status weft_region_ask(const weft_region *self, weft_staged *staged, int32_t parameter, int64_t first, int64_t n,
                            weft_error *err);
weft_status weft_region_take(const weft_region *self, weft_staged *staged, int ago, int32_t parameter, int64_t first,
                             const void **out, weft_error *err);

/* Parameters of a region as one safetensors file. */
typedef struct weft_region_file {
    const weft_region *region;
    const char *path;              /* nothing is there yet */
    const weft_tensor_spec *specs; /* [n] fp32, bf16 or fp16; of what is packed: its bytes */
    const int32_t *parameters;     /* [n]; -1: room that somebody else fills */
    int32_t n;                     /* at least one */
} weft_region_file;

/* weft_dtype of a tensor's elements in the file: the spec's, but what is packed stays as it is. */
int32_t weft_region_file_dtype(const weft_region_file *self, int32_t tensor);

/* Who writes element `first` of a parameter; with one rank, rank 0 does, and all of it. */
int32_t weft_region_written_by(const weft_region *self, int32_t parameter, int64_t first, int64_t *end);

#endif
