/* host/model/wrap.c: see wrap.h. The policy's view of the model, and the three functions by which a policy defines
 * units. */
#include "model/wrap.h"

#include "config/nearest.h"
#include "plugin/enter.h"
#include "plugin/sticky_error.h"
#include "plugin/slow_warning.h"

#include <stdlib.h>

enum { UNCLAIMED = -2 };

struct weft_wrap_ctx {
    weft_wrapping *wrapping;
    const weft_declared *declared;
    int32_t *last_below; /* [n_modules] result of find_last_below */
    int32_t *by_module;  /* [n_parameters] parameters of module 0, then of module 1, ... */
    int32_t *begins;     /* [n_modules + 1] offset of each module's parameters in by_module */
    weft_lookup units_by_name;
    weft_error first; /* first error */
};

/* ---- view of the policy ---- */

typedef struct view {
    weft_module_view *modules;
    weft_parameter_view *parameters;
} view;

static void fill_module(weft_module_view *out, const weft_declared *declared, int32_t m) {
    const weft_module *module = declared->modules[m];
    const int32_t blocks = declared->info.n_layers > 0 ? weft_declared_module(declared, declared->info.layer_path) : -1;
    out->struct_size = (uint32_t)sizeof *out;
    out->path = module->path;
    out->name = module->name;
    out->class_name = module->class_name;
    out->parent = module->parent;
    out->is_block = blocks >= 0 && module->parent == blocks;
}

/* Counts a tied parameter once, at its first name. */
static void fill_parameter(view *self, const weft_declared *declared, int32_t p) {
    const weft_parameter *parameter = &declared->parameters[p];
    const weft_parameter_view made = {.struct_size = (uint32_t)sizeof made,
                                      .name = parameter->name,
                                      .numel = parameter->numel,
                                      .module = parameter->module,
                                      .dtype = WEFT_F32,
                                      .trainable = parameter->trainable ? 1 : 0};
    self->parameters[p] = made;
    self->modules[parameter->module].own_parameters += parameter->numel;
    for (int32_t m = parameter->module; m >= 0; m = self->modules[m].parent) {
        self->modules[m].parameters += parameter->numel;
        if (parameter->trainable) self->modules[m].trainable += parameter->numel;
    }
}

static void free_view(view *self) {
    free(self->modules);
    free(self->parameters);
}

/* The caller frees the view, also after a failure. */
static weft_status make_view(view *out, const weft_declared *declared, weft_error *err) {
    out->modules = calloc((size_t)declared->n_modules, sizeof *out->modules);
    out->parameters = calloc((size_t)declared->n_parameters, sizeof *out->parameters);
    if (out->modules == NULL || out->parameters == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for the wrap policy's view of the model");
    for (int32_t m = 0; m < declared->n_modules; m++) fill_module(&out->modules[m], declared, m);
    for (int32_t p = 0; p < declared->n_parameters; p++) fill_parameter(out, declared, p);
    return WEFT_OK;
}

/* ---- calls of the policy ---- */

static const char *unit_name(const weft_wrap_ctx *ctx, int32_t unit) {
    return unit == WEFT_UNIT_ROOT ? "root" : ctx->wrapping->names[unit];
}

static void check_name(weft_wrap_ctx *ctx, const char *name) {
    if (name == NULL || name[0] == '\0' || strcmp(name, "root") == 0)
        weft_sticky_error_keep(
            &ctx->first, WEFT_E_PLUGIN,
            "the wrap policy names a unit '%s'; a name is a module's path or \"first..last\", and what is left is "
            "claimed for WEFT_UNIT_ROOT",
            name == NULL ? "" : name);
    if (!weft_sticky_error_is_set(&ctx->first) && weft_lookup_find(&ctx->units_by_name, name) >= 0)
        weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN, "the wrap policy makes two units with the name '%s'", name);
}

static int32_t wrap_unit(weft_wrap_ctx *ctx, const char *name) {
    weft_wrapping *self = ctx->wrapping;
    char **grown = NULL;
    if (!weft_sticky_error_is_set(&ctx->first)) check_name(ctx, name);
    if (weft_sticky_error_is_set(&ctx->first)) return WEFT_UNIT_ROOT;
    grown = realloc(self->names, ((size_t)self->n_units + 1) * sizeof *grown);
    if (grown != NULL) {
        self->names = grown;
        self->names[self->n_units] = strdup(name);
    }
    if (grown != NULL && self->names[self->n_units] != NULL &&
        weft_lookup_put(&ctx->units_by_name, self->names[self->n_units], self->n_units))
        return self->n_units++;
    if (grown != NULL) free(self->names[self->n_units]);
    weft_sticky_error_keep(&ctx->first, WEFT_E_MEMORY, "no memory for the wrap policy's units");
    return WEFT_UNIT_ROOT;
}

