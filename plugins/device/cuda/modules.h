/* modules.h: optimizer code compiled at the start of a run; shared by update.c, modules.c and cache.c. measure.c stores
 * algorithms in the same cache. */
#ifndef WEFT_DEVICE_CUDA_MODULES_H
#define WEFT_DEVICE_CUDA_MODULES_H

#include "cuda.h"

/* ---- modules.c ---- */

/* weft_dtype of the stored weight and states; 0: the kernel has no such state. copy: weft_dtype of the copies of
 * weights, which some regions may lack; 0: none has one. rows: capacity of a launch's table of regions, CUDA_UPDATE_FEW
 * or CUDA_UPDATE_MANY. */
typedef struct cuda_update_types {
    int32_t weight, states[WEFT_MAX_STATES], copy, rows;
} cuda_update_types;

/* Returns the function CUDA_UPDATE of the kernel's module for these types, compiled or read from the cache on first
 * use. A dry run compiles it, to report errors in the body, but loads nothing and leaves *out unchanged. */
weft_status cuda_module_find(CUfunction *out, weft_device *device, const weft_elementwise *kernel,
                             const cuda_update_types *types, weft_error *err);

/* Returns the largest table of regions that the driver passes to a kernel. */
int32_t cuda_update_most(const weft_device *device);

/* ---- update_source.c ---- */

#define CUDA_UPDATE         "weft_update"
#define CUDA_UPDATE_THREADS 256
#define CUDA_UPDATE_BLOCK   1024 /* elements: four per thread, in one access if aligned */

/* The table is a kernel parameter. All parameters together have 4 KiB on every driver and 32,764 bytes from CUDA 12.1
 * on. A launch with few regions uses the smaller table. */
#define CUDA_UPDATE_FEW  46
#define CUDA_UPDATE_MANY 370

/* NVRTC options except the architecture. No FMA contraction, to match the CPU's loop. */
#define CUDA_UPDATE_OPTIONS 2
extern const char *const cuda_update_options[CUDA_UPDATE_OPTIONS];

/* Returns the source to compile: the author's body inside a kernel. The caller frees it; NULL: out of memory. */
char *cuda_update_source(const weft_elementwise *kernel, const cuda_update_types *types);

/* ---- update_stored.c ---- */

/* True if some type is not fp32. */
bool cuda_update_is_narrow(const cuda_update_types *types);
/* Writes the kernel for such types, after the body. */
void cuda_update_write_stored(FILE *to, const cuda_update_types *types);

/* Returns the cache directory, "": no caching. Logs once if cache = auto found no directory. */
const char *cuda_cache_directory(const weft_device *device);

/* ---- cache.c: one file per hash of its inputs ---- */

/* Returns the contents of the hash's file, which the caller frees; NULL if it is missing or damaged. */
void *cuda_cache_read(const char *directory, const char *hash, size_t *size);
/* Writes the file atomically. False: it could not be written. */
bool cuda_cache_write(const char *directory, const char *hash, const void *bytes, size_t size);
/* Creates the directory and its missing parents. */
bool cuda_cache_make(char *path);
/* Finds the user's cache directory and creates it if missing. False: there is no such directory; out is empty. */
bool cuda_cache_find(char *out, size_t size);
/* SHA-256 in hexadecimal. False: the library has no such hash. */
bool cuda_cache_hash(char out[65], const void *bytes, size_t size);

#endif
