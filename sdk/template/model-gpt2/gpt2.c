/* gpt2.c: GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019), as a plugin.
 *
 * Differences from LLaMA: learned positions, in a second table next to the token embedding; LayerNorm, whose gain has a
 * bias; an MLP without a gate; biases everywhere; and linears stored as (in, out), with queries, keys and values in one
 * matrix. docs/own-family.md explains this file from top to bottom.
 *
 * Modules and parameters have the names and the order of the Hugging Face checkpoint. */
#include "config.h"

#include <math.h>
#include <stdlib.h>

/* clang-format off */
#define GPT2_KEYS(K)                                                                                                   \
    K(ENUM, dropout, "refuse", "refuse,off", "", WEFT_SAME,                                                            \
      "If config.json sets dropout, which this plugin does not support: reject the model, or train without dropout.")
/* clang-format on */
WEFT_KEYS(gpt2_settings, GPT2_KEYS)

typedef struct gpt2_block {
    weft_weight *ln_1, *q, *k, *v, *attn_out, *ln_2, *up, *down;
} gpt2_block;

struct weft_model {
    gpt2_config config;
    weft_weight *ids, *places, *ln_f, *head;
    gpt2_block *blocks; /* [layers] */
};

static void gpt2_destroy(weft_model *self) {
    free(self->blocks);
    free(self);
}

