/* host/run/validate_micro_batch.h: what a data plugin hands over is judged before it is used: what it gets wrong
 * would otherwise be a wrong loss, in silence, or memory that is not there. */
#ifndef WEFT_HOST_RUN_VALIDATE_MICRO_BATCH_H
#define WEFT_HOST_RUN_VALIDATE_MICRO_BATCH_H

#include "program/plan.h"
#include <weft/data.h>

/* Byte with which a micro-batch's arrays are filled before they are handed over: as an id, a start or a position it
 * is -1, as a weight no number. What a plugin leaves out is found by that. */
#define WEFT_MICRO_BATCH_POISON 0xFF

/* What a micro-batch may be. */
typedef struct weft_micro_batch_bounds {
    int64_t vocabulary; /* ids are below */
    int64_t positions;  /* positions are below */
    const int32_t *lengths;
    int32_t n_lengths;
} weft_micro_batch_bounds;
weft_micro_batch_bounds weft_micro_batch_bounds_of(const weft_plan *plan);

/* Rows as requested, a declared length, targets that have room. [any-thread] */
weft_status weft_micro_batch_validate_shape(const weft_micro_batch *micro_batch,
                                            const weft_micro_batch_request *request,
                                            const weft_micro_batch_bounds *bounds, weft_error *err);

/* asked: the micro-batch as it was handed over. Its arrays, its shape, and the content of every place: ids and
 * targets of the vocabulary, weights that are numbers of 0 or more and not 0 as often as n_targets says, starts that
 * are their own place or the start of the place before, positions within the model's tables. err names split, row
 * and place. [any-thread] */
weft_status weft_micro_batch_validate(const weft_micro_batch *micro_batch, const weft_micro_batch *asked,
                                      const weft_micro_batch_request *request, const weft_micro_batch_bounds *bounds,
                                      weft_error *err);

#endif
