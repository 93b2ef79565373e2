/* host/model/boundary_pages.h: assigns the bytes of a safetensors file to the ranks that write them.
 *
 * An extent is a contiguous part of a tensor that one rank stores. Extents cover the file in order; the first is the
 * header, written by rank 0. Processes that write to one page of a file through different mounts may overwrite each
 * other's bytes. So one rank writes a boundary page (4 KiB): the lowest rank that has bytes of it. The other ranks send
 * their bytes to it. All ranks note all parts in the same order; a rank keeps its own parts until the next exchange. */
#ifndef WEFT_HOST_MODEL_BOUNDARY_PAGES_H
#define WEFT_HOST_MODEL_BOUNDARY_PAGES_H

#include "model/process_group.h"
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

enum { WEFT_BOUNDARY_PAGES = 128 }; /* parts between two exchanges */

typedef struct weft_boundary_page {
    int32_t from, to;
    int64_t at; /* offset in the file */
    int32_t bytes;
} weft_boundary_page;

typedef struct weft_boundary_pages {
    const weft_process_group *peers;
    weft_boundary_page *items;     /* [WEFT_BOUNDARY_PAGES] parts that this rank sends or receives */
    int32_t n, noted;              /* noted: parts of all ranks */
    char *kept, *sent, *received;  /* [WEFT_BOUNDARY_PAGES][WEFT_PAGE]; kept: in the order of items */
    weft_message_buffer *in, *out; /* [world] */
} weft_boundary_pages;

/* peers must have more than one rank. */
void weft_boundary_pages_open(weft_boundary_pages *self, const weft_process_group *peers);
void weft_boundary_pages_close(weft_boundary_pages *self); /* a zeroed one is allowed */

/* bytes: NULL if this rank does not store the part. */
void weft_boundary_pages_note(weft_boundary_pages *self, const weft_part *part, int32_t from, const void *bytes);

/* Exchanges the noted parts, calls `put` for each received part, and clears the list. [collective] */
typedef void weft_boundary_pages_put(void *context, int64_t at, const void *bytes, int64_t n);
weft_status weft_boundary_pages_exchange(weft_boundary_pages *self, weft_boundary_pages_put *put, void *context,
                                         weft_error *err);

#endif
