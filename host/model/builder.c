/* host/model/builder.c: see builder.h. */
#include "model/builder.h"

#include "plugin/enter.h"

#include <stdlib.h>

struct weft_builder_ctx {
    weft_declared *declared;
    const char *who;  /* prefix of error messages: "model" */
    int32_t adds;     /* after the model has declared itself: 1 + the number of the declaring adapter; 0: the model */
    weft_error first; /* first error */
};

/* Grows an array for one more element after n. Capacities are powers of two, so n determines when the array is full.
 * Returns NULL without memory. */
static void *grow_array(weft_builder_ctx *ctx, void *array, int32_t n, size_t size) {
    void *grown = array;
    if (n == 0 || (n & (n - 1)) == 0) grown = realloc(array, (n == 0 ? 1 : 2 * (size_t)n) * size);
    if (grown == NULL) weft_sticky_error_keep(&ctx->first, WEFT_E_MEMORY, "no memory for the model's description");
    return grown;
}

/* Returns NULL after a failure, which it records. */
static char *join_names(weft_builder_ctx *ctx, const char *path, const char *separator, const char *name) {
    char *text = NULL;
    if (asprintf(&text, "%s%s%s", path, path[0] == '\0' ? "" : separator, name) < 0) {
        text = NULL;
        weft_sticky_error_keep(&ctx->first, WEFT_E_MEMORY, "no memory for the model's description");
    }
    return text;
}

/* Returns zeroed memory. */
static void *allocate_zeroed(weft_builder_ctx *ctx, size_t size) {
    void *memory = calloc(1, size);
    if (memory == NULL) weft_sticky_error_keep(&ctx->first, WEFT_E_MEMORY, "no memory for the model's description");
    return memory;
}

/* Adds a name to the lookup. The string must stay valid as long as the declared model. */
static void note_name(weft_builder_ctx *ctx, weft_lookup *names, const char *name, int32_t number) {
    if (!weft_sticky_error_is_set(&ctx->first)) weft_lookup_put(names, name, number);
}

/* ---- modules ---- */

static bool is_module_name_good(weft_builder_ctx *ctx, const weft_module *parent, const char *name,
                                const char *class_name) {
    if (name == NULL || class_name == NULL || class_name[0] == '\0')
        weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN, "the %s plugin declares a module without a name or a class",
                               ctx->who);
    else if (strchr(name, '.') != NULL || (parent != NULL && name[0] == '\0'))
        weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN,
                               "the %s plugin declares a module named '%s'. Allowed: one component of a path, without "
                               "dots; an empty name only for a root",
                               ctx->who, name);
    return !weft_sticky_error_is_set(&ctx->first);
}

static weft_module *builder_module(weft_builder_ctx *ctx, weft_module *parent, const char *name,
                                   const char *class_name) {
    weft_declared *self = ctx->declared;
    weft_module *module = NULL;
    void *array = NULL;
    if (weft_sticky_error_is_set(&ctx->first) || !is_module_name_good(ctx, parent, name, class_name)) return NULL;
    array = grow_array(ctx, self->modules, self->n_modules, sizeof(weft_module *));
    if (array == NULL) return NULL;
    self->modules = array;
    module = allocate_zeroed(ctx, sizeof *module);
    if (module == NULL) return NULL;
    module->index = self->n_modules;
    self->modules[self->n_modules++] = module; /* it owns the module's names from here on, also after an error */
    module->path = join_names(ctx, parent == NULL ? "" : parent->path, ".", name);
    module->name = join_names(ctx, "", "", name);
    module->class_name = join_names(ctx, "", "", class_name);
    module->parent = parent == NULL ? -1 : parent->index;
    if (!weft_sticky_error_is_set(&ctx->first) && weft_declared_module(self, module->path) >= 0)
        weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN, "the %s plugin declares two modules with the path '%s'",
                               ctx->who, module->path);
    note_name(ctx, &self->modules_by_path, module->path, module->index);
    return weft_sticky_error_is_set(&ctx->first) ? NULL : module;
}

