/* declare.c: what stays when a model plugin has declared itself: the tree, its parameters, segments and tables.
 *
 * The plugin calls the builder below. A mistake is kept and everything after it does nothing, so that a `declare` reads
 * as a list without checks; the first mistake is what weft_declared_create reports. Which parameters are trained is
 * select.c's. */
#include "model/declare.h"

#include <stdlib.h>

#include "model/text.h"

struct weft_builder_ctx {
    weft_declared *declared;
    weft_error first; /* the first mistake; code WEFT_OK: none */
};

enum { CONFIG_LIMIT = 16 << 20 };

static void fail(weft_builder_ctx *ctx, weft_status code, const char *format, ...) WEFT_PRINTF(3, 4);
static void fail(weft_builder_ctx *ctx, weft_status code, const char *format, ...) {
    va_list args;
    if (ctx->first.code != WEFT_OK) return;
    ctx->first.code = (int32_t)code;
    va_start(args, format);
    (void)vsnprintf(ctx->first.text, sizeof ctx->first.text, format, args);
    va_end(args);
}

static bool failed(const weft_builder_ctx *ctx) {
    return ctx->first.code != WEFT_OK;
}

/* Room for one more element behind n; capacities are powers of two, so n says when the array is full. NULL: no memory.
 */
static void *grow(weft_builder_ctx *ctx, void *array, int32_t n, size_t size) {
    void *grown = array;
    if (n == 0 || (n & (n - 1)) == 0) grown = realloc(array, (n == 0 ? 1 : 2 * (size_t)n) * size);
    if (grown == NULL) fail(ctx, WEFT_E_MEMORY, "no memory for the model's description");
    return grown;
}

/* NULL after a failure, which is kept. */
static char *joined(weft_builder_ctx *ctx, const char *path, const char *separator, const char *name) {
    char *text = NULL;
    if (asprintf(&text, "%s%s%s", path, path[0] == '\0' ? "" : separator, name) < 0) {
        text = NULL;
        fail(ctx, WEFT_E_MEMORY, "no memory for the model's description");
    }
    return text;
}

/* Zeroed. */
static void *made(weft_builder_ctx *ctx, size_t size) {
    void *memory = calloc(1, size);
    if (memory == NULL) fail(ctx, WEFT_E_MEMORY, "no memory for the model's description");
    return memory;
}

/* ---- modules ---- */

static void module_destroy(weft_module *module) {
    if (module == NULL) return;
    free(module->path);
    free(module->name);
    free(module->class_name);
    free(module);
}

static bool module_name_good(weft_builder_ctx *ctx, const weft_module *parent, const char *name,
                             const char *class_name) {
    if (name == NULL || class_name == NULL || class_name[0] == '\0')
        fail(ctx, WEFT_E_PLUGIN, "the model plugin declares a module without a name or a class");
    else if (strchr(name, '.') != NULL || (parent != NULL && name[0] == '\0'))
        fail(ctx, WEFT_E_PLUGIN,
             "the model plugin declares a module named '%s': a name is one part of a path, without dots, and only a "
             "root may have none",
             name);
    return !failed(ctx);
}

static weft_module *builder_module(weft_builder_ctx *ctx, weft_module *parent, const char *name,
                                   const char *class_name) {
    weft_declared *self = ctx->declared;
    weft_module *module = NULL;
    void *array = NULL;
    if (failed(ctx) || !module_name_good(ctx, parent, name, class_name)) return NULL;
    array = grow(ctx, self->modules, self->n_modules, sizeof(weft_module *));
    if (array == NULL) return NULL;
    self->modules = array;
    module = made(ctx, sizeof *module);
    if (module == NULL) return NULL;
    module->path = joined(ctx, parent == NULL ? "" : parent->path, ".", name);
    module->name = joined(ctx, "", "", name);
    module->class_name = joined(ctx, "", "", class_name);
    module->index = self->n_modules;
    module->parent = parent == NULL ? -1 : parent->index;
    if (!failed(ctx) && weft_declared_module(self, module->path) >= 0)
        fail(ctx, WEFT_E_PLUGIN, "the model plugin declares two modules with the path '%s'", module->path);
    if (failed(ctx)) {
        module_destroy(module);
        return NULL;
    }
    self->modules[self->n_modules++] = module;
    return module;
}

/* ---- parameters and weight objects ---- */

static void parameter_clear(weft_parameter *parameter) {
    for (int32_t i = 0; i < parameter->n_aliases; i++) free(parameter->aliases[i]);
    free(parameter->aliases);
    free(parameter->name);
}

