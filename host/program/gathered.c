/* host/program/gathered.c: see gathered.h. */
#include "program/gathered.h"

#include "base/units.h"

bool weft_gathered_share(const weft_gathered_part *p, const weft_parameter *parameter, int64_t j, int64_t *begin,
                         int64_t *end) {
    const int64_t from = j * p->shard - parameter->offset, to = from + p->shard;
    *begin = from > 0 ? from : 0;
    *end = to < parameter->numel ? to : parameter->numel;
    return *begin < *end;
}

/* Returns the fp32 elements of the gains in one shard. */
static int64_t count_gains_of_shard(const weft_plan *plan, const weft_gathered_part *p, int64_t j) {
    int64_t n = 0, begin = 0, end = 0;
    for (int32_t i = 0; i < p->group->n_members; i++)
        if (!weft_parameter_is_matrix(&plan->declared->parameters[p->group->members[i]]) &&
            weft_gathered_share(p, &plan->declared->parameters[p->group->members[i]], j, &begin, &end))
            n += end - begin;
    return n;
}

static int64_t count_gains_of_group(const weft_plan *plan, const weft_group *group) {
    int64_t n = 0;
    for (int32_t i = 0; i < group->n_members; i++)
        if (!weft_parameter_is_matrix(&plan->declared->parameters[group->members[i]]))
            n += plan->declared->parameters[group->members[i]].numel;
    return n;
}

/* Places the gains of a rounded group after its image and returns their end. */
static int64_t place_gains(const weft_plan *plan, const weft_cut *cut, weft_gathered_part *p, int64_t at) {
    for (int32_t j = 0; j < cut->group; j++) p->row = weft_larger(p->row, count_gains_of_shard(plan, p, j));
    p->rows = at;
    p->gains = p->rows + weft_cache_lines(weft_f32_bytes(p->row) * cut->group);
    return p->gains + weft_cache_lines(weft_f32_bytes(count_gains_of_group(plan, p->group)));
}

int64_t weft_gathered_layout(const weft_plan *plan, const weft_cut *cut, int32_t unit,
                             weft_gathered_part parts[WEFT_UNIT_GROUPS]) {
    const weft_unit *of = &plan->layout->units[unit];
    int64_t at = 0;
    for (int32_t g = 0; g < of->n_groups; g++) {
        weft_gathered_part *p = &parts[g];
        memset(p, 0, sizeof *p);
        p->index = of->groups[g];
        p->group = &plan->layout->groups[p->index];
        p->rounded = p->group->dtype == WEFT_F32 && plan->dtype != WEFT_F32;
        p->dtype = p->rounded ? plan->dtype : p->group->dtype;
        p->shard = weft_hold_piece(plan->layout, p->group, cut->replicas) * cut->groups;
        p->image = at;
        at += weft_cache_lines(weft_dtype_span(p->dtype, p->shard) * cut->group);
        p->widened = p->group->dtype != WEFT_F32 && !weft_dtype_is_packed(p->group->dtype) &&
                     count_gains_of_group(plan, p->group) > 0;
        if (p->rounded) at = place_gains(plan, cut, p, at);
        if (p->widened) {
            p->gains = at;
            at += weft_cache_lines(weft_f32_bytes(count_gains_of_group(plan, p->group)));
        }
    }
    return at;
}

bool weft_gathered_is_due(const weft_job_spec *job, int32_t unit) {
    return job->view.placements[unit].parameters == WEFT_SHARDED && weft_cut_of(job, unit).group > 1;
}

int64_t weft_gathered_bytes(const weft_plan *plan, const weft_job_spec *job, int32_t unit, int64_t *each) {
    const weft_cut cut = weft_cut_of(job, unit);
    weft_gathered_part parts[WEFT_UNIT_GROUPS];
    *each = 0;
    if (!weft_gathered_is_due(job, unit)) return 0;
    const int64_t bytes = weft_gathered_layout(plan, &cut, unit, parts);
    for (int32_t g = 0; g < plan->layout->units[unit].n_groups; g++)
        *each += weft_dtype_span(parts[g].dtype, parts[g].shard) + weft_f32_bytes(parts[g].row);
    return bytes;
}
