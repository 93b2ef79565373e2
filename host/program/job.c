/* host/program/job.c: see job.h. */
#include "program/job.h"

#include "base/alloc.h"
#include "base/units.h"
#include "base/text.h"

#include <stdlib.h>

int64_t weft_states_block(weft_states key) {
    return key == WEFT_STATES_8BIT ? weft_dtype_block(WEFT_DYN8X256) : 1;
}

static int32_t chosen_type(const weft_state_slot *slot, weft_states key) {
    if ((slot->flags & WEFT_STATE_AS_DECLARED) != 0) return slot->dtype;
    switch (key) {
    case WEFT_STATES_FP32: return WEFT_F32;
    case WEFT_STATES_BF16: return WEFT_BF16;
    case WEFT_STATES_8BIT: return (slot->flags & WEFT_STATE_NOT_NEGATIVE) != 0 ? WEFT_UDYN8X256 : WEFT_DYN8X256;
    default: return slot->dtype;
    }
}

void weft_states_choose(weft_state_slot *slots, int64_t n, weft_states key) {
    for (int64_t i = 0; i < n; i++) {
        slots[i].dtype = chosen_type(&slots[i], key);
        slots[i].block = (int32_t)weft_dtype_block(slots[i].dtype);
        slots[i].block_bytes = weft_dtype_bytes(slots[i].dtype);
    }
}

int64_t weft_states_bytes(const weft_state_slot *slots, int64_t n, int64_t elements) {
    int64_t bytes = 0;
    for (int64_t i = 0; i < n; i++) bytes += weft_dtype_span(slots[i].dtype, elements);
    return bytes;
}

/* ---- names ---- */

static const char *const kinds[] = {
    [WEFT_INSTRUCTION_COUNT] = "COUNT",         [WEFT_INSTRUCTION_GATHER] = "GATHER",
    [WEFT_INSTRUCTION_RELEASE] = "RELEASE",     [WEFT_INSTRUCTION_FORWARD] = "FORWARD",
    [WEFT_INSTRUCTION_RECOMPUTE] = "RECOMPUTE", [WEFT_INSTRUCTION_BACKWARD] = "BACKWARD",
    [WEFT_INSTRUCTION_REDUCE] = "REDUCE",       [WEFT_INSTRUCTION_SEND] = "SEND",
    [WEFT_INSTRUCTION_RECV] = "RECV",           [WEFT_INSTRUCTION_WAIT] = "WAIT",
    [WEFT_INSTRUCTION_NORM] = "NORM",           [WEFT_INSTRUCTION_STEP] = "STEP",
    [WEFT_INSTRUCTION_REFRESH] = "REFRESH",
};

const char *weft_instruction_kind_name(int32_t kind) {
    if (kind < WEFT_INSTRUCTION_COUNT || kind > WEFT_INSTRUCTION_REFRESH) return "?";
    return kinds[kind];
}

const char *weft_mode_name(int32_t mode) {
    static const char *const modes[] = {"training", "evaluation", "generation"};
    return mode >= WEFT_MODE_TRAIN && mode <= WEFT_MODE_GENERATE ? modes[mode] : "?";
}

const char *weft_memory_category_name(int32_t category) {
    static const char *const names[WEFT_N_MEMORY_CATEGORIES] = {"parameters",  "gradients", "optimizer",
                                                                "activations", "workspace", "data"};
    return category >= 0 && category < WEFT_N_MEMORY_CATEGORIES ? names[category] : "?";
}

static const char *const whats[] = {"?", "parameters", "sum", "carry", "carry gradient", "micro-batch gradient"};
static const char *const scopes[] = {"?", "rank", "all", "node", "across"};

const char *weft_what_name(int32_t what) {
    return what >= WEFT_PAYLOAD_PARAMETERS && what <= WEFT_PAYLOAD_MICRO_BATCH_GRADIENT ? whats[what] : whats[0];
}

