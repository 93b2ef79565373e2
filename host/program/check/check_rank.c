/* host/program/check/check_rank.c: checks one rank's instructions in order: segments, exchanges, norm and update.
 *
 * A state machine records the instruction of each operation. An instruction needs the results of earlier ones on this
 * rank, and must not have run before on any rank. At the end no instruction may be missing.
 *
 * An exchange of another queue is in flight until its WAIT. The gathered copy, the sum or the received data that it
 * writes is marked until then. Micro-batch gradients, carries and their gradients are complete before they are sent, so
 * they need no mark. An exchange with only this rank in its group may be omitted. */
#include "program/check/check.h"

#include "base/alloc.h"

#include <stdlib.h>

#define refuse   weft_check_refuse
#define run_of   weft_check_run_at
#define transfer weft_check_transfer_at

static const char *segment_name(const weft_checker *check, int32_t segment) {
    return check->job->view.segments[segment].name;
}

static const char *unit_name(const weft_checker *check, int32_t unit) {
    return check->job->view.units[unit].name;
}

/* Records the current instruction in *done; fails if *done has one already. */
static weft_status check_once(weft_checker *check, int32_t *done) {
    if (*done >= 0) return refuse(check, "instruction %d has done this already: it is allowed once", (int)*done);
    *done = check->at;
    return WEFT_OK;
}

/* Returns the number of ranks in the exchange of a unit by this rank; 0: the placement has no such exchange. */
static int32_t ranks_of(const weft_checker *check, int32_t kind, int32_t unit, int32_t what, int32_t scope) {
    const weft_instruction exchange = {.kind = kind, .unit = unit, .what = what, .scope = scope};
    return weft_job_spec_ranks(check->job, &exchange, check->rank).count;
}

/* True if this rank has a part of the unit's finished sum. */
static bool has_sum(const weft_checker *check, int32_t unit) {
    const weft_check_unit *facts = &check->units[unit];
    return facts->trains && (facts->owner < 0 || facts->owner == check->rank);
}

/* True if this rank runs the micro-batch, or with owners some of its segments. */
static bool runs_micro_batch(const weft_checker *check, int32_t m) {
    return weft_job_spec_owned(check->job) || check->runs[m].forward.rank == check->rank;
}

/* Returns the micro-batches that a replica runs. */
static int32_t share_of_replica(const weft_checker *check) {
    return check->micro_batches / check->job->view.replicas;
}

static bool has_arrived(const weft_checker *check, int32_t what, int32_t of, int32_t m) {
    return transfer(check, what, of, m)->arrived >= 0;
}

/* Returns the number of BACKWARDs of this rank so far that read a unit. */
static int32_t *backwards_of(const weft_checker *check, int32_t u, int32_t m) {
    return &check->begun[!has_sum(check, u)][weft_check_pair(check, u, m)];
}

/* ---- segments ---- */

/* All units that the segment reads must be complete on this rank. */
static weft_status check_live(weft_checker *check, int32_t s) {
    const weft_segment_view *view = &check->job->view.segments[s];
    for (int32_t i = 0; i < view->n_units; i++) {
        const int32_t u = view->units[i];
        const weft_check_use *use = &check->uses[u];
        if (check->job->view.placements[u].parameters != WEFT_SHARDED || use->gathered >= 0) continue;
        if (use->gathering >= 0)
            return refuse(check, "it reads unit %s, and the GATHER of it, instruction %d, has not been waited for",
                          unit_name(check, u), (int)use->gathering);
        return refuse(check, "it reads unit %s, which is not live here: a GATHER must run before, and no RELEASE since",
                      unit_name(check, u));
    }
    return WEFT_OK;
}

/* The carry of the segment below must be on this rank: from its own FORWARD, or received. */
static weft_status check_carry(weft_checker *check, int32_t s, int32_t m) {
    if (s < 0) return WEFT_OK;
    if (!weft_job_spec_runs(check->job, s, check->rank)) {
        if (has_arrived(check, WEFT_PAYLOAD_CARRY, s, m)) return WEFT_OK;
        return refuse(check,
                      "it reads the carry of segment %s for micro-batch %d, and no RECV of it from rank %d has ended",
                      segment_name(check, s), (int)m, (int)check->job->view.segments[s].owner);
    }
    if (run_of(check, s, m)->forward.rank == check->rank) return WEFT_OK;
    return refuse(check, "its input is the carry of segment %s, which has had no FORWARD for micro-batch %d here",
                  segment_name(check, s), (int)m);
}

