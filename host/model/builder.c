/* host/model/builder.c: the functions by which plugins declare models and adapters. */
#include "model/declare.h"

#include "base/alloc.h"
#include "plugin/enter.h"

#include <stdlib.h>

/* Of a model, so that sums of bytes do not overflow. */
#define MOST_ELEMENTS (INT64_MAX / 64)

struct weft_builder_ctx {
    weft_declared *declared;
    const char *who;  /* prefix of error messages: "model" */
    int64_t numel;    /* elements of all weights so far */
    int32_t adds;     /* after the model has declared itself: 1 + the number of the declaring adapter; 0: the model */
    weft_error first; /* first error */
};

static bool has_failed(const weft_builder_ctx *ctx) {
    return weft_sticky_error_is_set(&ctx->first);
}

/* Stores the error "the WHO plugin ...", unless one is stored already. Returns NULL, which is also false. */
static void *reject(weft_builder_ctx *ctx, const char *format, ...) WEFT_PRINTF(2, 3);
static void *reject(weft_builder_ctx *ctx, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN, "the %s plugin %s", ctx->who, text);
    return NULL;
}

static char *join_names(const char *path, const char *name) {
    return weft_text_of("%s%s%s", path, path[0] == '\0' ? "" : ".", name);
}

/* ---- modules ---- */

static weft_module *builder_module(weft_builder_ctx *ctx, weft_module *parent, const char *name,
                                   const char *class_name) {
    weft_declared *self = ctx->declared;
    weft_module *module = NULL;
    char *path = NULL;
    if (has_failed(ctx)) return NULL;
    if (name == NULL || class_name == NULL || class_name[0] == '\0')
        return reject(ctx, "declares a module without a name or a class");
    if (strchr(name, '.') != NULL || (parent != NULL && name[0] == '\0'))
        return reject(
            ctx,
            "declares a module named '%s'. Allowed: one component of a path, without dots; an empty name only "
            "for a root",
            name);
    path = join_names(parent == NULL ? "" : parent->path, name);
    if (weft_declared_module(self, path) >= 0) {
        (void)reject(ctx, "declares two modules with the path '%s'", path);
        free(path);
        return NULL;
    }
    module = weft_alloc(1, sizeof *module);
    *module = (weft_module){path, weft_strdup(name), weft_strdup(class_name), self->n_modules,
                            parent == NULL ? -1 : parent->index};
    self->modules = weft_grow(self->modules, self->n_modules);
    self->modules[self->n_modules++] = module;
    weft_lookup_put(&self->modules_by_path, path, module->index);
    return module;
}

/* ---- parameters and weight objects ---- */

/* dims: (out, in), or (n) with in = 0. Returns the index. */
static int32_t add_parameter(weft_builder_ctx *ctx, const weft_module *module, const char *suffix, int64_t out,
                             int64_t in) {
    weft_declared *self = ctx->declared;
    weft_parameter *parameter = NULL;
    self->parameters = weft_grow(self->parameters, self->n_parameters);
    parameter = &self->parameters[self->n_parameters];
    *parameter = (weft_parameter){.name = join_names(module->path, suffix),
                                  .module = module->index,
                                  .rank = in == 0 ? 1 : 2,
                                  .dims = {out, in == 0 ? 1 : in},
                                  .numel = out * (in == 0 ? 1 : in),
                                  .trainable = true,
                                  .added = ctx->adds,
                                  .dtype = WEFT_F32,
                                  .unit = -1,
                                  .group = -1};
    ctx->numel += parameter->numel;
    weft_lookup_put(&self->parameters_by_name, parameter->name, self->n_parameters);
    return self->n_parameters++;
}

