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
    const weft_rope_args args = {.struct_size = (uint32_t)sizeof args, .heads = heads, .head_dim = RIG_HEAD};
    return ops->rope(g, x, ops->positions(g), r->table, &args);
}

weft_value rig_attend(weft_graph *g, const weft_ops *ops, weft_value q, weft_value k, weft_value v, int64_t heads,
                      int64_t kv_heads) {
    const weft_attention_args args = {.struct_size = (uint32_t)sizeof args,
                                      .heads = heads,
                                      .kv_heads = kv_heads,
                                      .head_dim = RIG_HEAD,
                                      .scale = 1.0 / sqrt((double)RIG_HEAD)};
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

/* A complete language model, tied, in four segments. */
weft_value rig_language_forward(const rig *r, uint32_t s, weft_graph *g, const weft_ops *ops, weft_value carry) {
    const weft_value none = {0};
    if (s == 0) return ops->embedding(g, ops->ids(g), r->weights[0]);
    if (s == 1) return rig_attention_block(r, g, ops, carry);
    if (s == 2) return rig_mlp_block(r, g, ops, carry);
    ops->lm_head(g, ops->rms_norm(g, carry, r->weights[10], 1e-5), r->weights[0], NULL);
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
    ops->lm_head(g, ops->rms_norm(g, carry, r->weights[10], 1e-5), r->weights[0], NULL);
    return none;
}

enum { PLACES = 24 }; /* size of the family's position table */
enum { EMBED, PLACE, NORM1, QUERY, KEY, VALUE, QUERY_NORM, OUT, NORM2, GATE, UP, DOWN, HEAD };

static const rig_weight family_weights[] = {
    [EMBED] = {"embed.weight", WEFT_WEIGHT_EMBEDDING, RIG_V, RIG_D},
    [PLACE] = {"place.weight", WEFT_WEIGHT_EMBEDDING, PLACES, RIG_D},
    [NORM1] = {"norm1.weight", WEFT_WEIGHT_GAIN, RIG_D, RIG_D},
    [QUERY] = {"q.weight", WEFT_WEIGHT_LINEAR, RIG_HEADS *RIG_HEAD, RIG_D},
    [KEY] = {"k.weight", WEFT_WEIGHT_LINEAR, RIG_KV_HEADS *RIG_HEAD, RIG_D},
    [VALUE] = {"v.weight", WEFT_WEIGHT_LINEAR, RIG_KV_HEADS *RIG_HEAD, RIG_D},
    [QUERY_NORM] = {"q_norm.weight", WEFT_WEIGHT_GAIN, RIG_HEAD, RIG_HEAD},
    [OUT] = {"o.weight", WEFT_WEIGHT_LINEAR, RIG_D, RIG_HEADS *RIG_HEAD},
    [NORM2] = {"norm2.weight", WEFT_WEIGHT_GAIN, RIG_D, RIG_D},
    [GATE] = {"gate.weight", WEFT_WEIGHT_LINEAR, RIG_F, RIG_D},
    [UP] = {"up.weight", WEFT_WEIGHT_LINEAR, RIG_F, RIG_D},
    [DOWN] = {"down.weight", WEFT_WEIGHT_LINEAR, RIG_D, RIG_F},
    [HEAD] = {"head.weight", WEFT_WEIGHT_LINEAR, RIG_V, RIG_D},
    {0},
};

static weft_value family_embedding(const rig *r, weft_graph *g, const weft_ops *ops) {
    const weft_value ids = ops->embedding(g, ops->ids(g), r->weights[EMBED]);
    const weft_value scaled = ops->scale(g, ids, weft_rounded(sqrt((double)RIG_D), r->dtype));
    return ops->add(g, scaled, ops->embedding(g, ops->positions(g), r->weights[PLACE]));
}

static weft_value family_rotate(const rig *r, weft_graph *g, const weft_ops *ops, weft_value x, int64_t heads) {
    const weft_rope_args args = {
        .struct_size = (uint32_t)sizeof args, .heads = heads, .head_dim = RIG_HEAD, .rotary_dim = RIG_HEAD / 2};
    return ops->rope(g, x, ops->positions(g), r->table, &args);
}

static weft_value family_attention(const rig *r, weft_graph *g, const weft_ops *ops, weft_value x) {
    const weft_attention_args args = {.struct_size = (uint32_t)sizeof args,
                                      .heads = RIG_HEADS,
                                      .kv_heads = RIG_KV_HEADS,
                                      .head_dim = RIG_HEAD,
                                      .scale = 0.4,
                                      .window = 4,
                                      .cap = 2.0};
    const weft_value h = ops->layer_norm(g, x, r->weights[NORM1], 1e-5);
    const weft_value q = ops->rms_norm(g, ops->linear(g, h, r->weights[QUERY]), r->weights[QUERY_NORM], 1e-5);
    const weft_value turned_q = family_rotate(r, g, ops, q, RIG_HEADS);
    const weft_value turned_k = family_rotate(r, g, ops, ops->linear(g, h, r->weights[KEY]), RIG_KV_HEADS);
    const weft_value v = ops->linear(g, h, r->weights[VALUE]);
    const weft_value o = ops->attention(g, turned_q, turned_k, v, ops->starts(g), &args);
    return ops->add(g, x, ops->scale(g, ops->linear(g, o, r->weights[OUT]), 0.7));
}

static weft_value family_forward(const rig *r, uint32_t s, weft_graph *g, const weft_ops *ops, weft_value carry) {
    const weft_head_args args = {.struct_size = (uint32_t)sizeof args, .scale = 0.6, .cap = 3.0};
    const weft_value none = {0};
    if (s == 0) return family_embedding(r, g, ops);
    if (s == 1) return family_attention(r, g, ops, carry);
    if (s == 2) {
        const weft_value h = ops->rms_norm(g, carry, r->weights[NORM2], 1e-5);
        const weft_value gate = ops->linear(g, h, r->weights[GATE]), up = ops->linear(g, h, r->weights[UP]);
        const weft_value y = ops->gated(g, gate, up, WEFT_GELU_TANH);
        return ops->add(g, carry, ops->linear(g, ops->activation(g, y, WEFT_GELU), r->weights[DOWN]));
    }
    ops->lm_head(g, carry, r->weights[HEAD], &args);
    return none;
}

const rig_model rig_family_model = {.name = "other families' model",
                                    .weights = family_weights,
                                    .biased = 1u << NORM1 | 1u << QUERY | 1u << KEY | 1u << OUT | 1u << HEAD,
                                    .from_one = 1u << QUERY_NORM | 1u << NORM2,
                                    .carry_width = RIG_D,
                                    .table_width = RIG_HEAD / 2,
                                    .n_segments = 4,
                                    .forward = family_forward};
