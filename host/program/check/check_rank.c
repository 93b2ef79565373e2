/* host/program/check/check_rank.c: checks one rank's instructions in order: segments, norm and update; and the order of
 * the gradient sums.
 *
 * A state machine records the instruction of each operation. An instruction needs the results of earlier ones on this
 * rank, and must not have run before on any rank. At the end no instruction may be missing. */
#include "program/check/check.h"

#include "base/alloc.h"
#include "program/sums.h"

#include <stdlib.h>

/* ---- gradient sums: bit-identical to the job's `reduce` ----
 *
 * Each micro-batch is in the sum exactly once; the remaining check is the order. A sum is a row of ranges of
 * micro-batches, [lo, hi). `ordered` extends one range from micro-batch 0, one micro-batch at a time. `tree` joins two
 * neighbours that are the halves of one node of the tree over all micro-batches. A sum is exact if it ends as the one
 * range [0, n). */

enum { MOST_RANGES = 64 }; /* nodes of a tree: at most two of each size */

typedef struct range {
    int32_t lo, hi;
} range;

typedef struct sum {
    range row[MOST_RANGES];
    int32_t n;
    bool exact;
} sum;

/* A term of a sum, and its position in the order. */
typedef struct joining {
    int32_t group, round;
    range micro_batches;
    bool exact;
} joining;

static void join_ordered(sum *self, range term) {
    if (self->n == 0) self->row[self->n++] = term;
    else if (self->row[0].lo == 0 && self->row[0].hi == term.lo && term.hi == term.lo + 1) self->row[0].hi = term.hi;
    else self->exact = false;
}

/* True if the last two ranges are the halves of one node of the tree over n micro-batches. */
static bool joins_last(const sum *self, int32_t n) {
    const range *left = &self->row[self->n - 2], *right = &self->row[self->n - 1];
    return weft_fold_halves(n, left->lo, left->hi, right->hi);
}

static void join_tree(sum *self, range term, int32_t n) {
    if (self->n == MOST_RANGES || (self->n > 0 && self->row[self->n - 1].hi != term.lo)) {
        self->exact = false;
        return;
    }
    self->row[self->n++] = term;
    while (self->n > 1 && joins_last(self, n)) {
        self->row[self->n - 2].hi = self->row[self->n - 1].hi;
        self->n--;
    }
}

static void join_term(sum *self, const joining *term, const weft_checker *check) {
    self->exact = self->exact && term->exact;
    if (!self->exact) return;
    if (check->job->view.reduce == WEFT_REDUCE_TREE) join_tree(self, term->micro_batches, check->micro_batches);
    else join_ordered(self, term->micro_batches);
}

static int by_way(const void *a, const void *b) {
    const joining *x = a, *y = b;
    if (x->group != y->group) return x->group < y->group ? -1 : 1;
    if (x->round != y->round) return x->round < y->round ? -1 : 1;
    return x->micro_batches.lo < y->micro_batches.lo ? -1 : 1;
}

static int by_micro_batch(const void *a, const void *b) {
    const joining *x = a, *y = b;
    return x->micro_batches.lo < y->micro_batches.lo ? -1 : 1;
}

/* Returns the first rank of the group of a first hop. */
static int32_t group_of(const weft_checker *check, int32_t u, int32_t rank) {
    const weft_instruction instruction = {.kind = WEFT_INSTRUCTION_REDUCE, .unit = u, .scope = check->units[u].scope};
    return weft_job_spec_ranks(check->job, &instruction, rank).first;
}

/* Adds up each group's terms, which are sorted by by_way, and returns the number of sums. */
static int32_t gather_groups(const weft_checker *check, joining *terms) {
    int32_t n = 0;
    for (int32_t i = 0, end = 0; i < check->micro_batches; i = end) {
        sum part = {.exact = true};
        joining out = terms[i];
        for (end = i; end < check->micro_batches && terms[end].group == terms[i].group; end++) {
            join_term(&part, &terms[end], check);
            if (terms[end].micro_batches.lo < out.micro_batches.lo) out.micro_batches = terms[end].micro_batches;
        }
        out.exact = part.exact && part.n == 1;
        if (out.exact) out.micro_batches = part.row[0];
        terms[n++] = out;
    }
    return n;
}

/* True if the unit's sum has the defined order. */
static bool is_exact(const weft_checker *check, int32_t u, joining *terms) {
    sum all = {.exact = true};
    int32_t n = check->micro_batches;
    for (int32_t m = 0; m < n; m++) {
        const weft_check_term *term = &check->terms[weft_check_pair(check, u, m)];
        const joining one = {group_of(check, u, term->at.rank), term->round, {m, m + 1}, true};
        terms[m] = one;
    }
    qsort(terms, (size_t)n, sizeof *terms, by_way);
    n = gather_groups(check, terms);
    qsort(terms, (size_t)n, sizeof *terms, by_micro_batch);
    for (int32_t i = 0; i < n; i++) join_term(&all, &terms[i], check);
    return all.exact && all.n == 1 && all.row[0].lo == 0 && all.row[0].hi == check->micro_batches;
}

