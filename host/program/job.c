/* host/program/job.c: see job.h. */
#include "program/job.h"

bool weft_job_spec_reads(const weft_job_spec *job, int32_t segment, int32_t unit) {
    const weft_segment_view *view = &job->view.segments[segment];
    for (int32_t i = 0; i < view->n_units; i++)
        if (view->units[i] == unit) return true;
    return false;
}

static weft_status check_counts(const weft_strategy_job *view, weft_error *err) {
    if (view->mode != WEFT_MODE_TRAIN && view->mode != WEFT_MODE_EVALUATE && view->mode != WEFT_MODE_GENERATE)
        return weft_error_set(err, WEFT_E_HOST, "mode %d of the job is none of train, evaluate and generate",
                              (int)view->mode);
    if (view->world < 1 || view->micro_batches < (view->replicas == 0 ? 0 : 1) || view->n_units < 0 ||
        view->n_segments < 1)
        return weft_error_set(
            err, WEFT_E_HOST,
            "a job of %d ranks, %d micro-batches, %d units and %d segments cannot be compiled: at least one "
            "rank, micro-batch and segment is needed",
            (int)view->world, (int)view->micro_batches, (int)view->n_units, (int)view->n_segments);
    if (view->unit_stride != sizeof(weft_unit_view) || view->segment_stride != sizeof(weft_segment_view) ||
        view->placement_stride != sizeof(weft_placement))
        return weft_error_set(err, WEFT_E_HOST,
                              "the job's views have strides of %u, %u and %u bytes, not the host's own",
                              (unsigned)view->unit_stride, (unsigned)view->segment_stride,
                              (unsigned)view->placement_stride);
    if ((int64_t)view->micro_batches * view->replicas > INT32_MAX / 8 / (view->n_units + view->n_segments))
        return weft_error_set(err, WEFT_E_USER,
                              "%d micro-batches of %d segments are more than one step program can hold: use a larger "
                              "micro_batch or a smaller global_batch",
                              (int)(view->micro_batches * (int64_t)view->replicas > INT32_MAX
                                        ? INT32_MAX
                                        : view->micro_batches * view->replicas),
                              (int)view->n_segments);
    return WEFT_OK;
}

static weft_status check_segment(const weft_job_spec *job, int32_t s, weft_error *err) {
    const weft_segment_view *view = &job->view.segments[s];
    const weft_segment_sizes *sizes = &job->segments[s];
    for (int32_t i = 0; i < view->n_units; i++)
        if (view->units[i] < (i > 0 ? view->units[i - 1] + 1 : 0) || view->units[i] >= job->view.n_units)
            return weft_error_set(err, WEFT_E_HOST, "segment %s reads unit %d: units must ascend and be below %d",
                                  view->name, (int)view->units[i], (int)job->view.n_units);
    if (sizes->carry < 0 || sizes->tape < 0 || sizes->forward_work < 0 || sizes->forward_work_untaped < 0 ||
        sizes->recompute_work < 0 || sizes->backward_work < 0)
        return weft_error_set(err, WEFT_E_HOST, "segment %s has a negative size", view->name);
    if (job->view.mode != WEFT_MODE_TRAIN) return WEFT_OK;
    if (sizes->has_backward != (view->backward != 0))
        return weft_error_set(err, WEFT_E_HOST,
                              "segment %s: its sizes and its view disagree on whether it has a BACKWARD", view->name);
    if (s > 0 && job->segments[s - 1].has_backward && !sizes->has_backward)
        return weft_error_set(err, WEFT_E_HOST, "segment %s has no BACKWARD, and the segment below it, %s, has one",
                              view->name, job->view.segments[s - 1].name);
    if (sizes->carry_gradient != (s > 0 && job->segments[s - 1].has_backward))
        return weft_error_set(err, WEFT_E_HOST,
                              "segment %s hands a gradient down exactly if the segment below has a BACKWARD",
                              view->name);
    return WEFT_OK;
}

static weft_status check_unit(const weft_job_spec *job, int32_t u, weft_error *err) {
    const weft_unit_view *view = &job->view.units[u];
    if ((job->units[u].gradient > 0) != (view->gradient_bytes > 0))
        return weft_error_set(err, WEFT_E_HOST, "unit %s: its sizes and its view disagree on whether it is trained",
                              view->name);
    if (!weft_job_spec_trains(job, u)) return WEFT_OK;
    for (int32_t s = 0; s < job->view.n_segments; s++)
        if (job->segments[s].has_backward && weft_job_spec_reads(job, s, u)) return WEFT_OK;
    return weft_error_set(
        err, WEFT_E_USER,
        "unit %s has trainable parameters, but no segment of the model computes with them: freeze them", view->name);
}

