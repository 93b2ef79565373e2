/* host/program/check/check_exchange.c: checks the inputs and the effects of one rank's exchanges.
 *
 * An exchange of another queue is in flight until its WAIT. The gathered copy, the sum or the received data that it
 * writes is marked until then. Micro-batch gradients, carries and their gradients are complete before they are sent, so
 * they need no mark. An exchange with only this rank in its group may be omitted. */
#include "program/check/check.h"

/* ---- parameters ---- */

static weft_status check_gather(weft_checker *check, const weft_instruction *instruction) {
    weft_check_use *use = &check->uses[instruction->unit];
    if (weft_job_spec_ranks(check->job, instruction, check->rank).count == 0)
        return weft_check_refuse(check,
                                 "the unit's parameters are not sharded: they lie here whole, or are not this rank's");
    if (use->gathering >= 0)
        return weft_check_refuse(check, "instruction %d gathers the unit already and has not been waited for",
                                 (int)use->gathering);
    if (use->gathered >= 0)
        return weft_check_refuse(check, "the unit is live since instruction %d and has not been released",
                                 (int)use->gathered);
    use->gathering = check->at;
    return WEFT_OK;
}

static weft_status check_release(weft_checker *check, const weft_instruction *instruction) {
    weft_check_use *use = &check->uses[instruction->unit];
    if (use->gathering >= 0)
        return weft_check_refuse(check, "its GATHER, instruction %d, is under way: a WAIT must come before",
                                 (int)use->gathering);
    if (use->gathered < 0) return weft_check_refuse(check, "the unit has no gathered copy here that could go");
    use->gathered = -1;
    return WEFT_OK;
}

static weft_status check_refresh(weft_checker *check, const weft_instruction *instruction) {
    weft_check_use *use = &check->uses[instruction->unit];
    if (check->step < 0) return weft_check_refuse(check, "STEP must come before: no copy is stale yet");
    if (weft_job_spec_ranks(check->job, instruction, check->rank).count == 0)
        return weft_check_refuse(check, "STEP leaves no copy of this unit stale on this rank");
    return weft_check_once(check, &use->refreshed);
}

/* ---- sums ---- */

/* True if the first hops sum only part of the micro-batches. */
static bool needs_second_hop(const weft_checker *check, int32_t u) {
    const weft_instruction hop = {.kind = WEFT_INSTRUCTION_REDUCE, .unit = u, .scope = check->units[u].scope};
    if (check->job->view.replicas == 1) return false;
    return weft_job_spec_ranks(check->job, &hop, check->rank).count < check->world;
}

/* The unit's sum must contain all micro-batches of this rank. */
static weft_status check_terms(weft_checker *check, int32_t u) {
    const int32_t due = check->micro_batches / check->job->view.replicas, found = check->uses[u].terms;
    for (int32_t m = 0; m < check->micro_batches && found < due; m++) {
        const bool here = weft_job_spec_owned(check->job) || check->forward[m].rank == check->rank;
        if (here && check->terms[weft_check_pair(check, u, m)].at.rank < 0)
            return weft_check_refuse(check, "unit %s has had no REDUCE for micro-batch %d: the sum is not complete",
                                     weft_check_unit_name(check, u), (int)m);
    }
    if (found < due)
        return weft_check_refuse(
            check, "unit %s has had REDUCEs for %d of the rank's %d micro-batches: the sum is not complete",
            weft_check_unit_name(check, u), (int)found, (int)due);
    return WEFT_OK;
}

/* The unit's sum must be finished on its ranks. */
static weft_status check_sum(weft_checker *check, int32_t u) {
    const weft_check_use *use = &check->uses[u];
    weft_status status = check_terms(check, u);
    if (status != WEFT_OK) return status;
    if (use->second < 0 && needs_second_hop(check, u))
        return weft_check_refuse(check, "unit %s has had no second hop: REDUCE %s gathers a part of the sum alone",
                                 weft_check_unit_name(check, u), weft_scope_name(check->units[u].scope));
    if (use->summing >= 0)
        return weft_check_refuse(check, "instruction %d, which exchanges the sum of unit %s, has not been waited for",
                                 (int)use->summing, weft_check_unit_name(check, u));
    return WEFT_OK;
}

