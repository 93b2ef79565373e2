/* host/run/norm.h: the norm of the whole gradient, with the same bits however it is cut.
 *
 * The sum of a tensor's squares is a tree over its grid cells (weft_square_sum). Where the gradient is cut, each rank
 * sums its own cells, the cells' sums go round, and every rank adds them up by the same tree. The losses of the
 * micro-batches go round with them. */
#ifndef WEFT_HOST_RUN_NORM_H
#define WEFT_HOST_RUN_NORM_H

#include "run/stepper.h"

/* Gradient sums to norm, coefficient and skip; losses of the pass to all ranks. [collective] */
weft_status weft_norm_run(weft_stepper *self, weft_slot_ref work, int32_t slot, weft_error *err);
/* The losses of a pass alone. [collective] */
weft_status weft_norm_losses(weft_stepper *self, weft_error *err);

#endif
