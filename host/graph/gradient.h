/* host/graph/gradient.h: storage of gradients while the backward pass is written.
 *
 * The backward visits the nodes from last to first. The gradient of a value is the sum of its readers' contributions in
 * that order: the first contribution overwrites, later ones accumulate. A contribution may be another gradient
 * unchanged, as in an addition. Then both values share one storage, and the storage is copied only if one of them
 * receives a further contribution. */
#ifndef WEFT_HOST_GRAPH_GRADIENT_H
#define WEFT_HOST_GRAPH_GRADIENT_H

#include "graph/record.h"

/* Returns the storage of a value's accumulated gradient; 0 if the loss does not depend on the value. */
int32_t weft_gradient_of(const weft_lowering *lowering, weft_value value);

/* Returns the storage for the contribution of a kernel that can accumulate, and sets the kernel's flag *accumulate.
 * Returns 0 if the gradient is not required. */
int32_t weft_gradient_target(weft_lowering *lowering, weft_value value, int32_t *accumulate);

/* Does the same for a kernel that can work in place on its operand `over`, a gradient that no later call reads. */
int32_t weft_gradient_target_over(weft_lowering *lowering, weft_value value, int32_t over, int32_t *accumulate);

/* Returns the storage for the contribution of a kernel that only overwrites. Call begin for each input before the
 * kernel's call, and end for each input after it. */
int32_t weft_gradient_begin(weft_lowering *lowering, weft_value value);
/* Does the same for a kernel that always computes all its gradients: a gradient that is not required is written to
 * scratch. */
int32_t weft_gradient_begin_always(weft_lowering *lowering, weft_value value);
void weft_gradient_end(weft_lowering *lowering, weft_value value, int32_t begun);

/* Adds a contribution that equals the gradient in `storage`. */
void weft_gradient_share(weft_lowering *lowering, weft_value value, int32_t storage);

/* Releases the gradient of `value`: the node that computes `value` was its last reader. */
void weft_gradient_release(weft_lowering *lowering, weft_value value);

#endif
