/* lora: low-rank updates (Hu et al., arXiv 2106.09685) as in PEFT: y = x W^T + bias + s (x A^T) B^T with A (r, in) and
 * B (out, r). s = alpha / r, or alpha / sqrt(r) with rank_stabilised (Kalajdzievski, arXiv 2312.03732).
 *
 * At an embedding A is a table (vocabulary, r): the update of a row is s B times its row of A. */
#include "lora.h"

#include <math.h>
#include <stdlib.h>
#include <weft/plugin.h>

WEFT_KEYS_TABLE(lora_config, LORA_KEYS)

/* ---- keys ---- */

static void free_modules(lora_modules *self) {
    free(self->names);
    free(self->regex);
    free(self->layers);
    free(self->layers_pattern);
    free(self->exclude);
    free(self->exclude_regex);
    patterns_free(&self->ranks);
    patterns_free(&self->alphas);
}

static void lora_destroy(weft_adapter *self) {
    if (self == NULL) return;
    free_modules(&self->own);
    free_modules(&self->asked);
    free(self->source);
    free(self->parts);
    free(self->sites);
    free(self->ranks);
    free(self->alphas);
    free(self->config_json);
    free(self);
}

static weft_status no_memory(weft_error *err) {
    return weft_error_set(err, WEFT_E_MEMORY, "no memory for an adapter");
}

static char *copy_or(const char *text, const char *instead) {
    return strdup(strcmp(text, "auto") == 0 ? instead : text);
}

static weft_status refuse_both(weft_error *err) {
    return weft_error_set(err, WEFT_E_USER,
                          "regex and targets both select modules. Fix: remove one of them; an expression can contain "
                          "all modules, as .*\\.(q_proj|v_proj)");
}

static int says(const char *text) {
    return text[0] != 0 && strcmp(text, "auto") != 0;
}

/* Reads the module selection from keys. For a continued adapter they are compared with the file after the sites are
 * known. */
static weft_status take_modules(lora_modules *self, const lora_config *keys, weft_error *err) {
    weft_status status = WEFT_OK;
    self->says_names = says(keys->targets) || says(keys->regex);
    self->says_layers = says(keys->layers);
    self->says_exclude = says(keys->exclude);
    self->says_ranks = says(keys->rank_pattern);
    self->says_alphas = says(keys->alpha_pattern);
    self->names = copy_or(keys->targets, "all-linear");
    self->regex = strdup(keys->regex);
    self->layers = copy_or(keys->layers, "all");
    self->exclude = strdup(!says(keys->exclude) || strcmp(keys->exclude, "none") == 0 ? "" : keys->exclude);
    self->exclude_regex = strdup("");
    if (self->names == NULL || self->regex == NULL || self->layers == NULL || self->exclude == NULL ||
        self->exclude_regex == NULL)
        return no_memory(err);
    status = patterns_of_key(&self->ranks, PATTERN_RANK, keys->rank_pattern, err);
    return status == WEFT_OK ? patterns_of_key(&self->alphas, PATTERN_ALPHA, keys->alpha_pattern, err) : status;
}

static void take_keys(weft_adapter *self, const lora_config *keys) {
    self->r = keys->r == WEFT_AUTO_I64 ? 8 : keys->r;
    self->alpha = keys->alpha == WEFT_AUTO_F64 ? 8 : keys->alpha;
    self->dropout = keys->dropout == WEFT_AUTO_F64 ? 0 : keys->dropout;
    self->dora = keys->dora == LORA_YES;
    self->stabilised = keys->rank_stabilised == LORA_YES;
}

static weft_status refuse_key(const weft_adapter *self, const char *key, weft_error *err) {
    return weft_error_set(err, WEFT_E_USER,
                          "%s differs from the value in %s: a continued adapter keeps its settings. Fix: remove the "
                          "key, or set it to the value of the file",
                          key, self->source);
}

