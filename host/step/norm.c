/* host/step/norm.c: see norm.h. */
#include "step/norm.h"

#include "base/sizes.h"
#include "plan/norm_nodes.h"
#include "plugin/enter.h"

static weft_status square_sum(weft_stepper *self, weft_ref x, weft_ref out, int64_t n, int32_t dtype,
                              weft_slot_ref work, int32_t slot, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_square_sum args = {
        .struct_size = (uint32_t)sizeof args, .x = x, .out = out, .n = n, .workspace = work.ref, .dtype = dtype};
    weft_status status = WEFT_OK;
    if (slot >= 0) weft_trace_use(self->trace, slot, weft_norm_kernel_work(engine->kernels, engine->device, n, dtype));
    WEFT_PLUGIN_CALL(status, engine->kernels, square_sum, err, engine->device, NULL, &args);
    return status;
}

/* The sums of the cells of a parameter that lie in this rank's own piece, into their places among the group's nodes. */
static weft_status own_cells(weft_stepper *self, const weft_parameter *p, weft_ref nodes, int64_t from, int64_t to,
                             weft_slot_ref work, int32_t slot, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_span *span = &engine->plan.holds[WEFT_HOLD_GRADIENTS]->spans[p->group];
    const int64_t grid = engine->plan.layout->grid, end = p->offset + p->numel;
    weft_status status = WEFT_OK;
    for (int64_t at = weft_larger(from, p->offset); at < to && at < end && status == WEFT_OK; at += grid) {
        const int64_t n = end - at < grid ? end - at : grid;
        status = square_sum(self, weft_ref_at(engine->gradients.ref, 4 * (span->at + at - span->first)),
                            weft_ref_at(nodes, 8 * (at / grid)), n, WEFT_F32, work, slot, err);
    }
    return status;
}

/* One group's nodes: own cells, then everybody's. */
static weft_status group_cells(weft_stepper *self, const weft_norm_group *walk, weft_slot_ref work, int32_t slot,
                               weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_group *group = &engine->plan.layout->groups[walk->group];
    const weft_ref nodes = weft_ref_at(engine->scalars.nodes, 8 * walk->first);
    const int64_t piece = walk->cells * engine->plan.layout->grid;
    const int64_t place = weft_scope_place(&walk->cut, WEFT_SCOPE_ALL, engine->ranks.rank);
    const weft_transfer transfer = {.group = weft_ranks_group_of(&engine->ranks, &walk->cut, WEFT_SCOPE_ALL),
                                    .to = nodes,
                                    .from = weft_ref_at(nodes, 8 * place * walk->cells),
                                    .n = walk->cells,
                                    .dtype = WEFT_F64,
                                    .traffic = WEFT_TRAFFIC_NORM};
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < group->n_members && status == WEFT_OK; i++)
        status = own_cells(self, &engine->plan.declared->parameters[group->members[i]], nodes, place * piece,
                           (place + 1) * piece, work, slot, err);
    if (status != WEFT_OK || walk->cut.replicas == 1) return status;
    return weft_ranks_exchange(&engine->ranks, engine->ranks.plugin->all_gather, "all_gather", &transfer, err);
}

static weft_status exchange_cells(weft_stepper *self, weft_slot_ref work, int32_t slot, weft_error *err) {
    weft_norm_group walk = {.group = -1};
    weft_status status = WEFT_OK;
    while (status == WEFT_OK && weft_norm_group_next(&self->engine->plan, &walk))
        status = group_cells(self, &walk, work, slot, err);
    return status;
}

/* Where a parameter's cells lie among all nodes. */
static weft_ref nodes_of(const weft_engine *engine, const weft_parameter *p) {
    weft_norm_group walk = {.group = -1};
    while (walk.group < p->group && weft_norm_group_next(&engine->plan, &walk)) continue;
    return weft_ref_at(engine->scalars.nodes, 8 * (walk.first + p->offset / engine->plan.layout->grid));
}

static weft_status sum_parameter(weft_stepper *self, const weft_parameter *p, weft_ref out, weft_slot_ref work,
                                 int32_t slot, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_span *span = &engine->plan.holds[WEFT_HOLD_GRADIENTS]->spans[p->group];
    if (weft_norm_is_cut(&engine->plan, p))
        return square_sum(self, nodes_of(engine, p), out, weft_norm_cells(&engine->plan, p->numel), WEFT_F64, work,
                          slot, err);
    return square_sum(self, weft_ref_at(engine->gradients.ref, 4 * (span->at + p->offset)), out, p->numel, WEFT_F32,
                      work, slot, err);
}