static weft_status check_forward(weft_checker *check, int32_t s, int32_t m) {
    weft_check_place *place = &run_of(check, s, m)->forward;
    weft_status status = WEFT_OK;
    if (!weft_job_spec_runs(check->job, s, check->rank))
        return refuse(check, "the segment belongs to rank %d, and only that rank runs it",
                      (int)check->job->view.segments[s].owner);
    if (place->rank >= 0 && place->rank != check->rank)
        return refuse(check, "rank %d has run the segment for this micro-batch already, as instruction %d",
                      (int)place->rank, (int)place->instruction);
    status = check_once(check, &place->instruction);
    if (status == WEFT_OK) status = check_carry(check, s - 1, m);
    if (status == WEFT_OK) status = check_live(check, s);
    place->rank = check->rank;
    if (status != WEFT_OK || s > 0 || weft_job_spec_owned(check->job)) return status;
    /* The FORWARD of the first segment assigns the micro-batch to this rank. */
    if (check->taken++ < share_of_replica(check)) return WEFT_OK;
    return refuse(check, "the rank has run %d micro-batches already, which is the share of a replica",
                  (int)share_of_replica(check));
}

/* RECOMPUTE and BACKWARD need an earlier FORWARD on this rank. */
static weft_status check_ran_here(weft_checker *check, int32_t s, int32_t m) {
    const weft_check_place *place = &run_of(check, s, m)->forward;
    if (place->rank == check->rank) return WEFT_OK;
    if (place->rank >= 0)
        return refuse(check, "there is no tape here: rank %d has run its FORWARD, as instruction %d", (int)place->rank,
                      (int)place->instruction);
    return refuse(check, "there is no tape: its FORWARD for micro-batch %d must run before, on this rank", (int)m);
}

static weft_status check_recompute(weft_checker *check, int32_t s, int32_t m) {
    weft_check_run *run = run_of(check, s, m);
    weft_status status = check_ran_here(check, s, m);
    if (status != WEFT_OK) return status;
    if (!check->job->activation_checkpointing)
        return refuse(check, "activation checkpointing is off, so FORWARD has kept the tape");
    if (!check->job->segments[s].has_backward) return refuse(check, "the segment has no BACKWARD that reads the tape");
    if (run->backward >= 0)
        return refuse(check, "its BACKWARD for micro-batch %d has already run, as instruction %d", (int)m,
                      (int)run->backward);
    status = check_once(check, &run->recompute);
    return status == WEFT_OK ? check_live(check, s) : status;
}

/* The gradient from segment s must be on this rank. */
static weft_status check_carry_gradient(weft_checker *check, int32_t s, int32_t m) {
    if (s == check->job->view.n_segments) return WEFT_OK;
    if (!weft_job_spec_runs(check->job, s, check->rank)) {
        if (has_arrived(check, WEFT_PAYLOAD_CARRY_GRADIENT, s - 1, m)) return WEFT_OK;
        return refuse(check, "no RECV of the gradient from segment %s for micro-batch %d, from rank %d, has ended",
                      segment_name(check, s), (int)m, (int)check->job->view.segments[s].owner);
    }
    if (run_of(check, s, m)->backward >= 0) return WEFT_OK;
    return refuse(check, "segment %s, which computes its input gradient, has had no BACKWARD for micro-batch %d",
                  segment_name(check, s), (int)m);
}

/* Counts the BACKWARD for each trained unit that the segment reads. The owner's first BACKWARD of a unit and
 * micro-batch accumulates into the part of the borrower. */
static weft_status count_units(weft_checker *check, int32_t s, int32_t m) {
    const weft_segment_view *view = &check->job->view.segments[s];
    for (int32_t i = 0; i < view->n_units; i++) {
        const int32_t u = view->units[i], borrower = check->units[u].borrower;
        weft_check_use *use = &check->uses[u];
        if (!check->units[u].trains) continue;
        if (use->reached > m)
            return refuse(
                check, "unit %s has already had a BACKWARD for micro-batch %d: its BACKWARDs run in micro-batch order",
                unit_name(check, u), (int)use->reached);
        if (borrower >= 0 && has_sum(check, u) && *backwards_of(check, u, m) == 0 &&
            !has_arrived(check, WEFT_PAYLOAD_MICRO_BATCH_GRADIENT, u, m))
            return refuse(check,
                          "it adds to the gradient of unit %s for micro-batch %d, and no RECV of the part that rank %d "
                          "makes has ended",
                          unit_name(check, u), (int)m, (int)borrower);
        use->reached = m;
        ++*backwards_of(check, u, m);
    }
    return WEFT_OK;
}