const char *weft_scope_name(int32_t scope) {
    return scope >= WEFT_SCOPE_RANK && scope <= WEFT_SCOPE_ACROSS ? scopes[scope] : scopes[0];
}

/* Plugins emit instructions: an index may have any value. */
void weft_instruction_describe(char *text, size_t size, const weft_instruction *instruction, const weft_job_spec *job) {
    if (size == 0) return;
    text[0] = '\0';
    if (instruction->kind < WEFT_INSTRUCTION_COUNT || instruction->kind > WEFT_INSTRUCTION_REFRESH)
        weft_words_append(text, size, "instruction of unknown kind %d", (int)instruction->kind);
    else weft_words_append(text, size, "%s", kinds[instruction->kind]);
    if (job != NULL && instruction->segment >= 0 && instruction->segment < job->view.n_segments)
        weft_words_append(text, size, " %s", job->view.segments[instruction->segment].name);
    else if (instruction->segment != -1) weft_words_append(text, size, " segment %d", (int)instruction->segment);
    if (job != NULL && instruction->unit >= 0 && instruction->unit < job->view.n_units)
        weft_words_append(text, size, " %s", job->view.units[instruction->unit].name);
    else if (instruction->unit != -1) weft_words_append(text, size, " unit %d", (int)instruction->unit);
    if (instruction->what != -1) weft_words_append(text, size, " %s", weft_what_name(instruction->what));
    if (instruction->scope != -1) weft_words_append(text, size, " %s", weft_scope_name(instruction->scope));
    if (instruction->micro_batch != -1) weft_words_append(text, size, " micro-batch %d", (int)instruction->micro_batch);
    if (instruction->peer != -1) weft_words_append(text, size, " peer %d", (int)instruction->peer);
    if (instruction->waits != -1) weft_words_append(text, size, " for instruction %d", (int)instruction->waits);
}

bool weft_job_spec_reads(const weft_job_spec *job, int32_t segment, int32_t unit) {
    const weft_segment_view *view = &job->view.segments[segment];
    for (int32_t i = 0; i < view->n_units; i++)
        if (view->units[i] == unit) return true;
    return false;
}

static weft_status check_unit(const weft_job_spec *job, int32_t u, weft_error *err) {
    if (!weft_job_spec_trains(job, u)) return WEFT_OK;
    for (int32_t s = 0; s < job->view.n_segments; s++)
        if (job->segments[s].has_backward && weft_job_spec_reads(job, s, u)) return WEFT_OK;
    return weft_error_set(
        err, WEFT_E_USER,
        "unit %s has trainable parameters, but no segment of the model computes with them: freeze them",
        job->view.units[u].name);
}

weft_status weft_job_spec_check(const weft_job_spec *job, weft_error *err) {
    const weft_strategy_job *view = &job->view;
    const int64_t micro_batches = (int64_t)view->micro_batches * view->replicas;
    weft_status status = WEFT_OK;
    if (micro_batches > INT32_MAX / 8 / (view->n_units + view->n_segments))
        return weft_error_set(err, WEFT_E_USER,
                              "%lld micro-batches of %d segments are more than one step program can hold: use a larger "
                              "micro_batch or a smaller global_batch",
                              (long long)micro_batches, (int)view->n_segments);
    for (int32_t u = 0; u < view->n_units && status == WEFT_OK; u++) status = check_unit(job, u, err);
    if (status == WEFT_OK && job->view.mode == WEFT_MODE_TRAIN && !job->segments[job->view.n_segments - 1].has_backward)
        status = weft_error_set(err, WEFT_E_USER,
                                "nothing is trained: no segment has a BACKWARD; name trainable parameters");
    return status;
}

int32_t weft_job_spec_borrower(const weft_job_spec *job, int32_t unit) {
    const int32_t owner = job->view.placements[unit].owner;
    for (int32_t s = 0; s < job->view.n_segments && weft_job_spec_owned(job); s++)
        if (weft_job_spec_reads(job, s, unit) && job->view.segments[s].owner != owner)
            return job->view.segments[s].owner;
    return -1;
}

