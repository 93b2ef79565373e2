/* host/model/stretch.h: which rank writes which bytes of a safetensors file.
 *
 * A stretch is what one rank keeps of one tensor in one piece. Stretches cover the file in its order; the first is the
 * header, rank 0's. Processes that write to one page of a file each through its own mount may undo what the other wrote
 * there, so a page (4 KiB) that is cut is written by one rank alone, the lowest that has bytes of it; the others send
 * it theirs. */
#ifndef WEFT_HOST_MODEL_STRETCH_H
#define WEFT_HOST_MODEL_STRETCH_H

#include "model/region.h"

enum { WEFT_PAGE = 4096, WEFT_STRETCH_PARTS = 3 };

typedef struct weft_stretch {
    int32_t tensor;     /* -1: the header */
    int32_t keeper;     /* the rank */
    int64_t first, n;   /* elements of the tensor */
    int64_t begin, end; /* bytes of the file */
} weft_stretch;

typedef struct weft_stretches {
    weft_stretch *items;
    int32_t n;
} weft_stretches;

/* writer: of the same file. Alike on all ranks. The caller frees out->items, also on failure. */
weft_status weft_stretches_make(weft_stretches *out, const weft_region_file *file, const weft_tensor_writer *writer,
                                weft_error *err);

/* Bytes of the file that one rank puts there. */
typedef struct weft_part {
    int64_t begin, end;
    int32_t writer;
} weft_part;

/* Bytes [begin, end) of stretch i by who writes them, in their order. Returns how many parts there are. */
int weft_stretch_split(weft_part out[WEFT_STRETCH_PARTS], const weft_stretches *self, int32_t i, int64_t begin,
                       int64_t end);

#endif