/* Checks that only a linear's matrix is packed or transposed, and that packed rows are a multiple of the block. */
static bool is_storage_good(weft_builder_ctx *ctx, const char *path, const weft_weight_spec *spec) {
    const int64_t block = weft_dtype_block(spec->storage);
    const char *storage = weft_dtype_name(spec->storage);
    if (spec->storage != 0 && !weft_dtype_is_packed(spec->storage))
        return reject(ctx,
                      "declares '%s.%s' with the storage %d (%s). Allowed: a packed type of weft/blocks.h, or 0, with "
                      "which the host selects it",
                      path, spec->name, spec->storage, storage);
    if (spec->storage != 0 && spec->role != WEFT_WEIGHT_LINEAR)
        return reject(ctx,
                      "declares '%s.%s' with the storage %s, and it is no linear: only a linear's matrix is packed",
                      path, spec->name, storage);
    if (spec->storage != 0 && !weft_dtype_is_flat(spec->storage) && spec->in % block != 0)
        return reject(ctx,
                      "declares '%s.%s' with the storage %s and rows of %lld elements. Allowed: a multiple of its "
                      "blocks of %lld. Fix: set storage = 0, with which the host selects it",
                      path, spec->name, storage, (long long)spec->in, (long long)block);
    if (spec->transposed && spec->role != WEFT_WEIGHT_LINEAR)
        return reject(ctx,
                      "declares '%s.%s' as transposed. Allowed: only the matrix of a linear may be stored as (in, out)",
                      path, spec->name);
    if (spec->transposed && spec->storage != 0)
        return reject(ctx,
                      "declares '%s.%s' as transposed and with the storage %s. Allowed: packed matrices are stored as "
                      "(out, in)",
                      path, spec->name, storage);
    return true;
}

static bool is_spec_good(weft_builder_ctx *ctx, const weft_module *module, const weft_weight_spec *spec) {
    const char *name = NULL, *path = NULL;
    bool gain = false, embedding = false;
    int64_t out = 0;
    if (module == NULL || spec == NULL || !WEFT_WHOLE(spec, weft_weight_spec) || spec->name == NULL ||
        spec->name[0] == '\0')
        return reject(ctx, "declares a weight without a module, a name or a complete spec");
    name = spec->name;
    path = module->path;
    gain = spec->role == WEFT_WEIGHT_GAIN;
    out = gain ? 1 : spec->out;
    embedding = spec->role == WEFT_WEIGHT_EMBEDDING;
    if (!weft_struct_known(spec, sizeof *spec)) {
        weft_sticky_error_keep(&ctx->first, WEFT_E_UNSUPPORTED,
                               "the %s plugin sets fields of '%s.%s' beyond the %zu bytes that this host supports for "
                               "a weight. Fix: build the plugin with this host's headers, or use a newer host",
                               ctx->who, path, name, sizeof *spec);
        return false;
    }
    if (spec->role != WEFT_WEIGHT_LINEAR && !embedding && !gain)
        return reject(ctx, "declares '%s.%s' with the unknown role %d", path, name, spec->role);
    if (spec->in < 1 || out < 1 || out > MOST_ELEMENTS / spec->in)
        return reject(ctx, "declares '%s.%s' with the shape (%lld, %lld), which no weight can have", path, name,
                      (long long)spec->out, (long long)spec->in);
    if (out * spec->in > MOST_ELEMENTS - ctx->numel)
        return reject(ctx, "declares more than %lld elements in all, with '%s.%s' of the shape (%lld, %lld)",
                      (long long)MOST_ELEMENTS, path, name, (long long)spec->out, (long long)spec->in);
    if (embedding && spec->has_bias)
        return reject(ctx, "declares the embedding '%s.%s' with a bias, which an embedding lacks", path, name);
    if (spec->has_padding && (!embedding || spec->padding < 0 || spec->padding >= spec->out))
        return reject(ctx, "declares '%s.%s' with the padding %d. Allowed: a row of an embedding, from 0 to its last",
                      path, name, spec->padding);
    if (spec->gain_from_one && !gain)
        return reject(ctx, "declares '%s.%s' with gain_from_one, and it is no norm's gain", path, name);
    if (!(spec->init_std >= 0))
        return reject(ctx, "declares '%s.%s' with the deviation %g. Allowed: at least 0", path, name, spec->init_std);
    if (spec->init_form < WEFT_INIT_NORMAL || spec->init_form > WEFT_INIT_ROW_NORMS)
        return reject(ctx, "declares '%s.%s' with the unknown init_form %d", path, name, spec->init_form);
    if (spec->init_form == WEFT_INIT_ROW_NORMS &&
        (!gain || spec->init_of == NULL || spec->init_of->role == WEFT_WEIGHT_GAIN || spec->init_of->is_slice ||
         spec->init_of->out != spec->in))
        return reject(ctx,
                      "declares '%s.%s' to start as norms of rows. Allowed: a gain with an element for each row of a "
                      "complete matrix",
                      path, name);
    if (spec->frozen != 0 && !ctx->adds)
        return reject(ctx, "declares '%s.%s' as frozen. Allowed: only for adapters", path, name);
    return is_storage_good(ctx, path, spec);
}