/* dims: (out, in), or (n) with in = 0. Returns the index, -1 after a failure. */
static int32_t add_parameter(weft_builder_ctx *ctx, const weft_module *module, const char *suffix, int64_t out,
                             int64_t in) {
    weft_declared *self = ctx->declared;
    weft_parameter *parameter = NULL;
    void *array = NULL;
    if (failed(ctx)) return -1;
    array = grow(ctx, self->parameters, self->n_parameters, sizeof(weft_parameter));
    if (array == NULL) return -1;
    self->parameters = array;
    parameter = &self->parameters[self->n_parameters];
    memset(parameter, 0, sizeof *parameter);
    parameter->name = joined(ctx, module->path, ".", suffix);
    if (failed(ctx)) return -1;
    parameter->module = module->index;
    parameter->rank = in == 0 ? 1 : 2;
    parameter->dims[0] = out;
    parameter->dims[1] = in == 0 ? 1 : in;
    parameter->numel = out * parameter->dims[1];
    parameter->trainable = true;
    parameter->unit = parameter->group = -1;
    return self->n_parameters++;
}

static bool spec_good(weft_builder_ctx *ctx, const weft_module *module, const weft_weight_spec *spec) {
    const char *name = NULL;
    if (module == NULL || spec == NULL || spec->struct_size < sizeof *spec || spec->name == NULL ||
        spec->name[0] == '\0') {
        fail(ctx, WEFT_E_PLUGIN, "the model plugin declares a weight without a module, a name or a whole spec");
        return false;
    }
    name = spec->name;
    if (spec->role != WEFT_WEIGHT_LINEAR && spec->role != WEFT_WEIGHT_EMBEDDING && spec->role != WEFT_WEIGHT_GAIN)
        fail(ctx, WEFT_E_PLUGIN, "the model plugin declares '%s.%s' with the unknown role %d", module->path, name,
             spec->role);
    else if (spec->in < 1 || (spec->role != WEFT_WEIGHT_GAIN && spec->out < 1) ||
             (spec->role != WEFT_WEIGHT_GAIN && spec->out > INT64_MAX / 64 / spec->in))
        fail(ctx, WEFT_E_PLUGIN,
             "the model plugin declares '%s.%s' with the shape (%lld, %lld), which no weight can have", module->path,
             name, (long long)spec->out, (long long)spec->in);
    else if (spec->role == WEFT_WEIGHT_EMBEDDING && spec->has_bias)
        fail(ctx, WEFT_E_PLUGIN,
             "the model plugin declares the embedding '%s.%s' with a bias, which an embedding lacks", module->path,
             name);
    else if (!(spec->init_std >= 0))
        fail(ctx, WEFT_E_PLUGIN, "the model plugin declares '%s.%s' with the deviation %g; it is at least 0",
             module->path, name, spec->init_std);
    return !failed(ctx);
}

/* The weight's parameters, made under its own module. */
static void add_parameters(weft_builder_ctx *ctx, weft_weight *weight, const weft_module *own,
                           const weft_weight_spec *spec) {
    const bool gain = spec->role == WEFT_WEIGHT_GAIN;
    weft_parameter *parameters = NULL;
    weight->role = spec->role;
    weight->out = gain ? 1 : spec->out;
    weight->in = spec->in;
    weight->parameter = add_parameter(ctx, own, "weight", gain ? spec->in : spec->out, gain ? 0 : spec->in);
    weight->bias = spec->has_bias ? add_parameter(ctx, own, "bias", gain ? spec->in : spec->out, 0) : -1;
    if (failed(ctx)) return;
    parameters = ctx->declared->parameters;
    parameters[weight->parameter].role = spec->role;
    parameters[weight->parameter].init_std = gain ? -1 : spec->init_std;
    if (weight->bias < 0) return;
    parameters[weight->bias].role = spec->role;
    parameters[weight->bias].is_bias = true;
}

static weft_weight *builder_weight(weft_builder_ctx *ctx, weft_module *module, const weft_weight_spec *spec) {
    weft_declared *self = ctx->declared;
    weft_weight *weight = NULL;
    weft_module *own = NULL;
    void *array = NULL;
    if (failed(ctx) || !spec_good(ctx, module, spec)) return NULL;
    own = builder_module(ctx, module, spec->name, spec->class_name);
    array = own == NULL ? NULL : grow(ctx, self->weights, self->n_weights, sizeof(weft_weight *));
    if (array == NULL) return NULL;
    self->weights = array;
    weight = made(ctx, sizeof *weight);
    if (weight == NULL) return NULL;
    self->weights[self->n_weights++] = weight;
    add_parameters(ctx, weight, own, spec);
    return failed(ctx) ? NULL : weight;
}

static void add_alias(weft_builder_ctx *ctx, int32_t index, const weft_module *own, const char *suffix) {
    weft_parameter *parameter = &ctx->declared->parameters[index];
    void *array = grow(ctx, parameter->aliases, parameter->n_aliases, sizeof(char *));
    if (array == NULL) return;
    parameter->aliases = array;
    parameter->aliases[parameter->n_aliases] = joined(ctx, own->path, ".", suffix);
    if (!failed(ctx)) parameter->n_aliases++;
}

