/* mlp-head: fully connected layers between the last norm and the head, y = x + out(f(... f(fc_0 x))). `out` starts at
 * zero, so that training begins with the base's logits. */
#include "../common/source.h"

#include <math.h>
#include <stdlib.h>
#include <weft/plugin.h>

/* clang-format off */
#define MLP_HEAD_KEYS(K)                                                                                               \
    K(I64, layers, "auto", "[1,64] | auto", "", WEFT_SAME,                                                             \
      "Hidden layers, each with a bias and an activation; auto: 1, or those of from.")                                 \
    K(I64, width, "auto", "[1,16Mi] | auto", "", WEFT_SAME,                                                            \
      "Outputs of each hidden layer; auto: as wide as the model, or those of from.")                                   \
    K(ENUM, activation, "auto", "auto,gelu,gelu_tanh,silu", "", WEFT_SAME,                                             \
      "Activation after each hidden layer; auto: gelu, or the value of from.")
/* clang-format on */
WEFT_KEYS(mlp_head_config, MLP_HEAD_KEYS)

/* Values of the key `activation`, in its order, and the operator's forms. */
static const struct {
    const char *name;
    int32_t form; /* weft_activation_form */
} forms[] = {{"auto", -1}, {"gelu", WEFT_GELU}, {"gelu_tanh", WEFT_GELU_TANH}, {"silu", WEFT_SILU}};
enum { AUTO, GELU, N_FORMS = sizeof forms / sizeof *forms };

enum { MOST_LAYERS = 64 };

struct weft_adapter {
    int64_t layers, width; /* width 0: the model's */
    int64_t activation;    /* index into `forms` */
    weft_weight *hidden[MOST_LAYERS], *out;
    char config_json[160];
};

static void mlp_head_destroy(weft_adapter *self) {
    free(self);
}

static weft_status read_activation(weft_adapter *self, const json_t *config, int64_t asked,
                                   const weft_adapter_source *source, weft_error *err) {
    const char *found = json_string_value(json_object_get(config, "activation"));
    self->activation = AUTO;
    for (int64_t i = GELU; i < N_FORMS; i++)
        if (found != NULL && strcmp(found, forms[i].name) == 0) self->activation = i;
    if (self->activation == AUTO)
        return weft_error_set(err, WEFT_E_DATA, "%s: activation is not valid. Allowed: gelu, gelu_tanh and silu",
                              source->config_path);
    if (asked == AUTO || asked == self->activation) return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER,
                          "activation is %s, and %s has %s: a continued adapter keeps its settings. Fix: remove the "
                          "key, or set it to the value of the file",
                          forms[asked].name, source->config_path, found);
}

/* Reads the shape of a continued adapter. */
static weft_status read_shape(weft_adapter *self, const mlp_head_config *keys, const weft_adapter_source *source,
                              weft_error *err) {
    json_t *config = NULL;
    weft_status status = source_open(&config, source, "MLP_HEAD", err);
    if (status != WEFT_OK) return status;
    status = source_check_keys(config, "layers,width,activation", source, err);
    if (status == WEFT_OK)
        status = source_integer(&self->layers, config, "layers", "layers", keys->layers, source, err);
    if (status == WEFT_OK) status = source_integer(&self->width, config, "width", "width", keys->width, source, err);
    if (status == WEFT_OK) status = read_activation(self, config, keys->activation, source, err);
    if (status == WEFT_OK && self->layers > MOST_LAYERS)
        status = weft_error_set(err, WEFT_E_DATA, "%s: layers is %lld; at most %d are served", source->config_path,
                                (long long)self->layers, MOST_LAYERS);
    json_decref(config);
    return status;
}

static weft_status mlp_head_create(weft_adapter **out, const weft_host *host, const void *config,
                                   const weft_adapter_source *source, weft_error *err) {
    const mlp_head_config *keys = config;
    weft_adapter *self = calloc(1, sizeof *self);
    weft_status status = WEFT_OK;
    (void)host;
    if (self == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for an adapter");
    self->layers = keys->layers == WEFT_AUTO_I64 ? 1 : keys->layers;
    self->width = keys->width == WEFT_AUTO_I64 ? 0 : keys->width;
    self->activation = keys->activation == AUTO ? GELU : keys->activation;
    if (source != NULL) status = read_shape(self, keys, source, err);
    if (status == WEFT_OK) *out = self;
    else mlp_head_destroy(self);
    return status;
}

/* ---- declare ---- */

/* Hidden layers start like torch.nn.Linear, except that biases are zero. */
static weft_weight *add_layer(const weft_builder *b, weft_module *module, const char *name, int64_t out, int64_t in,
                              int starts_at_zero) {
    const weft_weight_spec spec = {.struct_size = (uint32_t)sizeof spec,
                                   .name = name,
                                   .class_name = "Linear",
                                   .role = WEFT_WEIGHT_LINEAR,
                                   .has_bias = 1,
                                   .out = out,
                                   .in = in,
                                   .init_form = starts_at_zero ? WEFT_INIT_NORMAL : WEFT_INIT_UNIFORM,
                                   .init_std = starts_at_zero ? 0 : 1 / sqrt((double)in)};
    return b->weight(b->ctx, module, &spec);
}

static void add_layers(weft_adapter *self, const weft_adapter_job *job, int64_t model_width) {
    const weft_builder *b = job->builder;
    weft_module *module = b->module(b->ctx, NULL, "mlp_head", "MlpHead");
    if (self->width == 0) self->width = model_width;
    for (int64_t i = 0; i < self->layers; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "fc_%lld", (long long)i);
        self->hidden[i] = add_layer(b, module, name, self->width, i == 0 ? model_width : self->width, 0);
    }
    self->out = add_layer(b, module, "out", model_width, self->width, 1);
    (void)snprintf(self->config_json, sizeof self->config_json,
                   "{\"peft_type\": \"MLP_HEAD\", \"layers\": %lld, \"width\": %lld, \"activation\": \"%s\"}",
                   (long long)self->layers, (long long)self->width, forms[self->activation].name);
}

static weft_status mlp_head_declare(weft_adapter *self, const weft_adapter_job *job, weft_error *err) {
    for (uint32_t i = 0; i < job->n_sites; i++) {
        const weft_site *site = weft_adapter_site(job, i);
        if (site->kind != WEFT_SITE_HEAD) continue;
        add_layers(self, job, site->in);
        job->claim(job->builder->ctx, i);
        return WEFT_OK;
    }
    return weft_error_set(
        err, WEFT_E_USER,
        "plugin = mlp-head adds layers before a head, which this model does not have. Fix: choose another adapter");
}

static weft_value mlp_head_head(const weft_adapter *self, uint32_t site, weft_graph *g, const weft_ops *ops,
                                weft_value x) {
    weft_value h = x;
    (void)site;
    for (int64_t i = 0; i < self->layers; i++)
        h = ops->activation(g, ops->linear(g, h, self->hidden[i]), forms[self->activation].form);
    return ops->add(g, x, ops->linear(g, h, self->out));
}

static const char *mlp_head_config_json(const weft_adapter *self) {
    return self->config_json;
}

static const weft_adapter_plugin mlp_head_table = {.struct_size = (uint32_t)sizeof mlp_head_table,
                                                   .create = mlp_head_create,
                                                   .destroy = mlp_head_destroy,
                                                   .declare = mlp_head_declare,
                                                   .head = mlp_head_head,
                                                   .config_json = mlp_head_config_json};

WEFT_PLUGIN(adapter, 1, "mlp-head", "0.1.0", "Fully connected layers between the last norm and the head.",
            mlp_head_config, NULL, mlp_head_table)
