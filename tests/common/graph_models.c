/* tests/common/graph_models.c: see graph_models.h. */
#include "graph_models.h"

#include <math.h>

const rig_weight rig_language_weights[] = {
    {"embed.weight", WEFT_WEIGHT_EMBEDDING, RIG_V, RIG_D},
    {"norm1.weight", WEFT_WEIGHT_GAIN, RIG_D, RIG_D},
    {"q.weight", WEFT_WEIGHT_LINEAR, RIG_HEADS *RIG_HEAD, RIG_D},
    {"k.weight", WEFT_WEIGHT_LINEAR, RIG_KV_HEADS *RIG_HEAD, RIG_D},
    {"v.weight", WEFT_WEIGHT_LINEAR, RIG_KV_HEADS *RIG_HEAD, RIG_D},
    {"o.weight", WEFT_WEIGHT_LINEAR, RIG_D, RIG_HEADS *RIG_HEAD},
    {"norm2.weight", WEFT_WEIGHT_GAIN, RIG_D, RIG_D},
    {"gate.weight", WEFT_WEIGHT_LINEAR, RIG_F, RIG_D},
    {"up.weight", WEFT_WEIGHT_LINEAR, RIG_F, RIG_D},
    {"down.weight", WEFT_WEIGHT_LINEAR, RIG_D, RIG_F},
    {"norm.weight", WEFT_WEIGHT_GAIN, RIG_D, RIG_D},
    {0},
};

weft_value rig_rotate(const rig *r, weft_graph *g, const weft_ops *ops, weft_value x, int64_t heads) {
    const weft_rope_args args = {(uint32_t)sizeof args, 0, heads, RIG_HEAD};
    return ops->rope(g, x, ops->positions(g), r->table, &args);
}

weft_value rig_attend(weft_graph *g, const weft_ops *ops, weft_value q, weft_value k, weft_value v, int64_t heads,
                      int64_t kv_heads) {
    const weft_attention_args args = {(uint32_t)sizeof args,       0, heads, kv_heads, RIG_HEAD,
                                      1.0 / sqrt((double)RIG_HEAD)};
    return ops->attention(g, q, k, v, ops->starts(g), &args);
}

weft_value rig_attention_block(const rig *r, weft_graph *g, const weft_ops *ops, weft_value x) {
    const weft_value h = ops->rms_norm(g, x, r->weights[1], 1e-5);
    const weft_value q = rig_rotate(r, g, ops, ops->linear(g, h, r->weights[2]), RIG_HEADS);
    const weft_value k = rig_rotate(r, g, ops, ops->linear(g, h, r->weights[3]), RIG_KV_HEADS);
    const weft_value v = ops->linear(g, h, r->weights[4]);
    const weft_value o = rig_attend(g, ops, q, k, v, RIG_HEADS, RIG_KV_HEADS);
    return ops->add(g, x, ops->linear(g, o, r->weights[5]));
}

weft_value rig_mlp_block(const rig *r, weft_graph *g, const weft_ops *ops, weft_value x) {
    const weft_value h = ops->rms_norm(g, x, r->weights[6], 1e-5);
    const weft_value gate = ops->linear(g, h, r->weights[7]), up = ops->linear(g, h, r->weights[8]);
    const weft_value y = ops->swiglu(g, gate, up);
    return ops->add(g, x, ops->linear(g, y, r->weights[9]));
}

/* A whole language model, tied, in four segments. */
weft_value rig_language_forward(const rig *r, uint32_t s, weft_graph *g, const weft_ops *ops, weft_value carry) {
    const weft_value none = {0};
    if (s == 0) return ops->embedding(g, ops->ids(g), r->weights[0]);
    if (s == 1) return rig_attention_block(r, g, ops, carry);
    if (s == 2) return rig_mlp_block(r, g, ops, carry);
    ops->lm_head(g, ops->rms_norm(g, carry, r->weights[10], 1e-5), r->weights[0]);
    return none;
}

const rig_model rig_language_model = {.name = "tied model",
                                      .weights = rig_language_weights,
                                      .carry_width = RIG_D,
                                      .table_width = RIG_HEAD,
                                      .n_segments = 4,
                                      .forward = rig_language_forward};

weft_value rig_language_whole(const rig *r, uint32_t s, weft_graph *g, const weft_ops *ops, weft_value carry) {
    const weft_value none = {0};
    (void)s;
    carry = ops->embedding(g, ops->ids(g), r->weights[0]);
    carry = rig_mlp_block(r, g, ops, rig_attention_block(r, g, ops, carry));
    ops->lm_head(g, ops->rms_norm(g, carry, r->weights[10], 1e-5), r->weights[0]);
    return none;
}
