/* weftnew-id: a model plugin: transformer blocks of causal attention and a two-layer MLP, with learned positions and an
 * RMSNorm before each.
 *
 *     x = embed[id] + places[position]
 *     x = x + o(attention(q(h), k(h), v(h)))     h = norm(x)
 *     x = x + down(silu(up(h)))                  h = norm(x)
 *     logits = norm(x) embed^T
 *
 * The main thread calls all functions. `create` reads config.json, `declare` declares once the modules, weights and
 * segments, and `forward` records one segment for each mode and micro-batch length. The functions compute no numbers:
 * the host manages gradients, memory, devices and ranks. */
#define WEFT_MIN_SDK WEFT_SDK(1, 0) /* the oldest supported host; newer declarations are hidden */
#include <math.h>
#include <stdlib.h>
#include <weft/model.h>
#include <weft/plugin.h>

WEFT_NO_KEYS(weftnew_config)

enum { MOST_LAYERS = 256 };

typedef struct block {
    weft_weight *before_attention, *q, *k, *v, *o;
    weft_weight *before_mlp, *up, *down;
} block;

struct weft_model {
    const weft_host *host;
    int64_t vocabulary, width, layers, heads, inner, context;
    weft_weight *embed, *places, *norm, *head;
    block blocks[MOST_LAYERS];
};

/* ---- config.json ---- */

/* Reads the number of a key; the first key with that name counts. A more complex config.json needs a JSON library. */
static weft_status read_number(int64_t *out, const weft_model_source *source, const char *key, int64_t most,
                               weft_error *err) {
    char quoted[64];
    const char *at;
    char *end = NULL;
    (void)snprintf(quoted, sizeof quoted, "\"%s\"", key);
    at = strstr(source->config_text, quoted);
    if (at != NULL) at += strlen(quoted);
    if (at != NULL) at += strspn(at, " \t\r\n");
    if (at == NULL || *at != ':')
        return weft_error_set(err, WEFT_E_USER, "%s: %s is missing. Allowed: an integer from 1 to %lld",
                              source->config_path, key, (long long)most);
    *out = strtoll(at + 1, &end, 10);
    if (end == at + 1 || *out < 1 || *out > most)
        return weft_error_set(err, WEFT_E_USER, "%s: %s is not valid. Allowed: an integer from 1 to %lld",
                              source->config_path, key, (long long)most);
    return WEFT_OK;
}

/* Refuses a setting of config.json that this model does not compute: a wrong model would run without a message. */
static weft_status check_setting(const weft_model_source *source, const char *key, const char *only, weft_error *err) {
    char quoted[64];
    const char *at;
    (void)snprintf(quoted, sizeof quoted, "\"%s\"", key);
    at = strstr(source->config_text, quoted);
    if (at == NULL) return WEFT_OK;
    at += strlen(quoted);
    at += strspn(at, " \t\r\n:");
    if (strncmp(at, only, strlen(only)) == 0) return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER, "%s: %s is not valid. Allowed: %s", source->config_path, key, only);
}

static weft_status check_settings(const weft_model_source *source, weft_error *err) {
    static const char *const settings[][2] = {
        {"hidden_act", "\"silu\""}, {"tie_word_embeddings", "true"}, {"sliding_window", "null"}, {"rope_theta", "null"},
        {"rope_scaling", "null"},   {"num_key_value_heads", "null"}, {"rms_norm_eps", "1e-05"},
    };
    weft_status status = WEFT_OK;
    size_t i;
    for (i = 0; i < sizeof settings / sizeof settings[0] && status == WEFT_OK; i++)
        status = check_setting(source, settings[i][0], settings[i][1], err);
    return status;
}

static weft_status read_config(weft_model *self, const weft_model_source *source, weft_error *err) {
    weft_status status = read_number(&self->vocabulary, source, "vocab_size", 1 << 24, err);
    if (status == WEFT_OK) status = read_number(&self->width, source, "hidden_size", 1 << 20, err);
    if (status == WEFT_OK) status = read_number(&self->layers, source, "num_hidden_layers", MOST_LAYERS, err);
    if (status == WEFT_OK) status = read_number(&self->heads, source, "num_attention_heads", 1 << 10, err);
    if (status == WEFT_OK) status = read_number(&self->inner, source, "intermediate_size", 1 << 22, err);
    if (status == WEFT_OK) status = read_number(&self->context, source, "max_position_embeddings", 1 << 24, err);
    if (status == WEFT_OK) status = check_settings(source, err);
    if (status == WEFT_OK && self->width % self->heads != 0)
        status = weft_error_set(err, WEFT_E_USER, "%s: hidden_size %lld is no multiple of num_attention_heads %lld",
                                source->config_path, (long long)self->width, (long long)self->heads);
    return status;
}

