/* host/graph/calls.h: the device calls that a pass over a graph consists of, for those who time and count them. */
#ifndef WEFT_HOST_GRAPH_CALLS_H
#define WEFT_HOST_GRAPH_CALLS_H

#include "graph/graph.h"

enum { WEFT_CALL_PRODUCTS = 3 };

/* C (m,n) = op(A) op(B), the inner dimension k. */
typedef struct weft_product_shape {
    int64_t m, n, k;
    bool transpose_a, transpose_b;
} weft_product_shape;

typedef struct weft_call weft_call; /* lower.h */

/* What a call is. The texts live as long as the program, or as the plugin whose operator it is. */
typedef struct weft_call_info {
    const char *operation; /* "linear"; of a call between operators its own name: "add" */
    const char *part;      /* "forward", "recompute", "backward", "input gradient", "weight gradient" */
    const char *label;     /* "q_proj", or empty; the graph's */
    bool recompute;        /* what it computes has been computed before */
    double flops;          /* products and attention, causal counted by half; else 0 */
    double bytes;          /* what the rest reads and writes; 0 where flops counts */
    int32_t n_products;
    weft_product_shape
        products[WEFT_CALL_PRODUCTS]; /* that the matrix library makes; attention's own are not among them */
} weft_call_info;

void weft_call_describe(weft_call_info *out, const weft_graph *graph, const weft_call *call);

/* Told after each call how long it took. With a sink in the binding each call is waited for, so that its time is its
 * own on a device that queues; without one nothing is measured. [main] */
struct weft_call_sink {
    void *context;
    void (*ran)(void *context, const weft_graph *graph, const weft_call *call, double seconds);
};

#endif