static weft_status check_backward(weft_checker *check, int32_t s, int32_t m) {
    weft_status status = check_ran_here(check, s, m);
    if (status != WEFT_OK) return status;
    if (!check->job->segments[s].has_backward)
        return refuse(check, "the segment has no BACKWARD: no parameter at or below it is trained");
    if (check->count < 0) return refuse(check, "COUNT must run before the first BACKWARD");
    status = check_once(check, &run_of(check, s, m)->backward);
    if (status == WEFT_OK) status = check_carry_gradient(check, s + 1, m);
    if (status == WEFT_OK) status = check_live(check, s);
    return status == WEFT_OK ? count_units(check, s, m) : status;
}

/* ---- parameters ---- */

static weft_status check_gather(weft_checker *check, int32_t u) {
    weft_check_use *use = &check->uses[u];
    if (ranks_of(check, WEFT_INSTRUCTION_GATHER, u, WEFT_PAYLOAD_PARAMETERS, -1) == 0)
        return refuse(check, "the unit's parameters are not sharded");
    if (use->gathering >= 0)
        return refuse(check, "instruction %d gathers the unit already and has not been waited for",
                      (int)use->gathering);
    if (use->gathered >= 0)
        return refuse(check, "the unit is live since instruction %d and has not been released", (int)use->gathered);
    use->gathering = check->at;
    return WEFT_OK;
}

static weft_status check_release(weft_checker *check, int32_t u) {
    weft_check_use *use = &check->uses[u];
    if (use->gathering >= 0)
        return refuse(check, "its GATHER, instruction %d, is under way: a WAIT must run before", (int)use->gathering);
    if (use->gathered < 0) return refuse(check, "the unit has no gathered copy here");
    use->gathered = -1;
    return WEFT_OK;
}

static weft_status check_refresh(weft_checker *check, int32_t u) {
    if (check->step < 0) return refuse(check, "STEP must run before: no copy is stale yet");
    if (ranks_of(check, WEFT_INSTRUCTION_REFRESH, u, -1, -1) == 0)
        return refuse(check, "STEP makes no copy of this unit stale on this rank");
    return check_once(check, &check->uses[u].refreshed);
}

/* ---- sums ---- */

/* The unit's sum must contain all micro-batches of this rank. */
static weft_status check_terms(weft_checker *check, int32_t u) {
    const int32_t due = share_of_replica(check), found = check->uses[u].terms;
    for (int32_t m = 0; m < check->micro_batches && found < due; m++)
        if (runs_micro_batch(check, m) && check->terms[weft_check_pair(check, u, m)].at.rank < 0)
            return refuse(check, "unit %s has had no REDUCE for micro-batch %d: the sum is not complete",
                          unit_name(check, u), (int)m);
    if (found == due) return WEFT_OK;
    return refuse(check, "unit %s has had REDUCEs for %d of the rank's %d micro-batches: the sum is not complete",
                  unit_name(check, u), (int)found, (int)due);
}

/* The unit's sum must be finished on its ranks. */
static weft_status check_sum(weft_checker *check, int32_t u) {
    const weft_check_use *use = &check->uses[u];
    const int32_t scope = check->units[u].scope;
    const weft_status status = check_terms(check, u);
    if (status != WEFT_OK) return status;
    if (use->second < 0 && check->job->view.replicas > 1 &&
        ranks_of(check, WEFT_INSTRUCTION_REDUCE, u, -1, scope) < check->world)
        return refuse(check, "unit %s has had no second hop: REDUCE %s adds only part of the sum", unit_name(check, u),
                      weft_scope_name(scope));
    if (use->summing < 0) return WEFT_OK;
    return refuse(check, "instruction %d, which exchanges the sum of unit %s, has not been waited for",
                  (int)use->summing, unit_name(check, u));
}

