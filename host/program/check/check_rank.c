/* host/program/check/check_rank.c: one rank's instructions in their order: what it computes, and norm and update.
 *
 * A state machine remembers which instruction did what. An instruction is judged by what it needs: has all of it
 * happened here, and has the instruction itself not happened before, on any rank. At the end nothing of this rank
 * may be missing. */
#include "program/check/check.h"

static weft_status check_runs(weft_checker *check, int32_t s) {
    if (weft_job_spec_runs(check->job, s, check->rank)) return WEFT_OK;
    return weft_check_refuse(check, "the segment belongs to rank %d, which alone runs it",
                             (int)check->job->view.segments[s].owner);
}

/* All that the segment reads must be whole here. */
static weft_status check_live(weft_checker *check, int32_t s) {
    const weft_segment_view *view = &check->job->view.segments[s];
    for (int32_t i = 0; i < view->n_units; i++) {
        const int32_t u = view->units[i];
        const weft_check_use *use = &check->uses[u];
        if (check->job->view.placements[u].parameters != WEFT_SHARDED || use->gathered >= 0) continue;
        if (use->gathering >= 0)
            return weft_check_refuse(check, "it reads unit %s, whose GATHER, instruction %d, has not been waited for",
                                     weft_check_unit_name(check, u), (int)use->gathering);
        return weft_check_refuse(
            check, "it reads unit %s, which is not live here: a GATHER must come before, and no RELEASE since",
            weft_check_unit_name(check, u));
    }
    return WEFT_OK;
}

/* What came out of the segment below must be here: made here, or received. */
static weft_status check_carry(weft_checker *check, int32_t s, int32_t m) {
    const weft_instruction from = {.what = WEFT_PAYLOAD_CARRY, .segment = s - 1, .micro_batch = m};
    if (s == 0) return WEFT_OK;
    if (weft_job_spec_runs(check->job, s - 1, check->rank)) {
        const weft_check_place *below = &check->forward[weft_check_pair(check, s - 1, m)];
        if (below->rank == check->rank) return WEFT_OK;
        return weft_check_refuse(check, "segment %s, whose carry it reads, has had no FORWARD for micro-batch %d here",
                                 weft_check_segment_name(check, s - 1), (int)m);
    }
    if (check->arrived[weft_check_transfer(check, &from)]) return WEFT_OK;
    return weft_check_refuse(
        check, "it reads the carry of segment %s for micro-batch %d, and no RECV of it from rank %d has ended",
        weft_check_segment_name(check, s - 1), (int)m, (int)check->job->view.segments[s - 1].owner);
}

/* FORWARDs and BACKWARDs of a micro-batch on this rank. */
static int32_t instructions_of_micro_batch(const weft_checker *check) {
    int32_t n = 0;
    for (int32_t s = 0; s < check->job->view.n_segments; s++)
        if (weft_job_spec_runs(check->job, s, check->rank)) n += weft_job_spec_backward(check->job, s) ? 2 : 1;
    return n;
}

/* The first segment takes the micro-batch on for this rank. */
static weft_status check_micro_batch(weft_checker *check) {
    if (weft_job_spec_owned(check->job)) return WEFT_OK;
    if (check->taken == check->micro_batches / check->job->view.replicas)
        return weft_check_refuse(check, "the rank has run %d micro-batches already: a replica takes no more",
                                 (int)check->taken);
    check->taken++;
    check->due += instructions_of_micro_batch(check);
    return WEFT_OK;
}

static weft_status check_forward(weft_checker *check, const weft_instruction *instruction) {
    const int32_t s = instruction->segment, m = instruction->micro_batch;
    weft_check_place *place = &check->forward[weft_check_pair(check, s, m)];
    weft_status status = check_runs(check, s);
    if (status != WEFT_OK) return status;
    if (place->rank >= 0 && place->rank != check->rank)
        return weft_check_refuse(
            check,
            "rank %d has run the segment for this micro-batch, as instruction %d: each micro-batch goes through once",
            (int)place->rank, (int)place->instruction);
    status = weft_check_once(check, &place->instruction);
    if (status == WEFT_OK) status = check_carry(check, s, m);
    if (status == WEFT_OK) status = check_live(check, s);
    if (status == WEFT_OK && s == 0) status = check_micro_batch(check);
    place->rank = check->rank;
    check->due--;
    return status;
}

/* RECOMPUTE and BACKWARD follow the FORWARD, on its rank. */
static weft_status check_ran_here(weft_checker *check, const weft_instruction *instruction) {
    const weft_check_place *place =
        &check->forward[weft_check_pair(check, instruction->segment, instruction->micro_batch)];
    if (place->rank == check->rank) return WEFT_OK;
    if (place->rank >= 0)
        return weft_check_refuse(check, "there is no tape here: rank %d has run its FORWARD, as instruction %d",
                                 (int)place->rank, (int)place->instruction);
    return weft_check_refuse(check, "there is no tape: its FORWARD for micro-batch %d must come before, on this rank",
                             (int)instruction->micro_batch);
}

