/* host/graph/calls.h: the device calls of a pass over a graph, for timing and cost reports. */
#ifndef WEFT_HOST_GRAPH_CALLS_H
#define WEFT_HOST_GRAPH_CALLS_H

#include "graph/graph.h"

enum { WEFT_CALL_PRODUCTS = 3 };

/* C (m,n) = op(A) op(B) with inner dimension k. */
typedef struct weft_product_shape {
    int64_t m, n, k;
    bool transpose_a, transpose_b;
} weft_product_shape;

typedef struct weft_call weft_call; /* lower.h */

/* Describes a call. The strings live as long as the program, or as the plugin that owns the operator. */
typedef struct weft_call_info {
    const char *operation; /* "linear"; the call's own name if it belongs to no operator: "add" */
    const char *part;      /* "forward", "recompute", "backward", "input gradient", "weight gradient" */
    const char *label;     /* "q_proj", or empty; owned by the graph */
    bool recompute;        /* the call recomputes activations (activation checkpointing) */
    double flops;          /* matmuls and attention (causal counted by half); else 0 */
    double bytes;          /* memory traffic of the other calls; 0 where flops is set */
    int32_t n_products;
    weft_product_shape products[WEFT_CALL_PRODUCTS]; /* matmuls by the matrix library, without those inside attention */
} weft_call_info;

void weft_call_describe(weft_call_info *out, const weft_graph *graph, const weft_call *call);

/* Receives the duration of each call. With a sink in the binding, the host synchronizes after each call, so that the
 * duration is correct on asynchronous devices. Without a sink no time is measured. [main] */
struct weft_call_sink {
    void *context;
    void (*ran)(void *context, const weft_graph *graph, const weft_call *call, double seconds);
};

#endif