static bool is_power_of_two(int32_t n) {
    return (n & (n - 1)) == 0;
}

/* Returns the reason for a different order, and the nearest setting with the defined order. */
static const char *nearest_of(const weft_checker *check, int32_t u, int32_t groups) {
    const weft_strategy_job *view = &check->job->view;
    const bool ordered = view->reduce == WEFT_REDUCE_ORDERED;
    switch (check->units[u].scope) {
    case WEFT_SCOPE_RANK:
        if (ordered && is_power_of_two(view->replicas))
            return "each replica adds up its own micro-batches before they travel; reduce_at = each, or reduce = tree, "
                   "is covered";
        return "each replica adds up its own micro-batches before they travel, and that is covered by reduce = tree on "
               "a power of two of replicas; reduce_at = each is covered";
    case WEFT_SCOPE_NODE:
        if (ordered && is_power_of_two(groups) && is_power_of_two(view->micro_batches))
            return "each shard group adds up its own micro-batches before they travel further; reduce_at = each, or "
                   "reduce = tree, is covered";
        return "each shard group adds up its own micro-batches before they travel further, and that is covered by "
               "reduce = tree where the groups, and the micro-batches of a replica, are powers of two; reduce_at = "
               "each "
               "is covered";
    default:
        return "the replicas take the micro-batches in another order than the batch has; the numbering of "
               "weft_job_micro_batch is covered";
    }
}

static void report_order(const weft_checker *check, weft_coverage *out, int32_t u) {
    const int32_t size = check->job->view.placements[u].group;
    const int32_t groups = size > 0 ? check->world / size : 1;
    out->covered = false;
    (void)snprintf(out->why, sizeof out->why, "unit %s: reduce = %s: %s", check->job->view.units[u].name,
                   check->job->view.reduce == WEFT_REDUCE_TREE ? "tree" : "ordered", nearest_of(check, u, groups));
}

void weft_check_sums_order(weft_checker *check, weft_coverage *out) {
    joining *terms = weft_alloc(check->micro_batches, sizeof *terms);
    out->covered = true;
    if (check->job->view.reduce == WEFT_REDUCE_FAST && check->micro_batches > 1) {
        out->covered = false;
        (void)snprintf(out->why, sizeof out->why,
                       "reduce = fast takes whatever order the library adds in; reduce = ordered or tree is covered");
    }
    for (int32_t u = 0; u < check->job->view.n_units && out->covered; u++)
        if (check->units[u].trains && !is_exact(check, u, terms)) report_order(check, out, u);
    free(terms);
}

static weft_status check_runs(weft_checker *check, int32_t s) {
    if (weft_job_spec_runs(check->job, s, check->rank)) return WEFT_OK;
    return weft_check_refuse(check, "the segment belongs to rank %d, which alone runs it",
                             (int)check->job->view.segments[s].owner);
}

/* All units that the segment reads must be complete on this rank. */
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

/* The carry of the segment below must be on this rank: from its own FORWARD, or received. */
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

/* Returns the number of FORWARDs and BACKWARDs of a micro-batch on this rank. */
static int32_t instructions_of_micro_batch(const weft_checker *check) {
    int32_t n = 0;
    for (int32_t s = 0; s < check->job->view.n_segments; s++)
        if (weft_job_spec_runs(check->job, s, check->rank)) n += weft_job_spec_backward(check->job, s) ? 2 : 1;
    return n;
}

/* The FORWARD of the first segment assigns the micro-batch to this rank. */
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

/* RECOMPUTE and BACKWARD need an earlier FORWARD on this rank. */
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

/* The gradient from the segment above must be on this rank. */
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

/* The owner's first BACKWARD of a unit and micro-batch accumulates into the part of the borrower. */
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

/* Counts the BACKWARD for each trained unit that the segment reads. */
static weft_status count_units(weft_checker *check, const weft_instruction *instruction) {
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
    return status == WEFT_OK ? count_units(check, instruction) : status;
}

static weft_status check_norm(weft_checker *check) {
    weft_status status = WEFT_OK;
    if (check->count < 0) return weft_check_refuse(check, "COUNT must come before");
    status = weft_check_once(check, &check->norm);
    return status == WEFT_OK ? weft_check_sums_complete(check) : status;
}

/* STEP changes the parameters, so gathered copies would be stale. */
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

/* ---- end of the program ---- */

static weft_status refuse_missing(weft_checker *check, const char *what, const char *name, int32_t micro_batch) {
    return weft_error_set(check->err, WEFT_E_PLUGIN,
                          "rank %d: its program ends after %d instructions without %s %s micro-batch %d",
                          (int)check->rank, (int)check->program->n_instructions, what, name, (int)micro_batch);
}

/* Checks that this rank has run all of its segments for its micro-batches. */
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
