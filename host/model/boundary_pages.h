/* host/model/boundary_pages.h: assigns the bytes of a safetensors file to the ranks that write them.
 *
 * An extent is a contiguous part of a tensor that one rank stores. Extents cover the file in order; the first is the
 * header, written by rank 0. Processes that write to one page of a file through different mounts may overwrite each
 * other's bytes. So one rank writes a boundary page (4 KiB): the lowest rank that has bytes of it. The other ranks send
 * their bytes to it (region_write.c). */
#ifndef WEFT_HOST_MODEL_BOUNDARY_PAGES_H
#define WEFT_HOST_MODEL_BOUNDARY_PAGES_H

#include "model/region.h"

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
typedef struct weft_part {
    int64_t begin, end;
    int32_t writer;
} weft_part;

/* Divides bytes [begin, end) of extent i by the rank that writes them, in order. Returns the number of parts. */
int weft_file_extent_split(weft_part out[WEFT_FILE_EXTENT_PARTS], const weft_file_extents *self, int32_t i,
                           int64_t begin, int64_t end);

#endif