/* ---- parameters and weight objects ---- */

/* dims: (out, in), or (n) with in = 0. Returns the index, or -1 after a failure. */
static int32_t add_parameter(weft_builder_ctx *ctx, const weft_module *module, const char *suffix, int64_t out,
                             int64_t in) {
    weft_declared *self = ctx->declared;
    weft_parameter *parameter = NULL;
    void *array = NULL;
    if (weft_sticky_error_is_set(&ctx->first)) return -1;
    array = grow_array(ctx, self->parameters, self->n_parameters, sizeof(weft_parameter));
    if (array == NULL) return -1;
    self->parameters = array;
    parameter = &self->parameters[self->n_parameters];
    memset(parameter, 0, sizeof *parameter);
    parameter->name = join_names(ctx, module->path, ".", suffix);
    if (weft_sticky_error_is_set(&ctx->first)) return -1;
    parameter->module = module->index;
    parameter->rank = in == 0 ? 1 : 2;
    parameter->dims[0] = out;
    parameter->dims[1] = in == 0 ? 1 : in;
    parameter->numel = out * parameter->dims[1];
    parameter->trainable = true;
    parameter->added = ctx->adds;
    parameter->dtype = WEFT_F32;
    parameter->unit = parameter->group = -1;
    note_name(ctx, &self->parameters_by_name, parameter->name, self->n_parameters);
    return self->n_parameters++;
}

/* Checks that only a linear's matrix is packed, and that its rows are a multiple of the block. */
static void check_storage(weft_builder_ctx *ctx, const weft_module *module, const weft_weight_spec *spec) {
    const int64_t block = weft_dtype_block(spec->storage);
    if (spec->storage == 0) return;
    if (!weft_dtype_is_packed(spec->storage))
        weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN,
                               "the %s plugin declares '%s.%s' with the storage %d (%s); it is a packed type of "
                               "weft/blocks.h, or 0 where the host decides",
                               ctx->who, module->path, spec->name, spec->storage, weft_dtype_name(spec->storage));
    else if (spec->role != WEFT_WEIGHT_LINEAR)
        weft_sticky_error_keep(
            &ctx->first, WEFT_E_PLUGIN,
            "the %s plugin declares '%s.%s' with the storage %s, and it is no linear: only a linear's "
            "matrix is packed",
            ctx->who, module->path, spec->name, weft_dtype_name(spec->storage));
    else if (!weft_dtype_is_flat(spec->storage) && spec->in % block != 0)
        weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN,
                               "the %s plugin declares '%s.%s' with the storage %s and rows of %lld elements. Allowed: "
                               "a multiple of its blocks of %lld. Fix: set storage = 0, with which the host selects it",
                               ctx->who, module->path, spec->name, weft_dtype_name(spec->storage), (long long)spec->in,
                               (long long)block);
}

/* Checks that only a linear's unpacked matrix is transposed. */
static void check_transposed(weft_builder_ctx *ctx, const weft_module *module, const weft_weight_spec *spec) {
    if (!spec->transposed) return;
    if (spec->role != WEFT_WEIGHT_LINEAR)
        weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN,
                               "the %s plugin declares '%s.%s' as transposed. Allowed: only the matrix of a linear may "
                               "be stored as (in, out)",
                               ctx->who, module->path, spec->name);
    else if (spec->storage != 0)
        weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN,
                               "the %s plugin declares '%s.%s' as transposed and with the storage %s. Allowed: packed "
                               "matrices are stored as (out, in)",
                               ctx->who, module->path, spec->name, weft_dtype_name(spec->storage));
}

