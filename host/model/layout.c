/* host/model/layout.c: divides the declared parameters into units and groups and assigns offsets in the flat region.
 *
 * The layout depends only on the model's shapes, the policy and the trainable flags. It does not depend on ranks, so
 * all ranks and all checkpoints have the same grid. */
#include "model/layout.h"

#include "base/alloc.h"
#include "base/text.h"
#include "base/units.h"
#include "config/nearest.h"
#include "plugin/enter.h"

#include <stdlib.h>

/* ---- the wrap policy, which must claim each parameter exactly once ---- */

enum { UNCLAIMED = -2, SHOWN = 240 };

struct weft_wrap_ctx {
    const weft_declared *declared;
    char **names; /* [n_units] names from the policy, in order of creation */
    int32_t n_units;
    int32_t *unit_of;       /* [n_parameters] index into names, or WEFT_UNIT_ROOT */
    int32_t (*range_of)[2]; /* [n_modules] the first parameter of the module and its descendants, and the end */
    weft_lookup units_by_name;
    weft_error first; /* first error */
};

#define REJECT(ctx, ...) weft_sticky_error_keep(&(ctx)->first, WEFT_E_PLUGIN, "the wrap policy " __VA_ARGS__)

static bool has_failed(const weft_wrap_ctx *ctx) {
    return weft_sticky_error_is_set(&ctx->first);
}

static const char *unit_name(const weft_wrap_ctx *ctx, int32_t unit) {
    return unit == WEFT_UNIT_ROOT ? "root" : ctx->names[unit];
}

static int32_t wrap_unit(weft_wrap_ctx *ctx, const char *name) {
    if (has_failed(ctx)) return WEFT_UNIT_ROOT;
    if (name == NULL || name[0] == '\0' || strcmp(name, "root") == 0)
        REJECT(ctx,
               "names a unit '%s'. Allowed: a module's path or \"first..last\"; "
               "remaining parameters are claimed for WEFT_UNIT_ROOT",
               name == NULL ? "" : name);
    else if (weft_lookup_find(&ctx->units_by_name, name) >= 0)
        REJECT(ctx, "creates two units with the name '%s'", name);
    if (has_failed(ctx)) return WEFT_UNIT_ROOT;
    ctx->names = weft_grow(ctx->names, ctx->n_units);
    ctx->names[ctx->n_units] = weft_strdup(name);
    weft_lookup_put(&ctx->units_by_name, ctx->names[ctx->n_units], ctx->n_units);
    return ctx->n_units++;
}

static void check_unit(weft_wrap_ctx *ctx, int32_t unit) {
    if (unit != WEFT_UNIT_ROOT && (unit < 0 || unit >= ctx->n_units))
        REJECT(ctx,
               "claims a parameter for unit %d, and it has created %d units. Allowed: "
               "a unit that `unit` returned, or WEFT_UNIT_ROOT",
               (int)unit, (int)ctx->n_units);
}

static void wrap_claim(weft_wrap_ctx *ctx, int32_t unit, int32_t parameter) {
    const weft_declared *declared = ctx->declared;
    check_unit(ctx, unit);
    if (parameter < 0 || parameter >= declared->n_parameters)
        REJECT(ctx, "claims parameter %d; the model has 0 to %d", (int)parameter, (int)declared->n_parameters - 1);
    if (has_failed(ctx)) return;
    if (ctx->unit_of[parameter] != UNCLAIMED)
        REJECT(ctx,
               "claims %s more than once: for unit %s, and then for unit %s. Allowed: "
               "one unit per parameter; claim_rest takes only unclaimed parameters",
               declared->parameters[parameter].name, unit_name(ctx, ctx->unit_of[parameter]), unit_name(ctx, unit));
    else ctx->unit_of[parameter] = unit;
}