/* Checks that keys match the continued adapter. */
static weft_status compare_keys(const weft_adapter *self, const lora_config *keys, weft_error *err) {
    if (keys->r != WEFT_AUTO_I64 && keys->r != self->r) return refuse_key(self, "r", err);
    if (keys->alpha != WEFT_AUTO_F64 && keys->alpha != self->alpha) return refuse_key(self, "alpha", err);
    if (keys->rank_stabilised != LORA_AUTO && (keys->rank_stabilised == LORA_YES) != (self->stabilised != 0))
        return refuse_key(self, "rank_stabilised", err);
    if (keys->dora != LORA_AUTO && (keys->dora == LORA_YES) != (self->dora != 0)) return refuse_key(self, "dora", err);
    return WEFT_OK;
}

/* Reads the file of a continued adapter, and keys in addition to it. */
static weft_status continue_source(weft_adapter *self, const lora_config *keys, const weft_adapter_source *source,
                                   weft_error *err) {
    weft_status status = WEFT_OK;
    self->source = strdup(source->config_path);
    if (self->source == NULL) return no_memory(err);
    status = lora_read(self, source, err);
    if (status == WEFT_OK) status = compare_keys(self, keys, err);
    if (status == WEFT_OK && keys->dropout != WEFT_AUTO_F64) self->dropout = keys->dropout; /* only used in training */
    return status == WEFT_OK ? take_modules(&self->asked, keys, err) : status;
}

static weft_status lora_create(weft_adapter **out, const weft_host *host, const void *config,
                               const weft_adapter_source *source, weft_error *err) {
    const lora_config *keys = config;
    weft_adapter *self = calloc(1, sizeof *self);
    weft_status status = self == NULL ? no_memory(err) : WEFT_OK;
    (void)host;
    if (status != WEFT_OK) return status;
    self->gaussian = keys->init != LORA_KAIMING;
    if (source == NULL) take_keys(self, keys);
    if (says(keys->targets) && says(keys->regex)) status = refuse_both(err);
    else if (source != NULL) status = continue_source(self, keys, source, err);
    else status = take_modules(&self->own, keys, err);
    if (status == WEFT_OK) *out = self;
    else lora_destroy(self);
    return status;
}

/* ---- declare ---- */

static weft_status check_rank(const weft_adapter *self, const weft_site *site, int64_t r, weft_error *err) {
    const long long rank = (long long)r, out = (long long)site->out, in = (long long)site->in;
    if (r <= site->out && r <= site->in) return WEFT_OK;
    if (r != self->r)
        return weft_error_set(err, WEFT_E_USER,
                              "rank_pattern sets '%s' to rank %lld, and the matrix is (%lld, %lld). Allowed: a rank up "
                              "to the smaller of the two. Fix: reduce it there, or add this module to exclude",
                              site->path, rank, out, in);
    return weft_error_set(
        err, WEFT_E_USER,
        "r is %lld, and '%s' is (%lld, %lld): a rank is at most the smaller of the two. Lower r, or leave "
        "this module out of targets",
        rank, site->path, out, in);
}

/* Initializes A as PEFT does. For a table (vocabulary, r), whose rows are PEFT's columns, it is normal with deviation
 * 1. */
static void start_a(const weft_adapter *self, weft_weight_spec *spec, const weft_site *site, int64_t r) {
    const int table = site->kind == WEFT_SITE_EMBEDDING;
    spec->init_form = !table && !self->gaussian ? WEFT_INIT_UNIFORM : WEFT_INIT_NORMAL;
    spec->init_std = table ? 0 : self->gaussian ? 1 / (double)r : 1 / sqrt((double)site->in);
}