static bool is_spec_good(weft_builder_ctx *ctx, const weft_module *module, const weft_weight_spec *spec) {
    const char *name = NULL;
    if (module == NULL || spec == NULL || !WEFT_WHOLE(spec, weft_weight_spec) || spec->name == NULL ||
        spec->name[0] == '\0') {
        weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN,
                               "the %s plugin declares a weight without a module, a name or a complete spec", ctx->who);
        return false;
    }
    name = spec->name;
    if (!weft_struct_known(spec, sizeof *spec))
        weft_sticky_error_keep(&ctx->first, WEFT_E_UNSUPPORTED,
                               "the %s plugin sets fields of '%s.%s' beyond the %zu bytes that this host supports for "
                               "a weight. Fix: build the plugin with this host's headers, or use a newer host",
                               ctx->who, module->path, name, sizeof *spec);
    else if (spec->role != WEFT_WEIGHT_LINEAR && spec->role != WEFT_WEIGHT_EMBEDDING && spec->role != WEFT_WEIGHT_GAIN)
        weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN, "the %s plugin declares '%s.%s' with the unknown role %d",
                               ctx->who, module->path, name, spec->role);
    else if (spec->in < 1 || (spec->role != WEFT_WEIGHT_GAIN && spec->out < 1) ||
             (spec->role != WEFT_WEIGHT_GAIN && spec->out > INT64_MAX / 64 / spec->in))
        weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN,
                               "the %s plugin declares '%s.%s' with the shape (%lld, %lld), which no weight can have",
                               ctx->who, module->path, name, (long long)spec->out, (long long)spec->in);
    else if (spec->role == WEFT_WEIGHT_EMBEDDING && spec->has_bias)
        weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN,
                               "the %s plugin declares the embedding '%s.%s' with a bias, which an embedding lacks",
                               ctx->who, module->path, name);
    else if (spec->has_padding &&
             (spec->role != WEFT_WEIGHT_EMBEDDING || spec->padding < 0 || spec->padding >= spec->out))
        weft_sticky_error_keep(
            &ctx->first, WEFT_E_PLUGIN,
            "the %s plugin declares '%s.%s' with the padding %d. Allowed: a row of an embedding, from 0 to its last",
            ctx->who, module->path, name, spec->padding);
    else if (spec->gain_from_one && spec->role != WEFT_WEIGHT_GAIN)
        weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN,
                               "the %s plugin declares '%s.%s' with gain_from_one, and it is no norm's gain", ctx->who,
                               module->path, name);
    else if (!(spec->init_std >= 0))
        weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN,
                               "the %s plugin declares '%s.%s' with the deviation %g; it is at least 0", ctx->who,
                               module->path, name, spec->init_std);
    else if (spec->init_form < WEFT_INIT_NORMAL || spec->init_form > WEFT_INIT_ROW_NORMS)
        weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN,
                               "the %s plugin declares '%s.%s' with the unknown init_form %d", ctx->who, module->path,
                               name, spec->init_form);
    else if (spec->init_form == WEFT_INIT_ROW_NORMS &&
             (spec->role != WEFT_WEIGHT_GAIN || spec->init_of == NULL || spec->init_of->role == WEFT_WEIGHT_GAIN ||
              spec->init_of->is_slice || spec->init_of->out != spec->in))
        weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN,
                               "the %s plugin declares '%s.%s' to start as norms of rows. Allowed: a gain with an "
                               "element for each row of a complete matrix",
                               ctx->who, module->path, name);
    else if (spec->frozen != 0 && !ctx->adds)
        weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN,
                               "the %s plugin declares '%s.%s' as frozen. Allowed: only for adapters", ctx->who,
                               module->path, name);
    else check_storage(ctx, module, spec);
    if (!weft_sticky_error_is_set(&ctx->first)) check_transposed(ctx, module, spec);
    return !weft_sticky_error_is_set(&ctx->first);
}