/* Appends a copy of the weight. */
static weft_weight *add_weight(weft_declared *self, const weft_weight *like) {
    weft_weight *weight = weft_alloc(1, sizeof *weight);
    *weight = *like;
    self->weights = weft_grow(self->weights, self->n_weights);
    return self->weights[self->n_weights++] = weight;
}

static weft_weight *builder_weight(weft_builder_ctx *ctx, weft_module *module, const weft_weight_spec *spec) {
    weft_module *own = NULL;
    weft_parameter *parameters = NULL;
    weft_weight weight = {.owner = ctx->declared, .bias = -1};
    int64_t out = 0, in = 0; /* of the parameters */
    bool gain = false, has_form = false;
    if (has_failed(ctx) || !is_spec_good(ctx, module, spec)) return NULL;
    own = builder_module(ctx, module, spec->name, spec->class_name);
    if (own == NULL) return NULL;
    gain = spec->role == WEFT_WEIGHT_GAIN;
    out = gain ? spec->in : spec->out;
    in = gain ? 0 : spec->in;
    weight.role = spec->role;
    weight.out = gain ? 1 : spec->out;
    weight.in = spec->in;
    weight.has_padding = spec->has_padding;
    weight.padding = spec->padding;
    weight.gain_from_one = spec->gain_from_one != 0;
    weight.transposed = spec->transposed != 0;
    weight.parameter = add_parameter(ctx, own, "weight", weight.transposed ? in : out, weight.transposed ? out : in);
    if (spec->has_bias) weight.bias = add_parameter(ctx, own, "bias", out, 0);
    parameters = ctx->declared->parameters;
    parameters[weight.parameter].role = spec->role;
    has_form = !gain || spec->init_form >= WEFT_INIT_CONSTANT; /* other gains start as factors of one */
    parameters[weight.parameter].init_form = has_form ? spec->init_form : WEFT_INIT_CONSTANT;
    parameters[weight.parameter].init_std = has_form ? spec->init_std : spec->gain_from_one ? 0 : 1;
    if (spec->init_form == WEFT_INIT_ROW_NORMS) parameters[weight.parameter].init_of = spec->init_of->parameter;
    parameters[weight.parameter].frozen = spec->frozen != 0;
    if (spec->storage != 0) {
        parameters[weight.parameter].dtype = spec->storage;
        parameters[weight.parameter].trainable = false;
    }
    if (weight.bias >= 0) {
        parameters[weight.bias].role = spec->role;
        parameters[weight.bias].is_bias = true;
    }
    return add_weight(ctx->declared, &weight);
}

static void add_alias(weft_declared *self, int32_t index, const weft_module *own, const char *suffix) {
    weft_parameter *parameter = &self->parameters[index];
    char *alias = join_names(own->path, suffix);
    parameter->aliases = weft_grow(parameter->aliases, parameter->n_aliases);
    parameter->aliases[parameter->n_aliases++] = alias;
    weft_lookup_put(&self->parameters_by_name, alias, index);
}

/* An adapter adds modules, weights and slices only. */
static bool is_model(weft_builder_ctx *ctx, const char *what) {
    if (ctx->adds != 0)
        return reject(ctx, "declares a %s, which only a model has: it adds modules, weights and slices", what);
    return !has_failed(ctx);
}

static weft_weight *builder_tie(weft_builder_ctx *ctx, weft_module *module, const char *name, const char *class_name,
                                weft_weight *storage) {
    weft_module *own = NULL;
    if (!is_model(ctx, "tie")) return NULL;
    if (module == NULL || storage == NULL)
        return reject(ctx, "ties '%s' to no weight or under no module", name == NULL ? "" : name);
    if (weft_parameter_is_packed(&ctx->declared->parameters[storage->parameter]))
        return reject(ctx, "ties '%s' to '%s', which is packed. Allowed: one name for a packed matrix", name,
                      ctx->declared->parameters[storage->parameter].name);
    own = builder_module(ctx, module, name, class_name);
    if (own == NULL) return NULL;
    add_alias(ctx->declared, storage->parameter, own, "weight");
    if (storage->bias >= 0) add_alias(ctx->declared, storage->bias, own, "bias");
    return storage;
}