/* As PEFT does: an embedding's A starts at zero and its B as normal, a linear's the reverse. */
static void add_parts(weft_adapter *self, const weft_adapter_job *job, uint32_t i) {
    const weft_site *site = weft_adapter_site(job, i);
    const weft_builder *b = job->builder;
    const int table = site->kind == WEFT_SITE_EMBEDDING;
    const int64_t r = self->parts[i].r;
    weft_weight_spec spec = {.struct_size = (uint32_t)sizeof spec, .class_name = table ? "Embedding" : "Linear"};
    spec.name = table ? "lora_embedding_A" : "lora_A";
    spec.role = table ? WEFT_WEIGHT_EMBEDDING : WEFT_WEIGHT_LINEAR;
    spec.out = table ? site->out : r;
    spec.in = table ? r : site->in;
    start_a(self, &spec, site, r);
    self->parts[i].a = b->weight(b->ctx, site->module, &spec);
    spec.name = table ? "lora_embedding_B" : "lora_B";
    spec.class_name = "Linear";
    spec.role = WEFT_WEIGHT_LINEAR;
    spec.out = table ? site->in : site->out;
    spec.in = r;
    spec.init_form = WEFT_INIT_NORMAL;
    spec.init_std = table ? 1 : 0;
    self->parts[i].b = b->weight(b->ctx, site->module, &spec);
    job->claim(b->ctx, i);
}

/* Adds DoRA's magnitude to a linear that is read completely. It starts at the row norms, so that the update leaves the
 * weight unchanged. */
static weft_status add_magnitude(weft_adapter *self, const weft_adapter_job *job, uint32_t i, weft_error *err) {
    const weft_site *site = weft_adapter_site(job, i);
    const weft_builder *b = job->builder;
    const weft_weight_spec spec = {.struct_size = (uint32_t)sizeof spec,
                                   .name = "lora_magnitude_vector",
                                   .class_name = "Magnitude",
                                   .role = WEFT_WEIGHT_GAIN,
                                   .out = 1,
                                   .in = site->out,
                                   .init_form = WEFT_INIT_ROW_NORMS,
                                   .init_of = site->weight};
    int sliced = 0;
    for (uint32_t k = 0; k < job->n_sites; k++) sliced |= weft_adapter_site(job, k)->whole == (int32_t)i;
    if (site->kind != WEFT_SITE_LINEAR || sliced)
        return weft_error_set(
            err, WEFT_E_UNSUPPORTED,
            "dora = yes, and '%s' is %s, which DoRA does not support. Fix: remove it from targets, or set dora = no",
            site->path, sliced ? "read in parts" : "an embedding");
    self->parts[i].magnitude = b->weight(b->ctx, site->module, &spec);
    return WEFT_OK;
}

/* Takes the rows of B for a weight that is read in slices. */
static void slice_parts(weft_adapter *self, const weft_adapter_job *job, uint32_t i) {
    const weft_site *site = weft_adapter_site(job, i);
    const weft_builder *b = job->builder;
    const lora_part *whole = site->whole < 0 ? NULL : &self->parts[site->whole];
    if (whole == NULL || whole->a == NULL) return;
    self->parts[i] = *whole;
    self->parts[i].b = b->slice(b->ctx, whole->b, site->first, site->out);
}

static weft_status add_site(weft_adapter *self, const weft_adapter_job *job, uint32_t i, weft_error *err) {
    lora_part *part = &self->parts[i];
    weft_status status = WEFT_OK;
    part->r = (int64_t)self->ranks[i];
    part->scale = self->alphas[i] / (self->stabilised ? sqrt(self->ranks[i]) : self->ranks[i]);
    status = check_rank(self, &self->sites[i], part->r, err);
    if (status == WEFT_OK && self->dora) status = add_magnitude(self, job, i, err);
    if (status == WEFT_OK) add_parts(self, job, i);
    return status;
}

static weft_status add_chosen(weft_adapter *self, const weft_adapter_job *job, const uint8_t *chosen, weft_error *err) {
    weft_status status = WEFT_OK;
    for (uint32_t i = 0; i < job->n_sites && status == WEFT_OK; i++) {
        self->sites[i] = *weft_adapter_site(job, i);
        if (chosen[i]) status = add_site(self, job, i, err);
    }
    for (uint32_t i = 0; i < job->n_sites && status == WEFT_OK; i++) slice_parts(self, job, i);
    return status;
}