weft_status weft_check_sums_complete(weft_checker *check) {
    weft_status status = WEFT_OK;
    for (int32_t u = 0; u < check->job->view.n_units && status == WEFT_OK; u++) {
        const weft_instruction gather = {.kind = WEFT_INSTRUCTION_GATHER, .unit = u, .what = WEFT_PAYLOAD_SUM};
        if (!weft_check_sums(check, u)) continue;
        status = check_sum(check, u);
        if (status == WEFT_OK && check->uses[u].finished < 0 &&
            weft_job_spec_ranks(check->job, &gather, check->rank).count > 1)
            status = weft_check_refuse(check,
                                       "the finished sum of unit %s lies in pieces: its holders must GATHER it before",
                                       weft_check_unit_name(check, u));
    }
    return status;
}

static weft_status check_gather_sum(weft_checker *check, const weft_instruction *instruction) {
    const int32_t u = instruction->unit;
    weft_check_use *use = &check->uses[u];
    weft_status status = WEFT_OK;
    if (!check->units[u].trains) return weft_check_refuse(check, "the unit is frozen and has no gradient");
    if (!weft_check_sums(check, u) || weft_job_spec_ranks(check->job, instruction, check->rank).count == 0)
        return weft_check_refuse(check, "the unit's sum is its owner's alone, rank %d: it goes nowhere",
                                 (int)check->job->view.placements[u].owner);
    status = weft_check_once(check, &use->finished);
    if (status == WEFT_OK) status = check_sum(check, u);
    use->summing = check->at;
    return status;
}

/* Checks that a REDUCE of this unit is possible now. */
static weft_status check_reduce_of(weft_checker *check, const weft_instruction *instruction) {
    const int32_t u = instruction->unit;
    const weft_check_use *use = &check->uses[u];
    if (!check->units[u].trains) return weft_check_refuse(check, "the unit is frozen and has no gradient");
    if (!weft_check_sums(check, u))
        return weft_check_refuse(check, "the unit's sum is rank %d's: a part of a micro-batch gradient is sent there",
                                 (int)check->units[u].owner);
    if (weft_job_spec_ranks(check->job, instruction, check->rank).count == 0)
        return weft_check_refuse(check,
                                 "the unit is not sharded: there is no group of ranks that this scope could mean");
    if (use->finished >= 0)
        return weft_check_refuse(check, "the sum has been gathered as finished, by instruction %d", (int)use->finished);
    if (use->second >= 0)
        return weft_check_refuse(
            check, "instruction %d, the second hop, has taken what there is: it comes once, after all micro-batches",
            (int)use->second);
    if (use->summing >= 0)
        return weft_check_refuse(check, "instruction %d, which exchanges the same sum, has not been waited for",
                                 (int)use->summing);
    return WEFT_OK;
}

/* All first hops of a unit, on all ranks, have one scope. */
static weft_status check_scope(weft_checker *check, const weft_instruction *instruction) {
    weft_check_unit *facts = &check->units[instruction->unit];
    if (instruction->scope == WEFT_SCOPE_ACROSS)
        return weft_check_refuse(
            check,
            "between groups of ranks travels what REDUCE node has gathered: such an instruction names no micro-batch");
    if (facts->scope == 0) {
        facts->scope = instruction->scope;
        facts->first.rank = check->rank;
        facts->first.instruction = check->at;
    }
    if (facts->scope != instruction->scope)
        return weft_check_refuse(check,
                                 "the first REDUCE of this unit, instruction %d of rank %d, has scope %s: all of its "
                                 "micro-batches go one way",
                                 (int)facts->first.instruction, (int)facts->first.rank, weft_scope_name(facts->scope));
    return WEFT_OK;
}

/* Returns the name of a segment of this rank that reads the unit and has had no BACKWARD for this micro-batch. */
static const char *missing_segment(const weft_checker *check, int32_t u, int32_t m) {
    for (int32_t s = check->job->view.n_segments - 1; s >= 0; s--)
        if (weft_job_spec_backward(check->job, s) && weft_job_spec_reads(check->job, s, u) &&
            weft_job_spec_runs(check->job, s, check->rank) &&
            (check->backward[weft_check_pair(check, s, m)] < 0 ||
             check->forward[weft_check_pair(check, s, m)].rank != check->rank))
            return weft_check_segment_name(check, s);
    return "?";
}

