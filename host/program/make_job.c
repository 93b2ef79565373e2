/* host/program/make_job.c: see make_job.h. */
#include "program/make_job.h"

#include "base/sizes.h"
#include "program/states.h"

#include <stdlib.h>

/* Units that a segment reads, ascending, each once. Returns how many. */
static int32_t list_segment_units(int32_t *units, const weft_graph_set *set, const weft_declared *declared,
                                  int32_t n_units, int32_t segment) {
    int32_t n = 0, n_reads = 0;
    const weft_graph_read *reads = weft_graph_set_reads(set, segment, &n_reads);
    for (int32_t u = 0; u < n_units; u++)
        for (int32_t i = 0; i < n_reads; i++)
            if (declared->parameters[reads[i].parameter].unit == u) {
                units[n++] = u;
                break;
            }
    return n;
}

/* The largest of all micro-batch lengths: slots are planned for it. */
static void fill_segment_sizes(weft_segment_sizes *out, const weft_graph_set *set, int32_t segment) {
    for (int32_t i = 0; i < set->n_lengths; i++) {
        const weft_graph_sizes *size = weft_graph_size(set->graphs[(int64_t)i * set->n_segments + segment]);
        out->carry = weft_larger(out->carry, size->carry);
        out->tape = weft_larger(out->tape, size->tape);
        out->forward_work = weft_larger(out->forward_work, size->forward_work);
        out->forward_work_untaped = weft_larger(out->forward_work_untaped, size->forward_work_untaped);
        out->recompute_work = weft_larger(out->recompute_work, size->recompute_work);
        out->backward_work = weft_larger(out->backward_work, size->backward_work);
        out->has_backward = size->has_backward;
        out->backward_reads_carry = out->backward_reads_carry || size->backward_reads_carry;
    }
}

/* What the optimizer keeps of each trained element. */
typedef struct kept_states {
    const weft_state_slot *slots;
    int64_t n;
} kept_states;

static void fill_units(weft_job *job, const weft_layout *layout, const kept_states *states) {
    for (int32_t u = 0; u < layout->n_units; u++) {
        weft_unit_view *view = &job->unit_views[u];
        view->struct_size = (uint32_t)sizeof *view;
        view->name = layout->units[u].name;
        view->flags = layout->units[u].is_root ? WEFT_UNIT_IS_ROOT : 0;
        job->placements[u].struct_size = (uint32_t)sizeof *job->placements;
        for (int32_t g = 0; g < layout->units[u].n_groups; g++) {
            const weft_group *group = &layout->groups[layout->units[u].groups[g]];
            view->parameter_bytes += weft_group_bytes(group);
            if (!group->trainable) continue;
            view->gradient_bytes += weft_f32_bytes(group->numel);
            view->state_bytes += weft_states_bytes(states->slots, states->n, group->numel);
        }
        job->units[u].gradient = view->gradient_bytes;
    }
}

static bool is_used_below(const weft_graph_set *set, int32_t parameter, int32_t segment) {
    for (int32_t s = 0; s < segment; s++) {
        int32_t n = 0;
        const weft_graph_read *reads = weft_graph_set_reads(set, s, &n);
        for (int32_t i = 0; i < n; i++)
            if (reads[i].parameter == parameter) return true;
    }
    return false;
}

/* What a segment's own storage comes to, on the layout's grid, as groups have it; of storage with an earlier user, that
 * there is. */
static void fill_storage(weft_job *job, const weft_graph_set *set, const weft_declared *declared,
                         const weft_layout *layout, int32_t s, const kept_states *states) {
    weft_segment_view *view = &job->segment_views[s];
    int32_t n = 0;
    const weft_graph_read *reads = weft_graph_set_reads(set, s, &n);
    for (int32_t i = 0; i < n; i++) {
        const weft_parameter *p = &declared->parameters[reads[i].parameter];
        const int64_t numel = weft_round_up(p->numel, layout->grid);
        if (is_used_below(set, reads[i].parameter, s)) {
            view->tied_bytes += weft_dtype_span(p->dtype, numel);
            if (p->trainable) view->flags |= WEFT_SEGMENT_TRAINS_TIED;
            continue;
        }
        view->parameter_bytes += weft_dtype_span(p->dtype, numel);
        if (!p->trainable) continue;
        view->gradient_bytes += weft_f32_bytes(numel);
        view->state_bytes += weft_states_bytes(states->slots, states->n, numel);
    }
}