static void check_unit(weft_wrap_ctx *ctx, int32_t unit) {
    if (unit != WEFT_UNIT_ROOT && (unit < 0 || unit >= ctx->wrapping->n_units))
        weft_sticky_error_keep(
            &ctx->first, WEFT_E_PLUGIN,
            "the wrap policy claims something for unit %d, and it has made %d: a unit is what `unit` returned, or "
            "WEFT_UNIT_ROOT",
            (int)unit, (int)ctx->wrapping->n_units);
}

static void wrap_claim(weft_wrap_ctx *ctx, int32_t unit, int32_t parameter) {
    const weft_declared *declared = ctx->declared;
    check_unit(ctx, unit);
    if (parameter < 0 || parameter >= declared->n_parameters)
        weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN, "the wrap policy claims parameter %d; the model has 0 to %d",
                               (int)parameter, (int)declared->n_parameters - 1);
    if (weft_sticky_error_is_set(&ctx->first)) return;
    if (ctx->wrapping->unit_of[parameter] != UNCLAIMED)
        weft_sticky_error_keep(
            &ctx->first, WEFT_E_PLUGIN,
            "the wrap policy claims %s twice: for unit %s, and then for unit %s; each parameter is for "
            "one unit, and claim_rest takes only what has none yet",
            declared->parameters[parameter].name, unit_name(ctx, ctx->wrapping->unit_of[parameter]),
            unit_name(ctx, unit));
    else ctx->wrapping->unit_of[parameter] = unit;
}

/* Returns for each module its last descendant, or itself. Modules in between may be no descendants. NULL: no memory. */
static int32_t *find_last_below(const weft_declared *declared) {
    int32_t *last = malloc((size_t)declared->n_modules * sizeof *last + 1);
    for (int32_t m = 0; last != NULL && m < declared->n_modules; m++) last[m] = m;
    for (int32_t m = declared->n_modules - 1; last != NULL && m >= 0; m--) {
        const int32_t parent = declared->modules[m]->parent; /* declared before its children */
        if (parent >= 0 && last[parent] < last[m]) last[parent] = last[m];
    }
    return last;
}

/* Counting sort: parameters may be declared in any order of modules. */
static bool order_by_module(weft_wrap_ctx *ctx) {
    const weft_declared *declared = ctx->declared;
    int32_t *begins = calloc((size_t)declared->n_modules + 2, sizeof *begins);
    ctx->by_module = malloc((size_t)declared->n_parameters * sizeof *ctx->by_module + 1);
    ctx->begins = begins;
    if (begins == NULL || ctx->by_module == NULL) return false;
    for (int32_t p = 0; p < declared->n_parameters; p++) begins[declared->parameters[p].module + 2]++;
    for (int32_t m = 2; m <= declared->n_modules + 1; m++) begins[m] += begins[m - 1];
    for (int32_t p = 0; p < declared->n_parameters; p++)
        ctx->by_module[begins[declared->parameters[p].module + 1]++] = p;
    return true;
}

static void wrap_claim_rest(weft_wrap_ctx *ctx, int32_t unit, int32_t module) {
    const weft_declared *declared = ctx->declared;
    int32_t first = 0, last = 0;
    check_unit(ctx, unit);
    if (module != WEFT_ALL_MODULES && (module < 0 || module >= declared->n_modules))
        weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN,
                               "the wrap policy claims the rest of module %d; the model has 0 to %d", (int)module,
                               (int)declared->n_modules - 1);
    if (weft_sticky_error_is_set(&ctx->first)) return;
    first = module == WEFT_ALL_MODULES ? 0 : module;
    last = module == WEFT_ALL_MODULES ? declared->n_modules - 1 : ctx->last_below[module];
    for (int32_t i = ctx->begins[first]; i < ctx->begins[last + 1]; i++) {
        const int32_t p = ctx->by_module[i];
        if (ctx->wrapping->unit_of[p] == UNCLAIMED &&
            (module == WEFT_ALL_MODULES || weft_declared_below(declared, declared->parameters[p].module, module)))
            ctx->wrapping->unit_of[p] = unit;
    }
}

static void check_whole(weft_wrap_ctx *ctx) {
    int32_t first = -1, n = 0;
    char more[32] = "";
    for (int32_t p = ctx->declared->n_parameters - 1; p >= 0; p--) {
        if (ctx->wrapping->unit_of[p] != UNCLAIMED) continue;
        first = p;
        n++;
    }
    if (n > 1) (void)snprintf(more, sizeof more, " and %d more", (int)n - 1);
    if (n > 0)
        weft_sticky_error_keep(
            &ctx->first, WEFT_E_PLUGIN,
            "the wrap policy leaves out %s%s of %d parameters: claim_rest for WEFT_UNIT_ROOT, at its "
            "end, takes what is for no unit",
            ctx->declared->parameters[first].name, more, (int)ctx->declared->n_parameters);
}

/* ---- unit names without a module ---- */

enum { SHOWN = 240 };

