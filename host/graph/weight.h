/* host/graph/weight.h: matmuls and embedding lookups over a weight object.
 *
 * Only this module knows how a weight object's matrix is stored, dense or packed. */
#ifndef WEFT_HOST_GRAPH_WEIGHT_H
#define WEFT_HOST_GRAPH_WEIGHT_H

#include "graph/record.h"

/* Returns the storage of the values: (out, in), or (in, out) if transposed, in the graph's dtype or packed; a gain (in)
 * in fp32. */
int32_t weft_weight_values(weft_lowering *lowering, const weft_weight *weight);
/* Returns the storage of the fp32 bias; 0: no bias. */
int32_t weft_weight_bias(weft_lowering *lowering, const weft_weight *weight);
/* True if any parameter of the weight is trained. */
bool weft_weight_trains(const weft_graph *graph, const weft_weight *weight);
/* Return the storage for the complete gradient of the weight's matrix or gain, and of its bias; set the kernel's flag
 * *accumulate. 0: frozen or absent. */
int32_t weft_weight_gradient(weft_lowering *lowering, const weft_weight *weight, int32_t *accumulate);
int32_t weft_weight_bias_gradient(weft_lowering *lowering, const weft_weight *weight, int32_t *accumulate);

/* y (m, out) = x W^T + bias, in dtype_y, for m rows of x with a distance of `stride` elements; the first row starts at
 * element `offset` of the storage. */
void weft_weight_product(weft_lowering *lowering, const weft_weight *weight, int32_t y, int32_t dtype_y, int32_t x,
                         int64_t m, int64_t stride, int64_t offset);
/* dx (m, in) (+)= dy W */
void weft_weight_product_dx(weft_lowering *lowering, const weft_weight *weight, int32_t dx, int32_t accumulate,
                            int32_t dy, int64_t m);
/* dW (+)= dy^T x in the layout of W, and for the bias the sum of dy's rows, in fp32. Skips frozen parameters. */
void weft_weight_product_dw(weft_lowering *lowering, const weft_weight *weight, int32_t dy, weft_value x, int64_t m);

/* Runs after the complete backward: adds gradients that were accumulated in scratch, and zeroes gradients that received
 * no contribution. */
void weft_weight_finish_gradients(weft_lowering *lowering);

#endif
