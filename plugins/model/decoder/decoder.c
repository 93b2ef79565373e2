/* decoder.c: the decoder of LLaMA (Touvron et al., arXiv 2302.13971) and of derived families: norms, rotary positions,
 * grouped queries, a gated MLP. families.c contains the differences.
 *
 * Module and parameter names are those of the Hugging Face checkpoints, declared in their order. Forward has the
 * segments embed, then attn and mlp per block, then head; a block's norms belong to the segment that uses them. The
 * build creates one plugin per family from these sources; DECODER_FAMILY is its id. */
#include "decoder.h"

#include <math.h>
#include <stdlib.h>

WEFT_KEYS(decoder_settings, DECODER_KEYS)

/* NULL: the family lacks the weight. */
typedef struct decoder_block {
    weft_weight *before_attention, *q, *k, *v, *q_norm, *k_norm, *o, *after_attention;
    weft_weight *before_mlp, *gate, *up, *down, *after_mlp;
} decoder_block;

struct weft_model {
    decoder_config config;
    weft_table *rope, *local; /* (positions, rotated elements) */
    weft_weight *embed, *norm, *head;
    decoder_block *blocks;
};

static void decoder_destroy(weft_model *self) {
    decoder_config_clear(&self->config);
    free(self->blocks);
    free(self);
}