/* Sets the parameter's initialization. A gain without a specified form starts as ones. */
static void note_start(weft_parameter *parameter, const weft_weight_spec *spec) {
    const bool said = spec->role != WEFT_WEIGHT_GAIN || spec->init_form >= WEFT_INIT_CONSTANT;
    parameter->init_form = said ? spec->init_form : WEFT_INIT_CONSTANT;
    parameter->init_std = said ? spec->init_std : spec->gain_from_one ? 0 : 1;
    if (spec->init_form == WEFT_INIT_ROW_NORMS) parameter->init_of = spec->init_of->parameter;
}

/* Adds the weight's parameters to its own module. */
static void add_parameters(weft_builder_ctx *ctx, weft_weight *weight, const weft_module *own,
                           const weft_weight_spec *spec) {
    const bool gain = spec->role == WEFT_WEIGHT_GAIN;
    const int64_t out = gain ? spec->in : spec->out, in = gain ? 0 : spec->in; /* of the parameters */
    weft_parameter *parameters = NULL;
    weight->role = spec->role;
    weight->out = gain ? 1 : spec->out;
    weight->in = spec->in;
    weight->has_padding = spec->has_padding;
    weight->padding = spec->padding;
    weight->gain_from_one = spec->gain_from_one != 0;
    weight->transposed = spec->transposed != 0;
    weight->parameter = weight->transposed ? add_parameter(ctx, own, "weight", in, out)
                                           : add_parameter(ctx, own, "weight", out, in);
    weight->bias = spec->has_bias ? add_parameter(ctx, own, "bias", out, 0) : -1;
    if (weft_sticky_error_is_set(&ctx->first)) return;
    parameters = ctx->declared->parameters;
    parameters[weight->parameter].role = spec->role;
    note_start(&parameters[weight->parameter], spec);
    parameters[weight->parameter].frozen = spec->frozen != 0;
    if (spec->storage != 0) {
        parameters[weight->parameter].dtype = spec->storage;
        parameters[weight->parameter].trainable = false;
    }
    if (weight->bias < 0) return;
    parameters[weight->bias].role = spec->role;
    parameters[weight->bias].is_bias = true;
}

static weft_weight *builder_weight(weft_builder_ctx *ctx, weft_module *module, const weft_weight_spec *spec) {
    weft_declared *self = ctx->declared;
    weft_weight *weight = NULL;
    weft_module *own = NULL;
    void *array = NULL;
    if (weft_sticky_error_is_set(&ctx->first) || !is_spec_good(ctx, module, spec)) return NULL;
    own = builder_module(ctx, module, spec->name, spec->class_name);
    array = own == NULL ? NULL : grow_array(ctx, self->weights, self->n_weights, sizeof(weft_weight *));
    if (array == NULL) return NULL;
    self->weights = array;
    weight = allocate_zeroed(ctx, sizeof *weight);
    if (weight == NULL) return NULL;
    self->weights[self->n_weights++] = weight;
    weight->owner = self;
    add_parameters(ctx, weight, own, spec);
    return weft_sticky_error_is_set(&ctx->first) ? NULL : weight;
}

static void add_alias(weft_builder_ctx *ctx, int32_t index, const weft_module *own, const char *suffix) {
    weft_parameter *parameter = &ctx->declared->parameters[index];
    void *array = grow_array(ctx, parameter->aliases, parameter->n_aliases, sizeof(char *));
    if (array == NULL) return;
    parameter->aliases = array;
    parameter->aliases[parameter->n_aliases] = join_names(ctx, own->path, ".", suffix);
    if (weft_sticky_error_is_set(&ctx->first)) return;
    note_name(ctx, &ctx->declared->parameters_by_name, parameter->aliases[parameter->n_aliases++], index);
}

