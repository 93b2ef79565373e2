/* llama.c: LLaMA (Touvron et al., arXiv 2302.13971): RMSNorm before each part, rotary positions, grouped queries,
 * SwiGLU.
 *
 * Module and parameter names are those of its Hugging Face checkpoints, declared in their order. Forward is cut into
 * embed, then attn and mlp per block, then head; a block's norms belong to the segment that uses them. */
#include "llama.h"

#include <math.h>
#include <stdlib.h>

WEFT_KEYS(llama_settings, LLAMA_KEYS)

typedef struct llama_block {
    weft_weight *attn_norm, *q, *k, *v, *o;
    weft_weight *mlp_norm, *gate, *up, *down;
} llama_block;

struct weft_model {
    llama_config config;
    weft_table *rope; /* (places, head_dim) */
    weft_weight *embed, *norm, *head;
    llama_block *blocks;
};

static weft_status llama_create(weft_model **out, const weft_host *host, const void *config,
                                const weft_model_source *source, weft_error *err) {
    const llama_settings *settings = config;
    weft_status status = WEFT_OK;
    weft_model *self = calloc(1, sizeof *self);
    (void)host;
    if (self == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the model");
    status = llama_config_read(&self->config, source, settings->ignore, err);
    if (status == WEFT_OK) {
        self->blocks = calloc((size_t)self->config.layers, sizeof *self->blocks);
        if (self->blocks == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the model");
    }
    if (status != WEFT_OK) {
        free(self);
        return status;
    }
    *out = self;
    return WEFT_OK;
}

static void llama_destroy(weft_model *self) {
    free(self->blocks);
    free(self);
}

static void llama_info(const weft_model *self, weft_model_info *out) {
    const llama_config *c = &self->config;
    out->vocab_size = c->vocab;
    out->max_context = c->context;
    out->n_layers = c->layers;
    out->bos = c->bos;
    out->eos = c->eos;
    out->layer_path = "model.layers";
    out->head_path = "lm_head";
}

/* ---- what there is ---- */

static weft_weight *weight(const weft_model *self, const weft_builder *b, weft_module *module, const char *name,
                           int32_t role, int64_t out, int64_t in) {
    const char *class_name = role == WEFT_WEIGHT_LINEAR      ? "Linear"
                             : role == WEFT_WEIGHT_EMBEDDING ? "Embedding"
                                                             : "LlamaRMSNorm";
    const llama_config *c = &self->config;
    const int32_t has_padding = role == WEFT_WEIGHT_EMBEDDING && c->has_pad;
    const weft_weight_spec spec = {.struct_size = (uint32_t)sizeof spec,
                                   .name = name,
                                   .class_name = class_name,
                                   .role = role,
                                   .out = out,
                                   .in = in,
                                   .init_std = c->init_std,
                                   .has_padding = has_padding,
                                   .padding = has_padding ? c->pad : 0};
    return b->weight(b->ctx, module, &spec);
}

static weft_weight *linear(const weft_model *self, const weft_builder *b, weft_module *module, const char *name,
                           int64_t out, int64_t in) {
    return weight(self, b, module, name, WEFT_WEIGHT_LINEAR, out, in);
}

static weft_weight *norm(const weft_model *self, const weft_builder *b, weft_module *module, const char *name) {
    return weight(self, b, module, name, WEFT_WEIGHT_GAIN, 1, self->config.width);
}

static void declare_block(weft_model *self, const weft_builder *b, weft_module *list, int64_t index) {
    const llama_config *c = &self->config;
    const int64_t q_width = c->heads * c->head_dim, kv_width = c->kv_heads * c->head_dim;
    llama_block *block = &self->blocks[index];
    weft_module *module = NULL, *attn = NULL, *mlp = NULL;
    char name[32], segment[48];
    (void)snprintf(name, sizeof name, "%lld", (long long)index);
    module = b->module(b->ctx, list, name, "LlamaDecoderLayer");
    attn = b->module(b->ctx, module, "self_attn", "LlamaAttention");
    block->q = linear(self, b, attn, "q_proj", q_width, c->width);
    block->k = linear(self, b, attn, "k_proj", kv_width, c->width);
    block->v = linear(self, b, attn, "v_proj", kv_width, c->width);
    block->o = linear(self, b, attn, "o_proj", c->width, q_width);
    mlp = b->module(b->ctx, module, "mlp", "LlamaMLP");
    block->gate = linear(self, b, mlp, "gate_proj", c->mlp, c->width);
    block->up = linear(self, b, mlp, "up_proj", c->mlp, c->width);
    block->down = linear(self, b, mlp, "down_proj", c->width, c->mlp);
    block->attn_norm = norm(self, b, module, "input_layernorm");
    block->mlp_norm = norm(self, b, module, "post_attention_layernorm");
    (void)snprintf(segment, sizeof segment, "layers.%s.attn", name);
    b->segment(b->ctx, attn, segment);
    (void)snprintf(segment, sizeof segment, "layers.%s.mlp", name);
    b->segment(b->ctx, mlp, segment);
}

/* out: (rows, head_dim): head_dim/2 cosines, then head_dim/2 sines of each place. Frequencies and angles are rounded to
 * fp32 where transformers rounds them: an angle of a late place is wrong in its fourth digit otherwise. */
static weft_status fill_rope(const weft_model *self, const char *name, int64_t rows, float *out, weft_error *err) {
    const int64_t d = self->config.head_dim;
    (void)name;
    (void)err;
    for (int64_t i = 0; i < d / 2; i++) {
        const float power = (float)pow((double)(float)self->config.theta, (double)((float)(2 * i) / (float)d));
        const float frequency = 1.0f / power;
        for (int64_t row = 0; row < rows; row++) {
            const float angle = (float)row * frequency;
            out[row * d + i] = (float)cos((double)angle);
            out[row * d + d / 2 + i] = (float)sin((double)angle);
        }
    }
    return WEFT_OK;
}

static weft_status llama_declare(weft_model *self, const weft_builder *b, weft_error *err) {
    const llama_config *c = &self->config;
    weft_module *root = b->module(b->ctx, NULL, "", "LlamaForCausalLM");
    weft_module *model = b->module(b->ctx, root, "model", "LlamaModel"), *list = NULL;
    (void)err;
    self->embed = weight(self, b, model, "embed_tokens", WEFT_WEIGHT_EMBEDDING, c->vocab, c->width);
    b->segment(b->ctx, model, "embed");
    list = b->module(b->ctx, model, "layers", "ModuleList");
    for (int64_t i = 0; i < c->layers; i++) declare_block(self, b, list, i);
    self->norm = norm(self, b, model, "norm");
    self->head = c->tied ? b->tie(b->ctx, root, "lm_head", "Linear", self->embed)
                         : linear(self, b, root, "lm_head", c->vocab, c->width);
    b->segment(b->ctx, root, "head");
    self->rope = b->table(b->ctx, "rope", c->head_dim, fill_rope);
    b->carry(b->ctx, c->width);
    return WEFT_OK;
}

/* ---- what is computed ---- */

/* x: (B, T, width) -> (B, T, width) */
static weft_value attention(const weft_model *self, const llama_block *block, weft_graph *g, const weft_ops *ops,
                            weft_value x) {
    const llama_config *c = &self->config;
    const weft_rope_args turn_q = {.struct_size = (uint32_t)sizeof turn_q, .heads = c->heads, .head_dim = c->head_dim};
    const weft_rope_args turn_k = {.struct_size = (uint32_t)sizeof turn_k,
                                   .heads = c->kv_heads,
                                   .head_dim = c->head_dim};
    const weft_attention_args args = {.struct_size = (uint32_t)sizeof args,
                                      .heads = c->heads,
                                      .kv_heads = c->kv_heads,
                                      .head_dim = c->head_dim,
                                      .scale = 1.0 / sqrt((double)c->head_dim)};
    const weft_value places = ops->positions(g);
    const weft_value h = ops->rms_norm(g, x, block->attn_norm, c->eps);
    const weft_value q =
        ops->rope(g, ops->linear(g, h, block->q), places, self->rope, &turn_q); /* (B,T,heads*head_dim) */
    const weft_value k = ops->rope(g, ops->linear(g, h, block->k), places, self->rope, &turn_k); /* (B,T,kv*head_dim) */
    const weft_value v = ops->linear(g, h, block->v);                                            /* (B,T,kv*head_dim) */
    const weft_value mixed = ops->attention(g, q, k, v, ops->starts(g), &args);                  /* as q */
    return ops->add(g, x, ops->linear(g, mixed, block->o));
}

/* x: (B, T, width) -> (B, T, width); inside it is (B, T, mlp) */
static weft_value mlp(const weft_model *self, const llama_block *block, weft_graph *g, const weft_ops *ops,
                      weft_value x) {
    const weft_value h = ops->rms_norm(g, x, block->mlp_norm, self->config.eps);
    const weft_value gate = ops->linear(g, h, block->gate), up = ops->linear(g, h, block->up);
    return ops->add(g, x, ops->linear(g, ops->swiglu(g, gate, up), block->down));
}

/* Segments: 0 embed, 1 + 2n attention of block n, 2 + 2n its MLP, 1 + 2 layers head. */
static weft_value llama_forward(const weft_model *self, uint32_t segment, weft_graph *g, const weft_ops *ops,
                                weft_value carry) {
    const weft_value none = {0};
    const llama_block *block = NULL;
    if (segment == 0) return ops->embedding(g, ops->ids(g), self->embed);
    if (segment == 1 + 2 * (uint32_t)self->config.layers) {
        ops->lm_head(g, ops->rms_norm(g, carry, self->norm, self->config.eps), self->head, NULL);
        return none;
    }
    block = &self->blocks[(segment - 1) / 2];
    return segment % 2 == 1 ? attention(self, block, g, ops, carry) : mlp(self, block, g, ops, carry);
}

static const weft_model_plugin llama_table = {(uint32_t)sizeof(weft_model_plugin),
                                              0,
                                              llama_create,
                                              llama_destroy,
                                              llama_info,
                                              llama_declare,
                                              llama_forward,
                                              NULL};

WEFT_PLUGIN(model, 1, "llama", "0.1.0",
            "LLaMA as its config.json says: grouped queries, plain rotary positions, SwiGLU.", llama_settings, NULL,
            llama_table)
