/* weftnew-id: an adapter: low-rank updates of the linears in the model's blocks.
 *
 *     y = x W^T + (x A^T) B^T
 *
 * The main thread calls `create`, `declare` once, and `linear` for each recording of a segment. Several threads call
 * `merge`, each for separate rows. The added weights are treated like a model's: the host initializes, trains, shards,
 * saves and loads them. The base model does not change. */
#define WEFT_MIN_SDK WEFT_SDK(1, 0) /* the oldest supported host; newer declarations are hidden */
#include <math.h>
#include <weft/adapter.h>
#include <weft/plugin.h>

/* The keys of [adapter]: type, name, default, range, unit, flags, help. They define struct weftnew_config. */
/* clang-format off */
#define WEFTNEW_KEYS(K)                                                                                                \
    K(I64, rank, "4", "[1,1k]", "", WEFT_SAME, "Rows of A, and columns of B.")
/* clang-format on */
WEFT_KEYS(weftnew_config, WEFTNEW_KEYS)

/* Weights added at one site. */
typedef struct low_rank {
    weft_weight *a, *b; /* (rank, in) and (out, rank); NULL: not adapted */
    int64_t in;
} low_rank;

struct weft_adapter {
    const weft_host *host;
    int64_t rank;
    low_rank *at; /* by site; NULL before `declare` */
};

/* A resumed adapter has its rank in the shapes of its file, which the host compares with those declared here. To save
 * more settings, write them in `config_json` and read source->config_text here. */
static weft_status weftnew_create(weft_adapter **out, const weft_host *host, const void *config,
                                  const weft_adapter_source *source, weft_error *err) {
    weft_adapter *self = (weft_adapter *)host->alloc(host, sizeof *self, 8);
    (void)source;
    if (self == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the adapter weftnew-id");
    memset(self, 0, sizeof *self);
    self->host = host;
    self->rank = ((const weftnew_config *)config)->rank;
    *out = self;
    return WEFT_OK;
}

static void weftnew_destroy(weft_adapter *self) {
    if (self == NULL) return;
    self->host->release(self->host, self->at);
    self->host->release(self->host, self);
}

/* Adds a matrix below a module. deviation 0: zeros, so that the adapted model initially equals the base model. */
static weft_weight *add_matrix(const weft_builder *b, weft_module *module, const char *name, int64_t out, int64_t in,
                               double deviation) {
    weft_weight_spec spec;
    memset(&spec, 0, sizeof spec);
    spec.struct_size = (uint32_t)sizeof spec;
    spec.name = name;
    spec.class_name = "Linear";
    spec.role = WEFT_WEIGHT_LINEAR;
    spec.out = out;
    spec.in = in;
    spec.init_std = deviation;
    return b->weight(b->ctx, module, &spec);
}

/* Returns 1 for linears of blocks. A slice (whole >= 0) is adapted with its full matrix. */
static int is_adapted(const weft_site *site) {
    return site->kind == WEFT_SITE_LINEAR && site->whole < 0 && site->layer >= 0;
}

static weft_status check_rank(const weft_adapter *self, const weft_site *site, weft_error *err) {
    if (self->rank <= site->in && self->rank <= site->out) return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER, "rank is %lld, and %s is (%lld, %lld). Allowed: at most its smaller side",
                          (long long)self->rank, site->path, (long long)site->out, (long long)site->in);
}

static weft_status weftnew_declare(weft_adapter *self, const weft_adapter_job *job, weft_error *err) {
    const weft_builder *b = job->builder;
    const size_t bytes = (job->n_sites + (size_t)1) * sizeof *self->at;
    uint32_t i;
    self->at = (low_rank *)self->host->alloc(self->host, bytes, 8);
    if (self->at == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the adapter weftnew-id");
    memset(self->at, 0, bytes);
    for (i = 0; i < job->n_sites; i++) {
        const weft_site *site = weft_adapter_site(job, i);
        if (!is_adapted(site)) continue;
        if (check_rank(self, site, err) != WEFT_OK) return WEFT_E_USER;
        self->at[i].in = site->in;
        self->at[i].a = add_matrix(b, site->module, "weftnew_A", self->rank, site->in, 1 / sqrt((double)site->in));
        self->at[i].b = add_matrix(b, site->module, "weftnew_B", site->out, self->rank, 0);
        job->claim(b->ctx, i);
    }
    return WEFT_OK;
}

static weft_value weftnew_linear(const weft_adapter *self, uint32_t site, weft_graph *g, const weft_ops *ops,
                                 weft_value x, weft_weight *weight) {
    const low_rank *at = &self->at[site];
    const weft_value y = ops->linear(g, x, weight);
    return ops->add(g, y, ops->linear(g, ops->linear(g, x, at->a), at->b));
}

/* Computes W + B A for a range of rows, for `weft merge`. */
static weft_status weftnew_merge(const weft_adapter *self, const weft_merge *what, weft_error *err) {
    const low_rank *at = &self->at[what->site];
    const float *a = what->values(what->context, at->a), *b = what->values(what->context, at->b);
    int64_t i, j, k;
    (void)err;
    for (i = 0; i < what->rows; i++)
        for (k = 0; k < self->rank; k++)
            for (j = 0; j < at->in; j++)
                what->w[i * at->in + j] += b[(what->first + i) * self->rank + k] * a[k * at->in + j];
    return WEFT_OK;
}

/* clang-format off */
static const weft_adapter_plugin weftnew_table = {
    (uint32_t)sizeof(weft_adapter_plugin), 0, weftnew_create, weftnew_destroy, weftnew_declare, weftnew_linear,
    NULL /* embedding */, NULL /* attention */, NULL /* head */, NULL /* tensor */, NULL /* config_json */,
    weftnew_merge, NULL /* extension */};
/* clang-format on */

WEFT_PLUGIN(adapter, 1, "weftnew-id", "0.1.0", "Low-rank updates of the linears in blocks.", weftnew_config, NULL,
            weftnew_table)
