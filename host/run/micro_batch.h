/* host/run/micro_batch.h: the micro-batches of one step, as the data plugin gives them: how many targets they have,
 * and one of them put into the arrays of the host and into its slot. */
#ifndef WEFT_HOST_RUN_MICRO_BATCH_H
#define WEFT_HOST_RUN_MICRO_BATCH_H

#include "run/stepper.h"

/* Targets and places of all micro-batches of the pass: shapes alone, no micro-batch is made. */
weft_status weft_step_count(weft_stepper *self, weft_error *err);

/* Bytes of a micro-batch of the largest shape. */
int64_t weft_step_micro_batch_room(const weft_engine *engine);
/* All micro-batches that the pass touches into self->micro_batches, of weft_step_micro_batch_room each. wanted:
 * [micro-batches] */
weft_status weft_step_make_micro_batches(weft_stepper *self, const bool *wanted, weft_error *err);

/* Puts micro-batch m into self->micro_batch and its slot; does nothing where they hold it already. */
weft_status weft_step_load_micro_batch(weft_stepper *self, int32_t m, weft_slot_ref slot, weft_error *err);

#endif