static weft_status check_gather_sum(weft_checker *check, int32_t u) {
    weft_check_use *use = &check->uses[u];
    weft_status status = WEFT_OK;
    if (!check->units[u].trains) return refuse(check, "the unit is frozen and has no gradient");
    if (!has_sum(check, u) || ranks_of(check, WEFT_INSTRUCTION_GATHER, u, WEFT_PAYLOAD_SUM, -1) == 0)
        return refuse(check, "the unit's sum is only on its owner, rank %d: there is no exchange of it",
                      (int)check->job->view.placements[u].owner);
    status = check_once(check, &use->finished);
    if (status == WEFT_OK) status = check_sum(check, u);
    use->summing = check->at;
    return status;
}

/* The micro-batch gradient must be complete on this rank. */
static weft_status check_complete(weft_checker *check, int32_t u, int32_t m) {
    const weft_job_spec *job = check->job;
    const char *missing = "?";
    if ((runs_micro_batch(check, m) ? *backwards_of(check, u, m) : 0) == check->uses[u].readers) return WEFT_OK;
    for (int32_t s = 0; s < job->view.n_segments; s++)
        if (weft_job_spec_backward(job, s) && weft_job_spec_reads(job, s, u) &&
            weft_job_spec_runs(job, s, check->rank) &&
            (run_of(check, s, m)->backward < 0 || run_of(check, s, m)->forward.rank != check->rank))
            missing = segment_name(check, s);
    return refuse(check, "segment %s reads unit %s and has had no BACKWARD for micro-batch %d here", missing,
                  unit_name(check, u), (int)m);
}

/* All first hops of a unit, on all ranks, have one scope. */
static weft_status check_first_hop(weft_checker *check, int32_t u, int32_t m, int32_t scope) {
    weft_check_unit *facts = &check->units[u];
    weft_check_use *use = &check->uses[u];
    weft_check_term *term = &check->terms[weft_check_pair(check, u, m)];
    weft_status status = WEFT_OK;
    if (scope == WEFT_SCOPE_ACROSS)
        return refuse(check,
                      "scope across exchanges the results of REDUCE node: such an instruction names no micro-batch");
    if (facts->scope == 0) {
        facts->scope = scope;
        facts->first = (weft_check_place){check->rank, check->at};
    }
    if (facts->scope != scope)
        return refuse(check,
                      "the first REDUCE of this unit, instruction %d of rank %d, has scope %s: all micro-batches of a "
                      "unit have one scope",
                      (int)facts->first.instruction, (int)facts->first.rank, weft_scope_name(facts->scope));
    status = check_complete(check, u, m);
    if (status == WEFT_OK) status = check_once(check, &term->at.instruction);
    if (status == WEFT_OK && use->reduced > m)
        status = refuse(check,
                        "micro-batch %d of this unit has joined the sum already: a rank's micro-batches join in their "
                        "order",
                        (int)use->reduced);
    if (status != WEFT_OK) return status;
    term->at.rank = check->rank;
    term->round = use->terms++;
    use->reduced = m;
    return WEFT_OK;
}

static weft_status check_second_hop(weft_checker *check, int32_t u, int32_t scope) {
    const int32_t first = scope == WEFT_SCOPE_ALL ? WEFT_SCOPE_RANK : WEFT_SCOPE_NODE;
    if (scope != WEFT_SCOPE_ALL && scope != WEFT_SCOPE_ACROSS)
        return refuse(check, "without a micro-batch it is a second hop. Allowed: scope all or across");
    if (check->units[u].scope != first)
        return refuse(check, "it exchanges the results of REDUCE %s, and this unit has no such REDUCE",
                      weft_scope_name(first));
    check->uses[u].second = check->at;
    return check_terms(check, u);
}

static weft_status check_reduce(weft_checker *check, const weft_instruction *instruction) {
    const int32_t u = instruction->unit, m = instruction->micro_batch, scope = instruction->scope;
    weft_check_use *use = &check->uses[u];
    weft_status status = WEFT_OK;
    if (!check->units[u].trains) return refuse(check, "the unit is frozen and has no gradient");
    if (!has_sum(check, u))
        return refuse(check, "the unit's sum is rank %d's: a SEND transfers this rank's part of the gradient",
                      (int)check->units[u].owner);
    if (ranks_of(check, WEFT_INSTRUCTION_REDUCE, u, -1, scope) == 0)
        return refuse(check, "the unit is not sharded, so no process group has this scope");
    if (use->finished >= 0)
        return refuse(check, "the sum has been gathered as finished, by instruction %d", (int)use->finished);
    if (use->second >= 0)
        return refuse(check, "instruction %d was the second hop, which is allowed once, after all micro-batches",
                      (int)use->second);
    if (use->summing >= 0)
        return refuse(check, "instruction %d, which exchanges the same sum, has not been waited for",
                      (int)use->summing);
    status = m >= 0 ? check_first_hop(check, u, m, scope) : check_second_hop(check, u, scope);
    if (status == WEFT_OK) use->summing = check->at;
    return status;
}