static void wrap_claim_rest(weft_wrap_ctx *ctx, int32_t unit, int32_t module) {
    const weft_declared *declared = ctx->declared;
    int32_t first = 0, end = declared->n_parameters;
    check_unit(ctx, unit);
    if (module != WEFT_ALL_MODULES && (module < 0 || module >= declared->n_modules))
        REJECT(ctx, "claims the rest of module %d; the model has 0 to %d", (int)module, (int)declared->n_modules - 1);
    if (has_failed(ctx)) return;
    if (module != WEFT_ALL_MODULES) first = ctx->range_of[module][0], end = ctx->range_of[module][1];
    for (int32_t p = first; p < end; p++)
        if (ctx->unit_of[p] == UNCLAIMED &&
            (module == WEFT_ALL_MODULES || weft_declared_below(declared, declared->parameters[p].module, module)))
            ctx->unit_of[p] = unit;
}

/* Parameters of other modules may be declared in between. */
static void find_ranges(weft_wrap_ctx *ctx) {
    const weft_declared *declared = ctx->declared;
    ctx->range_of = weft_alloc(declared->n_modules, sizeof *ctx->range_of);
    for (int32_t m = 0; m < declared->n_modules; m++) ctx->range_of[m][0] = declared->n_parameters;
    for (int32_t p = 0; p < declared->n_parameters; p++) {
        int32_t *range = ctx->range_of[declared->parameters[p].module];
        if (p < range[0]) range[0] = p;
        range[1] = p + 1;
    }
    for (int32_t m = declared->n_modules - 1; m >= 0; m--) { /* a parent is declared before its children */
        const int32_t *range = ctx->range_of[m];
        int32_t *parent = declared->modules[m]->parent < 0 ? NULL : ctx->range_of[declared->modules[m]->parent];
        if (parent != NULL && range[0] < parent[0]) parent[0] = range[0];
        if (parent != NULL && range[1] > parent[1]) parent[1] = range[1];
    }
}

static void check_whole(weft_wrap_ctx *ctx) {
    int32_t first = -1, n = 0;
    char more[32] = "";
    for (int32_t p = ctx->declared->n_parameters - 1; p >= 0; p--) {
        if (ctx->unit_of[p] != UNCLAIMED) continue;
        first = p;
        n++;
    }
    if (n > 1) (void)snprintf(more, sizeof more, " and %d more", (int)n - 1);
    if (n > 0)
        REJECT(ctx,
               "leaves out %s%s of %d parameters. Fix: end with claim_rest for "
               "WEFT_UNIT_ROOT, which claims all remaining parameters",
               ctx->declared->parameters[first].name, more, (int)ctx->declared->n_parameters);
}

/* True for "model.layers.3" or "model.layers.0..model.layers.1". */
static bool names_modules(const weft_declared *declared, const char *name) {
    const char *dots = strstr(name, "..");
    char *first = NULL;
    bool is = weft_declared_module(declared, name) >= 0;
    if (is || dots == NULL) return is;
    first = weft_text_of("%.*s", (int)(dots - name), name);
    is = weft_declared_module(declared, first) >= 0 && weft_declared_module(declared, dots + 2) >= 0;
    free(first);
    return is;
}

/* Lists as many modules as fit. */
static void list_modules(char out[SHOWN], const weft_declared *declared) {
    out[0] = '\0';
    for (int32_t m = 0; m < declared->n_modules; m++) {
        const char *path = declared->modules[m]->path;
        const bool fits = strlen(out) + strlen(path) + 8 <= SHOWN;
        if (path[0] == '\0') continue;
        weft_words_append(out, SHOWN, "%s%s", out[0] == '\0' ? "" : ", ", fits ? path : "...");
        if (!fits) return;
    }
}

/* Warns about unit names that match no module: any name is allowed, but a typo in a module's name would otherwise go
 * unnoticed. Warns once, although a command may run the policy repeatedly. */