weft_status weft_job_spec_check(const weft_job_spec *job, weft_error *err) {
    weft_status status = check_counts(&job->view, err);
    for (int32_t s = 0; s < job->view.n_segments && status == WEFT_OK; s++) status = check_segment(job, s, err);
    for (int32_t u = 0; u < job->view.n_units && status == WEFT_OK; u++) status = check_unit(job, u, err);
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

/* ---- who exchanges ---- */

static weft_members ranks_alone(int32_t rank) {
    const weft_members alone = {rank, 1, 1};
    return alone;
}

static weft_members ranks_none(void) {
    const weft_members none = {0, 1, 0};
    return none;
}

static weft_members ranks_all(const weft_job_spec *job) {
    const weft_members all = {0, 1, job->view.world};
    return all;
}

/* Ranks that hold parts of one copy; the world where a group is the world. */
static weft_members ranks_node(const weft_placement *placement, int32_t rank) {
    const weft_members node = {rank / placement->group * placement->group, 1, placement->group};
    return node;
}

static weft_members ranks_across(const weft_job_spec *job, const weft_placement *placement, int32_t rank) {
    const weft_members across = {rank % placement->group, placement->group, job->view.world / placement->group};
    return across.count == 1 ? ranks_alone(rank) : across;
}

static bool is_sharded(const weft_placement *placement) {
    return placement->parameters == WEFT_SHARDED || placement->gradients == WEFT_SHARDED ||
           placement->optimizer == WEFT_SHARDED;
}

/* All replicas: every rank is one, or this rank has the only one's units. */
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

/* A copy is stale after STEP where a rank holds more of the parameters than it updates. */
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
        const weft_members two = {low, other + placement->owner - 2 * low, 2};
        return two;
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

/* ---- what the strategy has said ---- */

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

/* A rank must have, of parameters and of the sum, what it updates. */
static bool holding_covers(int32_t holding, int32_t optimizer) {
    return holding == WEFT_REPLICATED || holding == optimizer;
}

static weft_status check_placement(const weft_strategy_job *view, int32_t u, weft_error *err) {
    const weft_placement *placement = &view->placements[u];
    const int32_t parts[3] = {placement->parameters, placement->gradients, placement->optimizer};
    for (int i = 0; i < 3; i++) {
        const bool spread = view->world > 1 && (parts[i] == WEFT_OWNED) != (view->segments[0].owner >= 0);
        if (parts[i] != WEFT_REPLICATED && parts[i] != WEFT_SHARDED && parts[i] != WEFT_OWNED)
            return weft_error_set(err, WEFT_E_PLUGIN,
                                  "the strategy plugin places unit %s with holding %d, which there is not",
                                  view->units[u].name, (int)parts[i]);
        if (spread)
            return weft_error_set(err, WEFT_E_PLUGIN,
                                  "the strategy plugin places unit %s otherwise than the segments: where segments have "
                                  "owners all of a unit is OWNED, elsewhere nothing is",
                                  view->units[u].name);
    }
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

/* Of a job whose segments have owners: the owner computes with the unit, and at most one other rank does. */
static weft_status check_owner(const weft_job_spec *job, int32_t u, weft_error *err) {
    const weft_unit_view *unit = &job->view.units[u];
    const int32_t owner = job->view.placements[u].owner, other = weft_job_spec_borrower(job, u);
    bool read = false, reads = false;
    if (owner < 0 || owner >= job->view.world)
        return weft_error_set(err, WEFT_E_PLUGIN, "the strategy plugin gives unit %s to rank %d: ranks are 0 to %d",
                              unit->name, (int)owner, (int)job->view.world - 1);
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

weft_status weft_job_spec_check_placed(const weft_job_spec *job, weft_error *err) {
    weft_status status = check_replicas(&job->view, err);
    for (int32_t u = 0; u < job->view.n_units && status == WEFT_OK; u++) {
        status = check_placement(&job->view, u, err);
        if (status == WEFT_OK && weft_job_spec_owned(job)) status = check_owner(job, u, err);
    }
    return status;
}