static weft_weight *builder_tie(weft_builder_ctx *ctx, weft_module *module, const char *name, const char *class_name,
                                weft_weight *storage) {
    weft_module *own = NULL;
    if (failed(ctx)) return NULL;
    if (module == NULL || storage == NULL) {
        fail(ctx, WEFT_E_PLUGIN, "the model plugin ties '%s' to no weight or under no module",
             name == NULL ? "" : name);
        return NULL;
    }
    own = builder_module(ctx, module, name, class_name);
    if (own == NULL) return NULL;
    add_alias(ctx, storage->parameter, own, "weight");
    if (storage->bias >= 0) add_alias(ctx, storage->bias, own, "bias");
    return failed(ctx) ? NULL : storage;
}

/* ---- tables, segments, carry ---- */

static bool table_good(weft_builder_ctx *ctx, const char *name, int64_t width, bool has_fill) {
    const weft_declared *self = ctx->declared;
    if (name == NULL || name[0] == '\0' || width < 1 || !has_fill)
        fail(ctx, WEFT_E_PLUGIN, "the model plugin declares a table '%s' without a name, a width or a fill function",
             name == NULL ? "" : name);
    for (int32_t i = 0; i < self->n_tables && !failed(ctx); i++)
        if (strcmp(self->tables[i]->name, name) == 0)
            fail(ctx, WEFT_E_PLUGIN, "the model plugin declares two tables named '%s'", name);
    return !failed(ctx);
}

static weft_table *builder_table(weft_builder_ctx *ctx, const char *name, int64_t width,
                                 weft_status (*fill)(const weft_model *model, const char *name, int64_t rows,
                                                     float *out, weft_error *err)) {
    weft_declared *self = ctx->declared;
    weft_table *table = NULL;
    void *array = NULL;
    if (failed(ctx) || !table_good(ctx, name, width, fill != NULL)) return NULL;
    array = grow(ctx, self->tables, self->n_tables, sizeof(weft_table *));
    if (array == NULL) return NULL;
    self->tables = array;
    table = made(ctx, sizeof *table);
    if (table == NULL) return NULL;
    self->tables[self->n_tables] = table;
    table->index = self->n_tables++;
    table->name = joined(ctx, "", "", name);
    table->width = width;
    table->fill = fill;
    return failed(ctx) ? NULL : table;
}

static uint32_t builder_segment(weft_builder_ctx *ctx, weft_module *module, const char *name) {
    weft_declared *self = ctx->declared;
    void *array = NULL;
    if (failed(ctx)) return UINT32_MAX;
    if (module == NULL || name == NULL || name[0] == '\0')
        fail(ctx, WEFT_E_PLUGIN, "the model plugin declares a segment '%s' without a name or a module",
             name == NULL ? "" : name);
    for (int32_t i = 0; i < self->n_segments && !failed(ctx); i++)
        if (strcmp(self->segments[i].name, name) == 0)
            fail(ctx, WEFT_E_PLUGIN, "the model plugin declares two segments named '%s'", name);
    array = failed(ctx) ? NULL : grow(ctx, self->segments, self->n_segments, sizeof(weft_segment));
    if (array == NULL) return UINT32_MAX;
    self->segments = array;
    self->segments[self->n_segments].module = module->index;
    self->segments[self->n_segments].name = joined(ctx, "", "", name);
    self->n_segments++;
    return failed(ctx) ? UINT32_MAX : (uint32_t)(self->n_segments - 1);
}

static void builder_carry(weft_builder_ctx *ctx, int64_t width) {
    if (failed(ctx)) return;
    if (width < 1 || (ctx->declared->carry_width != 0 && ctx->declared->carry_width != width))
        fail(ctx, WEFT_E_PLUGIN,
             "the model plugin declares a carry of width %lld; it is at least 1 and the same for all segments",
             (long long)width);
    else ctx->declared->carry_width = width;
}

/* ---- the whole ---- */

/* What must hold once `declare` is through. */
static weft_status check_whole(weft_declared *self, weft_error *err) {
    const weft_model_info *info = &self->info;
    if (self->n_parameters == 0 || self->n_segments == 0 || self->carry_width == 0)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "the model plugin declares %d parameters, %d segments and a carry of width %lld; a model "
                              "has some of each",
                              self->n_parameters, self->n_segments, (long long)self->carry_width);
    if (info->vocab_size < 1 || info->vocab_size > INT32_MAX || info->max_context < 1)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "the model plugin says vocabulary %lld and context %lld; both are at least 1 and a "
                              "vocabulary fits 31 bits",
                              (long long)info->vocab_size, (long long)info->max_context);
    if (info->n_layers > 0 && (info->layer_path == NULL || weft_declared_module(self, info->layer_path) < 0))
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "the model plugin says that its %lld blocks lie under '%s', where no "
                              "module is",
                              (long long)info->n_layers, info->layer_path == NULL ? "" : info->layer_path);
    if (info->head_path != NULL && weft_declared_module(self, info->head_path) < 0)
        return weft_error_set(err, WEFT_E_PLUGIN, "the model plugin says that its head is '%s', where no module is",
                              info->head_path);
    return WEFT_OK;
}