static void report_names(const weft_wrap_ctx *self, const weft_host *host, const weft_policy_plugin *policy) {
    static bool has_warned;
    const weft_declared *declared = self->declared;
    char title[700], near[96], all[SHOWN];
    weft_nearest nearest = {"", "", 0};
    int32_t u = 0;
    while (u < self->n_units && names_modules(declared, self->names[u])) u++;
    if (u == self->n_units || has_warned) return;
    nearest.word = self->names[u];
    for (int32_t m = 0; m < declared->n_modules; m++)
        weft_nearest_offer(&nearest, declared->modules[m]->path, strlen(declared->modules[m]->path));
    weft_nearest_print(&nearest, near, sizeof near);
    weft_plugin_title(title, sizeof title, policy);
    list_modules(all, declared);
    weft_log(host, WEFT_LOG_WARN,
             "%s calls a unit %.200s, which is no module of this model%s A unit is called by its module's path, or "
             "\"first..last\" of several. The modules are: %s",
             title, self->names[u], near[0] == '\0' ? "." : near, all);
    has_warned = true;
}

/* Fills the policy's view. A tied parameter counts once, at its first name. */
static void fill_view(weft_module_view *modules, weft_parameter_view *parameters, const weft_declared *declared) {
    const int32_t blocks = declared->info.n_layers > 0 ? weft_declared_module(declared, declared->info.layer_path) : -1;
    for (int32_t m = 0; m < declared->n_modules; m++) {
        const weft_module *module = declared->modules[m];
        modules[m].struct_size = (uint32_t)sizeof *modules;
        modules[m].path = module->path;
        modules[m].name = module->name;
        modules[m].class_name = module->class_name;
        modules[m].parent = module->parent;
        modules[m].is_block = blocks >= 0 && module->parent == blocks;
    }
    for (int32_t p = 0; p < declared->n_parameters; p++) {
        const weft_parameter *parameter = &declared->parameters[p];
        parameters[p] = (weft_parameter_view){.struct_size = (uint32_t)sizeof *parameters,
                                              .name = parameter->name,
                                              .numel = parameter->numel,
                                              .module = parameter->module,
                                              .dtype = WEFT_F32,
                                              .trainable = parameter->trainable ? 1 : 0};
        modules[parameter->module].own_parameters += parameter->numel;
        for (int32_t m = parameter->module; m >= 0; m = modules[m].parent) {
            modules[m].parameters += parameter->numel;
            if (parameter->trainable) modules[m].trainable += parameter->numel;
        }
    }
}

/* Runs the policy. ctx: zeroed except for `declared` and `first`. */
static weft_status run_policy(weft_wrap_ctx *ctx, const weft_host *host, const weft_policy_plugin *policy,
                              const void *policy_config, weft_error *err) {
    const weft_declared *declared = ctx->declared;
    const weft_wrap wrap = {(uint32_t)sizeof wrap, 0, ctx, wrap_unit, wrap_claim, wrap_claim_rest};
    weft_module_view *modules = weft_alloc(declared->n_modules, sizeof *modules);
    weft_parameter_view *parameters = weft_alloc(declared->n_parameters, sizeof *parameters);
    const weft_policy_job job = {.struct_size = (uint32_t)sizeof job,
                                 .modules = modules,
                                 .parameters = parameters,
                                 .n_modules = (uint32_t)declared->n_modules,
                                 .n_parameters = (uint32_t)declared->n_parameters,
                                 .module_stride = (uint32_t)sizeof *modules,
                                 .parameter_stride = (uint32_t)sizeof *parameters};
    weft_status status = WEFT_OK;
    fill_view(modules, parameters, declared);
    ctx->unit_of = weft_alloc(declared->n_parameters, sizeof *ctx->unit_of);
    for (int32_t p = 0; p < declared->n_parameters; p++) ctx->unit_of[p] = UNCLAIMED;
    find_ranges(ctx);
    if (err != NULL) err->text[0] = '\0';
    weft_slow_warning_begin(policy, "units");
    WEFT_PLUGIN_CALL(status, policy, units, err, host, policy_config, &job, &wrap);
    weft_slow_warning_end();
    if (status == WEFT_OK) check_whole(ctx);
    status = weft_sticky_error_report(&ctx->first, status, err);
    if (status == WEFT_OK) report_names(ctx, host, policy);
    free(modules);
    free(parameters);
    return status;
}

/* ---- grid ---- */

enum { GRID_MIN = 64, GRID_MAX = 16 << 10, PADDING_PERCENT = 2 };

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
 * adapters: they are few, but have the gradients and states. At least the longest block of the storage types and the
 * optimizer states in use; blocks are powers of two. */