/* ---- SEND and RECV ---- */

/* Checks that the job has this transfer, between these ranks. */
static weft_status check_route(weft_checker *check, const weft_instruction *instruction) {
    const weft_strategy_job *view = &check->job->view;
    const int32_t s = instruction->segment;
    const bool sends = instruction->kind == WEFT_INSTRUCTION_SEND, up = instruction->what == WEFT_PAYLOAD_CARRY;
    int32_t from = -1, to = -1;
    if (!weft_job_spec_owned(check->job))
        return refuse(check,
                      "each rank is a replica and runs all segments itself: there are no transfers between ranks");
    if (instruction->what == WEFT_PAYLOAD_MICRO_BATCH_GRADIENT) {
        from = check->units[instruction->unit].borrower;
        to = check->units[instruction->unit].owner;
    } else if (s + 1 < view->n_segments && (up || weft_job_spec_backward(check->job, s))) {
        from = view->segments[up ? s : s + 1].owner;
        to = view->segments[up ? s + 1 : s].owner;
    }
    if (from < 0 || to < 0 || from == to) return refuse(check, "no other rank needs this data");
    if (check->rank == (sends ? from : to) && instruction->peer == (sends ? to : from)) return WEFT_OK;
    return refuse(check, "this data is sent from rank %d to rank %d", (int)from, (int)to);
}

/* The data must be complete. */
static weft_status check_send(weft_checker *check, const weft_instruction *instruction) {
    const int32_t s = instruction->segment, m = instruction->micro_batch, what = instruction->what;
    weft_status status = check_route(check, instruction);
    if (status == WEFT_OK && what == WEFT_PAYLOAD_MICRO_BATCH_GRADIENT)
        status = check_complete(check, instruction->unit, m);
    if (status == WEFT_OK && what == WEFT_PAYLOAD_CARRY && run_of(check, s, m)->forward.rank < 0)
        status = refuse(check, "the segment has had no FORWARD for micro-batch %d", (int)m);
    if (status == WEFT_OK && what == WEFT_PAYLOAD_CARRY_GRADIENT && run_of(check, s + 1, m)->backward < 0)
        status = refuse(check, "segment %s, which makes this gradient, has had no BACKWARD for micro-batch %d",
                        segment_name(check, s + 1), (int)m);
    if (status == WEFT_OK) status = check_once(check, &weft_check_transfer_of(check, instruction)->sent);
    if (status == WEFT_OK && what == WEFT_PAYLOAD_MICRO_BATCH_GRADIENT) check->uses[instruction->unit].parts++;
    return status;
}

/* ---- end of an exchange ---- */

static void end_exchange(weft_checker *check, int32_t at) {
    const weft_instruction *i = &check->program->instructions[at];
    weft_check_use *use = i->unit >= 0 ? &check->uses[i->unit] : NULL;
    if (i->kind == WEFT_INSTRUCTION_REDUCE || i->what == WEFT_PAYLOAD_SUM) {
        use->summing = -1;
    } else if (i->kind == WEFT_INSTRUCTION_GATHER) {
        use->gathering = -1;
        use->gathered = at;
    } else if (i->kind == WEFT_INSTRUCTION_RECV) {
        weft_check_transfer_of(check, i)->arrived = at;
    }
}

static weft_status check_wait(weft_checker *check, int32_t waits) {
    const weft_instruction *ended = &check->program->instructions[waits];
    if (ended->queue == 0)
        return refuse(check, "instruction %d, a %s of queue 0, needs no WAIT", (int)waits,
                      weft_instruction_kind_name(ended->kind));
    if (check->waited[waits]) return refuse(check, "instruction %d has been waited for already", (int)waits);
    check->waited[waits] = 1;
    end_exchange(check, waits);
    return WEFT_OK;
}

