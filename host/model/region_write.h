/* host/model/region_write.h: parameters of a region as one safetensors file, written by all ranks that keep them.
 *
 * Each rank converts and writes what it keeps, straight into the final file, and hashes it on the way: a grid cell of a
 * tensor has one owner, so only hashes of cells go to rank 0, which makes a tensor's root of them, SHA-256 over them in
 * order. What any rank takes for this is bounded, whatever the sizes of the model, the file and the grid. */
#ifndef WEFT_HOST_MODEL_REGION_WRITE_H
#define WEFT_HOST_MODEL_REGION_WRITE_H

#include "model/region.h"

/* Is told, on rank 0, what each tensor of a file came to. */
typedef struct weft_roots {
    weft_status (*tell)(void *context, const char *path, const char *tensor, const char hex[65], weft_error *err);
    void *context;
} weft_roots;

/* The file is whole and synced when this succeeds. roots: NULL where nobody wants hashes. [collective] */
weft_status weft_region_write(const weft_region_file *file, const weft_roots *roots, weft_error *err);

#endif
