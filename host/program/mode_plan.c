/* host/program/mode_plan.c: makes one mode of a plan: graphs, placed job, checked programs of all ranks. */
#include "base/alloc.h"
#include "base/text.h"
#include "base/units.h"
#include "plugin/enter.h"
#include "program/exchange.h"

#include <stdlib.h>

/* ---- units whose parameters are read by several ranks are split ---- */

enum { NOT, COPY, OWNER };

typedef struct users {
    const weft_plan *plan;
    const weft_mode_plan *mode_plan;
    int32_t world, n;
    uint8_t *by_rank; /* [n parameters][world] NOT, COPY or OWNER */
    int32_t *piece;   /* [n parameters] */
    weft_layout_piece *pieces;
    int32_t n_pieces;
    bool changed; /* a unit has several pieces */
} users;

/* Returns the row of by_rank of a parameter. */
static uint8_t *uses_of(const users *self, int32_t parameter) {
    return self->by_rank + (size_t)parameter * (size_t)self->world;
}

/* Finds the ranks that read each parameter; the first reading segment's rank owns it. Backward runs from the last
 * segment down. The ranks with copies must finish before the owner, which accumulates into their result. */
static weft_status find_users(users *self, weft_error *err) {
    const weft_segment_view *segments = self->mode_plan->job->spec.view.segments;
    for (int32_t p = 0; p < self->n; p++) {
        const weft_parameter *parameter = &self->plan->declared->parameters[p];
        int32_t first = -1, other = -1; /* segments; other: the last one of another rank than the owner */
        for (int32_t s = 0; s < self->mode_plan->graphs->n_segments; s++) {
            uint8_t *use = &uses_of(self, p)[segments[s].owner];
            if (!weft_graph_set_reads_parameter(self->mode_plan->graphs, s, p)) continue;
            if (*use == NOT) *use = first < 0 ? OWNER : COPY;
            if (first < 0) first = s;
            if (segments[s].owner != segments[first].owner) other = s;
            else if (other >= 0 && parameter->trainable)
                return weft_error_set(
                    err, WEFT_E_USER,
                    "the strategy runs the segments that read %s on rank %d (segment %s), rank %d (%s) "
                    "and rank %d again (%s). Fix: the last two on one rank",
                    parameter->name, (int)segments[first].owner, segments[first].name, (int)segments[other].owner,
                    segments[other].name, (int)segments[s].owner, segments[s].name);
        }
    }
    return WEFT_OK;
}

/* Returns the name of a piece of a split unit: the unit's name, the owner, and the ranks with copies. */
static char *name_piece(const users *self, int32_t parameter) {
    char text[512] = "";
    weft_words_append(text, sizeof text, "%.400s",
                      self->plan->layout->units[self->plan->declared->parameters[parameter].unit].name);
    for (int use = OWNER; use >= COPY; use--)
        for (int32_t rank = 0; rank < self->world; rank++)
            if (uses_of(self, parameter)[rank] == use)
                weft_words_append(text, sizeof text, use == OWNER ? "/%d" : "+%d", (int)rank);
    return weft_strdup(text);
}

/* Parameters of one unit with the same row of by_rank form one piece. */
static void find_pieces(users *self) {
    const weft_parameter *parameters = self->plan->declared->parameters;
    const weft_unit *units = self->plan->layout->units;
    int32_t *pieces_of = weft_alloc(self->plan->layout->n_units, sizeof *pieces_of);
    for (int32_t p = 0; p < self->n; p++) {
        int32_t q = 0;
        while (q < p && (parameters[q].unit != parameters[p].unit ||
                         memcmp(uses_of(self, q), uses_of(self, p), (size_t)self->world) != 0))
            q++;
        self->piece[p] = q < p ? self->piece[q] : self->n_pieces++;
        if (q < p) continue;
        self->pieces[self->piece[p]].is_root = units[parameters[p].unit].is_root;
        self->changed = ++pieces_of[parameters[p].unit] > 1 || self->changed;
    }
    for (int32_t p = 0; p < self->n; p++) {
        weft_layout_piece *piece = &self->pieces[self->piece[p]];
        if (piece->name == NULL)
            piece->name = pieces_of[parameters[p].unit] > 1 ? name_piece(self, p)
                                                            : weft_strdup(units[parameters[p].unit].name);
    }
    free(pieces_of);
}

