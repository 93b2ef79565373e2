/* host/step/norm.c: see norm.h. */
#include "step/norm.h"

#include "plan/budget.h"
#include "plan/norm_nodes.h"
#include "plugin/enter.h"

/* What a kernel of NORM works with, beside its table. */
typedef struct scratch {
    weft_slot_ref work;
    int32_t slot;
} scratch;

/* One of the tables: the sums of its extents, or of their cells. */
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

/* One group's nodes go round. */
static weft_status exchange_group(weft_stepper *self, const weft_norm_group *walk, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_ref nodes = weft_ref_at(engine->scalars.nodes, 8 * walk->first);
    const int64_t place = weft_scope_place(&walk->cut, WEFT_SCOPE_ALL, engine->ranks.rank);
    const weft_transfer transfer = {.group = weft_ranks_group_of(&engine->ranks, &walk->cut, WEFT_SCOPE_ALL),
                                    .to = nodes,
                                    .from = weft_ref_at(nodes, 8 * place * walk->cells),
                                    .n = walk->cells,
                                    .dtype = WEFT_F64,
                                    .traffic = WEFT_TRAFFIC_NORM};
    if (walk->cut.replicas == 1) return WEFT_OK;
    return weft_ranks_exchange(&engine->ranks, engine->ranks.plugin->all_gather, "all_gather", &transfer, err);
}

static weft_status exchange_cells(weft_stepper *self, const scratch *with, weft_error *err) {
    const weft_engine *engine = self->engine;
    weft_norm_group walk = {.group = -1};
    weft_status status = sum_table(self, WEFT_NORM_OWN_CELLS, engine->gradients.ref, engine->scalars.nodes,
                                   engine->plan.layout->grid, with, err);
    while (status == WEFT_OK && weft_norm_group_next(&engine->plan, &walk)) status = exchange_group(self, &walk, err);
    return status;
}

/* Each owner sums its tensors, and the sums go round. */
static weft_status exchange_owned(weft_stepper *self, const scratch *with, weft_error *err) {
    const weft_engine *engine = self->engine;
    const int64_t most = weft_norm_most_owned(&engine->plan);
    const weft_ref rows = weft_ref_at(engine->scalars.nodes, 8 * engine->owned_nodes);
    const weft_transfer transfer = {.group = engine->ranks.everyone,
                                    .to = rows,
                                    .from = weft_ref_at(rows, 8 * most * engine->ranks.rank),
                                    .n = most,
                                    .dtype = WEFT_F64,
                                    .traffic = WEFT_TRAFFIC_NORM};
    weft_status status = WEFT_OK;
    if (most == 0) return WEFT_OK;
    status = sum_table(self, WEFT_NORM_OWNED, engine->gradients.ref, engine->scalars.nodes, 0, with, err);
    if (status != WEFT_OK) return status;
    return weft_ranks_exchange(&engine->ranks, engine->ranks.plugin->all_gather, "all_gather", &transfer, err);
}

weft_status weft_norm_losses(weft_stepper *self, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_transfer transfer = {.group = engine->ranks.everyone,
                                    .to = engine->scalars.all_losses,
                                    .from = engine->scalars.losses,
                                    .n = self->stage->most_losses,
                                    .dtype = WEFT_F64,
                                    .traffic = WEFT_TRAFFIC_LOSSES};
    if (engine->ranks.world == 1) return WEFT_OK;
    return weft_ranks_exchange(&engine->ranks, engine->ranks.plugin->all_gather, "all_gather", &transfer, err);
}

static weft_status clip_norm(weft_stepper *self, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_scalars *scalars = &engine->scalars;
    const weft_clip clip = {.struct_size = (uint32_t)sizeof clip,
                            .square_sums = scalars->square_sums,
                            .count = scalars->count,
                            .norm = scalars->norm,
                            .coefficient = scalars->coefficient,
                            .skip = scalars->skip,
                            .n = weft_budget_trained(&engine->plan),
                            .clip = self->clip};
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, engine->kernels, clip, err, engine->device, NULL, &clip);
    return status;
}

weft_status weft_norm_run(weft_stepper *self, weft_slot_ref work, int32_t slot, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_ref sums = engine->scalars.square_sums;
    const scratch with = {work, slot};
    weft_status status = weft_norm_losses(self, err);
    if (status == WEFT_OK) status = exchange_cells(self, &with, err);
    if (status == WEFT_OK) status = exchange_owned(self, &with, err);
    if (status == WEFT_OK) status = sum_table(self, WEFT_NORM_NODES, engine->scalars.nodes, sums, 0, &with, err);
    if (status == WEFT_OK) status = sum_table(self, WEFT_NORM_WHOLE, engine->gradients.ref, sums, 0, &with, err);
    return status == WEFT_OK ? clip_norm(self, err) : status;
}
