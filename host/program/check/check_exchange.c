/* host/program/check/check_exchange.c: what a rank's exchanges need and leave behind, as far as the rank itself can
 * show it.
 *
 * An exchange of another queue is under way until its WAIT. What it writes or reads is marked until then: a gathered
 * copy, a sum, something received. Leaf gradients, carries and their gradients are complete before they travel, so
 * those that are being read need no mark. Where an exchange is among this rank alone it may be left out. */
#include "program/check/check.h"

/* ---- parameters ---- */

static weft_status check_gather(weft_checker *check, const weft_event *event) {
    weft_check_use *use = &check->uses[event->unit];
    if (weft_job_spec_ranks(check->job, event, check->rank).count == 0)
        return weft_check_refuse(check,
                                 "the unit's parameters are not sharded: they lie here whole, or are not this rank's");
    if (use->gathering >= 0)
        return weft_check_refuse(check, "event %d gathers the unit already and has not been waited for",
                                 (int)use->gathering);
    if (use->gathered >= 0)
        return weft_check_refuse(check, "the unit is live since event %d and has not been released",
                                 (int)use->gathered);
    use->gathering = check->at;
    return WEFT_OK;
}

static weft_status check_release(weft_checker *check, const weft_event *event) {
    weft_check_use *use = &check->uses[event->unit];
    if (use->gathering >= 0)
        return weft_check_refuse(check, "its GATHER, event %d, is under way: a WAIT must come before",
                                 (int)use->gathering);
    if (use->gathered < 0) return weft_check_refuse(check, "the unit has no gathered copy here that could go");
    use->gathered = -1;
    return WEFT_OK;
}

static weft_status check_refresh(weft_checker *check, const weft_event *event) {
    weft_check_use *use = &check->uses[event->unit];
    if (check->step < 0) return weft_check_refuse(check, "STEP must come before: no copy is stale yet");
    if (weft_job_spec_ranks(check->job, event, check->rank).count == 0)
        return weft_check_refuse(check, "STEP leaves no copy of this unit stale on this rank");
    return weft_check_once(check, &use->refreshed);
}

/* ---- sums ---- */

/* True if what the first hops gather is less than the sum, on this rank. */
static bool needs_second_hop(const weft_checker *check, int32_t u) {
    const weft_event hop = {.kind = WEFT_EVENT_REDUCE, .unit = u, .scope = check->units[u].scope};
    if (check->job->view.replicas == 1) return false;
    return weft_job_spec_ranks(check->job, &hop, check->rank).count < check->world;
}

/* All leaves of this rank must have joined the unit's sum. */
static weft_status check_terms(weft_checker *check, int32_t u) {
    const int32_t due = check->leaves / check->job->view.replicas, found = check->uses[u].terms;
    for (int32_t m = 0; m < check->leaves && found < due; m++) {
        const bool here = weft_job_spec_owned(check->job) || check->forward[m].rank == check->rank;
        if (here && check->terms[weft_check_pair(check, u, m)].at.rank < 0)
            return weft_check_refuse(check, "unit %s has had no REDUCE for leaf %d: the sum is not complete",
                                     weft_check_unit_name(check, u), (int)m);
    }
    if (found < due)
        return weft_check_refuse(check,
                                 "unit %s has had REDUCEs for %d of the rank's %d leaves: the sum is not complete",
                                 weft_check_unit_name(check, u), (int)found, (int)due);
    return WEFT_OK;
}

/* The unit's sum must be finished, wherever it lies. */
static weft_status check_sum(weft_checker *check, int32_t u) {
    const weft_check_use *use = &check->uses[u];
    weft_status status = check_terms(check, u);
    if (status != WEFT_OK) return status;
    if (use->second < 0 && needs_second_hop(check, u))
        return weft_check_refuse(check, "unit %s has had no second hop: REDUCE %s gathers a part of the sum alone",
                                 weft_check_unit_name(check, u), weft_scope_name(check->units[u].scope));
    if (use->summing >= 0)
        return weft_check_refuse(check, "event %d, which exchanges the sum of unit %s, has not been waited for",
                                 (int)use->summing, weft_check_unit_name(check, u));
    return WEFT_OK;
}