/* ---- process groups ---- */

static weft_members ranks_alone(int32_t rank) {
    return (weft_members){rank, 1, 1};
}

static weft_members ranks_none(void) {
    return (weft_members){0, 1, 0};
}

static weft_members ranks_all(const weft_job_spec *job) {
    return (weft_members){0, 1, job->view.world};
}

/* The ranks that hold the shards of one copy. */
static weft_members ranks_node(const weft_placement *placement, int32_t rank) {
    return (weft_members){rank / placement->group * placement->group, 1, placement->group};
}

static weft_members ranks_across(const weft_job_spec *job, const weft_placement *placement, int32_t rank) {
    const int32_t groups = job->view.world / placement->group;
    return groups == 1 ? ranks_alone(rank) : (weft_members){rank % placement->group, placement->group, groups};
}

static bool is_sharded(const weft_placement *placement) {
    return placement->parameters == WEFT_SHARDED || placement->gradients == WEFT_SHARDED ||
           placement->optimizer == WEFT_SHARDED;
}

/* All replicas: every rank is one, or there is only one. */
static weft_members ranks_replicas(const weft_job_spec *job, int32_t rank) {
    return job->view.replicas == 1 ? ranks_alone(rank) : ranks_all(job);
}

static weft_members ranks_of_sum(const weft_job_spec *job, const weft_placement *placement, int32_t rank) {
    if (placement->gradients == WEFT_REPLICATED) return ranks_replicas(job, rank);
    if (placement->gradients == WEFT_SHARDED) return ranks_across(job, placement, rank);
    return ranks_none();
}

static weft_members ranks_of_scope(const weft_job_spec *job, const weft_placement *placement, int32_t scope,
                                   int32_t rank) {
    if (scope == WEFT_SCOPE_RANK) return ranks_alone(rank);
    if (scope == WEFT_SCOPE_ALL) return ranks_replicas(job, rank);
    if (!is_sharded(placement)) return ranks_none();
    if (scope == WEFT_SCOPE_NODE) return ranks_node(placement, rank);
    return scope == WEFT_SCOPE_ACROSS ? ranks_across(job, placement, rank) : ranks_none();
}

/* After STEP a copy is stale if a rank has more parameters than it updates. */
static weft_members ranks_of_refresh(const weft_job_spec *job, int32_t unit, int32_t rank) {
    const weft_placement *placement = &job->view.placements[unit];
    int32_t other = -1;
    if (!weft_job_spec_trains(job, unit)) return ranks_none();
    if (placement->parameters == WEFT_REPLICATED && placement->optimizer == WEFT_SHARDED)
        return ranks_node(placement, rank);
    if (placement->parameters != WEFT_OWNED) return ranks_none();
    other = weft_job_spec_borrower(job, unit);
    if (other >= 0 && (rank == other || rank == placement->owner)) {
        const int32_t low = other < placement->owner ? other : placement->owner;
        return (weft_members){low, other + placement->owner - 2 * low, 2};
    }
    return ranks_none();
}

weft_members weft_job_spec_ranks(const weft_job_spec *job, const weft_instruction *instruction, int32_t rank) {
    const weft_placement *placement = instruction->unit >= 0 ? &job->view.placements[instruction->unit] : NULL;
    switch (instruction->kind) {
    case WEFT_INSTRUCTION_NORM: return ranks_all(job);
    case WEFT_INSTRUCTION_GATHER:
        if (instruction->what == WEFT_PAYLOAD_SUM) return ranks_of_sum(job, placement, rank);
        return placement->parameters == WEFT_SHARDED ? ranks_node(placement, rank) : ranks_none();
    case WEFT_INSTRUCTION_REDUCE: return ranks_of_scope(job, placement, instruction->scope, rank);
    case WEFT_INSTRUCTION_REFRESH: return ranks_of_refresh(job, instruction->unit, rank);
    default: return ranks_none();
    }
}

