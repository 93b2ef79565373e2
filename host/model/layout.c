/* host/model/layout.c: divides the declared parameters into units and groups and assigns offsets in the flat region.
 *
 * The layout depends only on the model's shapes, the policy and the trainable flags. It does not depend on ranks, so
 * all ranks and all checkpoints have the same grid. */
#include "model/layout.h"

#include "base/units.h"
#include "base/alloc.h"
#include "config/nearest.h"
#include "plugin/enter.h"

#include <stdlib.h>

/* Runs a wrap policy and records the unit of each parameter.
 *
 * The policy must claim each parameter exactly once; otherwise it fails. host/model/layout.h computes the memory layout
 * of the units. */

typedef struct weft_wrapping {
    char **names; /* [n_units] names from the policy, in order of creation */
    int32_t n_units;
    int32_t *unit_of; /* [n_parameters] index into names, or WEFT_UNIT_ROOT */
} weft_wrapping;

/* The policy's view of the model, and the three functions by which a policy defines
 * units. */

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
        weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN,
                               "the wrap policy names a unit '%s'. Allowed: a module's path or \"first..last\"; "
                               "remaining parameters are claimed for WEFT_UNIT_ROOT",
                               name == NULL ? "" : name);
    if (!weft_sticky_error_is_set(&ctx->first) && weft_lookup_find(&ctx->units_by_name, name) >= 0)
        weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN, "the wrap policy creates two units with the name '%s'",
                               name);
}

static int32_t wrap_unit(weft_wrap_ctx *ctx, const char *name) {
    weft_wrapping *self = ctx->wrapping;
    if (!weft_sticky_error_is_set(&ctx->first)) check_name(ctx, name);
    if (weft_sticky_error_is_set(&ctx->first)) return WEFT_UNIT_ROOT;
    self->names = weft_realloc(self->names, self->n_units + 1, sizeof *self->names);
    self->names[self->n_units] = weft_strdup(name);
    weft_lookup_put(&ctx->units_by_name, self->names[self->n_units], self->n_units);
    return self->n_units++;
}

