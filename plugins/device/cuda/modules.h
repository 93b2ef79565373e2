/* modules.h: code that is compiled while a run starts; of update.c, modules.c and cache.c. */
#ifndef WEFT_DEVICE_CUDA_MODULES_H
#define WEFT_DEVICE_CUDA_MODULES_H

#include "cuda.h"

/* ---- modules.c ---- */

/* weft_dtype in which weight and states are stored; 0: the kernel has no such state. rows: what a launch's table of
 * regions has room for, CUDA_UPDATE_FEW or CUDA_UPDATE_MANY. */
typedef struct cuda_update_types {
    int32_t weight, states[WEFT_MAX_STATES], rows;
} cuda_update_types;

/* The function CUDA_UPDATE of the kernel's module for these types, which is compiled, or found in the cache, when it is
 * first asked for. In a dry run that is all, so that a mistake in a body is told there: nothing is loaded, and *out is
 * left as it is. */
weft_status cuda_module_find(CUfunction *out, weft_device *device, const weft_elementwise *kernel,
                             const cuda_update_types *types, weft_error *err);

/* The largest table of regions that the driver passes to a kernel. */
int32_t cuda_update_most(const weft_device *device);

/* ---- update_source.c ---- */

#define CUDA_UPDATE         "weft_update"
#define CUDA_UPDATE_THREADS 256
#define CUDA_UPDATE_BLOCK   1024 /* elements: four of a thread's, in one access where they lie so */

/* The table is a parameter of the kernel. Those have 4 KiB together, which every driver takes, or 32,764 bytes from
 * CUDA 12.1 on: a launch that needs no more keeps to the former. */
#define CUDA_UPDATE_FEW  48
#define CUDA_UPDATE_MANY 400

/* How it is compiled, beside for which card: products are not joined with sums, as the CPU's loop does not. */
#define CUDA_UPDATE_OPTIONS 2
extern const char *const cuda_update_options[CUDA_UPDATE_OPTIONS];

/* The text that is compiled: the author's body, with a kernel around it. The caller frees it; NULL: no memory. */
char *cuda_update_source(const weft_elementwise *kernel, const cuda_update_types *types);

/* ---- update_stored.c ---- */

/* True: not all fp32. */
bool cuda_update_is_narrow(const cuda_update_types *types);
/* The kernel for such types, which goes behind the body. */
void cuda_update_write_stored(FILE *to, const cuda_update_types *types);

/* ---- cache.c: compiled code, each in a file of its own whose name is the hash of all that it was made from ---- */

/* Bytes that the hash's file holds, which the caller frees, or NULL: none, or a damaged one. */
void *cuda_cache_read(const char *directory, const char *hash, size_t *size);
/* The file appears whole or not at all. False: it could not be written. */
bool cuda_cache_write(const char *directory, const char *hash, const void *bytes, size_t size);
/* The directory and those above it, if they are not there. */
bool cuda_cache_make(char *path);
/* Where the user's cache lies, made if it was not there. False: there is no such place; out is empty. */
bool cuda_cache_find(char *out, size_t size);
/* SHA-256 in hexadecimal. False: the library gives none. */
bool cuda_cache_hash(char out[65], const void *bytes, size_t size);

#endif