/* ---- validation of the placement ---- */

static weft_status check_replicas(const weft_strategy_job *view, weft_error *err) {
    const bool owned = view->segments[0].owner >= 0;
    for (int32_t s = 0; s < view->n_segments; s++)
        if (view->segments[s].owner < -1 || view->segments[s].owner >= view->world ||
            (view->segments[s].owner >= 0) != owned)
            return weft_error_set(err, WEFT_E_PLUGIN,
                                  "the strategy plugin gives segment %s to rank %d: either each segment has an owner "
                                  "from 0 to %d, or none has",
                                  view->segments[s].name, (int)view->segments[s].owner, (int)view->world - 1);
    if (owned && view->replicas != 1)
        return weft_error_set(
            err, WEFT_E_PLUGIN,
            "the strategy plugin gives segments to owners and wants %d replicas: segments with owners "
            "make up one replica",
            (int)view->replicas);
    if (!owned && view->replicas != view->world)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "the strategy plugin wants %d replicas of %d ranks and gives no segment an owner: then "
                              "each rank is a replica",
                              (int)view->replicas, (int)view->world);
    return WEFT_OK;
}

/* True if a rank with this holding has all elements that it updates. */
static bool holding_covers(int32_t holding, int32_t optimizer) {
    return holding == WEFT_REPLICATED || holding == optimizer;
}

static weft_status check_placement(const weft_strategy_job *view, int32_t u, weft_error *err) {
    const weft_placement *placement = &view->placements[u];
    const int32_t parts[3] = {placement->parameters, placement->gradients, placement->optimizer};
    const bool owned = placement->optimizer == WEFT_OWNED, owners = view->segments[0].owner >= 0;
    for (int i = 0; i < 3; i++) {
        if (parts[i] != WEFT_REPLICATED && parts[i] != WEFT_SHARDED && parts[i] != WEFT_OWNED)
            return weft_error_set(err, WEFT_E_PLUGIN,
                                  "the strategy plugin places unit %s with holding %d. Allowed: %d (REPLICATED), %d "
                                  "(SHARDED), %d (OWNED)",
                                  view->units[u].name, (int)parts[i], WEFT_REPLICATED, WEFT_SHARDED, WEFT_OWNED);
        if ((parts[i] == WEFT_OWNED) != owned || (owners && !owned) || (owned && !owners && view->world > 1))
            return weft_error_set(err, WEFT_E_PLUGIN,
                                  "the strategy plugin places unit %s otherwise than the segments: if segments have "
                                  "owners, parameters, gradients and optimizer state of a unit are OWNED; otherwise "
                                  "none of them is, or all three in a world of one rank",
                                  view->units[u].name);
    }
    if (owned && (placement->owner < 0 || placement->owner >= view->world))
        return weft_error_set(err, WEFT_E_PLUGIN, "the strategy plugin gives unit %s to rank %d: ranks are 0 to %d",
                              view->units[u].name, (int)placement->owner, (int)view->world - 1);
    if (placement->tier != WEFT_TIER_DEVICE)
        return weft_error_set(err, WEFT_E_UNSUPPORTED,
                              "the strategy plugin places unit %s in tier %d: this host keeps all units in the "
                              "device's memory, which is tier %d",
                              view->units[u].name, (int)placement->tier, WEFT_TIER_DEVICE);
    if (is_sharded(placement) &&
        (placement->group < 1 || placement->group > view->world || view->world % placement->group != 0))
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "the strategy plugin shards unit %s over groups of %d ranks: the group must divide the "
                              "world of %d",
                              view->units[u].name, (int)placement->group, (int)view->world);
    if (!holding_covers(placement->parameters, placement->optimizer) ||
        !holding_covers(placement->gradients, placement->optimizer))
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "the strategy plugin cuts parameters or gradients of unit %s and not its optimizer "
                              "state: a rank has no use for the state of what it does not hold",
                              view->units[u].name);
    return WEFT_OK;
}

