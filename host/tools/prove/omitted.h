/* host/tools/prove/omitted.h: what a proof leaves out, and why: for people and programs. */
#ifndef WEFT_HOST_TOOLS_PROVE_OMITTED_H
#define WEFT_HOST_TOOLS_PROVE_OMITTED_H

#include "tools/prove/grid.h"

enum { WEFT_MOST_OMITTED = 8, WEFT_OMITTED_SIZE = 800 };

/* Each without "left out: " in front: "mp on 3, 4 ranks: ...". */
typedef struct weft_omitted {
    char text[WEFT_MOST_OMITTED][WEFT_OMITTED_SIZE];
    int32_t n;
} weft_omitted;

void weft_omitted_say(weft_omitted *self, const char *format, ...) WEFT_PRINTF(2, 3);

/* missing: strategies that no plugin is found of. alone: why there is one rank; "": one was asked for. micro_batch:
 * rows of a micro-batch. */
void weft_omitted_find(weft_omitted *out, const weft_grid_spec *spec, const char *missing, const char *alone,
                       int64_t micro_batch);

#endif
