/* core: y = x W^T + s ((x A^T) R^T) B^T at every linear, with only the small core R (rank, rank) trained.
 *
 * A and B are random, never trained, and shared by all matrices of one width, as in VeRA (arXiv 2310.11454). The
 * trained parameters are rank^2 numbers per matrix. R starts at zero, so that the adapted model initially equals the
 * base model. */
#include <math.h>
#include <stdlib.h>
#include <weft/adapter.h>
#include <weft/plugin.h>

#define CORE_KEYS(K)                                                                                                   \
    K(I64, rank, "8", "[1,1k]", "", WEFT_SAME, "Rows and columns of a core.")                                          \
    K(F64, scale, "1", "(0,inf)", "", WEFT_SAME, "Factor of the update.")
WEFT_KEYS(core_config, CORE_KEYS)

typedef struct core_part {
    weft_weight *a, *r, *b; /* NULL: the site is not adapted */
    int64_t in, out;
} core_part;

struct weft_adapter {
    core_config keys;
    core_part *parts; /* by site */
};

static weft_status core_create(weft_adapter **out, const weft_host *host, const void *config,
                               const weft_adapter_source *source, weft_error *err) {
    weft_adapter *self = calloc(1, sizeof *self);
    (void)host;
    (void)source; /* all settings are in its keys */
    if (self == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for an adapter");
    self->keys = *(const core_config *)config;
    *out = self;
    return WEFT_OK;
}

static void core_destroy(weft_adapter *self) {
    free(self->parts);
    free(self);
}

/* Adds a weight below a module. deviation 0: starts at zero and is trained. */
static weft_weight *add(const weft_builder *b, weft_module *module, const char *name, int64_t out, int64_t in,
                        double deviation) {
    weft_weight_spec spec = {.struct_size = (uint32_t)sizeof spec, .name = name, .class_name = "Linear"};
    spec.role = WEFT_WEIGHT_LINEAR;
    spec.out = out;
    spec.in = in;
    spec.init_std = deviation;
    spec.frozen = deviation > 0;
    return b->weight(b->ctx, module, &spec);
}

/* Sets the projections of site i: those of an earlier matrix with the same width, or new ones. */
static void share(weft_adapter *self, const weft_adapter_job *job, uint32_t i, weft_module *module) {
    core_part *part = &self->parts[i];
    const int64_t rank = self->keys.rank;
    char name[64];
    for (uint32_t k = 0; k < i; k++) {
        if (self->parts[k].a != NULL && self->parts[k].in == part->in) part->a = self->parts[k].a;
        if (self->parts[k].b != NULL && self->parts[k].out == part->out) part->b = self->parts[k].b;
    }
    (void)snprintf(name, sizeof name, "core_A_%lld", (long long)part->in);
    if (part->a == NULL) part->a = add(job->builder, module, name, rank, part->in, 1 / sqrt((double)part->in));
    (void)snprintf(name, sizeof name, "core_B_%lld", (long long)part->out);
    if (part->b == NULL) part->b = add(job->builder, module, name, part->out, rank, 1 / sqrt((double)rank));
}

static weft_status core_declare(weft_adapter *self, const weft_adapter_job *job, weft_error *err) {
    const weft_builder *b = job->builder;
    weft_module *shared = b->module(b->ctx, NULL, "core", "CoreProjections");
    self->parts = calloc(job->n_sites + 1u, sizeof *self->parts);
    if (self->parts == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for an adapter");
    for (uint32_t i = 0; i < job->n_sites; i++) {
        const weft_site *site = weft_adapter_site(job, i);
        if (site->kind != WEFT_SITE_LINEAR || site->whole >= 0 || site->layer < 0) continue;
        self->parts[i].in = site->in;
        self->parts[i].out = site->out;
        share(self, job, i, shared);
        self->parts[i].r = add(b, site->module, "core_R", self->keys.rank, self->keys.rank, 0);
        job->claim(b->ctx, i);
    }
    return WEFT_OK;
}

static weft_value core_linear(const weft_adapter *self, uint32_t site, weft_graph *g, const weft_ops *ops, weft_value x,
                              weft_weight *weight) {
    const core_part *part = &self->parts[site];
    const weft_value y = ops->linear(g, x, weight);
    const weft_value a = ops->linear(g, x, part->a);
    const weft_value r = ops->linear(g, a, part->r);
    const weft_value b = ops->linear(g, ops->scale(g, r, self->keys.scale), part->b);
    return ops->add(g, y, b);
}

static const weft_adapter_plugin core_table = {.struct_size = (uint32_t)sizeof core_table,
                                               .create = core_create,
                                               .destroy = core_destroy,
                                               .declare = core_declare,
                                               .linear = core_linear};

WEFT_PLUGIN(adapter, 1, "core", "0.1.0", "Small trained cores between shared random projections.", core_config, NULL,
            core_table)
