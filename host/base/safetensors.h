/* host/base/safetensors.h: reads and writes safetensors files.
 *
 * A file is eight bytes of header length (little-endian), a JSON header, and data:
 *     {"__metadata__": {"format": "pt"}, "a.weight": {"dtype": "BF16", "shape": [3, 4], "data_offsets": [0, 24]}, ...}
 * The offsets count from the end of the header, and the tensors cover the data without gap or overlap; other files are
 * rejected. model/weights.c checks the names and shapes that a model requires. */
#ifndef WEFT_HOST_BASE_SAFETENSORS_H
#define WEFT_HOST_BASE_SAFETENSORS_H

#include <stdbool.h>
#include <weft/base.h>

enum { WEFT_TENSOR_RANK = 8 }; /* maximum number of dimensions */

/* Returns "F32", "BF16", ...; "?" for an unknown type. [any-thread] */
const char *weft_tensor_dtype_name(int32_t dtype);

enum { WEFT_DIMS_BYTES = 192 };

/* Writes "(3, 4)". [any-thread] */
void weft_tensor_print_dims(char text[WEFT_DIMS_BYTES], const int64_t *dims, int32_t rank);

/* ---- reading ---- */

typedef struct weft_tensor {
    char *name;
    int32_t dtype; /* weft_dtype */
    int32_t rank;
    int64_t dims[WEFT_TENSOR_RANK];
    int64_t numel, bytes;
    const unsigned char *data; /* mapped, read-only, at any alignment */
    int32_t file;              /* index */
    /* NULL: a tensor of the file. Otherwise reads assemble it (base/bitsandbytes.c), and data points to the largest of
     * its stored parts. */
    struct weft_joined *joined;
} weft_tensor;

static inline bool weft_tensor_has_dims(const weft_tensor *tensor, const int64_t *dims, int32_t rank) {
    return tensor->rank == rank && memcmp(tensor->dims, dims, (size_t)rank * sizeof *dims) == 0;
}

typedef struct weft_tensor_file {
    char *path;
    unsigned char *map; /* touched pages count as this process's memory */
    size_t bytes;
    int descriptor;
} weft_tensor_file;

typedef struct weft_safetensors {
    weft_tensor_file *files;
    int32_t n_files;
    weft_tensor *tensors; /* by name, ascending */
    int32_t n_tensors;
    struct weft_ahead *ahead; /* NULL: no read-ahead thread */
} weft_safetensors;

/* Fails with WEFT_E_DATA and "FILE: tensor 'NAME' ..." */
weft_status weft_tensor_reject(const weft_safetensors *self, const weft_tensor *tensor, weft_error *err,
                               const char *format, ...) WEFT_PRINTF(4, 5);

/* Opens one file. WEFT_E_DATA: malformed. */
weft_status weft_safetensors_open(weft_safetensors **out, const char *path, weft_error *err);

/* Opens a Hugging Face directory: model.safetensors, or the files that model.safetensors.index.json names. Each file
 * must hold exactly the tensors of the index. Matrices in the bitsandbytes format are returned as the blocks of
 * weft/blocks.h, one tensor for each matrix (base/bitsandbytes.c). */
weft_status weft_safetensors_open_directory(weft_safetensors **out, const char *directory, weft_error *err);

void weft_safetensors_close(weft_safetensors *self); /* NULL is fine */
/* Restores the order of `tensors` after names have changed. */
void weft_safetensors_sort(weft_safetensors *self);

/* Returns NULL if the name is missing. */
const weft_tensor *weft_safetensors_find(const weft_safetensors *self, const char *name);

/* Starts a thread that reads all files into the page cache in order (below) until they are closed. For callers
 * that read all data in that order. Later calls have no effect. */
void weft_safetensors_read_ahead(weft_safetensors *self);

/* Copies bytes [offset, offset + bytes) of a tensor from the file with read, not through the map. WEFT_E_DATA: the file
 * has become shorter. [any-thread] */
weft_status weft_safetensors_read(const weft_safetensors *self, void *out, const weft_tensor *tensor, int64_t offset,
                                  int64_t bytes, weft_error *err);

