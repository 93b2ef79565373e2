/* host/engine/graphs.c: see graphs.h. */
#include "engine/graphs.h"

#include <stdlib.h>

static weft_graph **graph_slot(const weft_graph_set *set, int32_t length_index, int32_t segment) {
    return &set->graphs[(int64_t)length_index * set->n_segments + segment];
}

static bool reads_trained(weft_graph *graph, const weft_declared *declared) {
    int32_t n = 0;
    const weft_graph_read *reads = weft_graph_reads(graph, &n);
    for (int32_t i = 0; i < n; i++)
        if (declared->parameters[reads[i].parameter].trainable) return true;
    return false;
}

/* BACKWARD runs from the last segment down: the first to touch a parameter writes its gradient, later ones add. */
static weft_status mark_adds(weft_graph_set *set, int32_t length_index, int32_t n_parameters, weft_error *err) {
    bool *written = calloc((size_t)n_parameters + 1, sizeof *written);
    if (written == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for %d parameter marks", n_parameters);
    for (int32_t s = set->n_segments - 1; s >= 0; s--) {
        int32_t n = 0;
        weft_graph_read *reads = weft_graph_reads(*graph_slot(set, length_index, s), &n);
        for (int32_t i = 0; i < n; i++) {
            reads[i].adds = written[reads[i].parameter];
            written[reads[i].parameter] = true;
        }
    }
    free(written);
    return WEFT_OK;
}

static weft_status record_length(weft_graph_set *set, int32_t length_index, const weft_declared *declared,
                                 weft_graph_spec *spec, weft_error *err) {
    weft_status status = WEFT_OK;
    spec->length = set->lengths[length_index];
    spec->carry_gradient = false;
    for (int32_t s = 0; s < set->n_segments && status == WEFT_OK; s++) {
        weft_graph **graph = graph_slot(set, length_index, s);
        status = weft_graph_record(graph, declared, s, spec, err);
        if (status == WEFT_OK && spec->mode == WEFT_MODE_TRAIN && reads_trained(*graph, declared))
            spec->carry_gradient = true; /* for the segments above this one */
    }
    if (status == WEFT_OK) status = mark_adds(set, length_index, declared->n_parameters, err);
    for (int32_t s = 0; s < set->n_segments && status == WEFT_OK; s++)
        status = weft_graph_plan(*graph_slot(set, length_index, s), err);
    return status;
}

weft_status weft_graph_set_create(weft_graph_set **out, const weft_declared *declared,
                                  const weft_device_plugin *kernels, weft_device *device,
                                  const weft_graph_set_spec *spec, weft_error *err) {
    weft_status status = WEFT_OK;
    weft_graph_spec graph_spec = {0};
    weft_graph_set *set = calloc(1, sizeof *set);
    if (set == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the model's graphs");
    set->mode = spec->mode;
    set->rows = spec->rows;
    set->n_segments = declared->n_segments;
    set->n_lengths = spec->n_lengths;
    memcpy(set->lengths, spec->lengths, sizeof set->lengths);
    set->graphs = calloc((size_t)(spec->n_lengths * declared->n_segments) + 1, sizeof *set->graphs);
    if (set->graphs == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the model's graphs");
    graph_spec.mode = spec->mode;
    graph_spec.dtype = spec->dtype;
    graph_spec.rows = spec->rows;
    graph_spec.cache_rows = spec->cache_rows;
    graph_spec.kernels = kernels;
    graph_spec.device = device;
    for (int32_t i = 0; i < set->n_lengths && status == WEFT_OK; i++)
        status = record_length(set, i, declared, &graph_spec, err);
    if (status == WEFT_OK) *out = set;
    else weft_graph_set_destroy(set);
    return status;
}

void weft_graph_set_destroy(weft_graph_set *set) {
    if (set == NULL) return;
    for (int32_t i = 0; set->graphs != NULL && i < set->n_lengths * set->n_segments; i++)
        weft_graph_destroy(set->graphs[i]);
    free(set->graphs);
    free(set);
}

const weft_graph *weft_graph_set_at(const weft_graph_set *set, int32_t length, int32_t segment) {
    for (int32_t i = 0; i < set->n_lengths; i++)
        if (set->lengths[i] == length) return *graph_slot(set, i, segment);
    return NULL;
}

/* Units that a segment reads, ascending, each once. Returns how many. */
static int32_t segment_units(int32_t *units, const weft_graph_set *set, const weft_declared *declared, int32_t n_units,
                             int32_t segment) {
    int32_t n = 0, n_reads = 0;
    const weft_graph_read *reads = weft_graph_reads(*graph_slot(set, 0, segment), &n_reads);
    for (int32_t u = 0; u < n_units; u++)
        for (int32_t i = 0; i < n_reads; i++)
            if (declared->parameters[reads[i].parameter].unit == u) {
                units[n++] = u;
                break;
            }
    return n;
}

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* The largest of all leaf lengths: slots are planned for it. */
static void segment_sizes(weft_segment_sizes *out, const weft_graph_set *set, int32_t segment) {
    for (int32_t i = 0; i < set->n_lengths; i++) {
        const weft_graph_sizes *size = weft_graph_size(*graph_slot(set, i, segment));
        out->carry = larger(out->carry, size->carry);
        out->tape = larger(out->tape, size->tape);
        out->forward_work = larger(out->forward_work, size->forward_work);
        out->forward_work_untaped = larger(out->forward_work_untaped, size->forward_work_untaped);
        out->recompute_work = larger(out->recompute_work, size->recompute_work);
        out->backward_work = larger(out->backward_work, size->backward_work);
        out->has_backward = size->has_backward;
        out->backward_reads_carry = out->backward_reads_carry || size->backward_reads_carry;
    }
}

static void fill_units(weft_job *job, const weft_layout *layout, int64_t state_bytes) {
    for (int32_t u = 0; u < layout->n_units; u++) {
        weft_unit_view *view = &job->unit_views[u];
        view->struct_size = (uint32_t)sizeof *view;
        view->name = layout->units[u].name;
        view->flags = layout->units[u].is_root ? WEFT_UNIT_IS_ROOT : 0;
        view->placement.struct_size = (uint32_t)sizeof view->placement;
        for (int g = 0; g < 2; g++) {
            const int32_t index = layout->units[u].groups[g];
            if (index < 0) continue;
            view->parameter_bytes += layout->groups[index].numel * 4;
            if (!layout->groups[index].trainable) continue;
            view->gradient_bytes += layout->groups[index].numel * 4;
            view->state_bytes += layout->groups[index].numel * state_bytes;
        }
        job->units[u].gradient = view->gradient_bytes;
    }
}

static bool is_used_below(const weft_graph_set *set, int32_t parameter, int32_t segment) {
    for (int32_t s = 0; s < segment; s++) {
        int32_t n = 0;
        const weft_graph_read *reads = weft_graph_reads(*graph_slot(set, 0, s), &n);
        for (int32_t i = 0; i < n; i++)
            if (reads[i].parameter == parameter) return true;
    }
    return false;
}

/* What a segment's own storage comes to, on the layout's grid, as groups have it; of storage with an earlier user, that
 * there is. */
static void fill_storage(weft_job *job, const weft_graph_set *set, const weft_declared *declared,
                         const weft_layout *layout, int32_t s, int64_t state_bytes) {
    weft_segment_view *view = &job->segment_views[s];
    int32_t n = 0;
    const weft_graph_read *reads = weft_graph_reads(*graph_slot(set, 0, s), &n);
    for (int32_t i = 0; i < n; i++) {
        const weft_parameter *p = &declared->parameters[reads[i].parameter];
        const int64_t numel = (p->numel + layout->grid - 1) / layout->grid * layout->grid;
        if (is_used_below(set, reads[i].parameter, s)) {
            view->tied_bytes += 4 * numel;
            if (p->trainable) view->flags |= WEFT_SEGMENT_TRAINS_TIED;
            continue;
        }
        view->parameter_bytes += 4 * numel;
        if (!p->trainable) continue;
        view->gradient_bytes += 4 * numel;
        view->state_bytes += state_bytes * numel;
    }
}

static void fill_segments(weft_job *job, const weft_graph_set *set, const weft_declared *declared,
                          const weft_layout *layout) {
    bool below = false; /* something under this segment is trained */
    for (int32_t s = 0; s < set->n_segments; s++) {
        weft_segment_view *view = &job->segment_views[s];
        int32_t *units = &job->segment_units[(int64_t)s * layout->n_units];
        segment_sizes(&job->segments[s], set, s);
        job->segments[s].carry_gradient = below;
        if (set->mode == WEFT_MODE_TRAIN && reads_trained(*graph_slot(set, 0, s), declared)) below = true;
        view->struct_size = (uint32_t)sizeof *view;
        view->name = declared->segments[s].name;
        view->owner = -1;
        view->units = units;
        view->n_units = segment_units(units, set, declared, layout->n_units, s);
        view->backward = job->segments[s].has_backward ? 1 : 0;
        view->carry_bytes = job->segments[s].carry;
        view->tape_bytes = job->spec.activation_checkpointing ? 0 : job->segments[s].tape;
    }
}

static weft_status job_arrays(weft_job *job, const weft_graph_set *set, const weft_layout *layout, weft_error *err) {
    const size_t units = (size_t)layout->n_units + 1, segments = (size_t)set->n_segments + 1;
    job->unit_views = calloc(units, sizeof *job->unit_views);
    job->units = calloc(units, sizeof *job->units);
    job->segment_views = calloc(segments, sizeof *job->segment_views);
    job->segments = calloc(segments, sizeof *job->segments);
    job->segment_units = calloc(units * segments, sizeof *job->segment_units);
    if (job->unit_views == NULL || job->units == NULL || job->segment_views == NULL || job->segments == NULL ||
        job->segment_units == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for the description of %d segments", set->n_segments);
    return WEFT_OK;
}

weft_status weft_job_create(weft_job **out, const weft_graph_set *set, const weft_declared *declared,
                            const weft_layout *layout, int32_t leaves, int64_t state_bytes,
                            bool activation_checkpointing, weft_error *err) {
    weft_strategy_job *view = NULL;
    weft_status status = WEFT_OK;
    weft_job *job = calloc(1, sizeof *job);
    if (job == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the job");
    status = job_arrays(job, set, layout, err);
    if (status != WEFT_OK) {
        weft_job_destroy(job);
        return status;
    }
    job->spec.activation_checkpointing = activation_checkpointing;
    fill_units(job, layout, state_bytes);
    fill_segments(job, set, declared, layout);
    for (int32_t s = 0; s < set->n_segments; s++) fill_storage(job, set, declared, layout, s, state_bytes);
    view = &job->spec.view;
    view->struct_size = (uint32_t)sizeof *view;
    view->mode = set->mode;
    view->world = view->nodes = view->ranks_per_node = 1; /* until the engine says otherwise */
    view->leaves = leaves;
    view->n_units = layout->n_units;
    view->n_segments = set->n_segments;
    view->units = job->unit_views;
    view->segments = job->segment_views;
    view->unit_stride = (uint32_t)sizeof(weft_unit_view);
    view->segment_stride = (uint32_t)sizeof(weft_segment_view);
    job->spec.segments = job->segments;
    job->spec.units = job->units;
    job->spec.leaf_bytes = weft_leaf_bytes(set->rows, set->lengths[set->n_lengths - 1]);
    *out = job;
    return WEFT_OK;
}

void weft_job_destroy(weft_job *job) {
    if (job == NULL) return;
    free(job->unit_views);
    free(job->units);
    free(job->segment_views);
    free(job->segments);
    free(job->segment_units);
    free(job);
}

int64_t weft_leaf_part_offset(int32_t rows, int32_t length, int part) {
    const int64_t bytes = ((int64_t)rows * length * 4 + 63) / 64 * 64;
    return bytes * part;
}

int64_t weft_leaf_bytes(int32_t rows, int32_t length) {
    return weft_leaf_part_offset(rows, length, WEFT_LEAF_PARTS);
}