static weft_status gpt2_create(weft_model **out, const weft_host *host, const void *config,
                               const weft_model_source *source, weft_error *err) {
    const gpt2_settings *settings = config;
    weft_model *self = calloc(1, sizeof *self);
    weft_status status = WEFT_OK;
    (void)host;
    if (self == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the model");
    status = gpt2_config_read(&self->config, source, settings->dropout, err);
    if (status == WEFT_OK) self->blocks = calloc((size_t)self->config.layers, sizeof *self->blocks);
    if (status == WEFT_OK && self->blocks == NULL)
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the model");
    if (status == WEFT_OK) *out = self;
    else gpt2_destroy(self);
    return status;
}

static void gpt2_info(const weft_model *self, weft_model_info *out) {
    out->vocab_size = self->config.vocab;
    out->max_context = self->config.context;
    out->n_layers = self->config.layers;
    out->bos = self->config.bos;
    out->eos = self->config.eos;
    out->layer_path = "transformer.h";
    out->head_path = "lm_head";
}

/* ---- modules and weights ---- */

static weft_weight *table(const weft_model *self, const weft_builder *b, weft_module *in, const char *name,
                          int64_t rows) {
    const weft_weight_spec spec = {.struct_size = (uint32_t)sizeof spec,
                                   .name = name,
                                   .class_name = "Embedding",
                                   .role = WEFT_WEIGHT_EMBEDDING,
                                   .out = rows,
                                   .in = self->config.width,
                                   .init_std = self->config.init_std};
    return b->weight(b->ctx, in, &spec);
}

static weft_weight *layer_norm(const weft_model *self, const weft_builder *b, weft_module *in, const char *name) {
    const weft_weight_spec spec = {.struct_size = (uint32_t)sizeof spec,
                                   .name = name,
                                   .class_name = "LayerNorm",
                                   .role = WEFT_WEIGHT_GAIN,
                                   .has_bias = 1,
                                   .out = 1,
                                   .in = self->config.width};
    return b->weight(b->ctx, in, &spec);
}

/* Adds a transposed linear: the file stores the matrix as (in, out). shrink: divides the initial deviation of
 * projections that add to the residual by the square root of their number. */
static weft_weight *conv1d(const weft_model *self, const weft_builder *b, weft_module *in, const char *name,
                           int64_t outputs, int64_t inputs, int shrink) {
    const double times = shrink ? sqrt(2.0 * (double)self->config.layers) : 1;
    const weft_weight_spec spec = {.struct_size = (uint32_t)sizeof spec,
                                   .name = name,
                                   .class_name = "Conv1D",
                                   .role = WEFT_WEIGHT_LINEAR,
                                   .has_bias = 1,
                                   .out = outputs,
                                   .in = inputs,
                                   .init_std = self->config.init_std / times,
                                   .transposed = 1};
    return b->weight(b->ctx, in, &spec);
}

static void declare_block(weft_model *self, const weft_builder *b, weft_module *list, int64_t index) {
    const int64_t width = self->config.width, inner = self->config.inner;
    gpt2_block *block = &self->blocks[index];
    weft_module *own = NULL, *part = NULL;
    weft_weight *qkv = NULL;
    char name[32], segment[48];
    (void)snprintf(name, sizeof name, "%lld", (long long)index);
    own = b->module(b->ctx, list, name, "GPT2Block");
    block->ln_1 = layer_norm(self, b, own, "ln_1");
    part = b->module(b->ctx, own, "attn", "GPT2Attention");
    qkv = conv1d(self, b, part, "c_attn", 3 * width, width, 0);
    block->q = b->slice(b->ctx, qkv, 0, width);
    block->k = b->slice(b->ctx, qkv, width, width);
    block->v = b->slice(b->ctx, qkv, 2 * width, width);
    block->attn_out = conv1d(self, b, part, "c_proj", width, width, 1);
    (void)snprintf(segment, sizeof segment, "h.%s.attn", name);
    b->segment(b->ctx, own, segment);
    block->ln_2 = layer_norm(self, b, own, "ln_2");
    part = b->module(b->ctx, own, "mlp", "GPT2MLP");
    block->up = conv1d(self, b, part, "c_fc", inner, width, 0);
    block->down = conv1d(self, b, part, "c_proj", width, inner, 1);
    (void)snprintf(segment, sizeof segment, "h.%s.mlp", name);
    b->segment(b->ctx, own, segment);
}

static weft_weight *declare_head(weft_model *self, const weft_builder *b, weft_module *root) {
    const weft_weight_spec spec = {.struct_size = (uint32_t)sizeof spec,
                                   .name = "lm_head",
                                   .class_name = "Linear",
                                   .role = WEFT_WEIGHT_LINEAR,
                                   .out = self->config.vocab,
                                   .in = self->config.width,
                                   .init_std = self->config.init_std};
    if (self->config.tied) return b->tie(b->ctx, root, "lm_head", "Linear", self->ids);
    return b->weight(b->ctx, root, &spec);
}

static weft_status gpt2_declare(weft_model *self, const weft_builder *b, weft_error *err) {
    weft_module *root = b->module(b->ctx, NULL, "", "GPT2LMHeadModel");
    weft_module *model = b->module(b->ctx, root, "transformer", "GPT2Model"), *list = NULL;
    (void)err;
    self->ids = table(self, b, model, "wte", self->config.vocab);
    self->places = table(self, b, model, "wpe", self->config.context);
    b->segment(b->ctx, model, "embed");
    list = b->module(b->ctx, model, "h", "ModuleList");
    for (int64_t i = 0; i < self->config.layers; i++) declare_block(self, b, list, i);
    self->ln_f = layer_norm(self, b, model, "ln_f");
    self->head = declare_head(self, b, root);
    b->segment(b->ctx, root, "head");
    b->carry(b->ctx, self->config.width);
    return WEFT_OK;
}

/* ---- forward ---- */

/* Returns (B, T, width). */
static weft_value embed(const weft_model *self, weft_graph *g, const weft_ops *ops) {
    const weft_value words = ops->embedding(g, ops->ids(g), self->ids);
    const weft_value places = ops->embedding(g, ops->positions(g), self->places);
    return ops->add(g, words, places);
}

/* x: (B, T, width) -> (B, T, width) */
static weft_value attention(const weft_model *self, int64_t index, weft_graph *g, const weft_ops *ops, weft_value x) {
    const gpt2_config *c = &self->config;
    const gpt2_block *block = &self->blocks[index];
    const int64_t head_dim = c->width / c->heads;
    const weft_attention_args args = {.struct_size = (uint32_t)sizeof args,
                                      .heads = c->heads,
                                      .kv_heads = c->heads,
                                      .head_dim = head_dim,
                                      .scale = (c->scaled ? 1 / sqrt((double)head_dim) : 1) /
                                               (c->by_layer ? (double)(index + 1) : 1)};
    const weft_value h = ops->layer_norm(g, x, block->ln_1, c->eps);
    const weft_value q = ops->linear(g, h, block->q);
    const weft_value k = ops->linear(g, h, block->k);
    const weft_value v = ops->linear(g, h, block->v);
    const weft_value mixed = ops->attention(g, q, k, v, ops->starts(g), &args);
    return ops->add(g, x, ops->linear(g, mixed, block->attn_out));
}

/* x: (B, T, width) -> (B, T, width); inside it is (B, T, inner) */
static weft_value mlp(const weft_model *self, int64_t index, weft_graph *g, const weft_ops *ops, weft_value x) {
    const gpt2_block *block = &self->blocks[index];
    const weft_value h = ops->layer_norm(g, x, block->ln_2, self->config.eps);
    const weft_value up = ops->activation(g, ops->linear(g, h, block->up), self->config.activation);
    return ops->add(g, x, ops->linear(g, up, block->down));
}

/* Records a segment by its number: 0 embed, 1 + 2n attention of block n, 2 + 2n its MLP, and the head as the last
 * one. */
static weft_value gpt2_forward(const weft_model *self, uint32_t segment, weft_graph *g, const weft_ops *ops,
                               weft_value carry) {
    const weft_value none = {0};
    const int64_t block = ((int64_t)segment - 1) / 2;
    if (segment == 0) return embed(self, g, ops);
    if (block < self->config.layers)
        return segment % 2 == 1 ? attention(self, block, g, ops, carry) : mlp(self, block, g, ops, carry);
    ops->lm_head(g, ops->layer_norm(g, carry, self->ln_f, self->config.eps), self->head, NULL);
    return none;
}

static const weft_model_plugin gpt2_table = {
    (uint32_t)sizeof(weft_model_plugin), 0, gpt2_create, gpt2_destroy, gpt2_info, gpt2_declare, gpt2_forward, NULL};

WEFT_PLUGIN(model, 1, "gpt2", "0.1.0", "GPT-2: models with model_type gpt2 in config.json.", gpt2_settings, NULL,
            gpt2_table)