static weft_weight *builder_tie(weft_builder_ctx *ctx, weft_module *module, const char *name, const char *class_name,
                                weft_weight *storage) {
    weft_module *own = NULL;
    if (weft_sticky_error_is_set(&ctx->first)) return NULL;
    if (module == NULL || storage == NULL) {
        weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN, "the %s plugin ties '%s' to no weight or under no module",
                               ctx->who, name == NULL ? "" : name);
        return NULL;
    }
    if (weft_parameter_is_packed(&ctx->declared->parameters[storage->parameter])) {
        weft_sticky_error_keep(
            &ctx->first, WEFT_E_PLUGIN,
            "the %s plugin ties '%s' to '%s', which is packed. Allowed: one name for a packed matrix", ctx->who, name,
            ctx->declared->parameters[storage->parameter].name);
        return NULL;
    }
    own = builder_module(ctx, module, name, class_name);
    if (own == NULL) return NULL;
    add_alias(ctx, storage->parameter, own, "weight");
    if (storage->bias >= 0) add_alias(ctx, storage->bias, own, "bias");
    return weft_sticky_error_is_set(&ctx->first) ? NULL : storage;
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

static bool is_slice_good(weft_builder_ctx *ctx, const weft_weight *weight, int64_t first, int64_t rows) {
    const char *name = NULL;
    if (weight == NULL) {
        weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN, "the %s plugin requests a slice of no weight", ctx->who);
        return false;
    }
    name = ctx->declared->parameters[weight->parameter].name;
    if (weight->role != WEFT_WEIGHT_LINEAR || weight->is_slice)
        weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN, "the %s plugin requests a slice of '%s', which %s", ctx->who,
                               name, weight->role != WEFT_WEIGHT_LINEAR ? "is no linear" : "is a slice itself");
    else if (first < 0 || rows < 1 || first > weight->out - rows)
        weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN,
                               "the %s plugin requests %lld rows from row %lld on of '%s', which has %lld", ctx->who,
                               (long long)rows, (long long)first, name, (long long)weight->out);
    else if (first % slice_unit(weight) != 0)
        weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN,
                               "the %s plugin requests columns from %lld on of '%s', which is transposed and has %lld. "
                               "Allowed: slices that begin at multiples of %lld",
                               ctx->who, (long long)first, name, (long long)weight->out, (long long)slice_unit(weight));
    return !weft_sticky_error_is_set(&ctx->first);
}

static weft_weight *builder_slice(weft_builder_ctx *ctx, weft_weight *weight, int64_t first, int64_t rows) {
    weft_declared *self = ctx->declared;
    weft_weight *slice = NULL;
    void *array = NULL;
    if (weft_sticky_error_is_set(&ctx->first) || !is_slice_good(ctx, weight, first, rows)) return NULL;
    array = grow_array(ctx, self->weights, self->n_weights, sizeof(weft_weight *));
    if (array == NULL) return NULL;
    self->weights = array;
    slice = allocate_zeroed(ctx, sizeof *slice);
    if (slice == NULL) return NULL;
    self->weights[self->n_weights++] = slice;
    *slice = *weight;
    slice->is_slice = true;
    slice->first = first;
    slice->out = rows;
    return slice;
}

/* ---- tables, segments, carry ---- */

static bool is_table_good(weft_builder_ctx *ctx, const char *name, int64_t width, bool has_fill) {
    const weft_declared *self = ctx->declared;
    if (name == NULL || name[0] == '\0' || width < 1 || !has_fill)
        weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN,
                               "the %s plugin declares a table '%s' without a name, a width or a fill function",
                               ctx->who, name == NULL ? "" : name);
    for (int32_t i = 0; i < self->n_tables && !weft_sticky_error_is_set(&ctx->first); i++)
        if (strcmp(self->tables[i]->name, name) == 0)
            weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN, "the %s plugin declares two tables named '%s'", ctx->who,
                                   name);
    return !weft_sticky_error_is_set(&ctx->first);
}

