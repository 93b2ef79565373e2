/* host/graph/prefix.h: a call over the keys of a prefix, for the operators that have one: ops/prefix.c and, where
 * one softmax goes over both, ops/attention.c. */
#ifndef WEFT_HOST_GRAPH_PREFIX_H
#define WEFT_HOST_GRAPH_PREFIX_H

#include "graph/record.h"

/* Which inputs of the node are the prefix's. */
typedef struct weft_prefix_inputs {
    weft_value q, k, v;
    bool join; /* the kernel goes on from o and lse */
} weft_prefix_inputs;

/* Keys and values of one number of places, and heads as the node's attention has them. */
weft_status weft_prefix_infer(const weft_graph *graph, const weft_node *node, int32_t k, int32_t v, weft_error *err);
/* lse 0: not kept. */
void weft_prefix_forward(weft_lowering *lowering, const weft_node *node, const weft_prefix_inputs *inputs, int32_t o,
                         int32_t lse);
/* dq: where the gradient of q goes, 0: nowhere; what is kept of forward is the node's output and statistic. */
void weft_prefix_backward(weft_lowering *lowering, const weft_node *node, const weft_prefix_inputs *inputs, int32_t dq,
                          int32_t accumulate_dq);

#endif
