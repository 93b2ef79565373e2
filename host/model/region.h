/* host/model/region.h: access to a flat device region from the host, by parameter and in bounded chunks. The region
 * contains weights, each group in its storage type, or an fp32 optimizer state, which mirrors the trainable part.
 * Elements are transferred in their own type; a chunk is a multiple of its block. */
#ifndef WEFT_HOST_MODEL_REGION_H
#define WEFT_HOST_MODEL_REGION_H

#include "base/safetensors.h"
#include "model/layout.h"
#include "model/process_group.h"
#include "model/stream_sync.h"

#include <stdatomic.h>

/* Double-buffered transfers between host and device, in one direction at a time: the host works on one buffer while the
 * other is transferred. With weft/transfer.h the buffers are pinned memory; elsewhere transfers are synchronous.
 *
 *     to the device:  take(&piece), fill it, send; take(&other), fill it during the first transfer, send; ...
 *     to the host:    fetch(first); fetch(second), take(&piece) of the first, use it during the second transfer; ... */
typedef struct weft_double_buffer {
    weft_stream_sync order;
    void *memory[2];
    weft_event *events[2]; /* recorded after the transfer; NULL: synchronous */
    int turn;              /* the next buffer for send and fetch */
} weft_double_buffer;

/* Opens two buffers of `bytes` each. Closes them on a failure. */
weft_status weft_double_buffer_open(weft_double_buffer *out, const weft_device_plugin *kernels, weft_device *device,
                                    int64_t bytes, weft_error *err);
/* Waits for all transfers and frees the buffers. A zeroed struct is allowed. err receives a failed transfer and may be
 * NULL. */
weft_status weft_double_buffer_close(weft_double_buffer *self, weft_error *err);

weft_status weft_double_buffer_send(weft_double_buffer *self, weft_ref to, int64_t bytes, weft_error *err);

/* Starts a transfer to the host. */
weft_status weft_double_buffer_fetch(weft_double_buffer *self, weft_ref from, int64_t bytes, weft_error *err);
/* Returns a buffer after its transfer has ended: that of the last transfer (ago 0), or the one before it (1), which is
 * the next to fill. */
weft_status weft_double_buffer_take(weft_double_buffer *self, int ago, void **out, weft_error *err);

/* Maximum elements per chunk: complete blocks of any type, of which no type has more bytes per element than fp32. */
enum { WEFT_REGION_PIECE = 1 << 20 };

/* Returns the rank that stores and writes element `first` of a parameter, and the end *end of its range. Identical on
 * all ranks; boundaries are on the grid. */
typedef int32_t weft_region_writer(void *context, int32_t parameter, int64_t first, int64_t *end);

/* Called after n elements of a parameter have been filled, with their visible device memory `values`, while they are in
 * the CPU cache. Called by several threads. */
typedef void weft_region_filled(void *context, int32_t parameter, int64_t first, int64_t n, const void *values);

typedef struct weft_region {
    const weft_declared *declared;
    const weft_layout *layout;
    const weft_device_plugin *kernels;
    weft_device *device;
    weft_ref ref;                    /* element 0 */
    int32_t dtype;                   /* weft_dtype of all elements; 0: the storage type of each group */
    const weft_hold *hold;           /* the shards that this rank stores; NULL: everything, at the layout's offsets */
    const bool *apart;               /* [n_groups] with hold: other ranks store the group or parts of it */
    weft_region_writer *writer;      /* set if peers is set */
    weft_region_filled *filled;      /* called if device memory is visible to the host; may be NULL */
    void *context;                   /* of the two callbacks */
    const weft_process_group *peers; /* process group that stores the region; NULL: a single rank */
} weft_region;

/* Returns the weft_dtype of a parameter in the region. */
int32_t weft_region_dtype(const weft_region *self, int32_t parameter);

/* Writes elements [first, first + n) of a parameter to out, in dtype, the region's type for it. Called from several
 * threads; n <= WEFT_REGION_PIECE and first is a multiple of 4. */
typedef weft_status weft_region_source(void *context, int32_t parameter, int64_t first, int64_t n, int32_t dtype,
                                       void *out, weft_error *err);

/* Fills the locally stored parts of n parameters and zeroes the padding after each. Chunks start in the order of the
 * list and are written directly to device memory if it is visible. After a failure the contents are undefined. */
weft_status weft_region_fill(const weft_region *self, const int32_t *parameters, int32_t n, weft_region_source *source,
                             void *context, weft_error *err);

/* Reads elements [first, first + n) of a parameter. *out points to device memory, or to `staging` (n elements) if that
 * memory is not visible or not local. Elements of a sharded group are broadcast by the rank that writes them, which is
 * collective. */
weft_status weft_region_read(const weft_region *self, int32_t parameter, int64_t first, int64_t n, void *staging,
                             const void **out, weft_error *err);