/* Splits the units of the plan's layout by the owners of the placed job's segments. *out: the layout has changed. */
static weft_status split_units(bool *out, weft_plan *plan, const weft_mode_plan *mode_plan, weft_error *err) {
    users self = {.plan = plan, .mode_plan = mode_plan, .world = plan->world, .n = plan->declared->n_parameters};
    weft_layout *layout = NULL;
    weft_status status = WEFT_OK;
    if (!weft_job_spec_owned(&mode_plan->job->spec)) return WEFT_OK;
    self.by_rank = weft_alloc((int64_t)self.n * self.world, sizeof *self.by_rank);
    self.piece = weft_alloc(self.n, sizeof *self.piece);
    self.pieces = weft_alloc(self.n, sizeof *self.pieces);
    status = find_users(&self, err);
    if (status == WEFT_OK) find_pieces(&self);
    if (self.changed) {
        layout = weft_layout_make(plan->declared, self.pieces, self.n_pieces, self.piece);
        weft_layout_destroy(plan->layout);
        plan->layout = layout;
        *out = true;
    }
    for (int32_t i = 0; i < self.n_pieces; i++) free((char *)(uintptr_t)self.pieces[i].name);
    free(self.by_rank);
    free(self.piece);
    free(self.pieces);
    return status;
}

/* ---- the job: units and segments with their bytes ---- */

