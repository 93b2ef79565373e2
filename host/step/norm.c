/* host/step/norm.c: see norm.h. */
#include "step/norm.h"

#include "engine/sums.h"
#include "plugin/enter.h"

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* Grid cells of n elements. */
static int64_t cells_of(const weft_engine *engine, int64_t n) {
    return (n + engine->layout->grid - 1) / engine->layout->grid;
}

/* The rank that has all of a group's gradient where no other one does; -1: it is not so. */
static int32_t owner_of(const weft_engine *engine, int32_t group) {
    const weft_placement *p = &engine->train.job->spec.view.units[engine->layout->groups[group].unit].placement;
    return engine->ranks.world > 1 && p->gradients == WEFT_OWNED ? p->owner : -1;
}

static bool is_cut_group(const weft_engine *engine, int32_t group) {
    return engine->apart[WEFT_HOLD_GRADIENTS][group] && owner_of(engine, group) < 0;
}

static bool is_cut(const weft_engine *engine, const weft_parameter *p) {
    return p->trainable && is_cut_group(engine, p->group);
}

/* Most tensors whose gradients one rank owns; 0: nothing is owned. */
static int64_t most_owned(const weft_engine *engine) {
    int64_t most = 0;
    for (int32_t rank = 0; rank < engine->ranks.world; rank++) {
        int64_t n = 0;
        for (int32_t g = 0; g < engine->layout->n_trainable_groups; g++)
            if (owner_of(engine, g) == rank) n += engine->layout->groups[g].n_members;
        most = larger(most, n);
    }
    return most;
}

static int64_t kernel_work(const weft_engine *engine, int64_t n, int32_t dtype) {
    const weft_square_sum args = {.struct_size = (uint32_t)sizeof args, .n = n, .dtype = dtype};
    return engine->kernels->square_sum_workspace(engine->device, &args);
}

/* Asked before anything is placed: room for both ways. */
int64_t weft_engine_norm_work(const weft_engine *engine) {
    int64_t most = 0;
    for (int32_t i = 0; i < engine->declared->n_parameters; i++) {
        const weft_parameter *p = &engine->declared->parameters[i];
        if (!p->trainable) continue;
        most = larger(most, kernel_work(engine, p->numel, WEFT_F32));
        if (engine->ranks.world > 1) most = larger(most, kernel_work(engine, cells_of(engine, p->numel), WEFT_F64));
    }
    return most;
}

/* Of one group: whole pieces. */
static int64_t group_nodes(const weft_engine *engine, int32_t group) {
    const weft_job_spec *job = &engine->train.job->spec;
    const weft_group *of = &engine->layout->groups[group];
    const weft_cut cut = weft_cut_of(job, of->unit);
    return weft_hold_piece(engine->layout, of, cut.replicas) * cut.replicas / engine->layout->grid;
}

int64_t weft_norm_nodes(const weft_engine *engine) {
    int64_t nodes = 0;
    if (engine->train.program == NULL) return 0;
    for (int32_t g = 0; g < engine->layout->n_trainable_groups; g++)
        if (is_cut_group(engine, g)) nodes += group_nodes(engine, g);
    return nodes + most_owned(engine) * engine->ranks.world;
}

static weft_status square_sum(weft_stepper *self, weft_ref x, weft_ref out, int64_t n, int32_t dtype,
                              weft_slot_ref work, int32_t slot, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_square_sum args = {
        .struct_size = (uint32_t)sizeof args, .x = x, .out = out, .n = n, .workspace = work.ref, .dtype = dtype};
    weft_status status = WEFT_OK;
    if (slot >= 0) weft_trace_use(self->trace, slot, kernel_work(engine, n, dtype));
    WEFT_PLUGIN_CALL(status, engine->kernels, square_sum, err, engine->device, NULL, &args);
    return status;
}

/* The sums of the cells of a parameter that lie in this rank's own piece, into their places among the group's nodes. */
static weft_status own_cells(weft_stepper *self, const weft_parameter *p, weft_ref nodes, int64_t from, int64_t to,
                             weft_slot_ref work, int32_t slot, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_span *span = &engine->holds[WEFT_HOLD_GRADIENTS]->spans[p->group];
    const int64_t grid = engine->layout->grid, end = p->offset + p->numel;
    weft_status status = WEFT_OK;
    for (int64_t at = larger(from, p->offset); at < to && at < end && status == WEFT_OK; at += grid) {
        const int64_t n = end - at < grid ? end - at : grid;
        status = square_sum(self, weft_ref_at(engine->gradients.ref, 4 * (span->at + at - span->first)),
                            weft_ref_at(nodes, 8 * (at / grid)), n, WEFT_F32, work, slot, err);
    }
    return status;
}

