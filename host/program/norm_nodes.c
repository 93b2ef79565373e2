/* host/program/norm_nodes.c: see norm_nodes.h. */
#include "program/norm_nodes.h"

#include "base/units.h"

int64_t weft_norm_cells(const weft_plan *plan, int64_t n) {
    return weft_round_up(n, plan->layout->grid) / plan->layout->grid;
}

int32_t weft_norm_owner(const weft_plan *plan, int32_t group) {
    const weft_placement *p = &plan->train.job->spec.view.placements[plan->layout->groups[group].unit];
    return plan->world > 1 && p->gradients == WEFT_OWNED ? p->owner : -1;
}

static bool is_cut_group(const weft_plan *plan, int32_t group) {
    const weft_placement *p = &plan->train.job->spec.view.placements[plan->layout->groups[group].unit];
    return plan->world > 1 && p->gradients == WEFT_SHARDED;
}

bool weft_norm_is_cut(const weft_plan *plan, const weft_parameter *parameter) {
    return parameter->trainable && is_cut_group(plan, parameter->group);
}

/* Returns the maximum number of tensors that one rank owns. */
static int64_t most_owned(const weft_plan *plan) {
    int64_t most = 0;
    for (int32_t first = 0; first < plan->layout->n_trainable_groups; first++) {
        const int32_t owner = weft_norm_owner(plan, first);
        int64_t n = 0;
        for (int32_t g = first; owner >= 0 && g < plan->layout->n_trainable_groups; g++)
            if (weft_norm_owner(plan, g) == owner) n += plan->layout->groups[g].n_members;
        most = weft_larger(most, n);
    }
    return most;
}

/* ---- exchanges ---- */

static void set_world(const weft_plan *plan, weft_norm_exchange *walk, int32_t goes, int64_t n) {
    walk->goes = goes;
    walk->cut = (weft_cut){plan->world, plan->world, 1};
    walk->n = n;
}

static bool next_group(const weft_plan *plan, weft_norm_exchange *walk) {
    while (++walk->group < plan->layout->n_trainable_groups) {
        const weft_group *group = &plan->layout->groups[walk->group];
        if (!is_cut_group(plan, walk->group)) continue;
        walk->goes = WEFT_NORM_GOES_CELLS;
        walk->cut = weft_cut_of(&plan->train.job->spec, group->unit);
        walk->n = weft_hold_piece(plan->layout, group, walk->cut.replicas) / plan->layout->grid;
        return true;
    }
    return false;
}

bool weft_norm_exchange_next(const weft_plan *plan, weft_norm_exchange *walk) {
    if (walk->goes == WEFT_NORM_GOES_OWNED) return false;
    if (walk->goes == 0) {
        walk->group = -1;
        set_world(plan, walk, WEFT_NORM_GOES_LOSSES, plan->train.most_losses);
        if (plan->world > 1) return true;
    }
    if (walk->goes == WEFT_NORM_GOES_CELLS) walk->first += walk->n * walk->cut.replicas;
    if (next_group(plan, walk)) return true;
    set_world(plan, walk, WEFT_NORM_GOES_OWNED, most_owned(plan));
    return walk->n > 0;
}

weft_norm_exchange weft_norm_owned(const weft_plan *plan) {
    weft_norm_exchange walk = {0};
    while (walk.goes != WEFT_NORM_GOES_OWNED) (void)weft_norm_exchange_next(plan, &walk);
    return walk;
}

int64_t weft_norm_nodes(const weft_plan *plan) {
    if (plan->train.program == NULL) return 0;
    const weft_norm_exchange owned = weft_norm_owned(plan);
    return owned.first + owned.n * plan->world;
}

/* ---- sizes ---- */

int64_t weft_norm_elements(const weft_plan *plan, int32_t rank) {
    int64_t n = 0;
    for (int32_t g = 0; g < plan->layout->n_trainable_groups; g++) {
        const weft_group *group = &plan->layout->groups[g];
        const weft_cut cut = weft_cut_of(&plan->train.job->spec, group->unit);
        const int32_t owner = weft_norm_owner(plan, g);
        if (owner >= 0 && owner != rank) continue;
        n += is_cut_group(plan, g) ? weft_hold_piece(plan->layout, group, cut.replicas) : group->numel;
    }
    return n;
}

static int64_t kernel_work(const weft_device_plugin *kernels, const weft_device *device, int64_t n, int64_t extents,
                           int32_t dtype) {
    const weft_square_sum args = {.struct_size = (uint32_t)sizeof args, .n = n, .dtype = dtype, .n_extents = extents};
    return kernels->square_sum_workspace(device, &args);
}

int64_t weft_norm_work(const weft_plan *plan, const weft_device_plugin *kernels, const weft_device *device) {
    int64_t tensors = 0, elements = 0, cells = 0, work = 0;
    for (int32_t i = 0; i < plan->declared->n_parameters; i++) {
        const weft_parameter *p = &plan->declared->parameters[i];
        if (!p->trainable) continue;
        tensors++;
        elements += p->numel;
        cells += weft_norm_cells(plan, p->numel);
    }
    if (tensors == 0) return 0;
    work = kernel_work(kernels, device, elements, tensors, WEFT_F32);
    return plan->world == 1 ? work : weft_larger(work, kernel_work(kernels, device, cells, tensors, WEFT_F64));
}
