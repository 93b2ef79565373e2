/* host/model/layout.c: divides the declared parameters into units and groups and assigns offsets in the flat region.
 *
 * The layout depends only on the model's shapes, the policy and the trainable flags. It does not depend on ranks, so
 * all ranks and all checkpoints have the same grid. */
#include "model/layout.h"

#include "base/sizes.h"
#include "model/wrap.h"

#include <stdlib.h>

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
    weft_status status = weft_wrapping_ask(&wrapping, declared, host, policy, policy_config, err);
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