/* ---- norm and update ---- */

static weft_status check_norm(weft_checker *check) {
    weft_status status = WEFT_OK;
    if (check->count < 0) return refuse(check, "COUNT must run before");
    status = check_once(check, &check->norm);
    for (int32_t u = 0; u < check->job->view.n_units && status == WEFT_OK; u++) {
        if (!has_sum(check, u)) continue;
        status = check_sum(check, u);
        if (status == WEFT_OK && check->uses[u].finished < 0 &&
            ranks_of(check, WEFT_INSTRUCTION_GATHER, u, WEFT_PAYLOAD_SUM, -1) > 1)
            status = refuse(check, "the finished sum of unit %s is sharded: its ranks must GATHER it before",
                            unit_name(check, u));
    }
    return status;
}

/* STEP changes the parameters, so gathered copies would be stale. */
static weft_status check_step(weft_checker *check) {
    if (check->norm < 0) return refuse(check, "NORM must run before, after all sums of gradients");
    for (int32_t u = 0; u < check->job->view.n_units; u++) {
        const weft_check_use *use = &check->uses[u];
        const int32_t gather = use->gathered >= 0 ? use->gathered : use->gathering;
        if (gather >= 0)
            return refuse(check, "unit %s is still gathered, by instruction %d: a RELEASE must run before the update",
                          unit_name(check, u), (int)gather);
    }
    return check_once(check, &check->step);
}

static weft_status check_instruction(weft_checker *check, const weft_instruction *i) {
    weft_status status = weft_check_fields(check, i);
    if (status != WEFT_OK) return status;
    if (check->step >= 0 && i->kind != WEFT_INSTRUCTION_REFRESH && i->kind != WEFT_INSTRUCTION_WAIT)
        return refuse(check, "it follows STEP, instruction %d: only REFRESH and WAIT may follow", (int)check->step);
    switch (i->kind) {
    case WEFT_INSTRUCTION_COUNT: return check_once(check, &check->count);
    case WEFT_INSTRUCTION_FORWARD: return check_forward(check, i->segment, i->micro_batch);
    case WEFT_INSTRUCTION_RECOMPUTE: return check_recompute(check, i->segment, i->micro_batch);
    case WEFT_INSTRUCTION_BACKWARD: return check_backward(check, i->segment, i->micro_batch);
    case WEFT_INSTRUCTION_NORM: return check_norm(check);
    case WEFT_INSTRUCTION_STEP: return check_step(check);
    case WEFT_INSTRUCTION_RELEASE: return check_release(check, i->unit);
    case WEFT_INSTRUCTION_WAIT: return check_wait(check, i->waits);
    case WEFT_INSTRUCTION_GATHER:
        status = i->what == WEFT_PAYLOAD_SUM ? check_gather_sum(check, i->unit) : check_gather(check, i->unit);
        break;
    case WEFT_INSTRUCTION_REDUCE: status = check_reduce(check, i); break;
    case WEFT_INSTRUCTION_SEND: status = check_send(check, i); break;
    case WEFT_INSTRUCTION_RECV:
        status = check_route(check, i);
        if (status == WEFT_OK) status = check_once(check, &weft_check_transfer_of(check, i)->received);
        break;
    default: status = check_refresh(check, i->unit); break;
    }
    if (status == WEFT_OK && i->queue == 0) end_exchange(check, check->at);
    return status;
}

/* ---- end of the program ---- */

/* Fails with "rank 1: its program ends after 12 instructions ...". */
#define refuse_end(check, format, ...)                                                                                 \
    weft_error_set((check)->err, WEFT_E_PLUGIN, "rank %d: its program ends after %d instructions " format,             \
                   (int)(check)->rank, (int)(check)->program->n_instructions, __VA_ARGS__)

/* Checks that this rank has run all of its segments for its micro-batches. */
static weft_status check_segments_complete(weft_checker *check) {
    for (int32_t m = 0; m < check->micro_batches; m++)
        for (int32_t s = 0; s < check->job->view.n_segments && runs_micro_batch(check, m); s++) {
            const weft_check_run *run = run_of(check, s, m);
            const bool lacks_forward = run->forward.rank < 0;
            if (!weft_job_spec_runs(check->job, s, check->rank)) continue;
            if (lacks_forward || (weft_job_spec_backward(check->job, s) && run->backward < 0))
                return refuse_end(check, "without %s %s micro-batch %d", lacks_forward ? "FORWARD" : "BACKWARD",
                                  segment_name(check, s), (int)m);
        }
    return WEFT_OK;
}

