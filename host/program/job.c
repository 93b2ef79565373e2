/* host/program/job.c: see job.h. */
#include "program/job.h"

#include "base/alloc.h"
#include "base/units.h"
#include "base/text.h"

#include <stdlib.h>

/* ---- graphs ---- */

static weft_graph **graph_slot(const weft_graph_set *set, int32_t length_index, int32_t segment) {
    return &set->graphs[(int64_t)length_index * set->n_segments + segment];
}

bool weft_graph_set_reads_parameter(const weft_graph_set *set, int32_t segment, int32_t parameter) {
    int32_t n = 0;
    const weft_graph_read *reads = weft_graph_reads(set->graphs[segment], &n);
    for (int32_t i = 0; i < n; i++)
        if (reads[i].parameter == parameter) return true;
    return false;
}

static bool reads_trained(weft_graph *graph, const weft_declared *declared) {
    int32_t n = 0;
    const weft_graph_read *reads = weft_graph_reads(graph, &n);
    for (int32_t i = 0; i < n; i++)
        if (declared->parameters[reads[i].parameter].trainable) return true;
    return false;
}

/* The reads of a segment determine placement and communication of the complete run, so they must not depend on
 * lengths. */
static weft_status check_same_reads(const weft_graph_set *set, int32_t length_index, const weft_declared *declared,
                                    int32_t segment, weft_error *err) {
    int32_t n = 0, n_first = 0;
    const weft_graph_read *reads = weft_graph_reads(*graph_slot(set, length_index, segment), &n);
    const weft_graph_read *first = weft_graph_reads(set->graphs[segment], &n_first);
    bool same = n == n_first;
    for (int32_t i = 0; i < n && same; i++) same = reads[i].parameter == first[i].parameter;
    if (same) return WEFT_OK;
    return weft_error_set(
        err, WEFT_E_PLUGIN,
        "the model reads other parameters in segment %s for micro-batches of length %d than of length %d: the "
        "parameters that a segment reads, and their order, must not depend on the length",
        declared->segments[segment].name, (int)set->lengths[length_index], (int)set->lengths[0]);
}

/* BACKWARD runs from the last segment down: the first one overwrites a parameter's gradient, later ones accumulate. */
static void mark_reads_that_add(weft_graph_set *set, int32_t length_index, int32_t n_parameters) {
    bool *written = weft_alloc(n_parameters, sizeof *written);
    for (int32_t s = set->n_segments - 1; s >= 0; s--) {
        int32_t n = 0;
        weft_graph_read *reads = weft_graph_reads(*graph_slot(set, length_index, s), &n);
        for (int32_t i = 0; i < n; i++) {
            reads[i].adds = written[reads[i].parameter];
            written[reads[i].parameter] = true;
        }
    }
    free(written);
}

static weft_status record_graphs_of_length(weft_graph_set *set, int32_t length_index, const weft_declared *declared,
                                           weft_graph_spec *spec, weft_error *err) {
    weft_status status = WEFT_OK;
    spec->length = set->lengths[length_index];
    spec->carry_gradient = false;
    for (int32_t s = 0; s < set->n_segments && status == WEFT_OK; s++) {
        weft_graph **graph = graph_slot(set, length_index, s);
        status = weft_graph_record(graph, declared, s, spec, err);
        if (status == WEFT_OK) status = check_same_reads(set, length_index, declared, s, err);
        if (status == WEFT_OK && spec->mode == WEFT_MODE_TRAIN && reads_trained(*graph, declared))
            spec->carry_gradient = true; /* for the segments above this one */
    }
    if (status == WEFT_OK) mark_reads_that_add(set, length_index, declared->n_parameters);
    for (int32_t s = 0; s < set->n_segments && status == WEFT_OK; s++)
        weft_graph_plan(*graph_slot(set, length_index, s));
    return status;
}