/* The micro-batch gradient must be complete on this rank. */
static weft_status check_complete(weft_checker *check, int32_t u, int32_t m) {
    const bool here = weft_job_spec_owned(check->job) || check->forward[m].rank == check->rank;
    const int32_t done = here ? check->begun[!weft_check_sums(check, u)][weft_check_pair(check, u, m)] : 0;
    if (done == check->uses[u].readers) return WEFT_OK;
    return weft_check_refuse(check, "segment %s reads unit %s and has had no BACKWARD for micro-batch %d here",
                             missing_segment(check, u, m), weft_check_unit_name(check, u), (int)m);
}

static weft_status check_first_hop(weft_checker *check, const weft_instruction *instruction) {
    const int32_t u = instruction->unit, m = instruction->micro_batch;
    weft_check_use *use = &check->uses[u];
    weft_check_term *term = &check->terms[weft_check_pair(check, u, m)];
    weft_status status = check_scope(check, instruction);
    if (status == WEFT_OK) status = check_complete(check, u, m);
    if (status == WEFT_OK) status = weft_check_once(check, &term->at.instruction);
    if (status == WEFT_OK && use->reduced > m)
        status = weft_check_refuse(
            check, "micro-batch %d of this unit has joined the sum already: a rank's micro-batches join in their order",
            (int)use->reduced);
    if (status != WEFT_OK) return status;
    term->at.rank = check->rank;
    term->round = use->terms++;
    use->reduced = m;
    return WEFT_OK;
}

static weft_status check_second_hop(weft_checker *check, const weft_instruction *instruction) {
    weft_check_use *use = &check->uses[instruction->unit];
    const int32_t scope = check->units[instruction->unit].scope;
    const int32_t first = instruction->scope == WEFT_SCOPE_ALL ? WEFT_SCOPE_RANK : WEFT_SCOPE_NODE;
    if (instruction->scope != WEFT_SCOPE_ALL && instruction->scope != WEFT_SCOPE_ACROSS)
        return weft_check_refuse(check,
                                 "without a micro-batch it is a second hop, and those are of scope all or across");
    if (scope != first)
        return weft_check_refuse(check, "it takes what REDUCE %s has gathered of this unit, and that is nothing",
                                 weft_scope_name(first));
    use->second = check->at;
    return check_terms(check, instruction->unit);
}

static weft_status check_reduce(weft_checker *check, const weft_instruction *instruction) {
    weft_status status = check_reduce_of(check, instruction);
    if (status == WEFT_OK)
        status = instruction->micro_batch >= 0 ? check_first_hop(check, instruction)
                                               : check_second_hop(check, instruction);
    if (status == WEFT_OK) check->uses[instruction->unit].summing = check->at;
    return status;
}

/* ---- SEND and RECV ---- */

/* The producing and the consuming rank of a transfer. */
typedef struct way {
    int32_t from, to; /* -1: no rank */
} way;

static way way_of(const weft_checker *check, const weft_instruction *instruction) {
    const weft_strategy_job *view = &check->job->view;
    way out = {-1, -1};
    if (instruction->what == WEFT_PAYLOAD_MICRO_BATCH_GRADIENT) {
        out.from = check->units[instruction->unit].borrower;
        out.to = check->units[instruction->unit].owner;
    } else if (instruction->segment + 1 < view->n_segments) {
        const int32_t below = view->segments[instruction->segment].owner,
                      above = view->segments[instruction->segment + 1].owner;
        out.from = instruction->what == WEFT_PAYLOAD_CARRY ? below : above;
        out.to = instruction->what == WEFT_PAYLOAD_CARRY ? above : below;
    }
    return out;
}

static bool has_gradient(const weft_checker *check, const weft_instruction *instruction) {
    if (instruction->what == WEFT_PAYLOAD_MICRO_BATCH_GRADIENT) return check->units[instruction->unit].trains;
    return instruction->what == WEFT_PAYLOAD_CARRY || weft_job_spec_backward(check->job, instruction->segment);
}

