/* llama-adapter: trained prompts in the upper layers with separate attention and a gate that starts at zero (Zhang et
 * al., arXiv 2303.16199), as PEFT's AdaptionPrompt. Keys and values are the layer's own projections of the prompt. The
 * gate is one number per layer. The result is added before the output projection, which must have no bias. */
#include "../common/source.h"

#include <stdlib.h>
#include <weft/plugin.h>

/* clang-format off */
#define LLAMA_ADAPTER_KEYS(K)                                                                                          \
    K(I64, length, "auto", "[1,64Ki] | auto", "positions", WEFT_SAME,                                                  \
      "Prompt of each layer that has one; auto: 10, or that of from.")                                                 \
    K(I64, layers, "auto", "[1,inf) | auto", "", WEFT_SAME,                                                            \
      "How many of the last blocks have one; auto: 30, or all where there are fewer, or those of from.")
/* clang-format on */
WEFT_KEYS(llama_adapter_config, LLAMA_ADAPTER_KEYS)

enum { USUAL_LAYERS = 30 };

/* Prompt of one attention; NULL: not adapted. The projections are the model's. */
typedef struct prompt_part {
    weft_weight *prompt, *gate, *k_proj, *v_proj;
    const char *path; /* path of the attention */
} prompt_part;

struct weft_adapter {
    int64_t length, layers; /* layers 0: the default number */
    prompt_part *parts;     /* [n_sites] */
    uint32_t n_sites;
    char config_json[320];
};

static void llama_adapter_destroy(weft_adapter *self) {
    if (self == NULL) return;
    free(self->parts);
    free(self);
}

/* Reads the sizes of a continued adapter. */
static weft_status read_sizes(weft_adapter *self, const llama_adapter_config *keys, const weft_adapter_source *source,
                              weft_error *err) {
    json_t *config = NULL;
    weft_status status = source_open(&config, source, "ADAPTION_PROMPT", err);
    if (status != WEFT_OK) return status;
    status = source_check_keys(config, "adapter_len,adapter_layers", source, err);
    if (status == WEFT_OK)
        status = source_integer(&self->length, config, "adapter_len", "length", keys->length, source, err);
    if (status == WEFT_OK)
        status = source_integer(&self->layers, config, "adapter_layers", "layers", keys->layers, source, err);
    json_decref(config);
    return status;
}