weft_status weft_graph_set_create(weft_graph_set **out, const weft_declared *declared, const weft_graph_spec *spec,
                                  const int32_t *lengths, int32_t n_lengths, weft_error *err) {
    weft_status status = WEFT_OK;
    weft_graph_spec graph_spec = *spec;
    weft_graph_set *set = weft_alloc(1, sizeof *set);
    set->mode = spec->mode;
    set->rows = spec->rows;
    set->n_segments = declared->n_segments;
    set->n_lengths = n_lengths;
    memcpy(set->lengths, lengths, (size_t)n_lengths * sizeof *lengths);
    set->graphs = weft_alloc((int64_t)n_lengths * declared->n_segments, sizeof *set->graphs);
    for (int32_t i = 0; i < set->n_lengths && status == WEFT_OK; i++)
        status = record_graphs_of_length(set, i, declared, &graph_spec, err);
    if (status == WEFT_OK) *out = set;
    else weft_graph_set_destroy(set);
    return status;
}

void weft_graph_set_destroy(weft_graph_set *set) {
    if (set == NULL) return;
    for (int32_t i = 0; i < set->n_lengths * set->n_segments; i++) weft_graph_destroy(set->graphs[i]);
    free(set->graphs);
    free(set);
}

const weft_graph *weft_graph_set_at(const weft_graph_set *set, int32_t length, int32_t segment) {
    for (int32_t i = 0; i < set->n_lengths; i++)
        if (set->lengths[i] == length) return *graph_slot(set, i, segment);
    return NULL;
}

int64_t weft_micro_batch_part_bytes(int32_t rows, int32_t length) {
    return (int64_t)rows * length * WEFT_PLACE_BYTES;
}

int64_t weft_micro_batch_part_offset(int32_t rows, int32_t length, int part) {
    return weft_cache_lines(weft_micro_batch_part_bytes(rows, length)) * part;
}

int64_t weft_micro_batch_bytes(int32_t rows, int32_t length) {
    return weft_micro_batch_part_offset(rows, length, WEFT_MICRO_BATCH_PARTS);
}

void weft_micro_batch_bind(weft_graph_binding *out, weft_slot_ref micro_batch, int32_t rows, int32_t length) {
    weft_slot_ref *const parts[WEFT_MICRO_BATCH_PARTS] = {&out->ids, &out->targets, &out->weights, &out->starts,
                                                          &out->positions};
    for (int part = 0; part < WEFT_MICRO_BATCH_PARTS; part++) {
        *parts[part] = micro_batch;
        parts[part]->start = weft_micro_batch_part_offset(rows, length, part);
        parts[part]->ref = weft_ref_at(micro_batch.ref, parts[part]->start);
        parts[part]->bytes = weft_micro_batch_part_bytes(rows, length);
        if (parts[part]->start + parts[part]->bytes > micro_batch.bytes)
            parts[part]->bytes = micro_batch.bytes - parts[part]->start;
    }
}

/* ---- types of optimizer states ---- */

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

/* Returns names[i], or "?" for an index outside [first, n). */
static const char *name_of(const char *const *names, int32_t first, int32_t n, int32_t i) {
    return i >= first && i < n ? names[i] : "?";
}

#define NAME(names, first, i) name_of(names, first, (int32_t)(sizeof(names) / sizeof *(names)), i)

const char *weft_instruction_kind_name(int32_t kind) {
    static const char *const names[] = {
        [WEFT_INSTRUCTION_COUNT] = "COUNT",         [WEFT_INSTRUCTION_GATHER] = "GATHER",
        [WEFT_INSTRUCTION_RELEASE] = "RELEASE",     [WEFT_INSTRUCTION_FORWARD] = "FORWARD",
        [WEFT_INSTRUCTION_RECOMPUTE] = "RECOMPUTE", [WEFT_INSTRUCTION_BACKWARD] = "BACKWARD",
        [WEFT_INSTRUCTION_REDUCE] = "REDUCE",       [WEFT_INSTRUCTION_SEND] = "SEND",
        [WEFT_INSTRUCTION_RECV] = "RECV",           [WEFT_INSTRUCTION_WAIT] = "WAIT",
        [WEFT_INSTRUCTION_NORM] = "NORM",           [WEFT_INSTRUCTION_STEP] = "STEP",
        [WEFT_INSTRUCTION_REFRESH] = "REFRESH",
    };
    return NAME(names, WEFT_INSTRUCTION_COUNT, kind);
}