/* Checks that the job has this transfer, between these ranks. */
static weft_status check_way(weft_checker *check, const weft_instruction *instruction) {
    const bool sends = instruction->kind == WEFT_INSTRUCTION_SEND;
    const way due = way_of(check, instruction);
    if (!weft_job_spec_owned(check->job))
        return weft_check_refuse(
            check, "each rank is a replica and runs all segments itself: nothing of a micro-batch travels");
    if (due.from < 0 || due.to < 0 || due.from == due.to || !has_gradient(check, instruction))
        return weft_check_refuse(check, "no other rank needs what it names, so that nothing of it travels");
    if (check->rank == (sends ? due.from : due.to) && instruction->peer == (sends ? due.to : due.from)) return WEFT_OK;
    return weft_check_refuse(check, "what it names goes from rank %d to rank %d", (int)due.from, (int)due.to);
}

/* The data of a SEND must be complete. */
static weft_status check_made(weft_checker *check, const weft_instruction *instruction) {
    const int32_t m = instruction->micro_batch;
    if (instruction->what == WEFT_PAYLOAD_MICRO_BATCH_GRADIENT) return check_complete(check, instruction->unit, m);
    if (instruction->what == WEFT_PAYLOAD_CARRY &&
        check->forward[weft_check_pair(check, instruction->segment, m)].rank < 0)
        return weft_check_refuse(check, "the segment has had no FORWARD for micro-batch %d", (int)m);
    if (instruction->what == WEFT_PAYLOAD_CARRY_GRADIENT &&
        check->backward[weft_check_pair(check, instruction->segment + 1, m)] < 0)
        return weft_check_refuse(check, "segment %s, which makes this gradient, has had no BACKWARD for micro-batch %d",
                                 weft_check_segment_name(check, instruction->segment + 1), (int)m);
    return WEFT_OK;
}

static weft_status check_send(weft_checker *check, const weft_instruction *instruction) {
    weft_status status = check_way(check, instruction);
    if (status == WEFT_OK) status = check_made(check, instruction);
    if (status == WEFT_OK) status = weft_check_once(check, &check->sent[weft_check_transfer(check, instruction)]);
    if (status == WEFT_OK && instruction->what == WEFT_PAYLOAD_MICRO_BATCH_GRADIENT)
        check->uses[instruction->unit].parts++;
    return status;
}

static weft_status check_recv(weft_checker *check, const weft_instruction *instruction) {
    weft_status status = check_way(check, instruction);
    if (status == WEFT_OK) status = weft_check_once(check, &check->received[weft_check_transfer(check, instruction)]);
    return status;
}

/* ---- end of an exchange ---- */

static void end_exchange(weft_checker *check, int32_t at) {
    const weft_instruction *instruction = &check->program->instructions[at];
    weft_check_use *use = instruction->unit >= 0 ? &check->uses[instruction->unit] : NULL;
    switch (instruction->kind) {
    case WEFT_INSTRUCTION_GATHER:
        if (instruction->what == WEFT_PAYLOAD_SUM) {
            use->summing = -1;
        } else {
            use->gathering = -1;
            use->gathered = at;
        }
        break;
    case WEFT_INSTRUCTION_REDUCE: use->summing = -1; break;
    case WEFT_INSTRUCTION_RECV: check->arrived[weft_check_transfer(check, instruction)] = 1; break;
    default: break;
    }
}

static weft_status check_wait(weft_checker *check, const weft_instruction *instruction) {
    const weft_instruction *ended = &check->program->instructions[instruction->waits];
    if (ended->queue == 0)
        return weft_check_refuse(check,
                                 "instruction %d, a %s of queue 0, ended in its place: nothing is to be waited for",
                                 (int)instruction->waits, weft_instruction_kind_name(ended->kind));
    if (check->waited[instruction->waits])
        return weft_check_refuse(check, "instruction %d has been waited for already", (int)instruction->waits);
    check->waited[instruction->waits] = 1;
    end_exchange(check, instruction->waits);
    return WEFT_OK;
}