/* One group's nodes: own cells, then everybody's. */
static weft_status group_cells(weft_stepper *self, int32_t group, weft_ref nodes, weft_slot_ref work, int32_t slot,
                               weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_group *of = &engine->layout->groups[group];
    const weft_cut cut = weft_cut_of(&engine->train.job->spec, of->unit);
    const int64_t piece = weft_hold_piece(engine->layout, of, cut.replicas);
    const int64_t place = weft_scope_place(&cut, WEFT_SCOPE_ALL, engine->ranks.rank),
                  cells = piece / engine->layout->grid;
    const weft_transfer transfer = {.group = weft_ranks_group_of(&engine->ranks, &cut, WEFT_SCOPE_ALL),
                                    .to = nodes,
                                    .from = weft_ref_at(nodes, 8 * place * cells),
                                    .n = cells,
                                    .dtype = WEFT_F64,
                                    .traffic = WEFT_TRAFFIC_NORM};
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < of->n_members && status == WEFT_OK; i++)
        status = own_cells(self, &engine->declared->parameters[of->members[i]], nodes, place * piece,
                           (place + 1) * piece, work, slot, err);
    if (status != WEFT_OK || cut.replicas == 1) return status;
    return weft_ranks_exchange(&engine->ranks, engine->ranks.plugin->all_gather, "all_gather", &transfer, err);
}

static weft_status exchange_cells(weft_stepper *self, weft_slot_ref work, int32_t slot, weft_error *err) {
    const weft_engine *engine = self->engine;
    weft_ref nodes = engine->scalars.nodes;
    weft_status status = WEFT_OK;
    for (int32_t g = 0; g < engine->layout->n_trainable_groups && status == WEFT_OK; g++) {
        if (!is_cut_group(engine, g)) continue;
        status = group_cells(self, g, nodes, work, slot, err);
        nodes = weft_ref_at(nodes, 8 * group_nodes(engine, g));
    }
    return status;
}

/* Where a parameter's cells lie among all nodes. */
static weft_ref nodes_of(const weft_engine *engine, const weft_parameter *p) {
    weft_ref nodes = engine->scalars.nodes;
    for (int32_t g = 0; g < p->group; g++)
        if (is_cut_group(engine, g)) nodes = weft_ref_at(nodes, 8 * group_nodes(engine, g));
    return weft_ref_at(nodes, 8 * (p->offset / engine->layout->grid));
}

static weft_status sum_parameter(weft_stepper *self, const weft_parameter *p, weft_ref out, weft_slot_ref work,
                                 int32_t slot, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_span *span = &engine->holds[WEFT_HOLD_GRADIENTS]->spans[p->group];
    if (is_cut(engine, p))
        return square_sum(self, nodes_of(engine, p), out, cells_of(engine, p->numel), WEFT_F64, work, slot, err);
    return square_sum(self, weft_ref_at(engine->gradients.ref, 4 * (span->at + p->offset)), out, p->numel, WEFT_F32,
                      work, slot, err);
}

/* ---- gradients with owners ---- */

/* Behind the nodes of what is cut: [world][most_owned] sums of tensors, each rank's in the order of declaration. */
static weft_ref owned_row(const weft_engine *engine, int32_t rank) {
    int64_t at = rank * most_owned(engine);
    for (int32_t g = 0; g < engine->layout->n_trainable_groups; g++)
        if (is_cut_group(engine, g)) at += group_nodes(engine, g);
    return weft_ref_at(engine->scalars.nodes, 8 * at);
}

/* The sums from the rows into their places; those of one rank that follow one another, at once. */
static weft_status sort_owned(weft_stepper *self, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_declared *declared = engine->declared;
    weft_status status = WEFT_OK;
    for (int32_t rank = 0; rank < engine->ranks.world && status == WEFT_OK; rank++) {
        weft_ref row = owned_row(engine, rank);
        int64_t place = 0, n = 0;
        for (int32_t i = 0; i <= declared->n_parameters && status == WEFT_OK; i++) {
            const weft_parameter *p = i < declared->n_parameters ? &declared->parameters[i] : NULL;
            if (p != NULL && !p->trainable) continue;
            if (p != NULL && owner_of(engine, p->group) == rank) n++;
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
                                    .n = most_owned(engine),
                                    .dtype = WEFT_F64,
                                    .traffic = WEFT_TRAFFIC_NORM};
    weft_ref out = transfer.from;
    weft_status status = WEFT_OK;
    if (transfer.n == 0) return WEFT_OK;
    for (int32_t i = 0; i < engine->declared->n_parameters && status == WEFT_OK; i++) {
        const weft_parameter *p = &engine->declared->parameters[i];
        if (!p->trainable || owner_of(engine, p->group) != engine->ranks.rank) continue;
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
    for (int32_t i = 0; i < engine->declared->n_parameters && status == WEFT_OK; i++) {
        const weft_parameter *p = &engine->declared->parameters[i];
        const weft_ref out = weft_ref_at(engine->scalars.square_sums, 8 * clip.n);
        if (!p->trainable) continue;
        clip.n++;
        if (owner_of(engine, p->group) < 0) status = sum_parameter(self, p, out, work, slot, err);
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