/* The owner runs a segment that reads the unit, and at most one other rank does. */
static weft_status check_owner(const weft_job_spec *job, int32_t u, weft_error *err) {
    const weft_unit_view *unit = &job->view.units[u];
    const int32_t owner = job->view.placements[u].owner, other = weft_job_spec_borrower(job, u);
    bool read = false, reads = false;
    for (int32_t s = 0; s < job->view.n_segments && weft_job_spec_trains(job, u); s++) {
        const int32_t rank = job->view.segments[s].owner;
        if (!weft_job_spec_reads(job, s, u)) continue;
        read = true;
        reads = reads || rank == owner;
        if (rank != owner && rank != other)
            return weft_error_set(err, WEFT_E_PLUGIN,
                                  "the strategy plugin has unit %s, which is trained, read on ranks %d, %d and %d: its "
                                  "owner and one other rank may; let two of these segments have one owner",
                                  unit->name, (int)owner, (int)other, (int)rank);
    }
    if (read && !reads)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "the strategy plugin gives unit %s to rank %d, which runs no segment that reads it",
                              unit->name, (int)owner);
    return WEFT_OK;
}

weft_status weft_job_spec_check_placement(const weft_job_spec *job, weft_error *err) {
    weft_status status = check_replicas(&job->view, err);
    for (int32_t u = 0; u < job->view.n_units && status == WEFT_OK; u++) status = check_placement(&job->view, u, err);
    return status;
}

weft_status weft_job_spec_check_owners(const weft_job_spec *job, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t u = 0; u < job->view.n_units && status == WEFT_OK && weft_job_spec_owned(job); u++)
        status = check_owner(job, u, err);
    return status;
}

/* Lists the units that a segment reads, ascending, and returns their number. */
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

/* Computes the maximum over all micro-batch lengths. */
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

static void fill_units(weft_job *job, const weft_layout *layout, const weft_state_slot *states, int64_t n_states) {
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
            view->state_bytes += weft_states_bytes(states, n_states, group->numel);
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

/* Computes the bytes of a segment's own parameters, on the layout's grid; parameters that an earlier segment reads
 * count as tied. */
static void fill_storage(weft_job *job, const weft_graph_set *set, const weft_declared *declared,
                         const weft_layout *layout, int32_t s, const weft_state_slot *states, int64_t n_states) {
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
        view->state_bytes += weft_states_bytes(states, n_states, numel);
    }
}

static void fill_segments(weft_job *job, const weft_graph_set *set, const weft_declared *declared,
                          const weft_layout *layout) {
    bool below = false; /* an earlier segment has trained parameters */
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

weft_job *weft_job_create(const weft_graph_set *set, const weft_declared *declared, const weft_layout *layout,
                          int32_t micro_batches, const weft_state_slot *states, int64_t n_states,
                          bool activation_checkpointing) {
    weft_job *job = weft_alloc(1, sizeof *job);
    weft_strategy_job *view = &job->spec.view;
    job->unit_views = weft_alloc(layout->n_units, sizeof *job->unit_views);
    job->placements = weft_alloc(layout->n_units, sizeof *job->placements);
    job->units = weft_alloc(layout->n_units, sizeof *job->units);
    job->segment_views = weft_alloc(set->n_segments, sizeof *job->segment_views);
    job->segments = weft_alloc(set->n_segments, sizeof *job->segments);
    job->segment_units = weft_alloc((int64_t)layout->n_units * set->n_segments, sizeof *job->segment_units);
    job->spec.activation_checkpointing = activation_checkpointing;
    fill_units(job, layout, states, n_states);
    fill_segments(job, set, declared, layout);
    for (int32_t s = 0; s < set->n_segments; s++) fill_storage(job, set, declared, layout, s, states, n_states);
    view->struct_size = (uint32_t)sizeof *view;
    view->mode = set->mode;
    view->world = view->nodes = view->ranks_per_node = 1; /* the plan overwrites them */
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
    return job;
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
