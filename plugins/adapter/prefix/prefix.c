/* prefix: trained keys and values before every document (Li and Liang, arXiv 2101.00190), as PEFT's PREFIX_TUNING
 * without a projection. One softmax covers the prefix and the document, and the document's positions start at
 * `length`. */
#include "../common/source.h"

#include <stdlib.h>
#include <weft/plugin.h>

/* clang-format off */
#define PREFIX_KEYS(K)                                                                                                 \
    K(I64, length, "auto", "[1,64Ki] | auto", "positions", WEFT_SAME,                                                  \
      "Keys and values that are trained for each layer; auto: 20, or those of from.")                                  \
    K(F64, init_std, "1", "[0,inf)", "", WEFT_SAME, "They start as normal numbers with this deviation; 1 in PEFT.")
/* clang-format on */
WEFT_KEYS(prefix_config, PREFIX_KEYS)

typedef struct prefix_part {
    weft_weight *k, *v;
    const char *path; /* path of the common parent module */
} prefix_part;

struct weft_adapter {
    int64_t length;
    double init_std;
    prefix_part *parts; /* [n_sites] */
    uint32_t n_sites;
    int64_t width, layers; /* width of keys, and number of attentions */
    char config_json[320];
};

static void prefix_destroy(weft_adapter *self) {
    if (self == NULL) return;
    free(self->parts);
    free(self);
}

/* Reads the length of a continued adapter. */
static weft_status read_length(weft_adapter *self, int64_t asked, const weft_adapter_source *source, weft_error *err) {
    json_t *config = NULL;
    weft_status status = source_open(&config, source, "PREFIX_TUNING", err);
    if (status != WEFT_OK) return status;
    status = source_check_keys(config,
                               "num_virtual_tokens,token_dim,num_transformer_submodules,num_attention_heads,num_layers,"
                               "encoder_hidden_size,prefix_projection,init_weights",
                               source, err);
    if (status == WEFT_OK)
        status = source_integer(&self->length, config, "num_virtual_tokens", "length", asked, source, err);
    json_decref(config);
    return status;
}