/* ---- module selection ---- */

enum { LORA_KINDS = 1u << WEFT_SITE_LINEAR | 1u << WEFT_SITE_EMBEDDING };

/* Returns `own`, or `asked` if keys set it. */
static targets wanted_modules(const weft_adapter *self, int asked) {
    const lora_modules *names = asked && self->asked.says_names ? &self->asked : &self->own,
                       *left_out = asked && self->asked.says_exclude ? &self->asked : &self->own,
                       *layers = asked && self->asked.says_layers ? &self->asked : &self->own;
    return (targets){{names->names, names->regex, names == &self->own ? self->source : NULL},
                     {left_out->exclude, left_out->exclude_regex, left_out == &self->own ? self->source : NULL},
                     layers->layers,
                     LORA_KINDS};
}

/* Checks that the selection by keys matches the continued adapter. */
static weft_status compare_modules(const weft_adapter *self, const weft_adapter_job *job, const uint8_t *chosen,
                                   weft_error *err) {
    const lora_modules *asked = &self->asked;
    const targets wanted = wanted_modules(self, 1);
    uint8_t *found = NULL;
    weft_status status = WEFT_OK;
    if (!asked->says_names && !asked->says_layers && !asked->says_exclude) return WEFT_OK;
    found = calloc((size_t)job->n_sites + 1, sizeof *found);
    if (found == NULL) return no_memory(err);
    status = targets_choose(&wanted, job, found, err);
    if (status == WEFT_OK && memcmp(found, chosen, job->n_sites) != 0)
        status = weft_error_set(err, WEFT_E_USER,
                                "%s or layers%s select other modules than %s, which is continued. Fix: remove the "
                                "keys, or set them to the values of the file",
                                says(asked->regex) ? "regex" : "targets", asked->says_exclude ? " or exclude" : "",
                                self->source);
    free(found);
    return status;
}

/* Returns ranks or alphas: the entries' values, else the common value. The caller frees them. */
static weft_status give_values(double **out, const patterns *from, const weft_adapter_job *job, const uint8_t *chosen,
                               double common, weft_error *err) {
    *out = calloc((size_t)job->n_sites + 1, sizeof **out);
    if (*out == NULL) return no_memory(err);
    for (uint32_t i = 0; i < job->n_sites; i++) (*out)[i] = common;
    return patterns_give(from, job, chosen, *out, err);
}

/* own: values of the file. Fails if keys set another value for a chosen site. */
static weft_status compare_values(const weft_adapter *self, const char *key, const patterns *asked, const double *own,
                                  const weft_adapter_job *job, const uint8_t *chosen, double common, weft_error *err) {
    double *found = NULL;
    weft_status status = give_values(&found, asked, job, chosen, common, err);
    for (uint32_t i = 0; i < job->n_sites && status == WEFT_OK; i++)
        if (chosen[i] && found[i] != own[i]) status = refuse_key(self, key, err);
    free(found);
    return status;
}

static weft_status give_all_values(weft_adapter *self, const weft_adapter_job *job, const uint8_t *chosen,
                                   weft_error *err) {
    const lora_modules *own = &self->own, *asked = &self->asked;
    weft_status status = give_values(&self->ranks, &own->ranks, job, chosen, (double)self->r, err);
    if (status == WEFT_OK) status = give_values(&self->alphas, &own->alphas, job, chosen, self->alpha, err);
    if (status == WEFT_OK && asked->says_ranks)
        status = compare_values(self, "rank_pattern", &asked->ranks, self->ranks, job, chosen, (double)self->r, err);
    if (status == WEFT_OK && asked->says_alphas)
        status = compare_values(self, "alpha_pattern", &asked->alphas, self->alphas, job, chosen, self->alpha, err);
    return status;
}