/* Do the same in two steps, to transfer a chunk while the previous one is processed: query starts the transfer, take
 * waits for it. ago: number of later transfers, 0 or 1. */
weft_status weft_region_query(const weft_region *self, weft_double_buffer *double_buffer, int32_t parameter,
                              int64_t first, int64_t n, weft_error *err);
weft_status weft_region_take(const weft_region *self, weft_double_buffer *double_buffer, int ago, int32_t parameter,
                             int64_t first, const void **out, weft_error *err);

/* The first failure of several threads. */
typedef struct weft_first_failure {
    atomic_bool is_set; /* the thread that sets it writes the other fields */
    weft_status status;
    weft_error *err; /* may be NULL */
} weft_first_failure;

/* Keeps a failure, unless another one is kept already. [any-thread] */
void weft_first_failure_keep(weft_first_failure *self, weft_status status, const weft_error *err);

/* Parameters of a region that form one safetensors file. */
typedef struct weft_region_file {
    const weft_region *region;
    const char *path;              /* must not exist */
    const weft_tensor_spec *specs; /* [n] fp32, bf16 or fp16; bytes for packed parameters */
    const int32_t *parameters;     /* [n]; -1: the caller writes this tensor later */
    int32_t n;                     /* at least one */
} weft_region_file;

/* Returns the weft_dtype of a tensor's elements in the file: the spec's, except that packed parameters stay packed. */
int32_t weft_region_file_dtype(const weft_region_file *self, int32_t tensor);

/* Returns the rank that writes element `first` of a parameter. A single rank 0 writes all elements. */
int32_t weft_region_written_by(const weft_region *self, int32_t parameter, int64_t first, int64_t *end);

/* ---- the ranks that write the bytes of a file ----
 *
 * An extent is a contiguous part of a tensor that one rank stores. Extents cover the file in order; the first is the
 * header, written by rank 0. Processes that write to one page of a file through different mounts may overwrite each
 * other's bytes. So one rank writes a boundary page (4 KiB): the lowest rank that has bytes of it. The other ranks send
 * their bytes to it. */

enum { WEFT_PAGE = 4096, WEFT_FILE_EXTENT_PARTS = 3 };

typedef struct weft_file_extent {
    int32_t tensor;     /* -1: the header */
    int32_t keeper;     /* rank that stores it */
    int64_t first, n;   /* elements of the tensor */
    int64_t begin, end; /* byte range in the file */
} weft_file_extent;

typedef struct weft_file_extents {
    weft_file_extent *items;
    int32_t n;
} weft_file_extents;

/* writer: of the same file. Identical on all ranks. The caller frees the items. */
weft_file_extents weft_file_extents_make(const weft_region_file *file, const weft_tensor_writer *writer);

/* A byte range of the file that one rank writes. */
typedef struct weft_file_part {
    int64_t begin, end;
    int32_t writer;
} weft_file_part;

/* Divides bytes [begin, end) of extent i by the rank that writes them, in order. Returns the number of parts. */
int weft_file_extent_split(weft_file_part out[WEFT_FILE_EXTENT_PARTS], const weft_file_extents *self, int32_t i,
                           int64_t begin, int64_t end);

/* ---- writing ---- */

/* Receives the root hash of each tensor of a file, on rank 0. */
typedef struct weft_roots {
    weft_status (*tell)(void *context, const char *path, const char *tensor, const char hex[65], weft_error *err);
    void *context;
} weft_roots;

/* Writes the file by all ranks that store the parameters, with bounded memory. On success it is complete and synced.
 * The root of a tensor is the SHA-256 over the hashes of its grid cells in order. roots: NULL if hashes are not
 * required. [collective] */
weft_status weft_region_write(const weft_region_file *file, const weft_roots *roots, weft_error *err);

/* ---- packing numbers into blocks (weft/blocks.h) while they are read or drawn (packing.c) ----
 *
 * Some types require statistics of the complete matrix: nf4 the mean of all scales and the maximum of each 256 of them,
 * int8 by rows the maximum of each row. So each rank scans the complete matrix before it packs its part: the result
 * does not depend on the number of ranks, without communication. Matrices are scanned and packed in batches of about
 * 256 MB, so that the second read is served from the page cache. */

typedef struct weft_packing {
    int32_t dtype;
    int64_t width; /* elements that share a scale; 0: each block has its own scale */
    float *scales; /* [ceil(numel / width)] nf4: the scale of their scales; else the maximum of the elements */
    float added;   /* nf4: offset added to all scales of the matrix */
} weft_packing;

/* Scans a parameter's numbers, if its type requires it. source: called with WEFT_F32. The caller frees the scales, also
 * on failure. */
weft_status weft_packing_open(weft_packing *out, const weft_declared *declared, int32_t parameter,
                              weft_region_source *source, void *context, weft_error *err);

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
