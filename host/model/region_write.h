/* host/model/region_write.h: writes parameters of a region as one safetensors file, by all ranks that store them.
 *
 * Each rank converts its elements, writes them directly to the final file, and hashes them. A grid cell of a tensor has
 * one owner, so only hashes of cells are sent to rank 0. The root of a tensor is the SHA-256 over its cell hashes in
 * order. The memory of each rank is bounded for any size of model, file and grid. */
#ifndef WEFT_HOST_MODEL_REGION_WRITE_H
#define WEFT_HOST_MODEL_REGION_WRITE_H

#include "model/region.h"

/* Receives the root hash of each tensor of a file, on rank 0. */
typedef struct weft_roots {
    weft_status (*tell)(void *context, const char *path, const char *tensor, const char hex[65], weft_error *err);
    void *context;
} weft_roots;

/* Writes the file. On success it is complete and synced. roots: NULL if hashes are not required. [collective] */
weft_status weft_region_write(const weft_region_file *file, const weft_roots *roots, weft_error *err);

#endif
