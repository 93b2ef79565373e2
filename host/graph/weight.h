/* host/graph/weight.h: products and look-ups over a weight object.
 *
 * The one place that knows how a weight object's matrix is stored, dense or packed. */
#ifndef WEFT_HOST_GRAPH_WEIGHT_H
#define WEFT_HOST_GRAPH_WEIGHT_H

#include "graph/record.h"

/* The values: (out, in), or (in, out) if it is transposed, in the graph's dtype, or packed; (in) in fp32. */
int32_t weft_weight_values(weft_lowering *lowering, const weft_weight *weight);
/* The bias, in fp32; 0: it has none. */
int32_t weft_weight_bias(weft_lowering *lowering, const weft_weight *weight);
/* Is any of its parameters trained? */
bool weft_weight_trains(const weft_graph *graph, const weft_weight *weight);
/* Where a kernel puts the finished gradient of this weight's matrix or gain, and of its bias; *accumulate is what its
 * flag must be. 0: it is frozen, or there is none. */
int32_t weft_weight_gradient(weft_lowering *lowering, const weft_weight *weight, int32_t *accumulate);
int32_t weft_weight_bias_gradient(weft_lowering *lowering, const weft_weight *weight, int32_t *accumulate);

/* y (m, out) = x W^T + bias, in dtype_y, for m rows of x that lie `stride` elements apart, the first one `offset`
 * elements into its storage. */
void weft_weight_product(weft_lowering *lowering, const weft_weight *weight, int32_t y, int32_t dtype_y, int32_t x,
                         int64_t m, int64_t stride, int64_t offset);
/* dx (m, in) (+)= dy W */
void weft_weight_product_dx(weft_lowering *lowering, const weft_weight *weight, int32_t dx, int32_t accumulate,
                            int32_t dy, int64_t m);
/* dW (+)= dy^T x, lying as W does, and of the bias the sum of dy's rows, in fp32; nothing of what is frozen. */
void weft_weight_product_dw(weft_lowering *lowering, const weft_weight *weight, int32_t dy, weft_value x, int64_t m);

/* After the whole backward: adds what was formed apart, zeroes what nothing reached. */
void weft_weight_finish_gradients(weft_lowering *lowering);

#endif