static int64_t choose_grid(const weft_declared *declared) {
    int64_t least = weft_larger(GRID_MIN, declared->state_block);
    for (int32_t p = 0; p < declared->n_parameters; p++)
        least = weft_larger(least, weft_dtype_block(declared->parameters[p].dtype));
    for (int64_t grid = GRID_MAX; grid > least; grid /= 2)
        if (pads_little(declared, grid, false) && pads_little(declared, grid, true)) return grid;
    return least;
}

/* ---- groups ---- */

/* Index of a parameter's group among its unit's: 0: trained; else frozen, by storage type. */
static int32_t slot_of(const weft_parameter *parameter) {
    return parameter->trainable ? 0 : parameter->dtype;
}

static void add_group(weft_layout *self, int32_t unit, int32_t slot, int32_t n_members) {
    weft_unit *of = &self->units[unit];
    weft_group *group = &self->groups[self->n_groups];
    group->unit = unit;
    group->trainable = slot == 0;
    group->members = weft_alloc(n_members, sizeof *group->members);
    if (slot == 0) of->trained = self->n_groups;
    of->groups[of->n_groups++] = self->n_groups++;
}

/* Creates the groups, trained ones first, and assigns the parameters' offsets. */
static void make_groups(weft_layout *self, weft_declared *declared) {
    int32_t(*members)[WEFT_UNIT_GROUPS] = weft_alloc(self->n_units, sizeof *members); /* of each unit, by slot */
    int32_t(*group_of)[WEFT_UNIT_GROUPS] = weft_alloc(self->n_units, sizeof *group_of);
    for (int32_t p = 0; p < declared->n_parameters; p++)
        members[declared->parameters[p].unit][slot_of(&declared->parameters[p])]++;
    self->groups = weft_alloc(WEFT_UNIT_GROUPS * (int64_t)self->n_units, sizeof *self->groups);
    for (int32_t i = 0; i < self->n_units * (1 + WEFT_DTYPE_LAST); i++) {
        const bool trained = i < self->n_units;
        const int32_t unit = trained ? i : (i - self->n_units) / WEFT_DTYPE_LAST;
        const int32_t slot = trained ? 0 : 1 + (i - self->n_units) % WEFT_DTYPE_LAST;
        group_of[unit][slot] = self->n_groups;
        if (members[unit][slot] > 0) add_group(self, unit, slot, members[unit][slot]);
        if (trained) self->n_trainable_groups = self->n_groups;
    }
    for (int32_t p = 0; p < declared->n_parameters; p++) {
        weft_parameter *parameter = &declared->parameters[p];
        weft_group *group = NULL;
        parameter->group = group_of[parameter->unit][slot_of(parameter)];
        group = &self->groups[parameter->group];
        group->dtype = parameter->dtype; /* all trained parameters have one storage type */
        parameter->offset = group->numel;
        group->members[group->n_members++] = p;
        group->used += parameter->numel;
        group->numel += weft_round_up(parameter->numel, self->grid);
    }
    for (int32_t g = 0; g < self->n_groups; g++) {
        self->groups[g].base = self->bytes;
        self->numel += self->groups[g].numel;
        self->bytes += weft_cache_lines(weft_dtype_span(self->groups[g].dtype, self->groups[g].numel));
        if (self->groups[g].trainable) self->trainable_numel = self->numel;
    }
    free(members);
    free(group_of);
}

/* ---- layout ---- */

weft_layout *weft_layout_make(weft_declared *declared, const weft_layout_piece *pieces, int32_t n_pieces,
                              const int32_t *piece_of) {
    weft_layout *self = weft_alloc(1, sizeof *self);
    int32_t *unit_of = weft_alloc(n_pieces, sizeof *unit_of); /* 1 + the unit; 0: not created */
    self->grid = choose_grid(declared);
    self->units = weft_alloc(n_pieces, sizeof *self->units);
    for (int32_t p = 0; p < declared->n_parameters; p++) {
        const weft_layout_piece *from = &pieces[piece_of[p]];
        int32_t *unit = &unit_of[piece_of[p]];
        if (*unit == 0) {
            self->units[self->n_units] =
                (weft_unit){.name = weft_strdup(from->name), .is_root = from->is_root, .trained = -1};
            *unit = ++self->n_units;
        }
        declared->parameters[p].unit = *unit - 1;
    }
    free(unit_of);
    make_groups(self, declared);
    return self;
}