/* A plugin that fails without a word is at fault itself. */
static weft_status plugin_failed(weft_status status, const char *function, weft_error *err) {
    if (err != NULL && err->text[0] == '\0')
        return weft_error_set(err, WEFT_E_PLUGIN, "the model plugin's %s failed without saying why", function);
    return status;
}

static weft_status declare(weft_declared *self, weft_error *err) {
    weft_builder_ctx ctx = {.declared = self, .first = WEFT_ERROR_INIT};
    const weft_builder builder = {(uint32_t)sizeof builder,
                                  0,
                                  &ctx,
                                  builder_module,
                                  builder_weight,
                                  builder_tie,
                                  builder_table,
                                  builder_segment,
                                  builder_carry};
    weft_status status = self->plugin->declare(self->model, &builder, err);
    if (failed(&ctx)) return weft_error_set(err, (weft_status)ctx.first.code, "%s", ctx.first.text);
    if (status != WEFT_OK) return plugin_failed(status, "declare", err);
    self->info.struct_size = (uint32_t)sizeof self->info;
    self->plugin->info(self->model, &self->info);
    return check_whole(self, err);
}

weft_status weft_declared_create(weft_declared **out, const weft_host *host, const weft_model_plugin *plugin,
                                 const void *plugin_config, const char *config_path, weft_error *err) {
    weft_model_source source = {(uint32_t)sizeof source, 0, config_path, NULL, 0};
    weft_declared *self = calloc(1, sizeof *self);
    weft_status status = WEFT_OK;
    if (self == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the model's description");
    if (err != NULL) err->text[0] = '\0';
    self->plugin = plugin;
    status = weft_text_read(&self->config_text, &self->config_bytes, config_path, CONFIG_LIMIT, err);
    if (status != WEFT_OK) goto done;
    self->config_path = strdup(config_path);
    if (self->config_path == NULL) {
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the model's description");
        goto done;
    }
    source.config_text = self->config_text;
    source.config_bytes = self->config_bytes;
    status = plugin->create(&self->model, host, plugin_config, &source, err);
    if (status != WEFT_OK) status = plugin_failed(status, "create", err);
    else status = declare(self, err);
done:
    if (status == WEFT_OK) *out = self;
    else weft_declared_destroy(self);
    return status;
}

void weft_declared_destroy(weft_declared *declared) {
    if (declared == NULL) return;
    if (declared->model != NULL) declared->plugin->destroy(declared->model);
    for (int32_t i = 0; i < declared->n_modules; i++) module_destroy(declared->modules[i]);
    for (int32_t i = 0; i < declared->n_parameters; i++) parameter_clear(&declared->parameters[i]);
    for (int32_t i = 0; i < declared->n_weights; i++) free(declared->weights[i]);
    for (int32_t i = 0; i < declared->n_tables; i++) {
        free(declared->tables[i]->name);
        free(declared->tables[i]);
    }
    for (int32_t i = 0; i < declared->n_segments; i++) free(declared->segments[i].name);
    free(declared->modules);
    free(declared->parameters);
    free(declared->weights);
    free(declared->tables);
    free(declared->segments);
    free(declared->config_path);
    free(declared->config_text);
    free(declared);
}

int32_t weft_declared_find(const weft_declared *declared, const char *name) {
    for (int32_t i = 0; i < declared->n_parameters; i++) {
        const weft_parameter *parameter = &declared->parameters[i];
        if (strcmp(parameter->name, name) == 0) return i;
        for (int32_t a = 0; a < parameter->n_aliases; a++)
            if (strcmp(parameter->aliases[a], name) == 0) return i;
    }
    return -1;
}

int32_t weft_declared_module(const weft_declared *declared, const char *path) {
    for (int32_t i = 0; i < declared->n_modules; i++)
        if (strcmp(declared->modules[i]->path, path) == 0) return i;
    return -1;
}

bool weft_declared_below(const weft_declared *declared, int32_t module, int32_t ancestor) {
    while (module >= 0 && module != ancestor) module = declared->modules[module]->parent;
    return module >= 0 && module == ancestor;
}

int64_t weft_declared_numel(const weft_declared *declared, bool trainable_only) {
    int64_t numel = 0;
    for (int32_t i = 0; i < declared->n_parameters; i++)
        if (!trainable_only || declared->parameters[i].trainable) numel += declared->parameters[i].numel;
    return numel;
}