static weft_table *builder_table(weft_builder_ctx *ctx, const char *name, int64_t width,
                                 weft_status (*fill)(const weft_model *model, const char *name, int64_t rows,
                                                     float *out, weft_error *err)) {
    weft_declared *self = ctx->declared;
    weft_table *table = NULL;
    void *array = NULL;
    if (weft_sticky_error_is_set(&ctx->first) || !is_table_good(ctx, name, width, fill != NULL)) return NULL;
    array = grow_array(ctx, self->tables, self->n_tables, sizeof(weft_table *));
    if (array == NULL) return NULL;
    self->tables = array;
    table = allocate_zeroed(ctx, sizeof *table);
    if (table == NULL) return NULL;
    self->tables[self->n_tables] = table;
    table->index = self->n_tables++;
    table->name = join_names(ctx, "", "", name);
    table->width = width;
    table->fill = fill;
    return weft_sticky_error_is_set(&ctx->first) ? NULL : table;
}

static uint32_t builder_segment(weft_builder_ctx *ctx, weft_module *module, const char *name) {
    weft_declared *self = ctx->declared;
    void *array = NULL;
    if (weft_sticky_error_is_set(&ctx->first)) return UINT32_MAX;
    if (module == NULL || name == NULL || name[0] == '\0')
        weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN,
                               "the %s plugin declares a segment '%s' without a name or a module", ctx->who,
                               name == NULL ? "" : name);
    if (!weft_sticky_error_is_set(&ctx->first) && weft_lookup_find(&self->segments_by_name, name) >= 0)
        weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN, "the %s plugin declares two segments named '%s'", ctx->who,
                               name);
    array = weft_sticky_error_is_set(&ctx->first)
                ? NULL
                : grow_array(ctx, self->segments, self->n_segments, sizeof(weft_segment));
    if (array == NULL) return UINT32_MAX;
    self->segments = array;
    self->segments[self->n_segments].module = module->index;
    self->segments[self->n_segments].name = join_names(ctx, "", "", name);
    note_name(ctx, &self->segments_by_name, self->segments[self->n_segments].name, self->n_segments);
    self->n_segments++;
    return weft_sticky_error_is_set(&ctx->first) ? UINT32_MAX : (uint32_t)(self->n_segments - 1);
}

static void builder_carry(weft_builder_ctx *ctx, int64_t width) {
    if (weft_sticky_error_is_set(&ctx->first)) return;
    if (width < 1 || (ctx->declared->carry_width != 0 && ctx->declared->carry_width != width))
        weft_sticky_error_keep(
            &ctx->first, WEFT_E_PLUGIN,
            "the %s plugin declares a carry of width %lld; it is at least 1 and the same for all segments", ctx->who,
            (long long)width);
    else ctx->declared->carry_width = width;
}

/* ---- adapters ---- */

static void refuse_shape(weft_builder_ctx *ctx, const char *what) {
    weft_sticky_error_keep(
        &ctx->first, WEFT_E_PLUGIN,
        "the adapter plugin declares a %s, which only a model has: it adds modules, weights and slices", what);
}

static weft_weight *refuse_tie(weft_builder_ctx *ctx, weft_module *module, const char *name, const char *class_name,
                               weft_weight *storage) {
    (void)module;
    (void)name;
    (void)class_name;
    (void)storage;
    refuse_shape(ctx, "tie");
    return NULL;
}

static weft_table *refuse_table(weft_builder_ctx *ctx, const char *name, int64_t width,
                                weft_status (*fill)(const weft_model *model, const char *name, int64_t rows, float *out,
                                                    weft_error *err)) {
    (void)name;
    (void)width;
    (void)fill;
    refuse_shape(ctx, "table");
    return NULL;
}

static uint32_t refuse_segment(weft_builder_ctx *ctx, weft_module *module, const char *name) {
    (void)module;
    (void)name;
    refuse_shape(ctx, "segment");
    return UINT32_MAX;
}

static void refuse_carry(weft_builder_ctx *ctx, int64_t width) {
    (void)width;
    refuse_shape(ctx, "carry");
}

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