const char *weft_mode_name(int32_t mode) {
    static const char *const names[] = {"training", "evaluation", "generation"};
    return NAME(names, WEFT_MODE_TRAIN, mode);
}

const char *weft_memory_category_name(int32_t category) {
    static const char *const names[] = {"parameters", "gradients", "optimizer", "activations", "workspace", "data"};
    return NAME(names, 0, category);
}

const char *weft_what_name(int32_t what) {
    static const char *const names[] = {"?", "parameters", "sum", "carry", "carry gradient", "micro-batch gradient"};
    return NAME(names, WEFT_PAYLOAD_PARAMETERS, what);
}

const char *weft_scope_name(int32_t scope) {
    static const char *const names[] = {"?", "rank", "all", "node", "across"};
    return NAME(names, WEFT_SCOPE_RANK, scope);
}

/* Plugins emit instructions: an index may have any value. */
void weft_instruction_describe(char *text, size_t size, const weft_instruction *i, const weft_job_spec *job) {
    if (size == 0) return;
    text[0] = '\0';
    if (i->kind < WEFT_INSTRUCTION_COUNT || i->kind > WEFT_INSTRUCTION_REFRESH)
        weft_words_append(text, size, "instruction of unknown kind %d", (int)i->kind);
    else weft_words_append(text, size, "%s", weft_instruction_kind_name(i->kind));
    if (job != NULL && i->segment >= 0 && i->segment < job->view.n_segments)
        weft_words_append(text, size, " %s", job->view.segments[i->segment].name);
    else if (i->segment != -1) weft_words_append(text, size, " segment %d", (int)i->segment);
    if (job != NULL && i->unit >= 0 && i->unit < job->view.n_units)
        weft_words_append(text, size, " %s", job->view.units[i->unit].name);
    else if (i->unit != -1) weft_words_append(text, size, " unit %d", (int)i->unit);
    if (i->what != -1) weft_words_append(text, size, " %s", weft_what_name(i->what));
    if (i->scope != -1) weft_words_append(text, size, " %s", weft_scope_name(i->scope));
    if (i->micro_batch != -1) weft_words_append(text, size, " micro-batch %d", (int)i->micro_batch);
    if (i->peer != -1) weft_words_append(text, size, " peer %d", (int)i->peer);
    if (i->waits != -1) weft_words_append(text, size, " for instruction %d", (int)i->waits);
}

bool weft_job_spec_reads(const weft_job_spec *job, int32_t segment, int32_t unit) {
    const weft_segment_view *view = &job->view.segments[segment];
    for (int32_t i = 0; i < view->n_units; i++)
        if (view->units[i] == unit) return true;
    return false;
}

weft_status weft_job_spec_check(const weft_job_spec *job, weft_error *err) {
    const weft_strategy_job *view = &job->view;
    const int64_t micro_batches = (int64_t)view->micro_batches * view->replicas;
    if (micro_batches > INT32_MAX / 8 / (view->n_units + view->n_segments))
        return weft_error_set(err, WEFT_E_USER,
                              "%lld micro-batches of %d segments exceed the size of a step program. Fix: a larger "
                              "micro_batch or a smaller global_batch",
                              (long long)micro_batches, (int)view->n_segments);
    for (int32_t u = 0; u < view->n_units; u++) {
        int32_t s = 0;
        while (s < view->n_segments && !(job->segments[s].has_backward && weft_job_spec_reads(job, s, u))) s++;
        if (s == view->n_segments && weft_job_spec_trains(job, u))
            return weft_error_set(
                err, WEFT_E_USER,
                "unit %s has trainable parameters, but no segment of the model reads them. Fix: freeze them",
                view->units[u].name);
    }
    if (view->mode != WEFT_MODE_TRAIN || job->segments[view->n_segments - 1].has_backward) return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER, "no parameter is trained. Fix: name trainable parameters");
}

