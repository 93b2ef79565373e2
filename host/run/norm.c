/* host/run/norm.c: the norm of the complete gradient, with the same bits for every sharding.
 *
 * The sum of a tensor's squares is a tree over its grid cells (weft_square_sum). If the gradient is sharded, each
 * rank sums its own cells, the ranks all-gather the cells' sums, and every rank adds them by the same tree. The
 * losses of the micro-batches are gathered with them. */
#include "plugin/enter.h"
#include "program/budget.h"
#include "program/norm_nodes.h"
#include "run/stepper.h"

/* The workspace of the kernels, and its slot. */
typedef struct scratch {
    weft_slot_ref work;
    int32_t slot;
} scratch;

/* Computes the sums of one table: of its extents, or of their cells. */
static weft_status sum_table(weft_stepper *self, int which, weft_ref x, weft_ref out, int64_t cell, const scratch *with,
                             weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_norm_table *table = &engine->norm_tables[which];
    const int32_t dtype = which == WEFT_NORM_NODES ? WEFT_F64 : WEFT_F32;
    weft_square_sum args = {.struct_size = (uint32_t)sizeof args, .x = x, .out = out, .dtype = dtype, .cell = cell};
    weft_status status = WEFT_OK;
    if (table->n == 0) return WEFT_OK;
    args.n = table->elements;
    args.n_extents = table->n;
    args.extent_stride = (uint32_t)sizeof(weft_extent);
    args.extents = weft_ref_at(engine->extents.ref, table->first * (int64_t)sizeof(weft_extent));
    args.workspace = with->work.ref;
    if (with->slot >= 0)
        weft_trace_use(self->trace, with->slot, engine->kernels->square_sum_workspace(engine->device, &args));
    WEFT_PLUGIN_CALL(status, engine->kernels, square_sum, err, engine->device, NULL, &args);
    return status;
}

static weft_status exchange_numbers(weft_stepper *self, const weft_norm_exchange *x, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_ranks *ranks = &engine->ranks;
    const weft_scalars *scalars = &engine->scalars;
    const bool losses = x->goes == WEFT_NORM_GOES_LOSSES, cells = x->goes == WEFT_NORM_GOES_CELLS;
    const int64_t f64 = weft_dtype_bytes(WEFT_F64);
    weft_transfer transfer = {.group = cells ? weft_ranks_group_of(ranks, &x->cut, WEFT_SCOPE_ALL) : ranks->everyone,
                              .to = losses ? scalars->all_losses : weft_ref_at(scalars->nodes, f64 * x->first),
                              .from = scalars->losses,
                              .n = x->n,
                              .dtype = WEFT_F64,
                              .traffic = losses ? WEFT_TRAFFIC_LOSSES : WEFT_TRAFFIC_NORM};
    if (x->cut.replicas == 1) return WEFT_OK;
    if (!losses)
        transfer.from = weft_ref_at(transfer.to, f64 * x->n * weft_scope_place(&x->cut, WEFT_SCOPE_ALL, ranks->rank));
    return weft_ranks_exchange(ranks, ranks->plugin->all_gather, "all_gather", &transfer, err);
}

weft_status weft_norm_losses(weft_stepper *self, weft_error *err) {
    const int32_t world = self->engine->ranks.world;
    const weft_norm_exchange losses = {
        .goes = WEFT_NORM_GOES_LOSSES, .group = -1, .cut = {world, world, 1}, .n = self->mode_plan->most_losses};
    return exchange_numbers(self, &losses, err);
}

weft_status weft_norm_run(weft_stepper *self, weft_slot_ref work, int32_t slot, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_scalars *scalars = &engine->scalars;
    const weft_ref sums = scalars->square_sums;
    const scratch with = {work, slot};
    weft_clip clip = {.struct_size = (uint32_t)sizeof clip,
                      .square_sums = scalars->square_sums,
                      .count = scalars->count,
                      .norm = scalars->norm,
                      .coefficient = scalars->coefficient,
                      .skip = scalars->skip,
                      .n = weft_budget_trained(&engine->plan),
                      .clip = self->clip};
    weft_norm_exchange walk = {0};
    weft_status status = sum_table(self, WEFT_NORM_OWN_CELLS, engine->gradients.ref, scalars->nodes,
                                   engine->plan.layout->grid, &with, err);
    if (status == WEFT_OK)
        status = sum_table(self, WEFT_NORM_OWNED, engine->gradients.ref, scalars->nodes, 0, &with, err);
    while (status == WEFT_OK && weft_norm_exchange_next(&engine->plan, &walk))
        status = exchange_numbers(self, &walk, err);
    if (status == WEFT_OK) status = sum_table(self, WEFT_NORM_NODES, scalars->nodes, sums, 0, &with, err);
    if (status == WEFT_OK) status = sum_table(self, WEFT_NORM_WHOLE, engine->gradients.ref, sums, 0, &with, err);
    if (weft_plan_scales(&engine->plan)) clip.seed = scalars->seed;
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, engine->kernels, clip, err, engine->device, NULL, &clip);
    return status;
}
