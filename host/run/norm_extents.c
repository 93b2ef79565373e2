/* host/run/norm_extents.c: see norm_extents.h. */
#include "run/norm_extents.h"

#include "base/sizes.h"
#include "program/budget.h"
#include "program/norm_nodes.h"
#include "plugin/enter.h"

#include <stdlib.h>

typedef struct tables {
    weft_engine *engine;
    weft_extent *rows; /* of all tables, one behind the other */
    int64_t n;
    weft_norm_table *now; /* that rows are added to */
} tables;

static void begin_table(tables *self, int which) {
    self->now = &self->engine->norm_tables[which];
    *self->now = (weft_norm_table){.first = self->n};
}

static void add_row(tables *self, int64_t offset, int64_t length, int64_t out) {
    const weft_extent row = {(uint32_t)sizeof row, 0, offset, length, out};
    self->rows[self->n++] = row;
    self->now->n++;
    self->now->elements += length;
}

/* An element of a group's gradient, counted from the first of all that this rank keeps. */
static int64_t element_at(const weft_span *span, int64_t element) {
    return weft_span_at(span, element) / weft_f32_bytes(1);
}

/* Of a cut group the part of each tensor that lies in this rank's piece; a sum per cell, into the group's nodes. */
static void add_cells_of(tables *self, const weft_norm_exchange *x) {
    const weft_plan *plan = &self->engine->plan;
    const int64_t grid = plan->layout->grid, piece = x->n * grid;
    const weft_group *group = &plan->layout->groups[x->group];
    const weft_span *span = &plan->holds[WEFT_HOLD_GRADIENTS]->spans[x->group];
    const int64_t from = weft_scope_place(&x->cut, WEFT_SCOPE_ALL, plan->rank) * piece;
    for (int32_t i = 0; i < group->n_members; i++) {
        const weft_parameter *p = &plan->declared->parameters[group->members[i]];
        const int64_t begin = weft_larger(from, p->offset), end = weft_smaller(from + piece, p->offset + p->numel);
        if (begin < end) add_row(self, element_at(span, begin), end - begin, x->first + begin / grid);
    }
}

static void add_own_cells(tables *self) {
    weft_norm_exchange walk = {0};
    while (weft_norm_exchange_next(&self->engine->plan, &walk))
        if (walk.goes == WEFT_NORM_GOES_CELLS) add_cells_of(self, &walk);
}

/* The whole gradient of a tensor, as an element of this rank's. */
static int64_t gradient_place_of(const weft_engine *engine, const weft_parameter *p) {
    return element_at(&engine->plan.holds[WEFT_HOLD_GRADIENTS]->spans[p->group], p->offset);
}

/* Tensors that this rank owns, into its row. */
static void add_owned(tables *self, int64_t row) {
    const weft_engine *engine = self->engine;
    for (int32_t i = 0; i < engine->plan.declared->n_parameters; i++) {
        const weft_parameter *p = &engine->plan.declared->parameters[i];
        if (p->trainable && weft_norm_owner(&engine->plan, p->group) == engine->plan.rank)
            add_row(self, gradient_place_of(engine, p), p->numel, row + self->now->n);
    }
}

/* Tensors that every rank sums by itself. */
static void add_whole(tables *self) {
    const weft_plan *plan = &self->engine->plan;
    int64_t out = 0;
    for (int32_t i = 0; i < plan->declared->n_parameters; i++) {
        const weft_parameter *p = &plan->declared->parameters[i];
        if (!p->trainable) continue;
        if (!weft_norm_is_cut(plan, p) && weft_norm_owner(plan, p->group) < 0)
            add_row(self, gradient_place_of(self->engine, p), p->numel, out);
        out++;
    }
}

/* Where a cut tensor's cells lie among all nodes. */
static int64_t first_node_of(const weft_plan *plan, const weft_parameter *p) {
    weft_norm_exchange walk = {0};
    while (weft_norm_exchange_next(plan, &walk) && (walk.goes != WEFT_NORM_GOES_CELLS || walk.group != p->group))
        continue;
    return walk.first + p->offset / plan->layout->grid;
}

/* From nodes to one sum per tensor: a tree over the cells of what is cut; of what is owned, the sum that came. */
static void add_nodes(tables *self, const weft_norm_exchange *owned, int64_t *taken) {
    const weft_plan *plan = &self->engine->plan;
    int64_t out = 0;
    for (int32_t i = 0; i < plan->declared->n_parameters; i++) {
        const weft_parameter *p = &plan->declared->parameters[i];
        const int32_t owner = p->trainable ? weft_norm_owner(plan, p->group) : -1;
        if (!p->trainable) continue;
        if (weft_norm_is_cut(plan, p)) add_row(self, first_node_of(plan, p), weft_norm_cells(plan, p->numel), out);
        else if (owner >= 0) add_row(self, owned->first + owner * owned->n + taken[owner]++, 1, out);
        out++;
    }
}

static weft_status fill_tables(weft_engine *engine, weft_extent *rows, weft_error *err) {
    tables self = {.engine = engine, .rows = rows};
    const weft_norm_exchange owned = weft_norm_owned(&engine->plan);
    int64_t *taken = calloc((size_t)engine->plan.world, sizeof *taken);
    if (taken == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory to count the tensors of each rank");
    begin_table(&self, WEFT_NORM_OWN_CELLS);
    add_own_cells(&self);
    begin_table(&self, WEFT_NORM_OWNED);
    add_owned(&self, owned.first + engine->plan.rank * owned.n);
    begin_table(&self, WEFT_NORM_NODES);
    add_nodes(&self, &owned, taken);
    begin_table(&self, WEFT_NORM_WHOLE);
    add_whole(&self);
    free(taken);
    return WEFT_OK;
}

weft_status weft_norm_extents_take(weft_engine *engine, weft_error *err) {
    const int64_t bytes = weft_budget_extents(&engine->plan);
    weft_extent *rows = calloc(1, (size_t)bytes + 1);
    weft_status status = WEFT_OK;
    if (rows == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the tables of the gradient's norm");
    status = fill_tables(engine, rows, err);
    if (status == WEFT_OK)
        status = weft_account_cut(&engine->account, &engine->extents, bytes, WEFT_ACCOUNT_FIXED, err);
    if (status == WEFT_OK && bytes > 0) {
        WEFT_PLUGIN_CALL(status, engine->kernels, write, err, engine->device, NULL, engine->extents.ref, rows, bytes);
        if (status != WEFT_OK) (void)weft_error_prefix(err, "the tables of the gradient's norm: ");
    }
    free(rows);
    return status;
}