weft_status weft_layout_create(weft_layout **out, weft_declared *declared, const weft_host *host,
                               const weft_policy_plugin *policy, const void *policy_config, weft_error *err) {
    weft_wrap_ctx ctx = {.declared = declared, .first = WEFT_ERROR_INIT};
    const weft_status status = run_policy(&ctx, host, policy, policy_config, err);
    weft_layout_piece *pieces = weft_alloc(ctx.n_units + 1, sizeof *pieces);
    for (int32_t u = 0; u < ctx.n_units; u++) pieces[u].name = ctx.names[u];
    pieces[ctx.n_units] = (weft_layout_piece){"root", true};
    for (int32_t p = 0; p < declared->n_parameters; p++)
        if (ctx.unit_of[p] == WEFT_UNIT_ROOT) ctx.unit_of[p] = ctx.n_units;
    if (status == WEFT_OK) *out = weft_layout_make(declared, pieces, ctx.n_units + 1, ctx.unit_of);
    free(pieces);
    for (int32_t u = 0; u < ctx.n_units; u++) free(ctx.names[u]);
    free(ctx.names);
    free(ctx.unit_of);
    free(ctx.range_of);
    weft_lookup_free(&ctx.units_by_name);
    return status;
}

void weft_layout_destroy(weft_layout *layout) {
    if (layout == NULL) return;
    for (int32_t u = 0; u < layout->n_units; u++) free(layout->units[u].name);
    for (int32_t g = 0; g < layout->n_groups; g++) free(layout->groups[g].members);
    free(layout->units);
    free(layout->groups);
    free(layout);
}

const weft_group *weft_layout_trained(const weft_layout *layout, int32_t unit) {
    const int32_t group = layout->units[unit].trained;
    return group < 0 ? NULL : &layout->groups[group];
}

/* ---- shards ---- */

int64_t weft_hold_piece(const weft_layout *layout, const weft_group *group, int32_t pieces) {
    const int64_t cells = group->numel / layout->grid;
    return (cells + pieces - 1) / pieces * layout->grid;
}

weft_hold *weft_hold_create(const weft_layout *layout, const weft_hold_part *parts, int32_t n_groups, int32_t dtype) {
    weft_hold *self = weft_alloc(1, sizeof *self);
    self->spans = weft_alloc(n_groups, sizeof *self->spans);
    self->n_groups = n_groups;
    for (int32_t g = 0; g < n_groups; g++) {
        const int64_t numel = layout->groups[g].numel;
        const int64_t piece = weft_hold_piece(layout, &layout->groups[g], parts[g].pieces);
        weft_span *span = &self->spans[g];
        span->first = weft_smaller(numel, piece * parts[g].first);
        span->n = weft_smaller(numel, piece * (parts[g].first + parts[g].n)) - span->first;
        span->dtype = dtype == 0 ? layout->groups[g].dtype : dtype;
        span->at = self->bytes;
        span->room = weft_dtype_span(span->dtype, piece * parts[g].n);
        self->bytes += weft_cache_lines(span->room);
    }
    return self;
}

void weft_hold_destroy(weft_hold *hold) {
    if (hold == NULL) return;
    free(hold->spans);
    free(hold);
}

bool weft_hold_find(const weft_hold *hold, const weft_parameter *parameter, int64_t first, int64_t n, int64_t *begin,
                    int64_t *end, int64_t *at) {
    const weft_span *span = parameter->group < hold->n_groups ? &hold->spans[parameter->group] : NULL;
    if (span == NULL) return false;
    *begin = weft_larger(first, span->first - parameter->offset);
    *end = weft_smaller(first + n, span->first + span->n - parameter->offset);
    *at = weft_span_at(span, parameter->offset + *begin);
    return *begin < *end;
}