static weft_status decoder_create(weft_model **out, const weft_host *host, const void *config,
                                  const weft_model_source *source, weft_error *err) {
    const decoder_settings *settings = config;
    weft_status status = WEFT_OK;
    weft_model *self = calloc(1, sizeof *self);
    (void)host;
    if (self == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the model");
    status = decoder_config_read(&self->config, family_find(DECODER_FAMILY), source, settings->ignore, err);
    if (status == WEFT_OK) {
        self->blocks = calloc((size_t)self->config.layers, sizeof *self->blocks);
        if (self->blocks == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the model");
    }
    if (status != WEFT_OK) {
        decoder_destroy(self);
        return status;
    }
    *out = self;
    return WEFT_OK;
}

static void decoder_info(const weft_model *self, weft_model_info *out) {
    const decoder_config *c = &self->config;
    out->vocab_size = c->vocab;
    out->max_context = c->context;
    out->n_layers = c->layers;
    out->bos = c->bos;
    out->eos = c->eos;
    out->layer_path = "model.layers";
    out->head_path = "lm_head";
}

/* ---- declare ---- */

/* Returns "LlamaAttention" for "Llama" and "Attention". */
static const char *class_name(const weft_model *self, char out[64], const char *end) {
    (void)snprintf(out, 64, "%s%s", self->config.family->classes, end);
    return out;
}

static weft_module *module(const weft_model *self, const weft_builder *b, weft_module *parent, const char *name,
                           const char *end) {
    char text[64];
    return b->module(b->ctx, parent, name, class_name(self, text, end));
}

static weft_weight *linear(const weft_model *self, const weft_builder *b, weft_module *parent, const char *name,
                           int64_t out, int64_t in, int32_t has_bias) {
    const weft_weight_spec spec = {.struct_size = (uint32_t)sizeof spec,
                                   .name = name,
                                   .class_name = "Linear",
                                   .role = WEFT_WEIGHT_LINEAR,
                                   .has_bias = has_bias,
                                   .out = out,
                                   .in = in,
                                   .init_std = self->config.init_std};
    return b->weight(b->ctx, parent, &spec);
}

static weft_weight *embedding(const weft_model *self, const weft_builder *b, weft_module *parent) {
    const decoder_config *c = &self->config;
    const weft_weight_spec spec = {.struct_size = (uint32_t)sizeof spec,
                                   .name = "embed_tokens",
                                   .class_name = "Embedding",
                                   .role = WEFT_WEIGHT_EMBEDDING,
                                   .out = c->vocab,
                                   .in = c->width,
                                   .init_std = c->init_std,
                                   .has_padding = c->has_pad,
                                   .padding = c->has_pad ? c->pad : 0};
    return b->weight(b->ctx, parent, &spec);
}

/* name NULL: no norm. */
static weft_weight *norm(const weft_model *self, const weft_builder *b, weft_module *parent, const char *name,
                         int64_t width) {
    char text[64];
    const weft_weight_spec spec = {.struct_size = (uint32_t)sizeof spec,
                                   .name = name,
                                   .class_name = class_name(self, text, "RMSNorm"),
                                   .role = WEFT_WEIGHT_GAIN,
                                   .out = 1,
                                   .in = width,
                                   .gain_from_one = (self->config.family->traits & GAIN_FROM_ONE) != 0};
    return name == NULL ? NULL : b->weight(b->ctx, parent, &spec);
}

static void declare_attention(const weft_model *self, const weft_builder *b, weft_module *attn, decoder_block *block) {
    const decoder_config *c = &self->config;
    const int64_t q_width = c->heads * c->head_dim, kv_width = c->kv_heads * c->head_dim;
    const uint32_t traits = c->family->traits;
    if (traits & FUSED) {
        weft_weight *qkv = NULL;
        block->o = linear(self, b, attn, "o_proj", c->width, q_width, c->o_bias);
        qkv = linear(self, b, attn, "qkv_proj", q_width + 2 * kv_width, c->width, c->qkv_bias);
        block->q = b->slice(b->ctx, qkv, 0, q_width);
        block->k = b->slice(b->ctx, qkv, q_width, kv_width);
        block->v = b->slice(b->ctx, qkv, q_width + kv_width, kv_width);
        return;
    }
    block->q = linear(self, b, attn, "q_proj", q_width, c->width, c->qkv_bias);
    block->k = linear(self, b, attn, "k_proj", kv_width, c->width, c->qkv_bias);
    block->v = linear(self, b, attn, "v_proj", kv_width, c->width, c->qkv_bias);
    block->o = linear(self, b, attn, "o_proj", c->width, q_width, c->o_bias);
    if (!(traits & (HEAD_NORMS | WHOLE_NORMS))) return;
    block->q_norm = norm(self, b, attn, "q_norm", traits & WHOLE_NORMS ? q_width : c->head_dim);
    block->k_norm = norm(self, b, attn, "k_norm", traits & WHOLE_NORMS ? kv_width : c->head_dim);
}

static void declare_mlp(const weft_model *self, const weft_builder *b, weft_module *mlp, decoder_block *block) {
    const decoder_config *c = &self->config;
    if (c->family->traits & FUSED) {
        weft_weight *both = linear(self, b, mlp, "gate_up_proj", 2 * c->mlp, c->width, c->mlp_bias);
        block->gate = b->slice(b->ctx, both, 0, c->mlp);
        block->up = b->slice(b->ctx, both, c->mlp, c->mlp);
    } else {
        block->gate = linear(self, b, mlp, "gate_proj", c->mlp, c->width, c->mlp_bias);
        block->up = linear(self, b, mlp, "up_proj", c->mlp, c->width, c->mlp_bias);
    }
    block->down = linear(self, b, mlp, "down_proj", c->width, c->mlp, c->mlp_bias);
}

static void declare_block(weft_model *self, const weft_builder *b, weft_module *list, int64_t index) {
    const block_norms *norms = &self->config.family->norms;
    const int64_t width = self->config.width;
    decoder_block *block = &self->blocks[index];
    weft_module *own = NULL, *attn = NULL, *mlp = NULL;
    char name[32], segment[48];
    (void)snprintf(name, sizeof name, "%lld", (long long)index);
    own = module(self, b, list, name, "DecoderLayer");
    attn = module(self, b, own, "self_attn", "Attention");
    declare_attention(self, b, attn, block);
    mlp = module(self, b, own, "mlp", "MLP");
    declare_mlp(self, b, mlp, block);
    block->before_attention = norm(self, b, own, norms->before_attention, width);
    block->after_attention = norm(self, b, own, norms->after_attention, width);
    block->before_mlp = norm(self, b, own, norms->before_mlp, width);
    block->after_mlp = norm(self, b, own, norms->after_mlp, width);
    (void)snprintf(segment, sizeof segment, "layers.%s.attn", name);
    b->segment(b->ctx, attn, segment);
    (void)snprintf(segment, sizeof segment, "layers.%s.mlp", name);
    b->segment(b->ctx, mlp, segment);
}

static weft_status fill_rope(const weft_model *self, const char *name, int64_t rows, float *out, weft_error *err) {
    const decoder_config *c = &self->config;
    return decoder_rope_fill(strcmp(name, "rope_local") == 0 ? &c->local : &c->rope, rows, out, err);
}

static weft_status decoder_declare(weft_model *self, const weft_builder *b, weft_error *err) {
    const decoder_config *c = &self->config;
    weft_module *root = module(self, b, NULL, "", "ForCausalLM");
    weft_module *model = module(self, b, root, "model", c->family->id == GEMMA3 ? "TextModel" : "Model"), *list = NULL;
    (void)err;
    self->embed = embedding(self, b, model);
    b->segment(b->ctx, model, "embed");
    list = b->module(b->ctx, model, "layers", "ModuleList");
    for (int64_t i = 0; i < c->layers; i++) declare_block(self, b, list, i);
    self->norm = norm(self, b, model, "norm", c->width);
    self->head = c->tied ? b->tie(b->ctx, root, "lm_head", "Linear", self->embed)
                         : linear(self, b, root, "lm_head", c->vocab, c->width, 0);
    b->segment(b->ctx, root, "head");
    self->rope = b->table(b->ctx, "rope", c->rope.dim, fill_rope);
    if (c->has_local) self->local = b->table(b->ctx, "rope_local", c->local.dim, fill_rope);
    b->carry(b->ctx, c->width);
    return WEFT_OK;
}

/* ---- compute ---- */

/* gain NULL: returns x unchanged. */
static weft_value normed(const weft_model *self, weft_graph *g, const weft_ops *ops, weft_value x, weft_weight *gain) {
    return gain == NULL ? x : ops->rms_norm(g, x, gain, self->config.eps);
}

/* Returns queries or keys, (B, T, heads * head_dim): a matmul, then a norm and a rotation if the layer has them. */
static weft_value turned(const weft_model *self, const decoder_layer *layer, weft_graph *g, const weft_ops *ops,
                         weft_value h, weft_value places, weft_weight *weight, weft_weight *gain, int64_t heads) {
    const decoder_config *c = &self->config;
    const decoder_rope *rope = layer->local ? &c->local : &c->rope;
    const weft_rope_args args = {.struct_size = (uint32_t)sizeof args,
                                 .heads = heads,
                                 .head_dim = c->head_dim,
                                 .rotary_dim = rope->dim == c->head_dim ? 0 : rope->dim};
    const weft_value x = normed(self, g, ops, ops->linear(g, h, weight), gain);
    return layer->has_rope ? ops->rope(g, x, places, layer->local ? self->local : self->rope, &args) : x;
}

/* x: (B, T, width) -> (B, T, width) */
static weft_value attention(const weft_model *self, int64_t index, weft_graph *g, const weft_ops *ops, weft_value x) {
    const decoder_config *c = &self->config;
    const decoder_block *block = &self->blocks[index];
    const decoder_layer *layer = &c->layer[index];
    const weft_attention_args args = {.struct_size = (uint32_t)sizeof args,
                                      .heads = c->heads,
                                      .kv_heads = c->kv_heads,
                                      .head_dim = c->head_dim,
                                      .scale = c->scale,
                                      .window = layer->window,
                                      .cap = c->score_cap};
    const weft_value none = {0}, places = layer->has_rope ? ops->positions(g) : none;
    const weft_value h = normed(self, g, ops, x, block->before_attention);
    const weft_value q = turned(self, layer, g, ops, h, places, block->q, block->q_norm, c->heads);
    const weft_value k = turned(self, layer, g, ops, h, places, block->k, block->k_norm, c->kv_heads);
    const weft_value v = ops->linear(g, h, block->v);                           /* (B,T,kv*head_dim) */
    const weft_value mixed = ops->attention(g, q, k, v, ops->starts(g), &args); /* shape of q */
    const weft_value y = ops->linear(g, mixed, block->o);
    return ops->add(g, x, normed(self, g, ops, y, block->after_attention));
}

/* x: (B, T, width) -> (B, T, width); inner values are (B, T, mlp) */
static weft_value mlp(const weft_model *self, const decoder_block *block, weft_graph *g, const weft_ops *ops,
                      weft_value x) {
    const weft_value h = normed(self, g, ops, x, block->before_mlp);
    const weft_value gate = ops->linear(g, h, block->gate), up = ops->linear(g, h, block->up);
    const weft_value y = ops->linear(g, ops->gated(g, gate, up, self->config.activation), block->down);
    return ops->add(g, x, normed(self, g, ops, y, block->after_mlp));
}

static weft_value embed(const weft_model *self, weft_graph *g, const weft_ops *ops) {
    const weft_value x = ops->embedding(g, ops->ids(g), self->embed);
    weft_graph_info info = {.struct_size = (uint32_t)sizeof info};
    if (!(self->config.family->traits & SCALED_EMBED)) return x;
    ops->info(g, &info);
    return ops->scale(g, x, weft_rounded(sqrt((double)self->config.width), info.dtype));
}

static void head(const weft_model *self, weft_graph *g, const weft_ops *ops, weft_value x) {
    const weft_head_args args = {.struct_size = (uint32_t)sizeof args, .cap = self->config.logit_cap};
    ops->lm_head(g, normed(self, g, ops, x, self->norm), self->head, args.cap != 0 ? &args : NULL);
}

/* Segments: 0 embed, 1 + 2n attention of block n, 2 + 2n its MLP, 1 + 2 layers head. */
static weft_value decoder_forward(const weft_model *self, uint32_t segment, weft_graph *g, const weft_ops *ops,
                                  weft_value carry) {
    const weft_value none = {0};
    const int64_t block = ((int64_t)segment - 1) / 2;
    if (segment == 0) return embed(self, g, ops);
    if (block < self->config.layers)
        return segment % 2 == 1 ? attention(self, block, g, ops, carry)
                                : mlp(self, &self->blocks[block], g, ops, carry);
    head(self, g, ops, carry);
    return none;
}

static const weft_model_plugin decoder_table = {(uint32_t)sizeof(weft_model_plugin),
                                                0,
                                                decoder_create,
                                                decoder_destroy,
                                                decoder_info,
                                                decoder_declare,
                                                decoder_forward,
                                                NULL};

WEFT_PLUGIN(model, 1, DECODER_FAMILY, "0.2.0", "Models with a config.json with model_type " DECODER_FAMILY ".",
            decoder_settings, NULL, decoder_table)