static weft_status weftnew_create(weft_model **out, const weft_host *host, const void *config,
                                  const weft_model_source *source, weft_error *err) {
    weft_model *self = (weft_model *)host->alloc(host, sizeof *self, 8);
    weft_status status;
    (void)config;
    if (self == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the model weftnew-id");
    memset(self, 0, sizeof *self);
    self->host = host;
    status = read_config(self, source, err);
    if (status == WEFT_OK) *out = self;
    else host->release(host, self);
    return status;
}

static void weftnew_destroy(weft_model *self) {
    if (self != NULL) self->host->release(self->host, self);
}

static void weftnew_info(const weft_model *self, weft_model_info *out) {
    out->vocab_size = self->vocabulary;
    out->max_context = self->context;
    out->n_layers = self->layers;
    out->bos = out->eos = -1;
    out->layer_path = "model.layers";
    out->head_path = "lm_head";
}

/* ---- modules and weights ---- */

static weft_weight *weight(const weft_builder *b, weft_module *module, const char *name, int32_t role, int64_t out,
                           int64_t in) {
    weft_weight_spec spec;
    memset(&spec, 0, sizeof spec);
    spec.struct_size = (uint32_t)sizeof spec;
    spec.name = name;
    spec.class_name = role == WEFT_WEIGHT_LINEAR ? "Linear" : role == WEFT_WEIGHT_GAIN ? "RMSNorm" : "Embedding";
    spec.role = role;
    spec.out = out;
    spec.in = in;
    spec.init_std = 0.02;
    return b->weight(b->ctx, module, &spec);
}

static void declare_block(weft_model *self, const weft_builder *b, weft_module *parent, int64_t layer) {
    block *to = &self->blocks[layer];
    weft_module *module, *attention, *mlp;
    char name[32];
    (void)snprintf(name, sizeof name, "%lld", (long long)layer);
    module = b->module(b->ctx, parent, name, "Block");
    to->before_attention = weight(b, module, "before_attention", WEFT_WEIGHT_GAIN, 1, self->width);
    attention = b->module(b->ctx, module, "attention", "Attention");
    to->q = weight(b, attention, "q_proj", WEFT_WEIGHT_LINEAR, self->width, self->width);
    to->k = weight(b, attention, "k_proj", WEFT_WEIGHT_LINEAR, self->width, self->width);
    to->v = weight(b, attention, "v_proj", WEFT_WEIGHT_LINEAR, self->width, self->width);
    to->o = weight(b, attention, "o_proj", WEFT_WEIGHT_LINEAR, self->width, self->width);
    to->before_mlp = weight(b, module, "before_mlp", WEFT_WEIGHT_GAIN, 1, self->width);
    mlp = b->module(b->ctx, module, "mlp", "MLP");
    to->up = weight(b, mlp, "up_proj", WEFT_WEIGHT_LINEAR, self->inner, self->width);
    to->down = weight(b, mlp, "down_proj", WEFT_WEIGHT_LINEAR, self->width, self->inner);
    (void)snprintf(name, sizeof name, "layers.%lld", (long long)layer);
    (void)b->segment(b->ctx, module, name);
}

/* The host stores errors and reports the first. */
static weft_status weftnew_declare(weft_model *self, const weft_builder *b, weft_error *err) {
    weft_module *root = b->module(b->ctx, NULL, "", "LanguageModel");
    weft_module *model = b->module(b->ctx, root, "model", "Model"), *layers;
    int64_t l;
    (void)err;
    b->carry(b->ctx, self->width);
    self->embed = weight(b, model, "embed_tokens", WEFT_WEIGHT_EMBEDDING, self->vocabulary, self->width);
    self->places = weight(b, model, "embed_places", WEFT_WEIGHT_EMBEDDING, self->context, self->width);
    (void)b->segment(b->ctx, model, "embed"); /* segment 0 */
    layers = b->module(b->ctx, model, "layers", "ModuleList");
    for (l = 0; l < self->layers; l++) declare_block(self, b, layers, l); /* segment 1 + l */
    self->norm = weight(b, model, "norm", WEFT_WEIGHT_GAIN, 1, self->width);
    self->head = b->tie(b->ctx, root, "lm_head", "Linear", self->embed);
    (void)b->segment(b->ctx, root, "head");
    return WEFT_OK;
}

/* ---- forward ---- */

static weft_value attention(const weft_model *self, weft_graph *g, const weft_ops *ops, const block *from,
                            weft_value x) {
    const weft_value h = ops->rms_norm(g, x, from->before_attention, 1e-5);
    const weft_value q = ops->linear(g, h, from->q), k = ops->linear(g, h, from->k), v = ops->linear(g, h, from->v);
    const weft_value starts = ops->starts(g);
    weft_attention_args args;
    weft_value mixed;
    memset(&args, 0, sizeof args);
    args.struct_size = (uint32_t)sizeof args;
    args.heads = args.kv_heads = self->heads;
    args.head_dim = self->width / self->heads;
    args.scale = 1.0 / sqrt((double)args.head_dim);
    mixed = ops->attention(g, q, k, v, starts, &args);
    return ops->add(g, x, ops->linear(g, mixed, from->o));
}

static weft_value perceptron(weft_graph *g, const weft_ops *ops, const block *from, weft_value x) {
    const weft_value h = ops->rms_norm(g, x, from->before_mlp, 1e-5);
    const weft_value inner = ops->activation(g, ops->linear(g, h, from->up), WEFT_SILU);
    return ops->add(g, x, ops->linear(g, inner, from->down));
}

static weft_value weftnew_forward(const weft_model *self, uint32_t segment, weft_graph *g, const weft_ops *ops,
                                  weft_value carry) {
    if (segment == 0) {
        const weft_value words = ops->embedding(g, ops->ids(g), self->embed);
        const weft_value places = ops->embedding(g, ops->positions(g), self->places);
        return ops->add(g, words, places);
    }
    if (segment <= (uint32_t)self->layers) {
        const block *from = &self->blocks[segment - 1];
        const weft_value x = attention(self, g, ops, from, carry);
        return perceptron(g, ops, from, x);
    }
    ops->lm_head(g, ops->rms_norm(g, carry, self->norm, 1e-5), self->head, NULL);
    carry.id = 0; /* the head has no carry */
    return carry;
}

static const weft_model_plugin weftnew_table = {(uint32_t)sizeof(weft_model_plugin),
                                                0,
                                                weftnew_create,
                                                weftnew_destroy,
                                                weftnew_info,
                                                weftnew_declare,
                                                weftnew_forward,
                                                NULL};

WEFT_PLUGIN(model, 1, "weftnew-id", "0.1.0", "Causal attention and a perceptron, with learned positions.",
            weftnew_config, NULL, weftnew_table)