/* ---- read-ahead: a thread that reads files into the page cache from front to back, ahead of their readers ----
 *
 * Threads that read alternate parts of a file restart the kernel's read-ahead window again and again: 1 GB took 1.3 s
 * instead of 0.45 s. So this thread reads the files in order, and readers wait until it has passed the bytes they need.
 * If it fails, readers continue without it. */

typedef struct weft_ahead weft_ahead;

/* Starts with the first file, and reads at most `lead` bytes past the highest offset that a reader has waited for.
 * Opens each file again by its path, so the files must stay. Returns NULL if no thread can be created. */
weft_ahead *weft_ahead_start(const weft_tensor_file *files, int32_t n, int64_t lead);
/* Waits until the first `end` bytes of a file are cached, or the thread has given up on them. self may be NULL.
 * [any-thread] */
void weft_ahead_wait(weft_ahead *self, int32_t file, int64_t end);
void weft_ahead_stop(weft_ahead *self); /* stops early if necessary; NULL is fine */

/* ---- matrices in the bitsandbytes format (bitsandbytes.c) ---- */

/* A matrix stored as separate code and scale tensors. */
typedef struct weft_joined {
    int32_t dtype;         /* of the blocks: WEFT_NF4, WEFT_NF4X64 or WEFT_I8X64 */
    int64_t rows, columns; /* of the matrix */
    weft_tensor codes;     /* 4-bit: two a byte, the first in the upper half, of any dtype; int8: one a byte */
    weft_tensor scales;    /* nf4: one code per `each` numbers; nf4x64: one fp32; int8: a row's largest |x|, fp32 */
    weft_tensor shared;    /* nf4: one scale per `among` scales, fp32 */
    int64_t each, among;   /* nf4: multiples of 64, each * among a multiple of the block; int8: each = columns */
    float added;           /* nf4: offset added to every scale */
} weft_joined;

/* Replaces the tensors of each such matrix by one joined tensor. */
weft_status weft_bitsandbytes_join(weft_safetensors *self, weft_error *err);

/* Reads bytes [offset, offset + bytes) of its blocks. [any-thread] */
weft_status weft_joined_read(const weft_safetensors *files, void *out, const weft_joined *self, int64_t offset,
                             int64_t bytes, weft_error *err);

/* Frees self and the names of its tensors; NULL is fine. */
void weft_joined_free(weft_joined *self);

/* ---- writing ---- */

typedef struct weft_tensor_spec {
    const char *name;
    int32_t dtype, rank;
    int64_t dims[WEFT_TENSOR_RANK];
} weft_tensor_spec;

typedef struct weft_tensor_writer weft_tensor_writer; /* one file that is being written */

/* Creates the file (which must not exist), writes its header and reserves its full size, so that a full disk fails
 * before any data is written. The layout depends only on the list: larger elements first, otherwise list order. On
 * failure the file is removed. creates false: opens a file that another process has created with the same list, to
 * write to it from this process too. */
weft_status weft_tensor_writer_open(weft_tensor_writer **out, const char *path, const weft_tensor_spec *specs,
                                    int32_t n, bool creates, weft_error *err);

/* Returns the offset of a tensor in bytes from the start of the file. */
int64_t weft_tensor_writer_offset(const weft_tensor_writer *self, int32_t tensor);

/* Writes bytes at a file offset within the tensor data; otherwise as weft_tensor_writer_write. [any-thread] */
weft_status weft_tensor_writer_put(weft_tensor_writer *self, int64_t offset, const void *data, int64_t bytes,
                                   weft_error *err);

/* Writes bytes [offset, offset + bytes) of a tensor, in any order and from several threads at once. Bytes never written
 * are zero. [any-thread] */
weft_status weft_tensor_writer_write(weft_tensor_writer *self, int32_t tensor, int64_t offset, const void *data,
                                     int64_t bytes, weft_error *err);

/* Syncs and closes the file. Always releases self. The caller makes the name durable. */
weft_status weft_tensor_writer_finish(weft_tensor_writer *self, weft_error *err);

/* Closes the file and keeps it as it is. NULL is fine. */
void weft_tensor_writer_cancel(weft_tensor_writer *self);

#endif