static void fill_segments(weft_job *job, const weft_graph_set *set, const weft_declared *declared,
                          const weft_layout *layout) {
    bool below = false; /* something under this segment is trained */
    for (int32_t s = 0; s < set->n_segments; s++) {
        weft_segment_view *view = &job->segment_views[s];
        int32_t *units = &job->segment_units[(int64_t)s * layout->n_units];
        fill_segment_sizes(&job->segments[s], set, s);
        job->segments[s].carry_gradient = below;
        if (set->mode == WEFT_MODE_TRAIN && weft_graph_set_trains(set, declared, s)) below = true;
        view->struct_size = (uint32_t)sizeof *view;
        view->name = declared->segments[s].name;
        view->owner = -1;
        view->units = units;
        view->n_units = list_segment_units(units, set, declared, layout->n_units, s);
        view->backward = job->segments[s].has_backward ? 1 : 0;
        view->carry_bytes = job->segments[s].carry;
        view->tape_bytes = job->spec.activation_checkpointing ? 0 : job->segments[s].tape;
    }
}

static weft_status allocate_job_arrays(weft_job *job, const weft_graph_set *set, const weft_layout *layout,
                                       weft_error *err) {
    const size_t units = (size_t)layout->n_units + 1, segments = (size_t)set->n_segments + 1;
    job->unit_views = calloc(units, sizeof *job->unit_views);
    job->placements = calloc(units, sizeof *job->placements);
    job->units = calloc(units, sizeof *job->units);
    job->segment_views = calloc(segments, sizeof *job->segment_views);
    job->segments = calloc(segments, sizeof *job->segments);
    job->segment_units = calloc(units * segments, sizeof *job->segment_units);
    if (job->unit_views == NULL || job->placements == NULL || job->units == NULL || job->segment_views == NULL ||
        job->segments == NULL || job->segment_units == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for the description of %d segments", set->n_segments);
    return WEFT_OK;
}

weft_status weft_job_create(weft_job **out, const weft_graph_set *set, const weft_declared *declared,
                            const weft_layout *layout, int32_t micro_batches, const weft_state_slot *states,
                            int64_t n_states, bool activation_checkpointing, weft_error *err) {
    const kept_states kept = {states, n_states};
    weft_strategy_job *view = NULL;
    weft_status status = WEFT_OK;
    weft_job *job = calloc(1, sizeof *job);
    if (job == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the job");
    status = allocate_job_arrays(job, set, layout, err);
    if (status != WEFT_OK) {
        weft_job_destroy(job);
        return status;
    }
    job->spec.activation_checkpointing = activation_checkpointing;
    fill_units(job, layout, &kept);
    fill_segments(job, set, declared, layout);
    for (int32_t s = 0; s < set->n_segments; s++) fill_storage(job, set, declared, layout, s, &kept);
    view = &job->spec.view;
    view->struct_size = (uint32_t)sizeof *view;
    view->mode = set->mode;
    view->world = view->nodes = view->ranks_per_node = 1; /* until the plan says otherwise */
    view->micro_batches = micro_batches;
    view->n_units = layout->n_units;
    view->n_segments = set->n_segments;
    view->units = job->unit_views;
    view->segments = job->segment_views;
    view->placements = job->placements;
    view->unit_stride = (uint32_t)sizeof(weft_unit_view);
    view->segment_stride = (uint32_t)sizeof(weft_segment_view);
    view->placement_stride = (uint32_t)sizeof(weft_placement);
    job->spec.segments = job->segments;
    job->spec.units = job->units;
    job->spec.micro_batch_bytes = weft_micro_batch_bytes(set->rows, set->lengths[set->n_lengths - 1]);
    *out = job;
    return WEFT_OK;
}

void weft_job_destroy(weft_job *job) {
    if (job == NULL) return;
    free(job->unit_views);
    free(job->placements);
    free(job->units);
    free(job->segment_views);
    free(job->segments);
    free(job->segment_units);
    free(job);
}
