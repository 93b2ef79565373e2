/* ia3: trained factors of activations (Liu et al., arXiv 2205.05638) as in PEFT. They scale a linear's output including
 * its bias, or the input of modules that `feedforward` names. They start at one. */
#include "../common/source.h"
#include "../common/targets.h"

#include <stdlib.h>
#include <weft/plugin.h>

/* clang-format off */
#define IA3_KEYS(K)                                                                                                    \
    K(LIST, targets, "auto", "", "", WEFT_SAME,                                                                        \
      "Modules with scaled activations: names, patterns with *, or all-linear; auto: k_proj, v_proj, down_proj, or "   \
      "the value of from.")                                                                                            \
    K(LIST, feedforward, "auto", "", "", WEFT_SAME,                                                                    \
      "Targets with a scaled input instead of output; none: no module; auto: down_proj, or the value of from.")        \
    K(LIST, layers, "all", "", "", WEFT_SAME, "Blocks: all, first:N, last:N, or numbers from 0.")
/* clang-format on */
WEFT_KEYS(ia3_config, IA3_KEYS)

/* The factors at one site; NULL: not adapted. */
typedef struct ia3_part {
    weft_weight *factors;
    const char *path; /* path of the site */
    int64_t in;
    int of_input, has_bias;
} ia3_part;

struct weft_adapter {
    char *names, *feedforward, *layers; /* owned */
    /* A continued adapter: exclusions from its file, as names or as an expression; NULL: a new adapter. */
    char *left_out, *left_out_regex; /* owned */
    /* A continued adapter: values of keys in addition to its file; NULL: not set. */
    char *asked_names, *asked_feedforward; /* owned */
    char *source;                          /* owned; file of a continued adapter; NULL: a new one */
    ia3_part *parts;                       /* [n_sites] */
    uint32_t n_sites;
    char *config_json; /* owned */
};

static void ia3_destroy(weft_adapter *self) {
    if (self == NULL) return;
    free(self->names);
    free(self->feedforward);
    free(self->layers);
    free(self->left_out);
    free(self->left_out_regex);
    free(self->asked_names);
    free(self->asked_feedforward);
    free(self->source);
    free(self->parts);
    free(self->config_json);
    free(self);
}

static char *copy_or(const char *text, const char *instead) {
    return strdup(strcmp(text, "auto") == 0 ? instead : text);
}

/* Reads the modules of a continued adapter. */
static weft_status read_modules(weft_adapter *self, const ia3_config *keys, const weft_adapter_source *source,
                                weft_error *err) {
    json_t *config = NULL;
    const json_t *left_out = NULL;
    weft_status status = source_open(&config, source, "IA3", err);
    if (status != WEFT_OK) return status;
    status = source_check_keys(config, "exclude_modules,feedforward_modules,init_ia3_weights", source, err);
    if (status == WEFT_OK) status = source_list(&self->names, config, "target_modules", source, err);
    if (status == WEFT_OK) status = source_list(&self->feedforward, config, "feedforward_modules", source, err);
    left_out = json_object_get(config, "exclude_modules");
    if (json_is_string(left_out)) self->left_out = strdup("");
    else if (status == WEFT_OK) status = source_list(&self->left_out, config, "exclude_modules", source, err);
    self->left_out_regex = strdup(json_is_string(left_out) ? json_string_value(left_out) : "");
    if (status == WEFT_OK && self->feedforward[0] == 0) {
        free(self->feedforward);
        self->feedforward = strdup("none");
    }
    json_decref(config);
    self->source = strdup(source->config_path);
    if (self->source == NULL || self->left_out_regex == NULL || (status == WEFT_OK && self->left_out == NULL))
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for an adapter");
    if (status != WEFT_OK || self->names == NULL || self->feedforward == NULL ||
        (strcmp(keys->targets, "auto") == 0 && strcmp(keys->feedforward, "auto") == 0))
        return status;
    self->asked_names = copy_or(keys->targets, self->names);
    self->asked_feedforward = copy_or(keys->feedforward, self->feedforward);
    return self->asked_names == NULL || self->asked_feedforward == NULL
               ? weft_error_set(err, WEFT_E_MEMORY, "no memory for an adapter")
               : WEFT_OK;
}