static weft_status prefix_create(weft_adapter **out, const weft_host *host, const void *config,
                                 const weft_adapter_source *source, weft_error *err) {
    const prefix_config *keys = config;
    weft_adapter *self = calloc(1, sizeof *self);
    weft_status status = WEFT_OK;
    (void)host;
    if (self == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for an adapter");
    self->length = keys->length == WEFT_AUTO_I64 ? 20 : keys->length;
    self->init_std = keys->init_std;
    if (source != NULL) status = read_length(self, keys->length, source, err);
    if (status == WEFT_OK) *out = self;
    else prefix_destroy(self);
    return status;
}

static weft_weight *add_rows(const weft_adapter *self, const weft_adapter_job *job, const weft_site *site,
                             const char *name) {
    const weft_builder *b = job->builder;
    const weft_weight_spec spec = {.struct_size = (uint32_t)sizeof spec,
                                   .name = name,
                                   .class_name = "Prefix",
                                   .role = WEFT_WEIGHT_EMBEDDING,
                                   .out = self->length,
                                   .in = site->kv_heads * site->head_dim,
                                   .init_std = self->init_std};
    return b->weight(b->ctx, site->module, &spec);
}

/* Checks that all layers have one width: PEFT has one table for all layers. */
static weft_status check_width(weft_adapter *self, const weft_site *site, weft_error *err) {
    const int64_t width = site->kv_heads * site->head_dim;
    if (self->layers == 0) self->width = width;
    if (width == self->width) return WEFT_OK;
    return weft_error_set(err, WEFT_E_UNSUPPORTED,
                          "plugin = prefix has one table for all layers, and keys of '%s' have %lld numbers, those "
                          "before it %lld. Fix: choose another adapter",
                          site->path, (long long)width, (long long)self->width);
}

static void write_config(weft_adapter *self, int64_t kv_heads) {
    (void)snprintf(self->config_json, sizeof self->config_json,
                   "{\"peft_type\": \"PREFIX_TUNING\", \"num_virtual_tokens\": %lld, \"num_layers\": %lld, "
                   "\"token_dim\": %lld, \"num_attention_heads\": %lld, \"encoder_hidden_size\": %lld, "
                   "\"num_transformer_submodules\": 1, \"prefix_projection\": false}",
                   (long long)self->length, (long long)self->layers, (long long)self->width, (long long)kv_heads,
                   (long long)self->width);
}

static weft_status prefix_declare(weft_adapter *self, const weft_adapter_job *job, weft_error *err) {
    self->parts = calloc((size_t)job->n_sites + 1, sizeof *self->parts);
    self->n_sites = job->n_sites;
    if (self->parts == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for an adapter");
    for (uint32_t i = 0; i < job->n_sites; i++) {
        const weft_site *site = weft_adapter_site(job, i);
        weft_status status = WEFT_OK;
        if (site->kind != WEFT_SITE_ATTENTION) continue;
        status = check_width(self, site, err);
        if (status != WEFT_OK) return status;
        self->parts[i].k = add_rows(self, job, site, "prefix_k");
        self->parts[i].v = add_rows(self, job, site, "prefix_v");
        self->parts[i].path = site->path;
        job->claim(job->builder->ctx, i);
        self->layers++;
        write_config(self, site->kv_heads);
    }
    if (self->layers > 0) return WEFT_OK;
    return weft_error_set(
        err, WEFT_E_USER,
        "plugin = prefix needs attention, which this model does not have. Fix: choose another adapter");
}

static weft_value prefix_attention(const weft_adapter *self, uint32_t site, weft_graph *g, const weft_ops *ops,
                                   weft_value q, weft_value k, weft_value v, weft_value starts,
                                   const weft_attention_args *args) {
    const weft_value keys = ops->matrix(g, self->parts[site].k);
    const weft_value values = ops->matrix(g, self->parts[site].v);
    return ops->attention_with_prefix(g, q, k, v, starts, keys, values, args);
}

/* PEFT's table is (length, layers * 2 * width): for each layer the keys, then the values. PEFT does not wrap the base
 * in a model of its own here, so the base's weights are named base_model.X. */
static weft_status prefix_tensor(const weft_adapter *self, const char *parameter, weft_adapter_tensor *out,
                                 weft_error *err) {
    int64_t column = 0;
    (void)err;
    for (uint32_t i = 0; i < self->n_sites; i++) {
        const char *path = self->parts[i].path;
        const size_t n = path == NULL ? 0 : strlen(path);
        if (path == NULL) continue;
        if (strncmp(parameter, path, n) == 0 && strncmp(parameter + n, ".prefix_", 8) == 0) {
            (void)snprintf(out->name, sizeof out->name, "prompt_embeddings");
            out->dims[1] = self->layers * 2 * self->width;
            out->column = column + (parameter[n + 8] == 'v' ? self->width : 0);
        }
        column += 2 * self->width;
    }
    if (strncmp(out->name, "base_model.", 11) != 0) return WEFT_OK;
    (void)snprintf(out->name, sizeof out->name, "base_model.%s", parameter);
    return WEFT_OK;
}

static const char *prefix_config_json(const weft_adapter *self) {
    return self->config_json;
}

static const weft_adapter_plugin prefix_table = {(uint32_t)sizeof(weft_adapter_plugin),
                                                 WEFT_ADAPTER_PEFT,
                                                 prefix_create,
                                                 prefix_destroy,
                                                 prefix_declare,
                                                 NULL,
                                                 NULL,
                                                 prefix_attention,
                                                 NULL,
                                                 prefix_tensor,
                                                 prefix_config_json,
                                                 NULL,
                                                 NULL};

WEFT_PLUGIN(adapter, 1, "prefix", "0.1.0",
            "Trained keys and values of every layer (arXiv 2101.00190), as PEFT has them.", prefix_config, NULL,
            prefix_table)