/* Rejects a second adapter at one site: the result would depend on an order that neither adapter knows. */
static void refuse_second(weft_builder_ctx *ctx, const weft_declared_site *site) {
    const weft_joined_adapter *adapters = ctx->declared->adapters;
    const char *first = weft_plugin_id(adapters[site->claimed - 1].plugin);
    const char *second = weft_plugin_id(adapters[ctx->declared->n_adapters - 1].plugin);
    weft_sticky_error_keep(&ctx->first, WEFT_E_USER,
                           "[adapter] plugin contains %s, which changes '%s', as %s does. Allowed: one adapter per "
                           "module. Fix: choose different targets, or remove one adapter",
                           second, site->view.path, first);
}

/* Claims a site. Slices of a claimed parameter are claimed with it. */
static void builder_claim(weft_builder_ctx *ctx, uint32_t site) {
    weft_declared *self = ctx->declared;
    const weft_site *view = site < (uint32_t)self->n_sites ? &self->sites[site].view : NULL;
    if (weft_sticky_error_is_set(&ctx->first)) return;
    if (view == NULL || view->whole >= 0)
        weft_sticky_error_keep(
            &ctx->first, WEFT_E_PLUGIN,
            view == NULL ? "the adapter plugin claims site %u of %d"
                         : "the adapter plugin claims site %u of %d, which is a slice. Fix: claim its complete matrix",
            (unsigned)site, self->n_sites);
    else if (self->sites[site].claimed != 0 && self->sites[site].claimed != self->n_adapters)
        refuse_second(ctx, &self->sites[site]);
    else if (!is_served(self->adapters[self->n_adapters - 1].plugin, view->kind))
        weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN,
                               "the adapter plugin claims '%s', and has no function for such a site", view->path);
    if (weft_sticky_error_is_set(&ctx->first)) return;
    claim_one(self, site);
    for (uint32_t i = 0; i < (uint32_t)self->n_sites; i++)
        if (self->sites[i].view.whole == (int32_t)site) claim_one(self, i);
}

/* ---- declare ---- */

weft_status weft_builder_run(weft_declared *declared, weft_error *err) {
    weft_builder_ctx ctx = {.declared = declared, .who = "model", .first = WEFT_ERROR_INIT};
    const weft_builder builder = {(uint32_t)sizeof builder,
                                  0,
                                  &ctx,
                                  builder_module,
                                  builder_weight,
                                  builder_tie,
                                  builder_table,
                                  builder_segment,
                                  builder_carry,
                                  builder_slice};
    weft_status status = WEFT_OK;
    weft_slow_warning slow;
    weft_slow_warning_begin(&slow, declared->plugin, "declare");
    WEFT_PLUGIN_CALL(status, declared->plugin, declare, err, declared->model, &builder);
    weft_slow_warning_end(&slow);
    return weft_sticky_error_report(&ctx.first, status, err);
}

weft_status weft_builder_adapt(weft_declared *declared, weft_adapter_job *job, weft_error *err) {
    const weft_joined_adapter *last = &declared->adapters[declared->n_adapters - 1];
    weft_builder_ctx ctx = {
        .declared = declared, .who = "adapter", .adds = declared->n_adapters, .first = WEFT_ERROR_INIT};
    const weft_builder builder = {(uint32_t)sizeof builder,
                                  0,
                                  &ctx,
                                  builder_module,
                                  builder_weight,
                                  refuse_tie,
                                  refuse_table,
                                  refuse_segment,
                                  refuse_carry,
                                  builder_slice};
    weft_status status = WEFT_OK;
    weft_slow_warning slow;
    job->builder = &builder;
    job->claim = builder_claim;
    weft_slow_warning_begin(&slow, last->plugin, "declare");
    WEFT_PLUGIN_CALL(status, last->plugin, declare, err, last->adapter, job);
    weft_slow_warning_end(&slow);
    return weft_sticky_error_report(&ctx.first, status, err);
}