/* Computes the maximum over all micro-batch lengths. */
static void fill_segment_sizes(weft_graph_sizes *out, const weft_graph_set *set, int32_t segment) {
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

static void fill_units(weft_job *job, const weft_plan *plan) {
    const weft_layout *layout = plan->layout;
    for (int32_t u = 0; u < layout->n_units; u++) {
        weft_unit_view *view = &job->unit_views[u];
        view->struct_size = (uint32_t)sizeof *view;
        view->name = layout->units[u].name;
        view->flags = layout->units[u].is_root ? WEFT_UNIT_IS_ROOT : 0;
        job->placements[u].struct_size = (uint32_t)sizeof *job->placements;
        for (int32_t g = 0; g < layout->units[u].n_groups; g++) {
            const weft_group *group = &layout->groups[layout->units[u].groups[g]];
            view->parameter_bytes += weft_dtype_span(group->dtype, group->numel);
            if (!group->trainable) continue;
            view->gradient_bytes += weft_f32_bytes(group->numel);
            view->state_bytes += weft_states_bytes(plan->states, plan->n_states, group->numel);
        }
        job->units[u].gradient = view->gradient_bytes;
    }
}

/* Lists the units that a segment reads, ascending, in `units`, and computes the bytes of its own parameters, on the
 * layout's grid. Parameters that an earlier segment reads count as tied. Returns the end of the list. */
static int32_t *fill_reads(weft_job *job, const weft_plan *plan, const weft_graph_set *set, int32_t s, int32_t *units) {
    const weft_layout *layout = plan->layout;
    const weft_parameter *parameters = plan->declared->parameters;
    weft_segment_view *view = &job->segment_views[s];
    int32_t n = 0;
    const weft_graph_read *reads = weft_graph_reads(set->graphs[s], &n);
    view->units = units;
    for (int32_t u = 0; u < layout->n_units; u++) {
        int32_t i = 0;
        while (i < n && parameters[reads[i].parameter].unit != u) i++;
        if (i < n) units[view->n_units++] = u;
    }
    for (int32_t i = 0; i < n; i++) {
        const weft_parameter *p = &parameters[reads[i].parameter];
        const int64_t numel = weft_round_up(p->numel, layout->grid);
        int32_t below = 0;
        while (below < s && !weft_graph_set_reads_parameter(set, below, reads[i].parameter)) below++;
        if (below < s) {
            view->tied_bytes += weft_dtype_span(p->dtype, numel);
            if (p->trainable) view->flags |= WEFT_SEGMENT_TRAINS_TIED;
            continue;
        }
        view->parameter_bytes += weft_dtype_span(p->dtype, numel);
        if (!p->trainable) continue;
        view->gradient_bytes += weft_f32_bytes(numel);
        view->state_bytes += weft_states_bytes(plan->states, plan->n_states, numel);
    }
    return units + view->n_units;
}

/* Makes the job that is not placed yet. micro_batches: of a step, over all replicas. */
static weft_job *create_job(const weft_plan *plan, const weft_graph_set *set, int32_t micro_batches) {
    const weft_settings *settings = &plan->run->settings;
    const weft_loaded *strategy = plan->run->parts[WEFT_PART_STRATEGY].loaded;
    const int32_t n_units = plan->layout->n_units, nodes = plan->world > 1 ? plan->nodes : 1;
    const bool prefetches = (weft_capabilities_of(strategy) & WEFT_CAPABILITY_PREFETCH) != 0;
    const bool checkpointing = set->mode == WEFT_MODE_TRAIN && settings->train.activation_checkpointing;
    weft_job *job = weft_alloc(1, sizeof *job);
    int64_t reads = 0; /* of all segments, at least as many as units */
    int32_t *units = NULL;
    job->unit_views = weft_alloc(n_units, sizeof *job->unit_views);
    job->placements = weft_alloc(n_units, sizeof *job->placements);
    job->units = weft_alloc(n_units, sizeof *job->units);
    job->segment_views = weft_alloc(set->n_segments, sizeof *job->segment_views);
    job->segments = weft_alloc(set->n_segments, sizeof *job->segments);
    for (int32_t s = 0, n = 0; s < set->n_segments; s++, reads += n) (void)weft_graph_reads(set->graphs[s], &n);
    units = job->segment_units = weft_alloc(reads, sizeof *job->segment_units);
    fill_units(job, plan);
    for (int32_t s = 0; s < set->n_segments; s++) {
        weft_segment_view *view = &job->segment_views[s];
        fill_segment_sizes(&job->segments[s], set, s);
        view->struct_size = (uint32_t)sizeof *view;
        view->name = plan->declared->segments[s].name;
        view->owner = -1;
        view->backward = job->segments[s].has_backward ? 1 : 0;
        view->carry_bytes = job->segments[s].carry;
        view->tape_bytes = checkpointing ? 0 : job->segments[s].tape;
        units = fill_reads(job, plan, set, s, units);
    }
    job->spec = (weft_job_spec){
        .view = {.struct_size = (uint32_t)sizeof job->spec.view,
                 .mode = set->mode,
                 .world = plan->world,
                 .nodes = nodes,
                 .ranks_per_node = plan->world / (nodes > 0 && plan->world % nodes == 0 ? nodes : 1),
                 .micro_batches = micro_batches,
                 .n_units = n_units,
                 .n_segments = set->n_segments,
                 .units = job->unit_views,
                 .segments = job->segment_views,
                 .placements = job->placements,
                 .unit_stride = (uint32_t)sizeof(weft_unit_view),
                 .segment_stride = (uint32_t)sizeof(weft_segment_view),
                 .placement_stride = (uint32_t)sizeof(weft_placement),
                 .reduce = (int32_t)settings->strategy.reduce,
                 .reduce_dtype = weft_precision_dtype(settings->strategy.reduce_dtype)},
        .segments = job->segments,
        .units = job->units,
        .prefetch = prefetches ? (int32_t)settings->strategy.prefetch : 0,
        .micro_batch_bytes = weft_micro_batch_bytes(set->rows, set->lengths[set->n_lengths - 1]),
        .activation_checkpointing = checkpointing,
        .in_order = plan->in_order,
        .most_seconds = settings->plugins.compile_seconds,
        .most_instructions = settings->plugins.compile_events,
    };
    return job;
}

/* ---- the placed job ---- */

/* Writes "1, 2, 3, 4, 6 or 12": the divisors of n; of more than SHOWN the first ones and n. */
static void list_divisors(char text[160], int32_t n) {
    enum { SHOWN = 12 };
    int32_t shown = 0;
    text[0] = '\0';
    for (int32_t d = 1; d < n && shown < SHOWN; d++)
        if (n % d == 0) weft_words_append(text, 160, "%s%d", shown++ == 0 ? "" : ", ", (int)d);
    weft_words_append(text, 160, "%s%d", shown == 0 ? "" : shown == SHOWN ? " ... or " : " or ", (int)n);
}

/* Sets A, the micro-batches of each of R replicas. */
static weft_status share_micro_batches(const weft_plan *plan, weft_job *job, int32_t micro_batches, weft_error *err) {
    weft_strategy_job *view = &job->spec.view;
    const weft_train_settings *train = &plan->run->settings.train;
    /* the largest micro_batch up to the configured one that divides each replica's share; 0: none */
    int64_t micro = train->global_batch % view->replicas == 0 ? train->micro_batch : 0;
    char fitting[160], smaller[120] = "";
    view->micro_batches = view->mode == WEFT_MODE_TRAIN ? micro_batches / view->replicas : 1;
    if (view->mode != WEFT_MODE_TRAIN || micro_batches % view->replicas == 0) return WEFT_OK;
    while (micro > 0 && train->global_batch / view->replicas % micro != 0) micro--;
    list_divisors(fitting, micro_batches);
    if (micro > 0) (void)snprintf(smaller, sizeof smaller, ", or set micro_batch = %lld", (long long)micro);
    return weft_error_set(
        err, WEFT_E_USER,
        "[train] global_batch = %lld in micro-batches of %lld %s %d %s, which %d replicas cannot share "
        "evenly. Fix: start %s rank%s%s, which keeps the batch; a global_batch that is a multiple of "
        "%lld is another batch and changes the training",
        (long long)train->global_batch, (long long)train->micro_batch, micro_batches == 1 ? "is" : "are",
        (int)micro_batches, micro_batches == 1 ? "micro-batch" : "micro-batches", (int)view->replicas, fitting,
        micro_batches == 1 ? "" : "s", smaller, (long long)train->micro_batch * view->replicas);
}

/* Makes and places the mode's job. In a run that trains, the placement of the training job holds for all modes. */
static weft_status make_job(const weft_plan *plan, weft_mode_plan *mode_plan, int32_t micro_batches, weft_error *err) {
    const weft_run *run = plan->run;
    const weft_part *part = &run->parts[WEFT_PART_STRATEGY];
    const weft_strategy_plugin *strategy = weft_loaded_table(part->loaded, strategy);
    const weft_job *first = mode_plan == &plan->train ? NULL : plan->train.job;
    weft_status status = WEFT_OK;
    weft_job_destroy(mode_plan->job);
    weft_job *job = mode_plan->job = create_job(plan, mode_plan->graphs, micro_batches);
    status = weft_job_replicas(&job->spec, run->host, strategy, part->config, err);
    if (status == WEFT_OK) status = share_micro_batches(plan, job, micro_batches, err);
    if (status == WEFT_OK && first == NULL) status = weft_job_place(&job->spec, run->host, strategy, part->config, err);
    for (int32_t u = 0; first != NULL && u < first->spec.view.n_units; u++) job->placements[u] = first->placements[u];
    for (int32_t s = 0; first != NULL && s < first->spec.view.n_segments; s++)
        job->segment_views[s].owner = first->segment_views[s].owner;
    if (status == WEFT_OK && first != NULL) status = weft_job_spec_check_placement(&job->spec, err);
    return weft_run_located(run, WEFT_PART_STRATEGY, status, err);
}

/* Makes and places the mode's job. A unit that segments of several ranks read is split, and the job is made again. The
 * first job also determines the state of this rank. micro_batches: of a step, over all replicas. */
static weft_status settle_job(weft_plan *plan, weft_mode_plan *mode_plan, int32_t micro_batches, weft_error *err) {
    const int32_t n_segments = plan->declared->n_segments;
    bool split = false;
    int32_t *owners = weft_alloc(n_segments, sizeof *owners);
    weft_status status = make_job(plan, mode_plan, micro_batches, err);
    for (int32_t s = 0; s < n_segments; s++) owners[s] = mode_plan->job->segment_views[s].owner;
    if (status == WEFT_OK) status = split_units(&split, plan, mode_plan, err);
    if (status == WEFT_OK && split) status = make_job(plan, mode_plan, micro_batches, err);
    for (int32_t s = 0; s < n_segments && status == WEFT_OK && split; s++) {
        const weft_segment_view *view = &mode_plan->job->segment_views[s];
        if (view->owner != owners[s])
            status =
                weft_error_set(err, WEFT_E_PLUGIN,
                               "the strategy plugin assigned segment %s to rank %d, and to rank %d after units were "
                               "split for that: the owners of segments must not depend on units",
                               view->name, (int)owners[s], (int)view->owner);
    }
    free(owners);
    if (status != WEFT_OK) return status;
    weft_sums_size_units(plan, mode_plan->job);
    status = weft_job_spec_check(&mode_plan->job->spec, err);
    if (status == WEFT_OK) weft_sums_hold(plan, &mode_plan->job->spec);
    return status;
}

/* ---- the programs ---- */

struct weft_plan_printing weft_plan_printing = {-1, NULL};

/* Compiles and checks the programs of all ranks. Keeps this rank's program. */
static weft_status compile_programs(weft_plan *plan, weft_mode_plan *mode_plan, weft_error *err) {
    const weft_part *part = &plan->run->parts[WEFT_PART_STRATEGY];
    const weft_job_spec *spec = &mode_plan->job->spec;
    weft_coverage *coverage = &mode_plan->coverage;
    weft_program **all = weft_alloc(plan->world, sizeof *all);
    const weft_program *const *programs = (const weft_program *const *)all;
    weft_status status = WEFT_OK;
    for (int32_t rank = 0; rank < plan->world && status == WEFT_OK; rank++) {
        status = weft_program_compile(&all[rank], plan->run->host, weft_loaded_table(part->loaded, strategy),
                                      part->config, spec, rank, err);
        *coverage = (weft_coverage){.refused_rank = rank, .refused_instruction = -1};
    }
    if (status == WEFT_OK) status = weft_programs_check(coverage, programs, spec, err);
    if (status != WEFT_OK && coverage->refused_rank >= 0 && weft_plan_printing.rejected != NULL)
        weft_plan_printing.rejected(all[coverage->refused_rank], spec, coverage->refused_instruction);
    mode_plan->program = all[plan->rank];
    if (status == WEFT_OK) {
        mode_plan->identity = weft_programs_identity(programs, spec);
        if (spec->view.mode == WEFT_MODE_TRAIN) weft_sums_plan(plan, mode_plan, programs);
        weft_sums_losses(mode_plan, programs, plan->world);
        mode_plan->slices = weft_slices_create(programs, plan->world, plan->rank, mode_plan->graphs->n_lengths > 1);
    }
    for (int32_t rank = 0; rank < plan->world; rank++)
        if (all[rank] != mode_plan->program) weft_program_destroy(all[rank]);
    free(all);
    return status;
}

weft_status weft_mode_plan_make(weft_plan *plan, weft_mode_plan *mode_plan, const weft_graph_spec *graphs,
                                const int32_t *lengths, int32_t n_lengths, int32_t micro_batches, weft_error *err) {
    const weft_strategy_plugin *strategy = weft_run_table(plan->run, WEFT_PART_STRATEGY, strategy);
    const char *before = atomic_exchange(&weft_crash_where.mode, weft_mode_name(graphs->mode));
    weft_status status = weft_graph_set_create(&mode_plan->graphs, plan->declared, graphs, lengths, n_lengths, err);
    if (status != WEFT_OK) status = weft_plugin_blame(plan->declared->plugin, status, err);
    else {
        status = settle_job(plan, mode_plan, micro_batches, err);
        if (graphs->mode == WEFT_MODE_TRAIN)
            mode_plan->job->spec.step_work = weft_norm_work(plan, graphs->kernels, graphs->device);
        if (status == WEFT_OK) status = compile_programs(plan, mode_plan, err);
        if (status == WEFT_OK) status = weft_program_place(mode_plan->program, &mode_plan->job->spec, err);
        status = weft_plugin_blame(strategy, status, err);
    }
    atomic_store(&weft_crash_where.mode, before);
    return status;
}