/* ---- gradients with owners ---- */

/* Behind the nodes of what is cut: [world][most_owned] sums of tensors, each rank's in the order of declaration. */
static weft_ref owned_row(const weft_engine *engine, int32_t rank) {
    weft_norm_group walk = {.group = -1};
    while (weft_norm_group_next(&engine->plan, &walk)) continue;
    return weft_ref_at(engine->scalars.nodes, 8 * (walk.after + rank * weft_norm_most_owned(&engine->plan)));
}

/* The sums from the rows into their places; those of one rank that follow one another, at once. */
static weft_status sort_owned(weft_stepper *self, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_declared *declared = engine->plan.declared;
    weft_status status = WEFT_OK;
    for (int32_t rank = 0; rank < engine->ranks.world && status == WEFT_OK; rank++) {
        weft_ref row = owned_row(engine, rank);
        int64_t place = 0, n = 0;
        for (int32_t i = 0; i <= declared->n_parameters && status == WEFT_OK; i++) {
            const weft_parameter *p = i < declared->n_parameters ? &declared->parameters[i] : NULL;
            if (p != NULL && !p->trainable) continue;
            if (p != NULL && weft_norm_owner(&engine->plan, p->group) == rank) n++;
            else if (n > 0) {
                WEFT_PLUGIN_CALL(status, engine->kernels, copy, err, engine->device, NULL,
                                 weft_ref_at(engine->scalars.square_sums, 8 * (place - n)), row, 8 * n);
                row = weft_ref_at(row, 8 * n);
                n = 0;
            }
            place++;
        }
    }
    return status;
}

/* Each owner sums its tensors, and the sums go round. */
static weft_status exchange_owned(weft_stepper *self, weft_slot_ref work, int32_t slot, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_transfer transfer = {.group = engine->ranks.everyone,
                                    .to = owned_row(engine, 0),
                                    .from = owned_row(engine, engine->ranks.rank),
                                    .n = weft_norm_most_owned(&engine->plan),
                                    .dtype = WEFT_F64,
                                    .traffic = WEFT_TRAFFIC_NORM};
    weft_ref out = transfer.from;
    weft_status status = WEFT_OK;
    if (transfer.n == 0) return WEFT_OK;
    for (int32_t i = 0; i < engine->plan.declared->n_parameters && status == WEFT_OK; i++) {
        const weft_parameter *p = &engine->plan.declared->parameters[i];
        if (!p->trainable || weft_norm_owner(&engine->plan, p->group) != engine->ranks.rank) continue;
        status = sum_parameter(self, p, out, work, slot, err);
        out = weft_ref_at(out, 8);
    }
    if (status == WEFT_OK)
        status = weft_ranks_exchange(&engine->ranks, engine->ranks.plugin->all_gather, "all_gather", &transfer, err);
    return status == WEFT_OK ? sort_owned(self, err) : status;
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

weft_status weft_norm_run(weft_stepper *self, weft_slot_ref work, int32_t slot, weft_error *err) {
    const weft_engine *engine = self->engine;
    weft_clip clip = {.struct_size = (uint32_t)sizeof clip};
    weft_status status = weft_norm_losses(self, err);
    if (status == WEFT_OK) status = exchange_cells(self, work, slot, err);
    if (status == WEFT_OK) status = exchange_owned(self, work, slot, err);
    for (int32_t i = 0; i < engine->plan.declared->n_parameters && status == WEFT_OK; i++) {
        const weft_parameter *p = &engine->plan.declared->parameters[i];
        const weft_ref out = weft_ref_at(engine->scalars.square_sums, 8 * clip.n);
        if (!p->trainable) continue;
        clip.n++;
        if (weft_norm_owner(&engine->plan, p->group) < 0) status = sum_parameter(self, p, out, work, slot, err);
    }
    clip.square_sums = engine->scalars.square_sums;
    clip.norm = engine->scalars.norm;
    clip.coefficient = engine->scalars.coefficient;
    clip.skip = engine->scalars.skip;
    clip.count = engine->scalars.count;
    clip.clip = self->clip;
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, engine->kernels, clip, err, engine->device, NULL, &clip);
    return status;
}