/* ---- slices ---- */

/* Returns the alignment of a slice's first column, which makes each row of the slice as well aligned as the complete
 * row. */
static int64_t slice_unit(const weft_weight *weight) {
    enum { MOST = 8 }; /* elements: 16 bytes of bf16 */
    int64_t unit = 1;
    while (weight->transposed && unit < MOST && weight->out % (2 * unit) == 0) unit *= 2;
    return unit;
}

static weft_weight *builder_slice(weft_builder_ctx *ctx, weft_weight *weight, int64_t first, int64_t rows) {
    const char *name = NULL;
    weft_weight *slice = NULL;
    if (has_failed(ctx)) return NULL;
    if (weight == NULL) return reject(ctx, "requests a slice of no weight");
    name = ctx->declared->parameters[weight->parameter].name;
    if (weight->role != WEFT_WEIGHT_LINEAR || weight->is_slice)
        return reject(ctx, "requests a slice of '%s', which %s", name,
                      weight->role != WEFT_WEIGHT_LINEAR ? "is no linear" : "is a slice itself");
    if (first < 0 || rows < 1 || first > weight->out - rows)
        return reject(ctx, "requests %lld rows from row %lld on of '%s', which has %lld", (long long)rows,
                      (long long)first, name, (long long)weight->out);
    if (first % slice_unit(weight) != 0)
        return reject(ctx,
                      "requests columns from %lld on of '%s', which is transposed and has %lld. Allowed: slices that "
                      "begin at multiples of %lld",
                      (long long)first, name, (long long)weight->out, (long long)slice_unit(weight));
    slice = add_weight(ctx->declared, weight);
    slice->is_slice = true;
    slice->first = first;
    slice->out = rows;
    return slice;
}

/* ---- tables, segments, carry ---- */

static weft_table *builder_table(weft_builder_ctx *ctx, const char *name, int64_t width,
                                 weft_status (*fill)(const weft_model *model, const char *name, int64_t rows,
                                                     float *out, weft_error *err)) {
    weft_declared *self = ctx->declared;
    weft_table *table = NULL;
    if (!is_model(ctx, "table")) return NULL;
    if (name == NULL || name[0] == '\0' || width < 1 || fill == NULL)
        return reject(ctx, "declares a table '%s' without a name, a width or a fill function",
                      name == NULL ? "" : name);
    for (int32_t i = 0; i < self->n_tables; i++)
        if (strcmp(self->tables[i]->name, name) == 0) return reject(ctx, "declares two tables named '%s'", name);
    table = weft_alloc(1, sizeof *table);
    *table = (weft_table){weft_strdup(name), width, self->n_tables, fill};
    self->tables = weft_grow(self->tables, self->n_tables);
    return self->tables[self->n_tables++] = table;
}

static uint32_t builder_segment(weft_builder_ctx *ctx, weft_module *module, const char *name) {
    weft_declared *self = ctx->declared;
    if (!is_model(ctx, "segment")) return UINT32_MAX;
    if (module == NULL || name == NULL || name[0] == '\0')
        (void)reject(ctx, "declares a segment '%s' without a name or a module", name == NULL ? "" : name);
    else if (weft_lookup_find(&self->segments_by_name, name) >= 0)
        (void)reject(ctx, "declares two segments named '%s'", name);
    if (has_failed(ctx)) return UINT32_MAX;
    self->segments = weft_grow(self->segments, self->n_segments);
    self->segments[self->n_segments] = (weft_segment){weft_strdup(name), module->index};
    weft_lookup_put(&self->segments_by_name, self->segments[self->n_segments].name, self->n_segments);
    return (uint32_t)self->n_segments++;
}

static void builder_carry(weft_builder_ctx *ctx, int64_t width) {
    if (!is_model(ctx, "carry")) return;
    if (width < 1 || (ctx->declared->carry_width != 0 && ctx->declared->carry_width != width))
        (void)reject(ctx, "declares a carry of width %lld. Allowed: at least 1, and the same for all segments",
                     (long long)width);
    else ctx->declared->carry_width = width;
}

