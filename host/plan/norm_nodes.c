/* host/plan/norm_nodes.c: see norm_nodes.h. */
#include "plan/norm_nodes.h"

#include "base/sizes.h"

int64_t weft_norm_cells(const weft_plan *plan, int64_t n) {
    return weft_round_up(n, plan->layout->grid) / plan->layout->grid;
}

int32_t weft_norm_owner(const weft_plan *plan, int32_t group) {
    const weft_placement *p = &plan->train.job->spec.view.placements[plan->layout->groups[group].unit];
    return plan->world > 1 && p->gradients == WEFT_OWNED ? p->owner : -1;
}

static bool is_cut_group(const weft_plan *plan, int32_t group) {
    return plan->apart[WEFT_HOLD_GRADIENTS][group] && weft_norm_owner(plan, group) < 0;
}

bool weft_norm_is_cut(const weft_plan *plan, const weft_parameter *parameter) {
    return parameter->trainable && is_cut_group(plan, parameter->group);
}

bool weft_norm_group_next(const weft_plan *plan, weft_norm_group *walk) {
    while (++walk->group < plan->layout->n_trainable_groups) {
        const weft_group *group = &plan->layout->groups[walk->group];
        if (!is_cut_group(plan, walk->group)) continue;
        walk->cut = weft_cut_of(&plan->train.job->spec, group->unit);
        walk->cells = weft_hold_piece(plan->layout, group, walk->cut.replicas) / plan->layout->grid;
        walk->first = walk->after;
        walk->after += walk->cells * walk->cut.replicas;
        return true;
    }
    return false;
}

int64_t weft_norm_most_owned(const weft_plan *plan) {
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

int64_t weft_norm_nodes(const weft_plan *plan) {
    weft_norm_group walk = {.group = -1};
    if (plan->train.program == NULL) return 0;
    while (weft_norm_group_next(plan, &walk)) continue;
    return walk.after + weft_norm_most_owned(plan) * plan->world;
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
