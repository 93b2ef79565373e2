/* host/model/region.h: access to a flat device region from the host, by parameter and in bounded chunks. The region
 * contains weights, each group in its storage type, or an fp32 optimizer state, which mirrors the trainable part.
 * Elements are transferred in their own type; a chunk is a multiple of its block. */
#ifndef WEFT_HOST_MODEL_REGION_H
#define WEFT_HOST_MODEL_REGION_H

#include "base/safetensors.h"
#include "model/hold.h"
#include "model/process_group.h"
#include "model/stream_sync.h"

/* Double-buffered transfers between host and device, in one direction at a time: the host works on one buffer while the
 * other is transferred. With weft/transfer.h the buffers are pinned memory; elsewhere transfers are synchronous.
 *
 *     to the device:  bytes(&piece), fill it, send; bytes(&other), fill it during the first transfer, send; ...
 *     to the host:    fetch(first); fetch(second), take(&piece) of the first, use it during the second transfer; ... */
typedef struct weft_double_buffer {
    weft_stream_sync order;
    void *memory[2];
    weft_event *events[2]; /* recorded after the transfer; NULL: synchronous */
    int turn;              /* the next buffer for bytes, send and fetch */
} weft_double_buffer;

/* Opens two buffers of `bytes` each. Closes them on a failure. */
weft_status weft_double_buffer_open(weft_double_buffer *out, const weft_device_plugin *kernels, weft_device *device,
                                    int64_t bytes, weft_error *err);
/* Waits for all transfers and frees the buffers. A zeroed struct is allowed. err receives a failed transfer and may be
 * NULL. */
weft_status weft_double_buffer_close(weft_double_buffer *self, weft_error *err);

/* Returns the next buffer to fill, after its previous transfer has ended. */
weft_status weft_double_buffer_bytes(weft_double_buffer *self, void **out, weft_error *err);
weft_status weft_double_buffer_send(weft_double_buffer *self, weft_ref to, int64_t bytes, weft_error *err);

/* Starts a transfer to the host. */
weft_status weft_double_buffer_fetch(weft_double_buffer *self, weft_ref from, int64_t bytes, weft_error *err);
/* Returns the buffer of the last fetch, or the one before it: ago 0 or 1. */
weft_status weft_double_buffer_take(weft_double_buffer *self, int ago, const void **out, weft_error *err);

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

/* Receives the root hash of each tensor of a file, on rank 0. */
typedef struct weft_roots {
    weft_status (*tell)(void *context, const char *path, const char *tensor, const char hex[65], weft_error *err);
    void *context;
} weft_roots;

/* Writes the file by all ranks that store the parameters, with bounded memory. On success it is complete and synced.
 * The root of a tensor is the SHA-256 over the hashes of its grid cells in order. roots: NULL if hashes are not
 * required. [collective] */
weft_status weft_region_write(const weft_region_file *file, const weft_roots *roots, weft_error *err);

#endif