int32_t weft_job_spec_borrower(const weft_job_spec *job, int32_t unit) {
    const int32_t owner = job->view.placements[unit].owner;
    for (int32_t s = 0; s < job->view.n_segments && weft_job_spec_owned(job); s++)
        if (weft_job_spec_reads(job, s, unit) && job->view.segments[s].owner != owner)
            return job->view.segments[s].owner;
    return -1;
}

/* ---- process groups ---- */

static bool is_sharded(const weft_placement *placement) {
    return placement->parameters == WEFT_SHARDED || placement->gradients == WEFT_SHARDED ||
           placement->optimizer == WEFT_SHARDED;
}

weft_cut weft_cut_of(const weft_job_spec *job, int32_t unit) {
    const weft_placement *p = &job->view.placements[unit];
    const int32_t replicas = job->view.replicas;
    const int32_t group = is_sharded(p) && p->group >= 1 && replicas % p->group == 0 ? p->group : replicas;
    return (weft_cut){replicas, group, replicas / group};
}

int32_t weft_cut_rank(const weft_cut *cut, int32_t place) {
    return place % cut->groups * cut->group + place / cut->groups;
}

int32_t weft_scope_size(const weft_cut *cut, int32_t scope) {
    switch (scope) {
    case WEFT_SCOPE_ALL: return cut->replicas;
    case WEFT_SCOPE_NODE: return cut->group;
    case WEFT_SCOPE_ACROSS: return cut->groups;
    default: return 1;
    }
}

int32_t weft_scope_place(const weft_cut *cut, int32_t scope, int32_t rank) {
    switch (scope) {
    case WEFT_SCOPE_ALL: return cut->replicas > 1 ? rank % cut->group * cut->groups + rank / cut->group : 0;
    case WEFT_SCOPE_NODE: return rank % cut->group;
    case WEFT_SCOPE_ACROSS: return rank / cut->group;
    default: return 0;
    }
}

bool weft_scope_together(const weft_cut *cut, int32_t scope, int32_t a, int32_t b) {
    switch (scope) {
    case WEFT_SCOPE_ALL: return cut->replicas > 1 || a == b;
    case WEFT_SCOPE_NODE: return a / cut->group == b / cut->group;
    case WEFT_SCOPE_ACROSS: return a % cut->group == b % cut->group;
    default: return a == b;
    }
}

/* The owner and the rank with a copy exchange the owner's update. */
static weft_members ranks_of_copy(const weft_job_spec *job, int32_t unit, int32_t rank) {
    const int32_t owner = job->view.placements[unit].owner, other = weft_job_spec_borrower(job, unit);
    const int32_t low = other < owner ? other : owner;
    if (other < 0 || (rank != other && rank != owner)) return (weft_members){0, 1, 0};
    return (weft_members){low, other + owner - 2 * low, 2};
}

/* After STEP a copy is stale if a rank has more parameters than it updates. */
weft_members weft_job_spec_ranks(const weft_job_spec *job, const weft_instruction *instruction, int32_t rank) {
    const weft_placement *p = instruction->unit >= 0 ? &job->view.placements[instruction->unit] : NULL;
    const int32_t world = job->view.world, groups = p != NULL && is_sharded(p) ? world / p->group : 1;
    const weft_members none = {0, 1, 0}, self = {rank, 1, 1}, all = {0, 1, world};
    const weft_members replicas = job->view.replicas == 1 ? self : all; /* every rank is one, or there is only one */
    weft_members node = none, across = none;
    if (p != NULL && is_sharded(p)) { /* the ranks that hold the shards of one copy; those with the same shard */
        node = (weft_members){rank / p->group * p->group, 1, p->group};
        across = (weft_members){rank % p->group, p->group, groups};
    }
    switch (instruction->kind) {
    case WEFT_INSTRUCTION_NORM: return all;
    case WEFT_INSTRUCTION_GATHER:
        if (instruction->what != WEFT_PAYLOAD_SUM) return p->parameters == WEFT_SHARDED ? node : none;
        return p->gradients == WEFT_REPLICATED ? replicas : p->gradients == WEFT_SHARDED ? across : none;
    case WEFT_INSTRUCTION_REDUCE:
        switch (instruction->scope) {
        case WEFT_SCOPE_RANK: return self;
        case WEFT_SCOPE_ALL: return replicas;
        case WEFT_SCOPE_NODE: return node;
        case WEFT_SCOPE_ACROSS: return across;
        default: return none;
        }
    case WEFT_INSTRUCTION_REFRESH:
        if (!weft_job_spec_trains(job, instruction->unit)) return none;
        if (p->parameters == WEFT_OWNED) return ranks_of_copy(job, instruction->unit, rank);
        return p->parameters == WEFT_REPLICATED && p->optimizer == WEFT_SHARDED ? node : none;
    default: return none;
    }
}

