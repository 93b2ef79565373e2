/* vera: y = x W^T + bias + b * ((d * (x A^T)) B^T) at the named linears, as in PEFT (Kopiczko et al., arXiv
 * 2310.11454). A (rank, in) and B (out, rank) are random, frozen and shared. d (rank) and b (out) are trained; b starts
 * at zero, so that the initial model is unchanged.
 *
 * Written only against the SDK's headers, for test_against_peft.c. As in PEFT, one B of the largest height serves all
 * matrices with its first rows. PEFT's single A does the same with its first columns, which weight objects do not
 * support; here there is one A per width. */
#include <math.h>
#include <stdlib.h>
#include <weft/adapter.h>
#include <weft/plugin.h>

#define VERA_KEYS(K)                                                                                                   \
    K(I64, r, "256", "[1,64k]", "", WEFT_SAME, "Rows of A and columns of B.")                                          \
    K(F64, d_initial, "0.1", "[0,inf)", "", WEFT_SAME, "What d starts at.")                                            \
    K(LIST, targets, "q_proj,v_proj", "", "", WEFT_SAME, "Names of modules.")
WEFT_KEYS(vera_config, VERA_KEYS)

typedef struct vera_part {
    weft_weight *a, *b, *lambda_d, *lambda_b; /* NULL: site without adapter */
} vera_part;

struct weft_adapter {
    int64_t r;
    double d_initial;
    char *targets; /* ",q_proj,v_proj," */
    vera_part *parts;
};

static void vera_destroy(weft_adapter *self) {
    if (self == NULL) return;
    free(self->targets);
    free(self->parts);
    free(self);
}

static weft_status vera_create(weft_adapter **out, const weft_host *host, const void *config,
                               const weft_adapter_source *source, weft_error *err) {
    const vera_config *keys = config;
    weft_adapter *self = calloc(1, sizeof *self);
    const size_t n = strlen(keys->targets) + 3;
    (void)host;
    (void)source;
    if (self != NULL) self->targets = malloc(n);
    if (self == NULL || self->targets == NULL) {
        vera_destroy(self);
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for an adapter");
    }
    (void)snprintf(self->targets, n, ",%s,", keys->targets);
    self->r = keys->r;
    self->d_initial = keys->d_initial;
    *out = self;
    return WEFT_OK;
}

static int is_target(const weft_adapter *self, const weft_site *site) {
    const char *dot = strrchr(site->path, '.'), *name = dot == NULL ? site->path : dot + 1;
    char item[256];
    if (site->kind != WEFT_SITE_LINEAR || site->whole >= 0) return 0;
    (void)snprintf(item, sizeof item, ",%.250s,", name);
    return strstr(self->targets, item) != NULL;
}

/* Adds a frozen random matrix. */
static weft_weight *add_projection(const weft_builder *b, weft_module *shared, const char *name, int64_t out,
                                   int64_t in) {
    weft_weight_spec spec = {.struct_size = (uint32_t)sizeof spec, .name = name, .class_name = "Linear"};
    spec.role = WEFT_WEIGHT_LINEAR;
    spec.out = out;
    spec.in = in;
    spec.init_form = WEFT_INIT_UNIFORM;
    spec.init_std = sqrt(6.0 / (double)in); /* kaiming_uniform_, as in PEFT */
    spec.frozen = 1;
    return b->weight(b->ctx, shared, &spec);
}

static weft_weight *add_lambda(const weft_builder *b, weft_module *module, const char *name, int64_t n, double start) {
    weft_weight_spec spec = {.struct_size = (uint32_t)sizeof spec, .name = name, .class_name = "Lambda"};
    spec.role = WEFT_WEIGHT_GAIN;
    spec.out = 1;
    spec.in = n;
    spec.init_form = WEFT_INIT_CONSTANT;
    spec.init_std = start;
    return b->weight(b->ctx, module, &spec);
}

static int64_t most_rows(const weft_adapter *self, const weft_adapter_job *job) {
    int64_t most = 0;
    for (uint32_t i = 0; i < job->n_sites; i++) {
        const weft_site *site = weft_adapter_site(job, i);
        if (is_target(self, site) && site->out > most) most = site->out;
    }
    return most;
}

static weft_weight *find_a(const weft_adapter *self, const weft_adapter_job *job, uint32_t i) {
    for (uint32_t k = 0; k < i; k++)
        if (self->parts[k].a != NULL && weft_adapter_site(job, k)->in == weft_adapter_site(job, i)->in)
            return self->parts[k].a;
    return NULL;
}

static weft_status vera_declare(weft_adapter *self, const weft_adapter_job *job, weft_error *err) {
    const weft_builder *b = job->builder;
    const int64_t rows = most_rows(self, job);
    weft_module *shared = b->module(b->ctx, NULL, "vera", "VeraProjections");
    weft_weight *whole = NULL;
    self->parts = calloc(job->n_sites + 1u, sizeof *self->parts);
    if (self->parts == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for an adapter");
    if (rows == 0)
        return weft_error_set(err, WEFT_E_USER, "targets names no linear of this model, such as %s",
                              job->n_sites > 0 ? weft_adapter_site(job, 0)->path : "any");
    whole = add_projection(b, shared, "vera_B", rows, self->r);
    for (uint32_t i = 0; i < job->n_sites; i++) {
        const weft_site *site = weft_adapter_site(job, i);
        vera_part *part = &self->parts[i];
        char name[64];
        if (!is_target(self, site)) continue;
        (void)snprintf(name, sizeof name, "vera_A_%lld", (long long)site->in);
        part->a = find_a(self, job, i);
        if (part->a == NULL) part->a = add_projection(b, shared, name, self->r, site->in);
        part->b = site->out == rows ? whole : b->slice(b->ctx, whole, 0, site->out);
        part->lambda_d = add_lambda(b, site->module, "vera_lambda_d", self->r, self->d_initial);
        part->lambda_b = add_lambda(b, site->module, "vera_lambda_b", site->out, 0);
        job->claim(b->ctx, i);
    }
    return WEFT_OK;
}

static weft_value vera_linear(const weft_adapter *self, uint32_t site, weft_graph *g, const weft_ops *ops, weft_value x,
                              weft_weight *weight) {
    const vera_part *part = &self->parts[site];
    const weft_value y = ops->linear(g, x, weight);
    weft_value a = ops->linear(g, x, part->a);
    a = ops->multiply(g, a, part->lambda_d);
    a = ops->linear(g, a, part->b);
    a = ops->multiply(g, a, part->lambda_b);
    return ops->add(g, y, a);
}

/* PEFT stores factors as parameters and not as modules. */
static weft_status vera_tensor(const weft_adapter *self, const char *parameter, weft_adapter_tensor *out,
                               weft_error *err) {
    char *end = strstr(out->name, ".weight");
    (void)self;
    (void)err;
    if (end != NULL && strstr(parameter, ".vera_lambda_") != NULL) *end = 0;
    return WEFT_OK;
}

static const weft_adapter_plugin vera_table = {.struct_size = (uint32_t)sizeof vera_table,
                                               .flags = WEFT_ADAPTER_PEFT,
                                               .create = vera_create,
                                               .destroy = vera_destroy,
                                               .declare = vera_declare,
                                               .linear = vera_linear,
                                               .tensor = vera_tensor};

WEFT_PLUGIN(adapter, 1, "vera", "0.1.0", "Trained factors between shared random projections, as PEFT's VeRA.",
            vera_config, NULL, vera_table)