weft_status weft_check_sums_complete(weft_checker *check) {
    weft_status status = WEFT_OK;
    for (int32_t u = 0; u < check->job->view.n_units && status == WEFT_OK; u++) {
        const weft_event gather = {.kind = WEFT_EVENT_GATHER, .unit = u, .what = WEFT_WHAT_SUM};
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

static weft_status check_gather_sum(weft_checker *check, const weft_event *event) {
    const int32_t u = event->unit;
    weft_check_use *use = &check->uses[u];
    weft_status status = WEFT_OK;
    if (!check->units[u].trains) return weft_check_refuse(check, "the unit is frozen and has no gradient");
    if (!weft_check_sums(check, u) || weft_job_spec_ranks(check->job, event, check->rank).count == 0)
        return weft_check_refuse(check, "the unit's sum is its owner's alone, rank %d: it goes nowhere",
                                 (int)check->job->view.placements[u].owner);
    status = weft_check_once(check, &use->finished);
    if (status == WEFT_OK) status = check_sum(check, u);
    use->summing = check->at;
    return status;
}

/* Which REDUCE this may be at all. */
static weft_status check_reduce_of(weft_checker *check, const weft_event *event) {
    const int32_t u = event->unit;
    const weft_check_use *use = &check->uses[u];
    if (!check->units[u].trains) return weft_check_refuse(check, "the unit is frozen and has no gradient");
    if (!weft_check_sums(check, u))
        return weft_check_refuse(check, "the unit's sum is rank %d's: a part of a leaf gradient is sent there",
                                 (int)check->units[u].owner);
    if (weft_job_spec_ranks(check->job, event, check->rank).count == 0)
        return weft_check_refuse(check,
                                 "the unit is not sharded: there is no group of ranks that this scope could mean");
    if (use->finished >= 0)
        return weft_check_refuse(check, "the sum has been gathered as finished, by event %d", (int)use->finished);
    if (use->second >= 0)
        return weft_check_refuse(check,
                                 "event %d, the second hop, has taken what there is: it comes once, after all leaves",
                                 (int)use->second);
    if (use->summing >= 0)
        return weft_check_refuse(check, "event %d, which exchanges the same sum, has not been waited for",
                                 (int)use->summing);
    return WEFT_OK;
}

/* All first hops of a unit, on all ranks, go one way. */
static weft_status check_scope(weft_checker *check, const weft_event *event) {
    weft_check_unit *facts = &check->units[event->unit];
    if (event->scope == WEFT_SCOPE_ACROSS)
        return weft_check_refuse(
            check, "between groups of ranks travels what REDUCE node has gathered: such an event names no leaf");
    if (facts->scope == 0) {
        facts->scope = event->scope;
        facts->first.rank = check->rank;
        facts->first.event = check->at;
    }
    if (facts->scope != event->scope)
        return weft_check_refuse(
            check, "the first REDUCE of this unit, event %d of rank %d, has scope %s: all of its leaves go one way",
            (int)facts->first.event, (int)facts->first.rank, weft_scope_name(facts->scope));
    return WEFT_OK;
}

/* Name of a segment of this rank that reads the unit and has had no BACKWARD for this leaf. */
static const char *owing_segment(const weft_checker *check, int32_t u, int32_t m) {
    for (int32_t s = check->job->view.n_segments - 1; s >= 0; s--)
        if (weft_job_spec_backward(check->job, s) && weft_job_spec_reads(check->job, s, u) &&
            weft_job_spec_runs(check->job, s, check->rank) &&
            (check->backward[weft_check_pair(check, s, m)] < 0 ||
             check->forward[weft_check_pair(check, s, m)].rank != check->rank))
            return weft_check_segment_name(check, s);
    return "?";
}

/* The leaf gradient must be complete, here. */
static weft_status check_complete(weft_checker *check, int32_t u, int32_t m) {
    const bool here = weft_job_spec_owned(check->job) || check->forward[m].rank == check->rank;
    const int32_t done = here ? check->begun[!weft_check_sums(check, u)][weft_check_pair(check, u, m)] : 0;
    if (done == check->uses[u].readers) return WEFT_OK;
    return weft_check_refuse(check, "segment %s reads unit %s and has had no BACKWARD for leaf %d here",
                             owing_segment(check, u, m), weft_check_unit_name(check, u), (int)m);
}

static weft_status check_first_hop(weft_checker *check, const weft_event *event) {
    const int32_t u = event->unit, m = event->leaf;
    weft_check_use *use = &check->uses[u];
    weft_check_term *term = &check->terms[weft_check_pair(check, u, m)];
    weft_status status = check_scope(check, event);
    if (status == WEFT_OK) status = check_complete(check, u, m);
    if (status == WEFT_OK) status = weft_check_once(check, &term->at.event);
    if (status == WEFT_OK && use->reduced > m)
        status =
            weft_check_refuse(check,
                              "leaf %d of this unit has joined the sum already: a rank's leaves join in their order",
                              (int)use->reduced);
    if (status != WEFT_OK) return status;
    term->at.rank = check->rank;
    term->round = use->terms++;
    use->reduced = m;
    return WEFT_OK;
}

static weft_status check_second_hop(weft_checker *check, const weft_event *event) {
    weft_check_use *use = &check->uses[event->unit];
    const int32_t scope = check->units[event->unit].scope;
    const int32_t first = event->scope == WEFT_SCOPE_ALL ? WEFT_SCOPE_RANK : WEFT_SCOPE_NODE;
    if (event->scope != WEFT_SCOPE_ALL && event->scope != WEFT_SCOPE_ACROSS)
        return weft_check_refuse(check, "without a leaf it is a second hop, and those are of scope all or across");
    if (scope != first)
        return weft_check_refuse(check, "it takes what REDUCE %s has gathered of this unit, and that is nothing",
                                 weft_scope_name(first));
    use->second = check->at;
    return check_terms(check, event->unit);
}

static weft_status check_reduce(weft_checker *check, const weft_event *event) {
    weft_status status = check_reduce_of(check, event);
    if (status == WEFT_OK) status = event->leaf >= 0 ? check_first_hop(check, event) : check_second_hop(check, event);
    if (status == WEFT_OK) check->uses[event->unit].summing = check->at;
    return status;
}

/* ---- SEND and RECV ---- */

/* Who makes and who needs what travels. */
typedef struct way {
    int32_t from, to; /* -1: nobody */
} way;

static way way_of(const weft_checker *check, const weft_event *event) {
    const weft_strategy_job *view = &check->job->view;
    way out = {-1, -1};
    if (event->what == WEFT_WHAT_LEAF_GRADIENT) {
        out.from = check->units[event->unit].borrower;
        out.to = check->units[event->unit].owner;
    } else if (event->segment + 1 < view->n_segments) {
        const int32_t below = view->segments[event->segment].owner, above = view->segments[event->segment + 1].owner;
        out.from = event->what == WEFT_WHAT_CARRY ? below : above;
        out.to = event->what == WEFT_WHAT_CARRY ? above : below;
    }
    return out;
}

static bool has_gradient(const weft_checker *check, const weft_event *event) {
    if (event->what == WEFT_WHAT_LEAF_GRADIENT) return check->units[event->unit].trains;
    return event->what == WEFT_WHAT_CARRY || weft_job_spec_backward(check->job, event->segment);
}

/* There is something of this kind to send, from this rank to that one. */
static weft_status check_way(weft_checker *check, const weft_event *event) {
    const bool sends = event->kind == WEFT_EVENT_SEND;
    const way due = way_of(check, event);
    if (!weft_job_spec_owned(check->job))
        return weft_check_refuse(check,
                                 "each rank is a replica and runs all segments itself: nothing of a leaf travels");
    if (due.from < 0 || due.to < 0 || due.from == due.to || !has_gradient(check, event))
        return weft_check_refuse(check, "no other rank needs what it names, so that nothing of it travels");
    if (check->rank == (sends ? due.from : due.to) && event->peer == (sends ? due.to : due.from)) return WEFT_OK;
    return weft_check_refuse(check, "what it names goes from rank %d to rank %d", (int)due.from, (int)due.to);
}

/* What is sent must be there: a SEND reads what has ended. */
static weft_status check_made(weft_checker *check, const weft_event *event) {
    const int32_t m = event->leaf;
    if (event->what == WEFT_WHAT_LEAF_GRADIENT) return check_complete(check, event->unit, m);
    if (event->what == WEFT_WHAT_CARRY && check->forward[weft_check_pair(check, event->segment, m)].rank < 0)
        return weft_check_refuse(check, "the segment has had no FORWARD for leaf %d", (int)m);
    if (event->what == WEFT_WHAT_CARRY_GRADIENT && check->backward[weft_check_pair(check, event->segment + 1, m)] < 0)
        return weft_check_refuse(check, "segment %s, which makes this gradient, has had no BACKWARD for leaf %d",
                                 weft_check_segment_name(check, event->segment + 1), (int)m);
    return WEFT_OK;
}

static weft_status check_send(weft_checker *check, const weft_event *event) {
    weft_status status = check_way(check, event);
    if (status == WEFT_OK) status = check_made(check, event);
    if (status == WEFT_OK) status = weft_check_once(check, &check->sent[weft_check_transfer(check, event)]);
    if (status == WEFT_OK && event->what == WEFT_WHAT_LEAF_GRADIENT) check->uses[event->unit].parts++;
    return status;
}

static weft_status check_recv(weft_checker *check, const weft_event *event) {
    weft_status status = check_way(check, event);
    if (status == WEFT_OK) status = weft_check_once(check, &check->received[weft_check_transfer(check, event)]);
    return status;
}

/* ---- the end of an exchange ---- */

static void end_exchange(weft_checker *check, int32_t at) {
    const weft_event *event = &check->program->events[at];
    weft_check_use *use = event->unit >= 0 ? &check->uses[event->unit] : NULL;
    switch (event->kind) {
    case WEFT_EVENT_GATHER:
        if (event->what == WEFT_WHAT_SUM) {
            use->summing = -1;
        } else {
            use->gathering = -1;
            use->gathered = at;
        }
        break;
    case WEFT_EVENT_REDUCE: use->summing = -1; break;
    case WEFT_EVENT_RECV: check->arrived[weft_check_transfer(check, event)] = 1; break;
    default: break;
    }
}

static weft_status check_wait(weft_checker *check, const weft_event *event) {
    const weft_event *ended = &check->program->events[event->waits];
    if (ended->queue == 0)
        return weft_check_refuse(check, "event %d, a %s of queue 0, ended in its place: nothing is to be waited for",
                                 (int)event->waits, weft_event_kind_name(ended->kind));
    if (check->waited[event->waits])
        return weft_check_refuse(check, "event %d has been waited for already", (int)event->waits);
    check->waited[event->waits] = 1;
    end_exchange(check, event->waits);
    return WEFT_OK;
}

weft_status weft_check_exchange(weft_checker *check, const weft_event *event) {
    weft_status status = WEFT_OK;
    switch (event->kind) {
    case WEFT_EVENT_GATHER:
        status = event->what == WEFT_WHAT_SUM ? check_gather_sum(check, event) : check_gather(check, event);
        break;
    case WEFT_EVENT_RELEASE: return check_release(check, event);
    case WEFT_EVENT_REDUCE: status = check_reduce(check, event); break;
    case WEFT_EVENT_SEND: status = check_send(check, event); break;
    case WEFT_EVENT_RECV: status = check_recv(check, event); break;
    case WEFT_EVENT_REFRESH: status = check_refresh(check, event); break;
    default: return check_wait(check, event);
    }
    if (status == WEFT_OK && event->queue == 0) end_exchange(check, check->at);
    return status;
}

/* ---- the end of the program ---- */

static weft_status open_at_end(weft_checker *check, int32_t at, const char *reason) {
    return weft_check_refuse_at(check, check->rank, at, "%s", reason);
}

/* What another rank needs of this one. */
static weft_status check_sent(weft_checker *check) {
    const weft_strategy_job *view = &check->job->view;
    for (int32_t s = 0; s + 1 < view->n_segments; s++) {
        const int32_t below = view->segments[s].owner, above = view->segments[s + 1].owner;
        for (int32_t m = 0; m < check->leaves && below != above; m++) {
            const weft_event up = {.what = WEFT_WHAT_CARRY, .segment = s, .leaf = m};
            const weft_event down = {.what = WEFT_WHAT_CARRY_GRADIENT, .segment = s, .leaf = m};
            const bool lacks_up = below == check->rank && check->sent[weft_check_transfer(check, &up)] < 0;
            const bool lacks_down = above == check->rank && weft_job_spec_backward(check->job, s) &&
                                    check->sent[weft_check_transfer(check, &down)] < 0;
            if (lacks_up || lacks_down)
                return weft_error_set(check->err, WEFT_E_PLUGIN,
                                      "rank %d: its program ends after %d events without SEND %s %s leaf %d peer %d",
                                      (int)check->rank, (int)check->program->n_events, view->segments[s].name,
                                      weft_what_name(lacks_up ? WEFT_WHAT_CARRY : WEFT_WHAT_CARRY_GRADIENT), (int)m,
                                      (int)(lacks_up ? above : below));
        }
    }
    return WEFT_OK;
}

static weft_status check_unit_closed(weft_checker *check, int32_t u) {
    const weft_check_use *use = &check->uses[u];
    const weft_event refresh = {.kind = WEFT_EVENT_REFRESH, .unit = u};
    const weft_check_unit *facts = &check->units[u];
    if (use->gathered >= 0)
        return open_at_end(check, use->gathered, "the program ends and the gathered copy has not been released");
    if (weft_check_trains(check) && use->refreshed < 0 &&
        weft_job_spec_ranks(check->job, &refresh, check->rank).count > 1)
        return weft_error_set(
            check->err, WEFT_E_PLUGIN,
            "rank %d: its program ends after %d events without REFRESH %s: STEP leaves its copy stale",
            (int)check->rank, (int)check->program->n_events, weft_check_unit_name(check, u));
    if (facts->borrower == check->rank && use->parts < check->leaves)
        return weft_error_set(check->err, WEFT_E_PLUGIN,
                              "rank %d: its program ends after %d events and has sent %d of the %d parts of unit %s's "
                              "leaf gradients to rank %d",
                              (int)check->rank, (int)check->program->n_events, (int)use->parts, (int)check->leaves,
                              weft_check_unit_name(check, u), (int)facts->owner);
    return WEFT_OK;
}

weft_status weft_check_exchanges_closed(weft_checker *check) {
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < check->program->n_events; i++)
        if (check->program->events[i].queue > 0 && !check->waited[i])
            return open_at_end(check, i, "the program ends and no WAIT has ended it");
    for (int32_t u = 0; u < check->job->view.n_units && status == WEFT_OK; u++) status = check_unit_closed(check, u);
    if (status == WEFT_OK && weft_job_spec_owned(check->job)) status = check_sent(check);
    return status;
}