static weft_status llama_adapter_create(weft_adapter **out, const weft_host *host, const void *config,
                                        const weft_adapter_source *source, weft_error *err) {
    const llama_adapter_config *keys = config;
    weft_adapter *self = calloc(1, sizeof *self);
    weft_status status = WEFT_OK;
    (void)host;
    if (self == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for an adapter");
    self->length = keys->length == WEFT_AUTO_I64 ? 10 : keys->length;
    self->layers = keys->layers == WEFT_AUTO_I64 ? 0 : keys->layers;
    if (source != NULL) status = read_sizes(self, keys, source, err);
    if (status == WEFT_OK) *out = self;
    else llama_adapter_destroy(self);
    return status;
}

/* ---- declare ---- */

static const weft_site *find_below(const weft_adapter_job *job, const char *path, const char *name) {
    const size_t n = strlen(path);
    for (uint32_t i = 0; i < job->n_sites; i++) {
        const weft_site *site = weft_adapter_site(job, i);
        if (site->kind == WEFT_SITE_LINEAR && site->whole < 0 && strncmp(site->path, path, n) == 0 &&
            site->path[n] == '.' && strcmp(site->path + n + 1, name) == 0)
            return site;
    }
    return NULL;
}

/* Finds the layer's projections of keys and values. */
static weft_status take_projections(prompt_part *part, const weft_adapter_job *job, const weft_site *site,
                                    weft_error *err) {
    const weft_site *k = find_below(job, site->path, "k_proj"), *v = find_below(job, site->path, "v_proj");
    const weft_site *o = find_below(job, site->path, "o_proj");
    const int64_t width = site->kv_heads * site->head_dim;
    if (k == NULL || v == NULL || o == NULL || k->out != width || v->out != width || k->in != job->width)
        return weft_error_set(err, WEFT_E_UNSUPPORTED,
                              "plugin = llama-adapter computes keys and values of a prompt by k_proj and v_proj below "
                              "'%s', which this model does not have. Fix: choose another adapter",
                              site->path);
    if (o->has_bias)
        return weft_error_set(err, WEFT_E_UNSUPPORTED,
                              "'%s' has a bias, which PEFT's AdaptionPrompt adds two times; llama-adapter supports "
                              "only models without it. Fix: choose another adapter",
                              o->path);
    part->path = site->path;
    part->k_proj = k->weight;
    part->v_proj = v->weight;
    return WEFT_OK;
}

static weft_status add_prompt(weft_adapter *self, const weft_adapter_job *job, uint32_t i, weft_error *err) {
    const weft_site *site = weft_adapter_site(job, i);
    const weft_builder *b = job->builder;
    const weft_weight_spec prompt = {.struct_size = (uint32_t)sizeof prompt,
                                     .name = "adaption_prompt",
                                     .class_name = "AdaptionPrompt",
                                     .role = WEFT_WEIGHT_EMBEDDING,
                                     .out = self->length,
                                     .in = job->width,
                                     .init_std = 1};
    const weft_weight_spec gate = {.struct_size = (uint32_t)sizeof gate,
                                   .name = "adaption_gate",
                                   .class_name = "AdaptionGate",
                                   .role = WEFT_WEIGHT_GAIN,
                                   .out = 1,
                                   .in = 1,
                                   .init_form = WEFT_INIT_CONSTANT};
    const weft_status status = take_projections(&self->parts[i], job, site, err);
    if (status != WEFT_OK) return status;
    self->parts[i].prompt = b->weight(b->ctx, site->module, &prompt);
    self->parts[i].gate = b->weight(b->ctx, site->module, &gate);
    job->claim(b->ctx, i);
    return WEFT_OK;
}

/* PEFT identifies the attention by the last component of its path. */
static void write_config(weft_adapter *self, const weft_site *site, int64_t layers) {
    const char *dot = strrchr(site->path, '.');
    (void)snprintf(self->config_json, sizeof self->config_json,
                   "{\"peft_type\": \"ADAPTION_PROMPT\", \"adapter_len\": %lld, \"adapter_layers\": %lld, "
                   "\"target_modules\": \"%.128s\"}",
                   (long long)self->length, (long long)layers, dot == NULL ? site->path : dot + 1);
}

static weft_status llama_adapter_declare(weft_adapter *self, const weft_adapter_job *job, weft_error *err) {
    const int64_t usual = job->n_layers < USUAL_LAYERS ? job->n_layers : USUAL_LAYERS;
    const int64_t layers = self->layers == 0 ? usual : self->layers;
    weft_status status = WEFT_OK;
    int any = 0;
    if (layers > job->n_layers)
        return weft_error_set(err, WEFT_E_USER, "layers is %lld, and this model has %lld blocks", (long long)layers,
                              (long long)job->n_layers);
    self->n_sites = job->n_sites;
    self->parts = calloc((size_t)job->n_sites + 1, sizeof *self->parts);
    if (self->parts == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for an adapter");
    for (uint32_t i = 0; i < job->n_sites && status == WEFT_OK; i++) {
        const weft_site *site = weft_adapter_site(job, i);
        if (site->kind != WEFT_SITE_ATTENTION || site->layer < job->n_layers - layers) continue;
        status = add_prompt(self, job, i, err);
        write_config(self, site, layers);
        any = 1;
    }
    if (status != WEFT_OK || any) return status;
    return weft_error_set(err, WEFT_E_USER,
                          "plugin = llama-adapter needs attention in blocks, which this model does not have. Fix: "
                          "choose another adapter");
}

/* ---- compute ---- */

static weft_value llama_adapter_attention(const weft_adapter *self, uint32_t site, weft_graph *g, const weft_ops *ops,
                                          weft_value q, weft_value k, weft_value v, weft_value starts,
                                          const weft_attention_args *args) {
    const prompt_part *part = &self->parts[site];
    const weft_value o = ops->attention(g, q, k, v, starts, args);
    const weft_value prompt = ops->matrix(g, part->prompt);
    const weft_value keys = ops->linear(g, prompt, part->k_proj);
    const weft_value values = ops->linear(g, prompt, part->v_proj);
    weft_value more = ops->prefix_attention(g, q, keys, values, args);
    more = ops->multiply(g, more, part->gate);
    return ops->add(g, o, more);
}

/* ---- files ---- */

/* PEFT wraps an attention with a prompt in a module as `model`, and ignores completely trained modules in it under
 * another name. */
static weft_status name_wrapped(const weft_adapter *self, const char *parameter, weft_adapter_tensor *out,
                                weft_error *err) {
    for (uint32_t i = 0; i < self->n_sites; i++) {
        const char *path = self->parts[i].path;
        const size_t n = path == NULL ? 0 : strlen(path), before = strlen(out->name) - strlen(parameter);
        char name[sizeof out->name];
        if (path == NULL || strncmp(parameter, path, n) != 0 || parameter[n] != '.') continue;
        if ((size_t)snprintf(name, sizeof name, "%.*s%s.model%s", (int)before, out->name, path, parameter + n) >=
            sizeof name)
            return weft_error_set(err, WEFT_E_UNSUPPORTED, "'%s' is too long a name for PEFT's files", parameter);
        memcpy(out->name, name, sizeof name);
        return WEFT_OK;
    }
    return WEFT_OK;
}

/* PEFT stores both as parameters, the prompt as (1, length, width). */
static weft_status llama_adapter_tensor(const weft_adapter *self, const char *parameter, weft_adapter_tensor *out,
                                        weft_error *err) {
    char *end = strstr(out->name, ".weight");
    const int is_prompt = strstr(parameter, ".adaption_prompt.") != NULL;
    if (!is_prompt && strstr(parameter, ".adaption_gate.") == NULL) return name_wrapped(self, parameter, out, err);
    if (end == NULL) return WEFT_OK;
    *end = 0;
    if (!is_prompt) return WEFT_OK;
    out->rank = 3;
    out->dims[2] = out->dims[1];
    out->dims[1] = out->dims[0];
    out->dims[0] = 1;
    return WEFT_OK;
}

static const char *llama_adapter_config_json(const weft_adapter *self) {
    return self->config_json;
}

static const weft_adapter_plugin llama_adapter_table = {(uint32_t)sizeof(weft_adapter_plugin),
                                                        WEFT_ADAPTER_PEFT,
                                                        llama_adapter_create,
                                                        llama_adapter_destroy,
                                                        llama_adapter_declare,
                                                        NULL,
                                                        NULL,
                                                        llama_adapter_attention,
                                                        NULL,
                                                        llama_adapter_tensor,
                                                        llama_adapter_config_json,
                                                        NULL,
                                                        NULL};

WEFT_PLUGIN(adapter, 1, "llama-adapter", "0.1.0",
            "Prompts that upper layers attend to by a gate (arXiv 2303.16199), as PEFT has them.", llama_adapter_config,
            NULL, llama_adapter_table)
