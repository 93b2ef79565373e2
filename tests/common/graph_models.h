/* tests/common/graph_models.h: a small language model for graph tests, and its blocks. */
#ifndef WEFT_TESTS_GRAPH_MODELS_H
#define WEFT_TESTS_GRAPH_MODELS_H

#include "graph_rig.h"

enum { RIG_D = 8, RIG_F = 12, RIG_V = 11, RIG_HEADS = 4, RIG_KV_HEADS = 2, RIG_HEAD = 4 };

/* Embedding, attention block, MLP block and head, in one segment each. The head is tied to the embedding. */
extern const rig_weight rig_language_weights[];
extern const rig_model rig_language_model;
weft_value rig_language_forward(const rig *r, uint32_t segment, weft_graph *g, const weft_ops *ops, weft_value carry);

/* The same in one segment, which uses the embedding two times. */
weft_value rig_language_whole(const rig *r, uint32_t segment, weft_graph *g, const weft_ops *ops, weft_value carry);

/* All operator features of other families, in as many segments: learned positions, scaled embeddings, LayerNorm,
 * biases, head norms, gains stored relative to one, partial rotary embeddings, sliding window and soft cap of
 * attention, GELU, a scaled residual, and logits with bias, scale and soft cap. */
extern const rig_model rig_family_model;

weft_value rig_attention_block(const rig *r, weft_graph *g, const weft_ops *ops, weft_value x);
weft_value rig_mlp_block(const rig *r, weft_graph *g, const weft_ops *ops, weft_value x);
weft_value rig_rotate(const rig *r, weft_graph *g, const weft_ops *ops, weft_value x, int64_t heads);
weft_value rig_attend(weft_graph *g, const weft_ops *ops, weft_value q, weft_value k, weft_value v, int64_t heads,
                      int64_t kv_heads);

#endif