/* ---- adapters ---- */

/* True if the adapter implements the function for sites of this kind. */
static bool is_served(const weft_adapter_plugin *plugin, int32_t kind) {
    switch (kind) {
    case WEFT_SITE_LINEAR: return plugin->linear != NULL;
    case WEFT_SITE_EMBEDDING: return plugin->embedding != NULL;
    case WEFT_SITE_ATTENTION: return plugin->attention != NULL;
    case WEFT_SITE_HEAD: return WEFT_HAS(plugin, head) && plugin->head != NULL;
    default: return false;
    }
}

static void claim_one(weft_declared *self, uint32_t site) {
    self->sites[site].claimed = self->n_adapters;
    if (self->sites[site].view.weight != NULL) self->sites[site].view.weight->claim = (int32_t)site + 1;
}

/* Claims a site. Slices of a claimed parameter are claimed with it. */
static void builder_claim(weft_builder_ctx *ctx, uint32_t site) {
    weft_declared *self = ctx->declared;
    const weft_site *view = site < (uint32_t)self->n_sites ? &self->sites[site].view : NULL;
    const weft_adapter_plugin *own = self->adapters[self->n_adapters - 1].plugin;
    if (has_failed(ctx)) return;
    if (view == NULL) (void)reject(ctx, "claims site %u of %d", (unsigned)site, self->n_sites);
    else if (view->whole >= 0)
        (void)reject(ctx, "claims site %u of %d, which is a slice. Fix: claim its complete matrix", (unsigned)site,
                     self->n_sites);
    else if (self->sites[site].claimed != 0 && self->sites[site].claimed != self->n_adapters)
        /* The result would depend on an order that neither adapter knows. */
        weft_sticky_error_keep(&ctx->first, WEFT_E_USER,
                               "[adapter] plugin contains %s, which changes '%s', as %s does. Allowed: one adapter per "
                               "module. Fix: choose different targets, or remove one adapter",
                               weft_plugin_id(own), view->path,
                               weft_plugin_id(self->adapters[self->sites[site].claimed - 1].plugin));
    else if (!is_served(own, view->kind))
        (void)reject(ctx, "claims '%s', and has no function for such a site", view->path);
    if (has_failed(ctx)) return;
    claim_one(self, site);
    for (uint32_t i = 0; i < (uint32_t)self->n_sites; i++)
        if (self->sites[i].view.whole == (int32_t)site) claim_one(self, i);
}

/* ---- declare ---- */

static weft_builder make_builder(weft_builder_ctx *ctx) {
    return (weft_builder){(uint32_t)sizeof(weft_builder),
                          0,
                          ctx,
                          builder_module,
                          builder_weight,
                          builder_tie,
                          builder_table,
                          builder_segment,
                          builder_carry,
                          builder_slice};
}

weft_status weft_builder_run(weft_declared *declared, weft_error *err) {
    weft_builder_ctx ctx = {.declared = declared, .who = "model", .first = WEFT_ERROR_INIT};
    const weft_builder builder = make_builder(&ctx);
    weft_status status = WEFT_OK;
    weft_slow_warning_begin(declared->plugin, "declare");
    WEFT_PLUGIN_CALL(status, declared->plugin, declare, err, declared->model, &builder);
    weft_slow_warning_end();
    return weft_sticky_error_report(&ctx.first, status, err);
}

weft_status weft_builder_adapt(weft_declared *declared, weft_adapter_job *job, weft_error *err) {
    const weft_joined_adapter *last = &declared->adapters[declared->n_adapters - 1];
    weft_builder_ctx ctx = {
        .declared = declared, .who = "adapter", .adds = declared->n_adapters, .first = WEFT_ERROR_INIT};
    const weft_builder builder = make_builder(&ctx);
    weft_status status = WEFT_OK;
    job->builder = &builder;
    job->claim = builder_claim;
    weft_slow_warning_begin(last->plugin, "declare");
    WEFT_PLUGIN_CALL(status, last->plugin, declare, err, last->adapter, job);
    weft_slow_warning_end();
    return weft_sticky_error_report(&ctx.first, status, err);
}