static void check_unit(weft_wrap_ctx *ctx, int32_t unit) {
    if (unit != WEFT_UNIT_ROOT && (unit < 0 || unit >= ctx->wrapping->n_units))
        weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN,
                               "the wrap policy claims a parameter for unit %d, and it has created %d units. Allowed: "
                               "a unit that `unit` returned, or WEFT_UNIT_ROOT",
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
        weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN,
                               "the wrap policy claims %s more than once: for unit %s, and then for unit %s. Allowed: "
                               "one unit per parameter; claim_rest takes only unclaimed parameters",
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
        weft_sticky_error_keep(&ctx->first, WEFT_E_PLUGIN,
                               "the wrap policy leaves out %s%s of %d parameters. Fix: end with claim_rest for "
                               "WEFT_UNIT_ROOT, which claims all remaining parameters",
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
static void report_names(const weft_wrapping *self, const weft_declared *declared, const weft_host *host,
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

/* Zeroes *out first. The caller frees it, also after a failure. */
static weft_status weft_wrapping_query(weft_wrapping *out, const weft_declared *declared, const weft_host *host,
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
    if (status == WEFT_OK) report_names(out, declared, host, policy);
done:
    weft_lookup_free(&ctx.units_by_name);
    free(ctx.last_below);
    free(ctx.by_module);
    free(ctx.begins);
    free_view(&seen);
    return status;
}

static void weft_wrapping_free(weft_wrapping *self) {
    for (int32_t u = 0; u < self->n_units; u++) free(self->names[u]);
    free(self->names);
    free(self->unit_of);
    memset(self, 0, sizeof *self);
}

enum { GRID_MIN = 64, GRID_MAX = 16 << 10, PADDING_PERCENT = 2 };

/* Returns the minimum grid: the longest block of the storage types and the optimizer states in use. Blocks are powers
 * of two. */
static int64_t smallest_grid(const weft_declared *declared) {
    int64_t grid = weft_larger(GRID_MIN, declared->state_block);
    for (int32_t p = 0; p < declared->n_parameters; p++)
        grid = weft_larger(grid, weft_dtype_block(declared->parameters[p].dtype));
    return grid;
}

/* True if this grid pads all parameters, or only those added by adapters, by less than PADDING_PERCENT. */
static bool pads_little(const weft_declared *declared, int64_t grid, bool added_alone) {
    double padded = 0, used = 0; /* exact below 2^53 elements */
    for (int32_t p = 0; p < declared->n_parameters; p++) {
        if (added_alone && !declared->parameters[p].added) continue;
        used += (double)declared->parameters[p].numel;
        padded += (double)weft_round_up(declared->parameters[p].numel, grid);
    }
    return used <= 0 || padded - used < used * PADDING_PERCENT / 100;
}

/* Returns the largest power of two that pads all parameters by less than PADDING_PERCENT, and also those added by
 * adapters: they are few, but have the gradients and states. Returns the minimum if no power of two qualifies. */
static int64_t choose_grid(const weft_declared *declared) {
    const int64_t least = smallest_grid(declared);
    for (int64_t grid = GRID_MAX; grid > least; grid /= 2)
        if (pads_little(declared, grid, false) && pads_little(declared, grid, true)) return grid;
    return least;
}

/* ---- units ---- */

static weft_status add_unit(weft_layout *self, const char *name, bool is_root, weft_error *err) {
    weft_unit *unit = &self->units[self->n_units];
    unit->name = strdup(name);
    unit->is_root = is_root;
    unit->trained = -1;
    self->n_units++;
    return unit->name != NULL ? WEFT_OK : weft_error_set(err, WEFT_E_MEMORY, "no memory for the units");
}

/* Creates units in the order of their first parameters. unit_of has one element for each value of `of`, and one
 * more. */
static weft_status make_units(weft_layout *self, weft_declared *declared, const int32_t *of,
                              const weft_wrapping *wrapping, const weft_layout_piece *pieces, const weft_layout *from,
                              int32_t *unit_of, weft_error *err) {
    weft_status status = WEFT_OK;
    self->units = calloc((size_t)(uint32_t)declared->n_parameters + 1, sizeof *self->units);
    if (self->units == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the units");
    for (int32_t p = 0; p < declared->n_parameters && status == WEFT_OK; p++) {
        const int32_t source = of[p];
        int32_t *unit = &unit_of[source + 1]; /* WEFT_UNIT_ROOT is -1 */
        if (*unit < 0) {
            *unit = self->n_units;
            if (pieces != NULL)
                status = add_unit(self, pieces[source].name, from->units[pieces[source].unit].is_root, err);
            else
                status = add_unit(self, source == WEFT_UNIT_ROOT ? "root" : wrapping->names[source],
                                  source == WEFT_UNIT_ROOT, err);
        }
        declared->parameters[p].unit = *unit;
    }
    return status;
}

/* ---- groups ---- */

/* Parameters sorted by unit, in declaration order within each; those of unit u begin at begins[u]. */
typedef struct by_unit {
    int32_t *parameters, *begins;
} by_unit;

static weft_status order_by_unit(by_unit *out, const weft_layout *layout, const weft_declared *declared,
                                 weft_error *err) {
    int32_t *begins = calloc((size_t)layout->n_units + 2, sizeof *begins);
    out->begins = begins;
    out->parameters = calloc((size_t)declared->n_parameters + 1, sizeof *out->parameters);
    if (begins == NULL || out->parameters == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for the groups");
    for (int32_t p = 0; p < declared->n_parameters; p++) begins[declared->parameters[p].unit + 2]++;
    for (int32_t u = 2; u <= layout->n_units + 1; u++) begins[u] += begins[u - 1];
    for (int32_t p = 0; p < declared->n_parameters; p++)
        out->parameters[begins[declared->parameters[p].unit + 1]++] = p;
    return WEFT_OK;
}

/* Adds a group of the unit's parameters with this dtype and trainable flag, unless it is empty. */
static weft_status make_group(weft_layout *self, weft_declared *declared, const by_unit *in, int32_t unit,
                              bool trainable, int32_t dtype, weft_error *err) {
    const int32_t index = self->n_groups, first = in->begins[unit], end = in->begins[unit + 1];
    weft_unit *of = &self->units[unit];
    weft_group *group = &self->groups[index];
    group->members = calloc((size_t)(end - first) + 1, sizeof *group->members);
    if (group->members == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the groups");
    for (int32_t i = first; i < end; i++) {
        const int32_t p = in->parameters[i];
        weft_parameter *parameter = &declared->parameters[p];
        if (parameter->trainable != trainable || parameter->dtype != dtype) continue;
        parameter->group = index;
        parameter->offset = group->numel;
        group->members[group->n_members++] = p;
        group->used += parameter->numel;
        group->numel += weft_round_up(parameter->numel, self->grid);
    }
    if (group->n_members == 0) {
        free(group->members);
        group->members = NULL;
        return WEFT_OK;
    }
    group->unit = unit;
    group->trainable = trainable;
    group->dtype = dtype;
    group->base = self->bytes;
    of->groups[of->n_groups++] = index;
    if (trainable) of->trained = index;
    self->numel += group->numel;
    self->bytes += weft_cache_lines(weft_group_bytes(group));
    self->n_groups++;
    return WEFT_OK;
}

/* Adds one group of frozen parameters per storage type. */
static weft_status make_frozen_groups(weft_layout *self, weft_declared *declared, const by_unit *in, int32_t unit,
                                      weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t dtype = 1; dtype <= WEFT_DTYPE_LAST && status == WEFT_OK; dtype++)
        status = make_group(self, declared, in, unit, false, dtype, err);
    return status;
}

/* Returns the storage type of the trained parameters, which have only one. */
static int32_t trained_type(const weft_declared *declared) {
    for (int32_t p = 0; p < declared->n_parameters; p++)
        if (declared->parameters[p].trainable) return declared->parameters[p].dtype;
    return WEFT_F32;
}

static weft_status make_groups(weft_layout *self, weft_declared *declared, weft_error *err) {
    by_unit in = {0};
    weft_status status = order_by_unit(&in, self, declared, err);
    self->groups = calloc(WEFT_UNIT_GROUPS * (size_t)self->n_units, sizeof *self->groups);
    if (status == WEFT_OK && self->groups == NULL)
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the groups");
    for (int32_t u = 0; u < self->n_units && status == WEFT_OK; u++)
        status = make_group(self, declared, &in, u, true, trained_type(declared), err);
    self->n_trainable_groups = self->n_groups;
    self->trainable_numel = self->numel;
    for (int32_t u = 0; u < self->n_units && status == WEFT_OK; u++)
        status = make_frozen_groups(self, declared, &in, u, err);
    free(in.parameters);
    free(in.begins);
    return status;
}

/* ---- layout ---- */

/* Creates the layout from a policy's wrapping, or from parts of another layout's units. */
static weft_status make_layout(weft_layout **out, weft_declared *declared, const int32_t *of,
                               const weft_wrapping *wrapping, const weft_layout_piece *pieces, const weft_layout *from,
                               weft_error *err) {
    weft_status status = WEFT_OK;
    weft_layout *self = calloc(1, sizeof *self);
    int32_t most = 0, *unit_of = NULL;
    for (int32_t p = 0; p < declared->n_parameters; p++) most = of[p] > most ? of[p] : most;
    unit_of = malloc(((size_t)most + 2) * sizeof *unit_of);
    if (self == NULL || unit_of == NULL) {
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the layout");
        goto done;
    }
    for (int32_t i = 0; i < most + 2; i++) unit_of[i] = -1;
    self->grid = choose_grid(declared);
    status = make_units(self, declared, of, wrapping, pieces, from, unit_of, err);
    if (status == WEFT_OK) status = make_groups(self, declared, err);
done:
    free(unit_of);
    if (status == WEFT_OK) *out = self;
    else weft_layout_destroy(self);
    return status;
}

weft_status weft_layout_create(weft_layout **out, weft_declared *declared, const weft_host *host,
                               const weft_policy_plugin *policy, const void *policy_config, weft_error *err) {
    weft_wrapping wrapping = {0};
    weft_status status = weft_wrapping_query(&wrapping, declared, host, policy, policy_config, err);
    if (status == WEFT_OK) status = make_layout(out, declared, wrapping.unit_of, &wrapping, NULL, NULL, err);
    weft_wrapping_free(&wrapping);
    return status;
}

weft_status weft_layout_split(weft_layout **out, const weft_layout *layout, weft_declared *declared,
                              const weft_layout_piece *pieces, const int32_t *piece_of, weft_error *err) {
    return make_layout(out, declared, piece_of, NULL, pieces, layout, err);
}

void weft_layout_destroy(weft_layout *layout) {
    if (layout == NULL) return;
    for (int32_t u = 0; u < layout->n_units; u++) free(layout->units[u].name);
    for (int32_t g = 0; layout->groups != NULL && g < layout->n_groups; g++) free(layout->groups[g].members);
    free(layout->units);
    free(layout->groups);
    free(layout);
}

int64_t weft_group_bytes(const weft_group *group) {
    return weft_dtype_span(group->dtype, group->numel);
}

const weft_group *weft_layout_trained(const weft_layout *layout, int32_t unit) {
    const int32_t group = layout->units[unit].trained;
    return group < 0 ? NULL : &layout->groups[group];
}

int64_t weft_layout_padding(const weft_layout *layout) {
    int64_t bytes = layout->bytes;
    for (int32_t g = 0; g < layout->n_groups; g++)
        bytes -= weft_dtype_span(layout->groups[g].dtype, layout->groups[g].used);
    return bytes;
}

int64_t weft_layout_offset(const weft_layout *layout, const weft_parameter *parameter) {
    const weft_group *group = &layout->groups[parameter->group];
    return group->base + weft_dtype_span(group->dtype, parameter->offset);
}