weft_status weft_check_exchange(weft_checker *check, const weft_instruction *instruction) {
    weft_status status = WEFT_OK;
    switch (instruction->kind) {
    case WEFT_INSTRUCTION_GATHER:
        status = instruction->what == WEFT_PAYLOAD_SUM ? check_gather_sum(check, instruction)
                                                       : check_gather(check, instruction);
        break;
    case WEFT_INSTRUCTION_RELEASE: return check_release(check, instruction);
    case WEFT_INSTRUCTION_REDUCE: status = check_reduce(check, instruction); break;
    case WEFT_INSTRUCTION_SEND: status = check_send(check, instruction); break;
    case WEFT_INSTRUCTION_RECV: status = check_recv(check, instruction); break;
    case WEFT_INSTRUCTION_REFRESH: status = check_refresh(check, instruction); break;
    default: return check_wait(check, instruction);
    }
    if (status == WEFT_OK && instruction->queue == 0) end_exchange(check, check->at);
    return status;
}

/* ---- end of the program ---- */

/* Checks that this rank has sent all that other ranks need. */
static weft_status check_sent(weft_checker *check) {
    const weft_strategy_job *view = &check->job->view;
    for (int32_t s = 0; s + 1 < view->n_segments; s++) {
        const int32_t below = view->segments[s].owner, above = view->segments[s + 1].owner;
        for (int32_t m = 0; m < check->micro_batches && below != above; m++) {
            const weft_instruction up = {.what = WEFT_PAYLOAD_CARRY, .segment = s, .micro_batch = m};
            const weft_instruction down = {.what = WEFT_PAYLOAD_CARRY_GRADIENT, .segment = s, .micro_batch = m};
            const bool lacks_up = below == check->rank && check->sent[weft_check_transfer(check, &up)] < 0;
            const bool lacks_down = above == check->rank && weft_job_spec_backward(check->job, s) &&
                                    check->sent[weft_check_transfer(check, &down)] < 0;
            if (lacks_up || lacks_down)
                return weft_error_set(
                    check->err, WEFT_E_PLUGIN,
                    "rank %d: its program ends after %d instructions without SEND %s %s micro-batch %d peer %d",
                    (int)check->rank, (int)check->program->n_instructions, view->segments[s].name,
                    weft_what_name(lacks_up ? WEFT_PAYLOAD_CARRY : WEFT_PAYLOAD_CARRY_GRADIENT), (int)m,
                    (int)(lacks_up ? above : below));
        }
    }
    return WEFT_OK;
}

static weft_status check_unit_closed(weft_checker *check, int32_t u) {
    const weft_check_use *use = &check->uses[u];
    const weft_instruction refresh = {.kind = WEFT_INSTRUCTION_REFRESH, .unit = u};
    const weft_check_unit *facts = &check->units[u];
    if (use->gathered >= 0)
        return weft_check_refuse_at(check, check->rank, use->gathered,
                                    "the program ends and the gathered copy has not been released");
    if (weft_check_trains(check) && use->refreshed < 0 &&
        weft_job_spec_ranks(check->job, &refresh, check->rank).count > 1)
        return weft_error_set(
            check->err, WEFT_E_PLUGIN,
            "rank %d: its program ends after %d instructions without REFRESH %s: STEP leaves its copy stale",
            (int)check->rank, (int)check->program->n_instructions, weft_check_unit_name(check, u));
    if (facts->borrower == check->rank && use->parts < check->micro_batches)
        return weft_error_set(
            check->err, WEFT_E_PLUGIN,
            "rank %d: its program ends after %d instructions and has sent %d of the %d parts of unit %s's "
            "micro-batch gradients to rank %d",
            (int)check->rank, (int)check->program->n_instructions, (int)use->parts, (int)check->micro_batches,
            weft_check_unit_name(check, u), (int)facts->owner);
    return WEFT_OK;
}

weft_status weft_check_exchanges_closed(weft_checker *check) {
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < check->program->n_instructions; i++)
        if (check->program->instructions[i].queue > 0 && !check->waited[i])
            return weft_check_refuse_at(check, check->rank, i, "the program ends and no WAIT has ended it");
    for (int32_t u = 0; u < check->job->view.n_units && status == WEFT_OK; u++) status = check_unit_closed(check, u);
    if (status == WEFT_OK && weft_job_spec_owned(check->job)) status = check_sent(check);
    return status;
}