static weft_status check_recompute(weft_checker *check, const weft_instruction *instruction) {
    const int32_t s = instruction->segment, m = instruction->micro_batch;
    const size_t i = weft_check_pair(check, s, m);
    weft_status status = check_ran_here(check, instruction);
    if (status != WEFT_OK) return status;
    if (!check->job->activation_checkpointing)
        return weft_check_refuse(
            check, "activation checkpointing is off, so FORWARD kept the tape and nothing is to be recomputed");
    if (!check->job->segments[s].has_backward)
        return weft_check_refuse(check, "the segment has no BACKWARD that a tape could serve");
    if (check->backward[i] >= 0)
        return weft_check_refuse(check, "its BACKWARD for micro-batch %d has already run, as instruction %d", (int)m,
                                 (int)check->backward[i]);
    status = weft_check_once(check, &check->recompute[i]);
    return status == WEFT_OK ? check_live(check, s) : status;
}

/* What the segment above handed down must be here. */
static weft_status check_carry_gradient(weft_checker *check, int32_t s, int32_t m) {
    const weft_instruction from = {.what = WEFT_PAYLOAD_CARRY_GRADIENT, .segment = s, .micro_batch = m};
    if (s == check->job->view.n_segments - 1) return WEFT_OK;
    if (weft_job_spec_runs(check->job, s + 1, check->rank)) {
        if (check->backward[weft_check_pair(check, s + 1, m)] >= 0) return WEFT_OK;
        return weft_check_refuse(check,
                                 "segment %s, which hands it the gradient, has had no BACKWARD for micro-batch %d",
                                 weft_check_segment_name(check, s + 1), (int)m);
    }
    if (check->arrived[weft_check_transfer(check, &from)]) return WEFT_OK;
    return weft_check_refuse(
        check, "no RECV of the gradient that segment %s hands it for micro-batch %d, from rank %d, has ended",
        weft_check_segment_name(check, s + 1), (int)m, (int)check->job->view.segments[s + 1].owner);
}

/* The first BACKWARD of a unit for a micro-batch on its owner adds to the part that another rank made. */
static weft_status check_part(weft_checker *check, int32_t u, int32_t m) {
    const weft_instruction part = {.what = WEFT_PAYLOAD_MICRO_BATCH_GRADIENT, .unit = u, .micro_batch = m};
    const weft_check_unit *facts = &check->units[u];
    if (facts->borrower < 0 || facts->owner != check->rank || check->begun[0][weft_check_pair(check, u, m)] > 0 ||
        check->arrived[weft_check_transfer(check, &part)])
        return WEFT_OK;
    return weft_check_refuse(
        check,
        "it adds to the gradient of unit %s for micro-batch %d, and no RECV of the part that rank %d makes has ended",
        weft_check_unit_name(check, u), (int)m, (int)facts->borrower);
}

/* Notes for each trained unit that the segment reads that one BACKWARD less is owing. */
static weft_status note_units(weft_checker *check, const weft_instruction *instruction) {
    const weft_segment_view *view = &check->job->view.segments[instruction->segment];
    const int32_t m = instruction->micro_batch;
    for (int32_t i = 0; i < view->n_units; i++) {
        const int32_t u = view->units[i];
        weft_check_use *use = &check->uses[u];
        weft_status status = WEFT_OK;
        if (!check->units[u].trains) continue;
        if (use->reached > m)
            return weft_check_refuse(
                check, "unit %s has already had a BACKWARD for micro-batch %d: its BACKWARDs run in micro-batch order",
                weft_check_unit_name(check, u), (int)use->reached);
        status = check_part(check, u, m);
        if (status != WEFT_OK) return status;
        use->reached = m;
        check->begun[!weft_check_sums(check, u)][weft_check_pair(check, u, m)]++;
    }
    return WEFT_OK;
}

static weft_status check_backward(weft_checker *check, const weft_instruction *instruction) {
    const int32_t s = instruction->segment, m = instruction->micro_batch;
    weft_status status = check_ran_here(check, instruction);
    if (status != WEFT_OK) return status;
    if (!check->job->segments[s].has_backward)
        return weft_check_refuse(check, "the segment has no BACKWARD: nothing at or below it is trained");
    if (check->count < 0) return weft_check_refuse(check, "COUNT must come before the first BACKWARD");
    status = weft_check_once(check, &check->backward[weft_check_pair(check, s, m)]);
    if (status == WEFT_OK) status = check_carry_gradient(check, s, m);
    if (status == WEFT_OK) status = check_live(check, s);
    check->due--;
    return status == WEFT_OK ? note_units(check, instruction) : status;
}

static weft_status check_norm(weft_checker *check) {
    weft_status status = WEFT_OK;
    if (check->count < 0) return weft_check_refuse(check, "COUNT must come before");
    status = weft_check_once(check, &check->norm);
    return status == WEFT_OK ? weft_check_sums_complete(check) : status;
}

/* STEP changes parameters: what is gathered then would be stale. */
static weft_status check_step(weft_checker *check) {
    if (check->norm < 0)
        return weft_check_refuse(check, "NORM must come before, once all micro-batch gradients are summed");
    for (int32_t u = 0; u < check->job->view.n_units; u++) {
        const weft_check_use *use = &check->uses[u];
        const int32_t gather = use->gathered >= 0 ? use->gathered : use->gathering;
        if (gather >= 0)
            return weft_check_refuse(
                check, "unit %s is still gathered, by instruction %d: a RELEASE must come before the update",
                weft_check_unit_name(check, u), (int)gather);
    }
    return weft_check_once(check, &check->step);
}

