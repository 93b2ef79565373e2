/* host/run/leaf.h: the leaves of one step, as the data plugin gives them: how many targets they have, and one of them
 * put into the arrays of the host and into its slot. */
#ifndef WEFT_HOST_RUN_LEAF_H
#define WEFT_HOST_RUN_LEAF_H

#include "run/stepper.h"

/* Targets and places of all leaves of the pass: shapes alone, no leaf is made. */
weft_status weft_step_count(weft_stepper *self, weft_error *err);

/* Bytes of a leaf of the largest shape. */
int64_t weft_step_leaf_room(const weft_engine *engine);
/* All leaves that the pass touches into self->leaves, of weft_step_leaf_room each. wanted: [leaves] */
weft_status weft_step_make_leaves(weft_stepper *self, const bool *wanted, weft_error *err);

/* Puts leaf m into self->leaf and its slot; does nothing where they hold it already. */
weft_status weft_step_load_leaf(weft_stepper *self, int32_t m, weft_slot_ref slot, weft_error *err);

#endif