/* Checks that this rank has sent all that other ranks need. */
static weft_status check_sent(weft_checker *check) {
    const weft_strategy_job *view = &check->job->view;
    for (int32_t s = 0; s + 1 < view->n_segments; s++) {
        const int32_t below = view->segments[s].owner, above = view->segments[s + 1].owner;
        for (int32_t m = 0; m < check->micro_batches && below != above; m++) {
            const bool lacks_up = below == check->rank && transfer(check, WEFT_PAYLOAD_CARRY, s, m)->sent < 0;
            const bool lacks_down = above == check->rank && weft_job_spec_backward(check->job, s) &&
                                    transfer(check, WEFT_PAYLOAD_CARRY_GRADIENT, s, m)->sent < 0;
            if (lacks_up || lacks_down)
                return refuse_end(check, "without SEND %s %s micro-batch %d peer %d", view->segments[s].name,
                                  weft_what_name(lacks_up ? WEFT_PAYLOAD_CARRY : WEFT_PAYLOAD_CARRY_GRADIENT), (int)m,
                                  (int)(lacks_up ? above : below));
        }
    }
    return WEFT_OK;
}

static weft_status check_unit_closed(weft_checker *check, int32_t u) {
    const weft_check_use *use = &check->uses[u];
    const weft_check_unit *facts = &check->units[u];
    if (use->gathered >= 0)
        return weft_check_refuse_at(check, check->rank, use->gathered,
                                    "the program ends and the gathered copy has not been released");
    if (weft_check_trains(check) && use->refreshed < 0 && ranks_of(check, WEFT_INSTRUCTION_REFRESH, u, -1, -1) > 1)
        return refuse_end(check, "without REFRESH %s: STEP makes its copy stale", unit_name(check, u));
    if (facts->borrower == check->rank && use->parts < check->micro_batches)
        return refuse_end(check, "and has sent %d of the %d parts of unit %s's micro-batch gradients to rank %d",
                          (int)use->parts, (int)check->micro_batches, unit_name(check, u), (int)facts->owner);
    return WEFT_OK;
}

static weft_status check_end(weft_checker *check) {
    weft_status status = WEFT_OK;
    if (!weft_job_spec_owned(check->job) && check->taken < share_of_replica(check))
        return refuse_end(check, "and has run FORWARD %s for %d micro-batches: the share of a replica is %d",
                          segment_name(check, 0), (int)check->taken, (int)share_of_replica(check));
    status = check_segments_complete(check);
    if (status == WEFT_OK && weft_check_trains(check) && check->step < 0)
        status = refuse_end(check, "without %s", "STEP");
    for (int32_t i = 0; i < check->program->n_instructions && status == WEFT_OK; i++)
        if (check->program->instructions[i].queue > 0 && !check->waited[i])
            status = weft_check_refuse_at(check, check->rank, i, "the program ends and no WAIT has ended it");
    for (int32_t u = 0; u < check->job->view.n_units && status == WEFT_OK; u++) status = check_unit_closed(check, u);
    return status == WEFT_OK && weft_job_spec_owned(check->job) ? check_sent(check) : status;
}

weft_status weft_check_rank(weft_checker *check, int32_t rank) {
    const weft_strategy_job *view = &check->job->view;
    weft_status status = WEFT_OK;
    check->rank = rank;
    check->program = check->programs[rank];
    check->count = check->norm = check->step = -1;
    check->taken = 0;
    check->waited = weft_alloc(check->program->n_instructions, 1);
    for (int32_t u = 0; u < view->n_units; u++)
        check->uses[u] = (weft_check_use){-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0};
    for (int32_t s = 0; s < view->n_segments; s++)
        for (int32_t i = 0; i < view->segments[s].n_units; i++)
            if (weft_job_spec_backward(check->job, s) && weft_job_spec_runs(check->job, s, rank))
                check->uses[view->segments[s].units[i]].readers++;
    for (check->at = 0; status == WEFT_OK && check->at < check->program->n_instructions; check->at++)
        status = check_instruction(check, &check->program->instructions[check->at]);
    if (status == WEFT_OK) status = check_end(check);
    free(check->waited);
    return status;
}