static weft_status check_instruction(weft_checker *check, const weft_instruction *instruction) {
    weft_status status = weft_check_fields(check, instruction);
    if (status != WEFT_OK) return status;
    if (check->step >= 0 && instruction->kind != WEFT_INSTRUCTION_REFRESH && instruction->kind != WEFT_INSTRUCTION_WAIT)
        return weft_check_refuse(check, "it follows STEP, instruction %d, after which only REFRESHes come, and WAITs",
                                 (int)check->step);
    switch (instruction->kind) {
    case WEFT_INSTRUCTION_COUNT: return weft_check_once(check, &check->count);
    case WEFT_INSTRUCTION_FORWARD: return check_forward(check, instruction);
    case WEFT_INSTRUCTION_RECOMPUTE: return check_recompute(check, instruction);
    case WEFT_INSTRUCTION_BACKWARD: return check_backward(check, instruction);
    case WEFT_INSTRUCTION_NORM: return check_norm(check);
    case WEFT_INSTRUCTION_STEP: return check_step(check);
    default: return weft_check_exchange(check, instruction);
    }
}

/* ---- the end ---- */

static weft_status refuse_missing(weft_checker *check, const char *what, const char *name, int32_t micro_batch) {
    return weft_error_set(check->err, WEFT_E_PLUGIN,
                          "rank %d: its program ends after %d instructions without %s %s micro-batch %d",
                          (int)check->rank, (int)check->program->n_instructions, what, name, (int)micro_batch);
}

/* Of the micro-batches that this rank runs, all segments that are its own have run. */
static weft_status check_segments_complete(weft_checker *check) {
    for (int32_t m = 0; m < check->micro_batches && check->due > 0; m++) {
        if (!weft_job_spec_owned(check->job) && check->forward[m].rank != check->rank) continue;
        for (int32_t s = 0; s < check->job->view.n_segments; s++) {
            const size_t i = weft_check_pair(check, s, m);
            if (!weft_job_spec_runs(check->job, s, check->rank)) continue;
            if (check->forward[i].rank < 0)
                return refuse_missing(check, "FORWARD", weft_check_segment_name(check, s), m);
            if (weft_job_spec_backward(check->job, s) && check->backward[i] < 0)
                return refuse_missing(check, "BACKWARD", weft_check_segment_name(check, s), m);
        }
    }
    return WEFT_OK;
}

static weft_status check_end(weft_checker *check) {
    const int32_t due = check->micro_batches / check->job->view.replicas;
    weft_status status = WEFT_OK;
    if (!weft_job_spec_owned(check->job) && check->taken < due)
        return weft_error_set(
            check->err, WEFT_E_PLUGIN,
            "rank %d: its program ends after %d instructions and has run FORWARD %s for %d micro-batches: a replica "
            "takes %d",
            (int)check->rank, (int)check->program->n_instructions, weft_check_segment_name(check, 0), (int)check->taken,
            (int)due);
    status = check_segments_complete(check);
    if (status == WEFT_OK && weft_check_trains(check) && check->step < 0)
        status = weft_error_set(check->err, WEFT_E_PLUGIN,
                                "rank %d: its program ends after %d instructions without STEP", (int)check->rank,
                                (int)check->program->n_instructions);
    return status == WEFT_OK ? weft_check_exchanges_closed(check) : status;
}

/* ---- the rank ---- */

static void begin_rank(weft_checker *check, int32_t rank) {
    const weft_strategy_job *view = &check->job->view;
    check->rank = rank;
    check->program = check->programs[rank];
    check->count = check->norm = check->step = -1;
    check->taken = 0;
    check->due = weft_job_spec_owned(check->job) ? check->micro_batches * instructions_of_micro_batch(check) : 0;
    memset(check->waited, 0, (size_t)check->program->n_instructions);
    for (int32_t u = 0; u < view->n_units; u++) {
        const weft_check_use none = {.gathered = -1,
                                     .gathering = -1,
                                     .summing = -1,
                                     .second = -1,
                                     .finished = -1,
                                     .refreshed = -1,
                                     .reached = -1,
                                     .reduced = -1};
        check->uses[u] = none;
    }
    for (int32_t s = 0; s < view->n_segments; s++)
        for (int32_t i = 0; i < view->segments[s].n_units; i++)
            if (weft_job_spec_backward(check->job, s) && weft_job_spec_runs(check->job, s, rank))
                check->uses[view->segments[s].units[i]].readers++;
}

weft_status weft_check_rank(weft_checker *check, int32_t rank) {
    weft_status status = WEFT_OK;
    begin_rank(check, rank);
    for (check->at = 0; status == WEFT_OK && check->at < check->program->n_instructions; check->at++)
        status = check_instruction(check, &check->program->instructions[check->at]);
    return status == WEFT_OK ? check_end(check) : status;
}
