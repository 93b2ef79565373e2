/* host/graph/adapt.h: runs an adapter's operators in place of the model's operator (weft/adapter.h). */
#ifndef WEFT_HOST_GRAPH_ADAPT_H
#define WEFT_HOST_GRAPH_ADAPT_H

#include "graph/record.h"

/* True if an adapter has claimed the weight and the caller is the model. Operators that the adapter itself records are
 * not adapted. */
static inline bool weft_adapts(const weft_graph *graph, const weft_weight *weight) {
    return weight != NULL && weight->claim != 0 && graph->adapting == 0 && graph->open;
}

weft_value weft_adapt_linear(weft_graph *graph, weft_value x, weft_weight *weight);
weft_value weft_adapt_embedding(weft_graph *graph, weft_value ids, weft_weight *table);

/* Returns the input of lm_head: x, or the adapter's replacement of it. */
weft_value weft_adapt_head(weft_graph *graph, weft_value x);

/* Returns 1 + the site of the model's next attention call if an adapter has claimed it, else 0. Counts the call. */
int32_t weft_adapts_attention(weft_graph *graph);
weft_value weft_adapt_attention(weft_graph *graph, int32_t claim, weft_value q, weft_value k, weft_value v,
                                weft_value starts, const weft_attention_args *args);

#endif
