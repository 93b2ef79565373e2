/* host/base/safetensors.h: named tensors in files, mapped or read by offset, and written by offset.
 *
 * A file is eight bytes of header length (little-endian), a JSON header, and data:
 *     {"__metadata__": {"format": "pt"}, "a.weight": {"dtype": "BF16", "shape": [3, 4], "data_offsets": [0, 24]}, ...}
 * where the offsets count from the end of the header and the tensors cover the data without gap or overlap. Everything
 * that is not so is refused with file and tensor; after a successful open each tensor's bytes are there and as many as
 * its shape needs. This stage knows nothing of models: which names and shapes are wanted is weights.c's affair. */
#ifndef WEFT_HOST_BASE_SAFETENSORS_H
#define WEFT_HOST_BASE_SAFETENSORS_H

#include <stdbool.h>
#include <weft/base.h>

enum { WEFT_TENSOR_RANK = 8 }; /* dimensions that a tensor may have */

/* "F32", "BF16", ...; "?" for an unknown type. [any-thread] */
const char *weft_tensor_dtype_name(int32_t dtype);

/* ---- reading ---- */

typedef struct weft_tensor {
    char *name;
    int32_t dtype; /* weft_dtype */
    int32_t rank;
    int64_t dims[WEFT_TENSOR_RANK];
    int64_t numel, bytes;
    const unsigned char *data; /* mapped, read-only, at any alignment */
    int32_t file;              /* index */
    /* NULL: these are the bytes of the file. Else they are put together as they are read (base/bitsandbytes.h), and
     * data is where most of what they are made of begins. */
    struct weft_joined *joined;
} weft_tensor;

typedef struct weft_tensor_file {
    char *path;
    unsigned char *map; /* its pages count as this process's memory once they are touched */
    size_t bytes;
    int descriptor;
} weft_tensor_file;

typedef struct weft_safetensors {
    weft_tensor_file *files;
    int32_t n_files;
    weft_tensor *tensors; /* by name, ascending */
    int32_t n_tensors;
    struct weft_ahead *ahead; /* NULL: nobody reads ahead */
} weft_safetensors;

/* One file. WEFT_E_DATA: malformed. */
weft_status weft_safetensors_open(weft_safetensors **out, const char *path, weft_error *err);

/* A Hugging Face directory: model.safetensors, or the files that model.safetensors.index.json names, each of which must
 * hold exactly what the index says. What bitsandbytes has packed is handed out as the blocks of weft/blocks.h: a
 * matrix and what belongs to it become one tensor (base/bitsandbytes.h). */
weft_status weft_safetensors_open_directory(weft_safetensors **out, const char *directory, weft_error *err);

void weft_safetensors_close(weft_safetensors *self); /* NULL is fine */

/* NULL: no tensor of that name. */
const weft_tensor *weft_safetensors_find(const weft_safetensors *self, const char *name);

/* Begins to bring all of the files into the kernel's cache, in their order (base/ahead.h), until they are closed: for
 * who is going to read all of it that way. Once begun it stays so. */
void weft_safetensors_read_ahead(weft_safetensors *self);

/* Bytes [offset, offset + bytes) of a tensor, copied from the file once and not through the map: for all of it, and in
 * the order of the file where that can be chosen. WEFT_E_DATA: the file has become shorter. [any-thread] */
weft_status weft_safetensors_read(const weft_safetensors *self, void *out, const weft_tensor *tensor, int64_t offset,
                                  int64_t bytes, weft_error *err);

/* ---- writing ---- */

typedef struct weft_tensor_spec {
    const char *name;
    int32_t dtype, rank;
    int64_t dims[WEFT_TENSOR_RANK];
} weft_tensor_spec;

typedef struct weft_tensor_writer weft_tensor_writer; /* one file that is being written */

/* Creates the file (which must not exist), writes its header and reserves its whole size, so that a full disk shows
 * before any data is written. Where each tensor lies follows from the list alone: larger elements first, else in the
 * order of the list. On failure the file is gone. */
weft_status weft_tensor_writer_create(weft_tensor_writer **out, const char *path, const weft_tensor_spec *specs,
                                      int32_t n, weft_error *err);

/* The same file for another process, which writes to it as well: it has been created there with the same list. */
weft_status weft_tensor_writer_join(weft_tensor_writer **out, const char *path, const weft_tensor_spec *specs,
                                    int32_t n, weft_error *err);

/* Where a tensor begins, and where the file ends, in bytes from the start of the file. */
int64_t weft_tensor_writer_offset(const weft_tensor_writer *self, int32_t tensor);
int64_t weft_tensor_writer_bytes(const weft_tensor_writer *self);

/* Bytes of the file, which lie in tensors; else as the next. [any-thread] */
weft_status weft_tensor_writer_put(weft_tensor_writer *self, int64_t offset, const void *data, int64_t bytes,
                                   weft_error *err);

/* Bytes [offset, offset + bytes) of a tensor, in any order and from several threads at once; what is never written is
 * zero. [any-thread] */
weft_status weft_tensor_writer_write(weft_tensor_writer *self, int32_t tensor, int64_t offset, const void *data,
                                     int64_t bytes, weft_error *err);

/* Syncs and closes. Whatever it returns, self is gone; making the name last is the caller's. */
weft_status weft_tensor_writer_finish(weft_tensor_writer *self, weft_error *err);

/* Gives up: closes and leaves the file as it is. NULL is fine. */
void weft_tensor_writer_cancel(weft_tensor_writer *self);

#endif