/* PEFT counts the layers of layers_to_transform only below these names; here a layer is one of the model's blocks.
 * Fails if the model's blocks have none of these names. */
static weft_status check_layers_pattern(const weft_adapter *self, const weft_adapter_job *job, weft_error *err) {
    const char *text = self->own.layers_pattern == NULL ? "" : self->own.layers_pattern;
    for (const char *at = text; *at != 0; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ',')) {
        char below[300];
        for (uint32_t i = 0; i < job->n_sites; i++) {
            const weft_site *site = weft_adapter_site(job, i);
            (void)snprintf(below, sizeof below, ".%.*s.%lld.", (int)strcspn(at, ","), at, (long long)site->layer);
            if (site->layer >= 0 && strstr(site->path, below) != NULL) return WEFT_OK;
        }
    }
    if (*text == 0) return WEFT_OK;
    return weft_error_set(err, WEFT_E_DATA,
                          "%s: layers_pattern = %s: the blocks of this model have no such name. Allowed: null, or the "
                          "name that is before a block's number, as layers in model.layers.0",
                          self->source, text);
}

static weft_status lora_declare(weft_adapter *self, const weft_adapter_job *job, weft_error *err) {
    const targets wanted = wanted_modules(self, 0);
    uint8_t *chosen = calloc((size_t)job->n_sites + 1, sizeof *chosen);
    weft_status status = WEFT_OK;
    self->n_sites = job->n_sites;
    self->parts = calloc((size_t)job->n_sites + 1, sizeof *self->parts);
    self->sites = calloc((size_t)job->n_sites + 1, sizeof *self->sites);
    if (chosen == NULL || self->parts == NULL || self->sites == NULL) status = no_memory(err);
    if (status == WEFT_OK) status = check_layers_pattern(self, job, err);
    if (status == WEFT_OK) status = targets_choose(&wanted, job, chosen, err);
    if (status == WEFT_OK) status = compare_modules(self, job, chosen, err);
    if (status == WEFT_OK) status = give_all_values(self, job, chosen, err);
    if (status == WEFT_OK) status = add_chosen(self, job, chosen, err);
    if (status == WEFT_OK) self->config_json = lora_write(self, job, chosen);
    if (status == WEFT_OK && self->config_json == NULL) status = no_memory(err);
    free(chosen);
    return status;
}

/* ---- compute ---- */

/* Scales the narrow values. */
static weft_value add_update(const lora_part *part, weft_graph *g, const weft_ops *ops, weft_value y, weft_value a) {
    if (part->scale != 1.0) a = ops->scale(g, a, part->scale);
    a = ops->linear(g, a, part->b);
    return ops->add(g, y, a);
}

/* m / ||W + s B A|| (W x + s B A x) + bias. With dropout, W x uses the complete x; only the factor's contribution uses
 * the dropped x. */
static weft_value lora_dora(const lora_part *part, weft_graph *g, const weft_ops *ops, weft_value x, weft_value dropped,
                            weft_weight *weight) {
    const weft_weight_norm_args args = {.struct_size = (uint32_t)sizeof args,
                                        .magnitude = part->magnitude,
                                        .weight = weight,
                                        .down = part->a,
                                        .up = part->b,
                                        .factor = part->scale};
    const weft_value y = ops->linear(g, dropped, weight);
    const weft_value a = ops->linear(g, dropped, part->a);
    weft_value sum = add_update(part, g, ops, y, a);
    weft_value whole;
    sum = ops->weight_norm(g, sum, &args);
    if (dropped.id == x.id) return sum;
    sum = ops->add(g, sum, ops->scale(g, y, -1.0));
    whole = ops->linear(g, x, weight);
    return ops->add(g, whole, sum);
}