static bool is_module(const weft_declared *declared, const char *path, size_t n) {
    char *copy = strndup(path, n);
    const bool is = copy == NULL || weft_declared_module(declared, copy) >= 0;
    free(copy);
    return is;
}

/* True for "model.layers.3" or "model.layers.0..model.layers.1". */
static bool names_modules(const weft_declared *declared, const char *name) {
    const char *dots = strstr(name, "..");
    if (is_module(declared, name, strlen(name))) return true;
    return dots != NULL && is_module(declared, name, (size_t)(dots - name)) &&
           is_module(declared, dots + 2, strlen(dots + 2));
}

/* Lists as many modules as fit. */
static void list_modules(char *out, size_t size, const weft_declared *declared) {
    size_t used = 0;
    for (int32_t m = 0; m < declared->n_modules; m++) {
        const char *path = declared->modules[m]->path;
        if (path[0] == '\0') continue;
        if (used + strlen(path) + 8 > size) {
            (void)snprintf(out + used, size - used, ", ...");
            return;
        }
        used += (size_t)snprintf(out + used, size - used, "%s%s", used == 0 ? "" : ", ", path);
    }
}

/* Warns about unit names that match no module: any name is allowed, but a typo in a module's name would otherwise go
 * unnoticed. Warns once, although a command may run the policy repeatedly. */
static void tell_names(const weft_wrapping *self, const weft_declared *declared, const weft_host *host,
                       const weft_policy_plugin *policy) {
    static bool is_told;
    char title[700], near[96], all[SHOWN] = "";
    int32_t u = 0;
    while (u < self->n_units && names_modules(declared, self->names[u])) u++;
    if (u == self->n_units || is_told) return;
    {
        weft_nearest nearest = {self->names[u], "", 0};
        for (int32_t m = 0; m < declared->n_modules; m++)
            weft_nearest_offer(&nearest, declared->modules[m]->path, strlen(declared->modules[m]->path));
        weft_nearest_print(&nearest, near, sizeof near);
    }
    weft_plugin_title(title, sizeof title, policy);
    list_modules(all, sizeof all, declared);
    weft_log(host, WEFT_LOG_WARN,
             "%s calls a unit %.200s, which is no module of this model%s A unit is called by its module's path, or "
             "\"first..last\" of several. The modules are: %s",
             title, self->names[u], near[0] == '\0' ? "." : near, all);
    is_told = true;
}

/* ---- run a policy ---- */

weft_status weft_wrapping_ask(weft_wrapping *out, const weft_declared *declared, const weft_host *host,
                              const weft_policy_plugin *policy, const void *policy_config, weft_error *err) {
    weft_wrap_ctx ctx = {.wrapping = out, .declared = declared, .first = WEFT_ERROR_INIT};
    bool ordered = false;
    const weft_wrap wrap = {(uint32_t)sizeof wrap, 0, &ctx, wrap_unit, wrap_claim, wrap_claim_rest};
    weft_policy_job job = {.struct_size = (uint32_t)sizeof job,
                           .n_modules = (uint32_t)declared->n_modules,
                           .n_parameters = (uint32_t)declared->n_parameters,
                           .module_stride = (uint32_t)sizeof(weft_module_view),
                           .parameter_stride = (uint32_t)sizeof(weft_parameter_view)};
    view seen = {0};
    weft_slow_warning slow;
    weft_status status = make_view(&seen, declared, err);
    memset(out, 0, sizeof *out);
    out->unit_of = malloc((size_t)declared->n_parameters * sizeof *out->unit_of + 1);
    ctx.last_below = find_last_below(declared);
    ordered = order_by_module(&ctx);
    if (status == WEFT_OK && (out->unit_of == NULL || ctx.last_below == NULL || !ordered))
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the wrap policy's units");
    if (status != WEFT_OK) goto done;
    for (int32_t p = 0; p < declared->n_parameters; p++) out->unit_of[p] = UNCLAIMED;
    job.modules = seen.modules;
    job.parameters = seen.parameters;
    if (err != NULL) err->text[0] = '\0';
    weft_slow_warning_begin(&slow, policy, "units");
    WEFT_PLUGIN_CALL(status, policy, units, err, host, policy_config, &job, &wrap);
    weft_slow_warning_end(&slow);
    if (status == WEFT_OK) check_whole(&ctx);
    status = weft_sticky_error_report(&ctx.first, status, err);
    if (status == WEFT_OK) tell_names(out, declared, host, policy);
done:
    weft_lookup_free(&ctx.units_by_name);
    free(ctx.last_below);
    free(ctx.by_module);
    free(ctx.begins);
    free_view(&seen);
    return status;
}

void weft_wrapping_free(weft_wrapping *self) {
    for (int32_t u = 0; u < self->n_units; u++) free(self->names[u]);
    free(self->names);
    free(self->unit_of);
    memset(self, 0, sizeof *self);
}
