/* host/model/boundary_pages.h: exchanges boundary pages: parts of pages are sent to the rank that writes the page
 * (file_extent.h). All ranks note all parts in the same order. A rank keeps its own parts until the next exchange. */
#ifndef WEFT_HOST_MODEL_BOUNDARY_PAGES_H
#define WEFT_HOST_MODEL_BOUNDARY_PAGES_H

#include "model/process_group.h"
#include "model/file_extent.h"

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
    char *kept, *goes, *comes;     /* [WEFT_BOUNDARY_PAGES][WEFT_PAGE]; kept: in the order of items */
    weft_message_buffer *in, *out; /* [world] */
} weft_boundary_pages;

/* peers must have more than one rank. */
weft_status weft_boundary_pages_open(weft_boundary_pages *self, const weft_process_group *peers, weft_error *err);
void weft_boundary_pages_close(weft_boundary_pages *self); /* a zeroed one is allowed */

/* bytes: NULL if this rank does not store the part. */
void weft_boundary_pages_note(weft_boundary_pages *self, const weft_part *part, int32_t from, const void *bytes);

/* Exchanges the noted parts, calls `put` for each received part, and clears the list. [collective] */
typedef void weft_boundary_pages_put(void *context, int64_t at, const void *bytes, int64_t n);
weft_status weft_boundary_pages_exchange(weft_boundary_pages *self, weft_boundary_pages_put *put, void *context,
                                         weft_error *err);

#endif