static weft_value lora_linear(const weft_adapter *self, uint32_t site, weft_graph *g, const weft_ops *ops, weft_value x,
                              weft_weight *weight) {
    const lora_part *part = &self->parts[site];
    const weft_value dropped = ops->dropout(g, x, self->dropout);
    weft_value y, a;
    if (part->magnitude != NULL) return lora_dora(part, g, ops, x, dropped, weight);
    y = ops->linear(g, x, weight);
    a = ops->linear(g, dropped, part->a);
    return add_update(part, g, ops, y, a);
}

static weft_value lora_embedding(const weft_adapter *self, uint32_t site, weft_graph *g, const weft_ops *ops,
                                 weft_value ids, weft_weight *table) {
    const lora_part *part = &self->parts[site];
    const weft_value y = ops->embedding(g, ids, table);
    const weft_value a = ops->embedding(g, ids, part->a);
    return add_update(part, g, ops, y, a);
}

/* ---- files ---- */

/* PEFT stores an embedding's two matrices and DoRA's magnitude as parameters rather than modules, and A of an embedding
 * as (r, vocabulary). */
static weft_status lora_tensor(const weft_adapter *self, const char *parameter, weft_adapter_tensor *out,
                               weft_error *err) {
    const char *at = strstr(parameter, ".lora_embedding_");
    const int64_t rows = out->dims[0];
    char *end = strstr(out->name, ".weight");
    (void)self;
    (void)err;
    if (end != NULL && strstr(parameter, ".lora_magnitude_vector") != NULL) *end = 0;
    if (at == NULL || end == NULL) return WEFT_OK;
    *end = 0;
    if (strncmp(at, ".lora_embedding_A", 17) != 0) return WEFT_OK;
    out->transposed = 1;
    out->dims[0] = out->dims[1];
    out->dims[1] = rows;
    return WEFT_OK;
}

static const char *lora_config_json(const weft_adapter *self) {
    return self->config_json;
}

/* With DoRA a row of the sum gets the trained norm. */
static void set_norm(float *row, int64_t n, float norm) {
    double squares = 0;
    for (int64_t j = 0; j < n; j++) squares += (double)row[j] * (double)row[j];
    for (int64_t j = 0; j < n; j++) row[j] *= norm / (float)sqrt(squares);
}

/* w += s B A; for an embedding (A B^T), because its A is a table. Sums in fp32 over the rank, in order. */
static weft_status lora_merge(const weft_adapter *self, const weft_merge *what, weft_error *err) {
    const lora_part *part = &self->parts[what->site];
    const weft_site *site = &self->sites[what->site];
    const int table = site->kind == WEFT_SITE_EMBEDDING;
    const float *a = what->values(what->context, part->a), *b = what->values(what->context, part->b);
    const float scale = (float)part->scale;
    const int64_t r = part->r;
    (void)err;
    for (int64_t i = 0; i < what->rows; i++) {
        float *row = what->w + i * site->in;
        for (int64_t k = 0; k < r; k++) {
            const float left = scale * (table ? a : b)[(what->first + i) * r + k];
            for (int64_t j = 0; j < site->in; j++) row[j] += left * (table ? b[j * r + k] : a[k * site->in + j]);
        }
        if (part->magnitude != NULL)
            set_norm(row, site->in, what->values(what->context, part->magnitude)[what->first + i]);
    }
    return WEFT_OK;
}

static const weft_adapter_plugin lora_table = {(uint32_t)sizeof(weft_adapter_plugin),
                                               WEFT_ADAPTER_PEFT,
                                               lora_create,
                                               lora_destroy,
                                               lora_declare,
                                               lora_linear,
                                               lora_embedding,
                                               NULL,
                                               NULL,
                                               lora_tensor,
                                               lora_config_json,
                                               lora_merge,
                                               NULL};

WEFT_PLUGIN(adapter, 1, "lora", "0.1.0", "Low-rank updates of matrices (arXiv 2106.09685), as PEFT has them.",
            lora_config, NULL, lora_table)
