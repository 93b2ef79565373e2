/* host/graph/adapt.h: what an adapter records in place of an operator of the model's (weft/adapter.h). */
#ifndef WEFT_HOST_GRAPH_ADAPT_H
#define WEFT_HOST_GRAPH_ADAPT_H

#include "graph/record.h"

/* Whether the adapter is to be asked: it has claimed the weight, and it is the model that calls. */
static inline bool weft_adapts(const weft_graph *graph, const weft_weight *weight) {
    return weight != NULL && weight->claim != 0 && graph->adapting == 0 && graph->open;
}

weft_value weft_adapt_linear(weft_graph *graph, weft_value x, weft_weight *weight);
weft_value weft_adapt_embedding(weft_graph *graph, weft_value ids, weft_weight *table);

/* What the head reads: x, or what the adapter makes of it. */
weft_value weft_adapt_head(weft_graph *graph, weft_value x);

/* 1 + the site of the model's next call of attention, where the adapter has claimed that; else 0. Counts the call. */
int32_t weft_adapts_attention(weft_graph *graph);
weft_value weft_adapt_attention(weft_graph *graph, int32_t claim, weft_value q, weft_value k, weft_value v,
                                weft_value starts, const weft_attention_args *args);

#endif
