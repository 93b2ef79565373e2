/* host/graph/prefix.h: device calls for attention over a prefix's keys, shared by graph/prefix.c and, where one softmax
 * covers prefix and sequence, graph/attention.c. */
#ifndef WEFT_HOST_GRAPH_PREFIX_H
#define WEFT_HOST_GRAPH_PREFIX_H

#include "graph/record.h"

/* The node's inputs that belong to the prefix. */
typedef struct weft_prefix_inputs {
    weft_value q, k, v;
    bool join; /* the kernel continues from the given o and lse */
} weft_prefix_inputs;

/* Checks that keys and values have the same number of positions and the head shape of the node's attention. */
weft_status weft_prefix_infer(const weft_graph *graph, const weft_node *node, int32_t k, int32_t v, weft_error *err);
/* lse 0: not stored. */
void weft_prefix_forward(weft_lowering *lowering, const weft_node *node, const weft_prefix_inputs *inputs, int32_t o,
                         int32_t lse);
/* dq: storage for the gradient of q; 0: not computed. The kernel reads the node's output and statistic from forward. */
void weft_prefix_backward(weft_lowering *lowering, const weft_node *node, const weft_prefix_inputs *inputs, int32_t dq,
                          int32_t accumulate_dq);

#endif
