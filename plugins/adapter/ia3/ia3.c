/* ia3: trained factors of activations (Liu et al., arXiv 2205.05638) as PEFT has them: of what a linear gives, its bias
 * too, or, of modules that `feedforward` names, of what it takes. They start at one. */
#include "../common/targets.h"

#include <stdlib.h>
#include <weft/plugin.h>

/* clang-format off */
#define IA3_KEYS(K)                                                                                                    \
    K(LIST, targets, "k_proj,v_proj,down_proj", "", "", WEFT_SAME,                                                     \
      "Modules whose activations get factors: names, patterns with *, or all-linear.")                                 \
    K(LIST, feedforward, "down_proj", "", "", WEFT_SAME,                                                               \
      "Those of the targets whose input they scale, in place of their output; none: no module.")                       \
    K(LIST, layers, "all", "", "", WEFT_SAME, "Blocks: all, first:N, last:N, or numbers from 0.")
/* clang-format on */
WEFT_KEYS(ia3_config, IA3_KEYS)

/* The factors at one site; NULL: none. */
typedef struct ia3_part {
    weft_weight *factors;
    int of_input;
} ia3_part;

struct weft_adapter {
    char *names, *feedforward, *layers; /* owned */
    ia3_part *parts;                    /* [n_sites] */
};

static void ia3_destroy(weft_adapter *self) {
    if (self == NULL) return;
    free(self->names);
    free(self->feedforward);
    free(self->layers);
    free(self->parts);
    free(self);
}

static weft_status ia3_create(weft_adapter **out, const weft_host *host, const void *config,
                              const weft_adapter_source *source, weft_error *err) {
    const ia3_config *keys = config;
    weft_adapter *self = NULL;
    (void)host;
    if (source != NULL)
        return weft_error_set(err, WEFT_E_UNSUPPORTED, "ia3 begins anew: it continues none of PEFT's directories");
    self = calloc(1, sizeof *self);
    if (self != NULL) {
        self->names = strdup(keys->targets);
        self->feedforward = strdup(keys->feedforward);
        self->layers = strdup(keys->layers);
    }
    if (self == NULL || self->names == NULL || self->feedforward == NULL || self->layers == NULL) {
        ia3_destroy(self);
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for an adapter");
    }
    *out = self;
    return WEFT_OK;
}

/* ---- what is added ---- */

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
                              "targets has '%s', which this model stores as one matrix and reads in parts; ia3 scales "
                              "whole ones: take it out",
                              site->path);
    self->parts[i].factors = b->weight(b->ctx, site->module, &spec);
    self->parts[i].of_input = of_input;
    job->claim(b->ctx, i);
    return WEFT_OK;
}

/* Feedforward modules are among the targets. */
static weft_status check_feedforward(const weft_adapter_job *job, const uint8_t *chosen, const uint8_t *of_input,
                                     weft_error *err) {
    for (uint32_t i = 0; i < job->n_sites; i++)
        if (of_input[i] && !chosen[i])
            return weft_error_set(err, WEFT_E_USER, "feedforward has '%s', which is none of the targets",
                                  weft_adapter_site(job, i)->path);
    return WEFT_OK;
}

static weft_status choose(const weft_adapter *self, const weft_adapter_job *job, uint8_t *chosen, uint8_t *of_input,
                          weft_error *err) {
    const targets wanted = {self->names, "", self->layers, 1u << WEFT_SITE_LINEAR};
    const targets inputs = {self->feedforward, "", self->layers, 1u << WEFT_SITE_LINEAR};
    weft_status status = targets_choose(&wanted, job, chosen, err);
    if (status != WEFT_OK || strcmp(self->feedforward, "none") == 0) return status;
    status = targets_choose(&inputs, job, of_input, err);
    if (status != WEFT_OK) return weft_error_prefix(err, "feedforward: ");
    return check_feedforward(job, chosen, of_input, err);
}

static weft_status ia3_declare(weft_adapter *self, const weft_adapter_job *job, weft_error *err) {
    uint8_t *chosen = calloc(2 * (size_t)job->n_sites + 1, sizeof *chosen);
    weft_status status = WEFT_OK;
    self->parts = calloc((size_t)job->n_sites + 1, sizeof *self->parts);
    if (chosen == NULL || self->parts == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "no memory for an adapter");
    if (status == WEFT_OK) status = choose(self, job, chosen, chosen + job->n_sites, err);
    for (uint32_t i = 0; i < job->n_sites && status == WEFT_OK; i++)
        if (chosen[i]) status = add_factors(self, job, i, chosen[job->n_sites + i], err);
    free(chosen);
    return status;
}

/* ---- what is computed ---- */

static weft_value ia3_linear(const weft_adapter *self, uint32_t site, weft_graph *g, const weft_ops *ops, weft_value x,
                             weft_weight *weight) {
    const ia3_part *part = &self->parts[site];
    if (part->of_input) x = ops->multiply(g, x, part->factors);
    x = ops->linear(g, x, weight);
    return part->of_input ? x : ops->multiply(g, x, part->factors);
}

static const weft_adapter_plugin ia3_table = {
    (uint32_t)sizeof(weft_adapter_plugin), 0, ia3_create, ia3_destroy, ia3_declare, ia3_linear, NULL, NULL, NULL};

WEFT_PLUGIN(adapter, 1, "ia3", "0.1.0", "Trained factors of activations (arXiv 2205.05638), as PEFT has them.",
            ia3_config, NULL, ia3_table)