/* ---- validation of the placement ---- */

static weft_status check_replicas(const weft_strategy_job *view, weft_error *err) {
    const bool owned = view->segments[0].owner >= 0;
    for (int32_t s = 0; s < view->n_segments; s++)
        if (view->segments[s].owner < -1 || view->segments[s].owner >= view->world ||
            (view->segments[s].owner >= 0) != owned)
            return weft_error_set(
                err, WEFT_E_PLUGIN,
                "the strategy plugin assigns segment %s to rank %d. Allowed: an owner from 0 to %d for "
                "each segment, or -1 for all",
                view->segments[s].name, (int)view->segments[s].owner, (int)view->world - 1);
    if (view->replicas == (owned ? 1 : view->world)) return WEFT_OK;
    return weft_error_set(err, WEFT_E_PLUGIN,
                          "the strategy plugin has %d replicas of %d ranks, and segments with%s owners. Allowed: %s",
                          (int)view->replicas, (int)view->world, owned ? "" : "out",
                          owned ? "1 replica, which the owners share" : "each rank is a replica");
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
            return weft_error_set(
                err, WEFT_E_PLUGIN,
                "the strategy plugin places unit %s otherwise than the segments: if segments have "
                "owners, parameters, gradients and optimizer state of a unit are OWNED; otherwise none"
                " or, in a world of one rank, all three",
                view->units[u].name);
    }
    if (owned && (placement->owner < 0 || placement->owner >= view->world))
        return weft_error_set(err, WEFT_E_PLUGIN, "the strategy plugin assigns unit %s to rank %d: ranks are 0 to %d",
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
                              "the strategy plugin shards parameters or gradients of unit %s but not its optimizer "
                              "state: a rank updates only elements that it holds",
                              view->units[u].name);
    return WEFT_OK;
}

weft_status weft_job_spec_check_placement(const weft_job_spec *job, weft_error *err) {
    weft_status status = check_replicas(&job->view, err);
    for (int32_t u = 0; u < job->view.n_units && status == WEFT_OK; u++) status = check_placement(&job->view, u, err);
    return status;
}

/* The owner runs a segment that reads the unit, and at most one other rank does. */
weft_status weft_job_spec_check_owners(const weft_job_spec *job, weft_error *err) {
    for (int32_t u = 0; u < job->view.n_units && weft_job_spec_owned(job); u++) {
        const int32_t owner = job->view.placements[u].owner, other = weft_job_spec_borrower(job, u);
        bool read = false, by_owner = false;
        for (int32_t s = 0; s < job->view.n_segments && weft_job_spec_trains(job, u); s++) {
            const int32_t rank = job->view.segments[s].owner;
            if (!weft_job_spec_reads(job, s, u)) continue;
            read = true;
            by_owner = by_owner || rank == owner;
            if (rank != owner && rank != other)
                return weft_error_set(err, WEFT_E_PLUGIN,
                                      "the strategy plugin has unit %s, which is trained, read on ranks %d, %d and %d. "
                                      "Allowed: its owner and one other rank",
                                      job->view.units[u].name, (int)owner, (int)other, (int)rank);
        }
        if (read && !by_owner)
            return weft_error_set(err, WEFT_E_PLUGIN,
                                  "the strategy plugin assigns unit %s to rank %d, which runs no segment that reads it",
                                  job->view.units[u].name, (int)owner);
    }
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
