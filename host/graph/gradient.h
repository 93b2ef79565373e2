/* host/graph/gradient.h: where gradients lie while the backward is written.
 *
 * The nodes are walked from the last to the first. A value's gradient is the sum of what its readers contribute, in
 * that order: the first contribution writes, later ones add. Where a contribution is another gradient unchanged (an
 * addition's), both values hold one storage, and it is copied only if one of them has more to add. */
#ifndef WEFT_HOST_GRAPH_GRADIENT_H
#define WEFT_HOST_GRAPH_GRADIENT_H

#include "graph/record.h"

/* The gradient that has been gathered for a value; 0: none, nothing above depends on it. */
int32_t weft_gradient_of(const weft_lowering *lowering, weft_value value);

/* Where a kernel that can add puts its contribution; *accumulate is what its flag must be. 0: not wanted. */
int32_t weft_gradient_target(weft_lowering *lowering, weft_value value, int32_t *accumulate);

/* The same for a kernel whose result may lie on its operand `over`, a gradient that nothing reads afterwards. */
int32_t weft_gradient_target_over(weft_lowering *lowering, weft_value value, int32_t over, int32_t *accumulate);

/* Where a kernel that only overwrites puts its contribution: bracket its call with begin, for each input, and end. */
int32_t weft_gradient_begin(weft_lowering *lowering, weft_value value);
/* The same for a kernel that makes all of its gradients or none: one that nobody wants goes to scratch. */
int32_t weft_gradient_begin_always(weft_lowering *lowering, weft_value value);
void weft_gradient_end(weft_lowering *lowering, weft_value value, int32_t begun);

/* The contribution is the gradient in `storage` as it is. */
void weft_gradient_share(weft_lowering *lowering, weft_value value, int32_t storage);

/* The node that makes `value` has read its gradient: nothing else will. */
void weft_gradient_release(weft_lowering *lowering, weft_value value);

#endif
