/* host/model/seams.h: exchanges boundary pages: parts of pages are sent to the rank that writes the page (stretch.h).
 * All ranks note all parts in the same order. A rank keeps its own parts until the next exchange. */
#ifndef WEFT_HOST_MODEL_SEAMS_H
#define WEFT_HOST_MODEL_SEAMS_H

#include "model/peers.h"
#include "model/stretch.h"

enum { WEFT_SEAMS = 128 }; /* parts between two exchanges */

typedef struct weft_seam {
    int32_t from, to;
    int64_t at; /* offset in the file */
    int32_t bytes;
} weft_seam;

typedef struct weft_seams {
    const weft_peers *peers;
    weft_seam *items;          /* [WEFT_SEAMS] parts that this rank sends or receives */
    int32_t n, noted;          /* noted: parts of all ranks */
    char *kept, *goes, *comes; /* [WEFT_SEAMS][WEFT_PAGE]; kept: in the order of items */
    weft_parcel *in, *out;     /* [world] */
} weft_seams;

/* peers must have more than one rank. */
weft_status weft_seams_open(weft_seams *self, const weft_peers *peers, weft_error *err);
void weft_seams_close(weft_seams *self); /* a zeroed one is allowed */

/* bytes: NULL if this rank does not store the part. */
void weft_seams_note(weft_seams *self, const weft_part *part, int32_t from, const void *bytes);

/* Exchanges the noted parts, calls `put` for each received part, and clears the list. [collective] */
typedef void weft_seams_put(void *context, int64_t at, const void *bytes, int64_t n);
weft_status weft_seams_exchange(weft_seams *self, weft_seams_put *put, void *context, weft_error *err);

#endif