static weft_status ia3_create(weft_adapter **out, const weft_host *host, const void *config,
                              const weft_adapter_source *source, weft_error *err) {
    const ia3_config *keys = config;
    weft_adapter *self = calloc(1, sizeof *self);
    weft_status status = WEFT_OK;
    (void)host;
    if (self == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for an adapter");
    if (source != NULL) status = read_modules(self, keys, source, err);
    else self->names = copy_or(keys->targets, "k_proj,v_proj,down_proj");
    if (source == NULL) self->feedforward = copy_or(keys->feedforward, "down_proj");
    self->layers = strdup(keys->layers);
    if (status == WEFT_OK && (self->names == NULL || self->feedforward == NULL || self->layers == NULL))
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for an adapter");
    if (status == WEFT_OK) *out = self;
    else ia3_destroy(self);
    return status;
}

/* ---- declare ---- */

static int is_read_in_slices(const weft_adapter_job *job, uint32_t i) {
    for (uint32_t k = 0; k < job->n_sites; k++)
        if (weft_adapter_site(job, k)->whole == (int32_t)i) return 1;
    return 0;
}

static weft_status add_factors(weft_adapter *self, const weft_adapter_job *job, uint32_t i, int of_input,
                               weft_error *err) {
    const weft_site *site = weft_adapter_site(job, i);
    const weft_builder *b = job->builder;
    weft_weight_spec spec = {.struct_size = (uint32_t)sizeof spec,
                             .name = "ia3_l",
                             .class_name = "IA3",
                             .role = WEFT_WEIGHT_GAIN,
                             .out = 1,
                             .in = of_input ? site->in : site->out};
    if (is_read_in_slices(job, i))
        return weft_error_set(err, WEFT_E_UNSUPPORTED,
                              "targets has '%s', which this model stores as one matrix and reads in slices; ia3 scales "
                              "only complete matrices. Fix: remove it",
                              site->path);
    self->parts[i].factors = b->weight(b->ctx, site->module, &spec);
    self->parts[i].path = site->path;
    self->parts[i].in = site->in;
    self->parts[i].of_input = of_input;
    self->parts[i].has_bias = site->has_bias;
    job->claim(b->ctx, i);
    return WEFT_OK;
}

/* Checks that feedforward modules are among the targets. */
static weft_status check_feedforward(const weft_adapter_job *job, const uint8_t *chosen, const uint8_t *of_input,
                                     weft_error *err) {
    for (uint32_t i = 0; i < job->n_sites; i++)
        if (of_input[i] && !chosen[i])
            return weft_error_set(err, WEFT_E_USER, "feedforward has '%s', which is not in targets",
                                  weft_adapter_site(job, i)->path);
    return WEFT_OK;
}

/* chosen: [2 n_sites]: the targets, then the targets with scaled inputs. source: the file of these names, or NULL. */
static weft_status choose(const weft_adapter *self, const char *names, const char *feedforward, const char *source,
                          const weft_adapter_job *job, uint8_t *chosen, weft_error *err) {
    const int is_new = self->source == NULL;
    const module_names left_out = {is_new ? "" : self->left_out, is_new ? "" : self->left_out_regex, self->source};
    const targets wanted = {{names, "", source}, left_out, self->layers, 1u << WEFT_SITE_LINEAR};
    const targets inputs = {{feedforward, "", source}, {"", "", self->source}, self->layers, 1u << WEFT_SITE_LINEAR};
    uint8_t *of_input = chosen + job->n_sites;
    weft_status status = targets_choose(&wanted, job, chosen, err);
    if (status != WEFT_OK || strcmp(feedforward, "none") == 0) return status;
    status = targets_choose(&inputs, job, of_input, err);
    if (status != WEFT_OK) return weft_error_prefix(err, "feedforward: ");
    /* Excluded modules are no longer targets. This may exclude all feedforward modules. */
    for (uint32_t i = 0; i < job->n_sites && (left_out.names[0] != 0 || left_out.regex[0] != 0); i++)
        of_input[i] = of_input[i] && chosen[i];
    return check_feedforward(job, chosen, of_input, err);
}

/* Checks that keys match the continued adapter. */
static weft_status compare_keys(const weft_adapter *self, const weft_adapter_job *job, const uint8_t *chosen,
                                weft_error *err) {
    const size_t n = 2 * (size_t)job->n_sites;
    uint8_t *asked = NULL;
    weft_status status = WEFT_OK;
    if (self->asked_names == NULL) return WEFT_OK;
    asked = calloc(n + 1, sizeof *asked);
    if (asked == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for an adapter");
    status = choose(self, self->asked_names, self->asked_feedforward, NULL, job, asked, err);
    if (status == WEFT_OK && memcmp(asked, chosen, n) != 0)
        status = weft_error_set(err, WEFT_E_USER,
                                "targets or feedforward select other modules than %s, which is continued. Fix: remove "
                                "the keys, or set them to the values of the file",
                                self->source);
    free(asked);
    return status;
}

/* Writes complete paths, so that equal selections by patterns, layers and lists have equal files. */
static char *write_config(const weft_adapter *self) {
    json_t *all = json_array(), *inputs = json_array(), *config = NULL;
    char *text = NULL;
    for (uint32_t i = 0; i < self->n_sites; i++) {
        if (self->parts[i].factors == NULL) continue;
        (void)json_array_append_new(all, json_string(self->parts[i].path));
        if (self->parts[i].of_input) (void)json_array_append_new(inputs, json_string(self->parts[i].path));
    }
    config = json_pack("{s:s, s:o, s:o, s:b, s:b}", "peft_type", "IA3", "target_modules", all, "feedforward_modules",
                       inputs, "fan_in_fan_out", 0, "init_ia3_weights", 1);
    text = config == NULL ? NULL : json_dumps(config, JSON_SORT_KEYS);
    json_decref(config);
    return text;
}

static weft_status ia3_declare(weft_adapter *self, const weft_adapter_job *job, weft_error *err) {
    uint8_t *chosen = calloc(2 * (size_t)job->n_sites + 1, sizeof *chosen);
    weft_status status = WEFT_OK;
    self->n_sites = job->n_sites;
    self->parts = calloc((size_t)job->n_sites + 1, sizeof *self->parts);
    if (chosen == NULL || self->parts == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "no memory for an adapter");
    if (status == WEFT_OK) status = choose(self, self->names, self->feedforward, self->source, job, chosen, err);
    if (status == WEFT_OK) status = compare_keys(self, job, chosen, err);
    for (uint32_t i = 0; i < job->n_sites && status == WEFT_OK; i++)
        if (chosen[i]) status = add_factors(self, job, i, chosen[job->n_sites + i], err);
    free(chosen);
    if (status == WEFT_OK) self->config_json = write_config(self);
    if (status == WEFT_OK && self->config_json == NULL)
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for an adapter");
    return status;
}

/* ---- compute ---- */

static weft_value ia3_linear(const weft_adapter *self, uint32_t site, weft_graph *g, const weft_ops *ops, weft_value x,
                             weft_weight *weight) {
    const ia3_part *part = &self->parts[site];
    if (part->of_input) x = ops->multiply(g, x, part->factors);
    x = ops->linear(g, x, weight);
    return part->of_input ? x : ops->multiply(g, x, part->factors);
}

/* ---- files ---- */

/* PEFT stores the factors as a parameter, (out, 1), or (1, in). */
static weft_status ia3_tensor(const weft_adapter *self, const char *parameter, weft_adapter_tensor *out,
                              weft_error *err) {
    char *end = strstr(out->name, ".weight");
    const int64_t n = out->dims[0];
    (void)err;
    for (uint32_t i = 0; i < self->n_sites; i++) {
        const ia3_part *part = &self->parts[i];
        const size_t length = part->factors == NULL ? 0 : strlen(part->path);
        if (length == 0 || strncmp(parameter, part->path, length) != 0 ||
            strncmp(parameter + length, ".ia3_l.", 7) != 0)
            continue;
        if (end != NULL) *end = 0;
        out->rank = 2;
        out->dims[0] = part->of_input ? 1 : n;
        out->dims[1] = part->of_input ? n : 1;
    }
    return WEFT_OK;
}

static const char *ia3_config_json(const weft_adapter *self) {
    return self->config_json;
}

static weft_status ia3_merge(const weft_adapter *self, const weft_merge *what, weft_error *err) {
    const ia3_part *part = &self->parts[what->site];
    const float *factors = what->values(what->context, part->factors);
    if (part->has_bias && !part->of_input)
        return weft_error_set(err, WEFT_E_UNSUPPORTED,
                              "'%s' has a bias, which its factors scale as well; it cannot be merged", part->path);
    for (int64_t i = 0; i < what->rows; i++)
        for (int64_t j = 0; j < part->in; j++)
            what->w[i * part->in + j] *= factors[part->of_input ? j : what->first + i];
    return WEFT_OK;
}

static const weft_adapter_plugin ia3_table = {(uint32_t)sizeof(weft_adapter_plugin),
                                              WEFT_ADAPTER_PEFT,
                                              ia3_create,
                                              ia3_destroy,
                                              ia3_declare,
                                              ia3_linear,
                                              NULL,
                                              NULL,
                                              NULL,
                                              ia3_tensor,
                                              ia3_config_json,
                                              ia3_merge,
                                              NULL};

WEFT_PLUGIN(adapter, 1, "ia3", "0.1.0", "Trained factors of activations (arXiv 2205.05638), as PEFT has them.",
            ia3_config, NULL, ia3_table)
