/* host/program/sums.c: see exchange.h. */
#include "program/exchange.h"

#include "base/alloc.h"

#include <stdlib.h>

weft_fold weft_fold_begin(int32_t reduce, int32_t n, bool loose) {
    weft_fold fold = {.reduce = reduce, .n = n, .loose = loose || reduce == WEFT_REDUCE_FAST};
    return fold;
}

/* True if [lo, mid) and [mid, hi) are the two halves of a node of the tree over [0, n). */
static bool are_halves(int32_t n, int32_t lo, int32_t mid, int32_t hi) {
    int32_t from = 0, to = n;
    while (to - from > hi - lo) {
        const int32_t split = from + (to - from + 1) / 2;
        if (hi <= split) to = split;
        else if (lo >= split) from = split;
        else return false;
    }
    return from == lo && to == hi && mid == from + (to - from + 1) / 2;
}

static bool term_joins(const weft_fold *fold, int32_t mid, int32_t hi) {
    const int32_t lo = fold->lo[fold->top - 1];
    if (fold->loose) return true;
    if (fold->hi[fold->top - 1] != mid) return false;
    if (fold->reduce == WEFT_REDUCE_ORDERED) return lo == 0;
    return are_halves(fold->n, lo, mid, hi);
}

/* A full stack, which no sum in the defined order has, adds its terms in arrival order. */
weft_fold_step weft_fold_push(weft_fold *fold, int32_t lo, int32_t hi) {
    weft_fold_step step = {fold->top, false, 0};
    if (fold->top == WEFT_FOLD_DEPTH) fold->loose = true;
    if (fold->top == 0 || !term_joins(fold, lo, hi)) {
        fold->lo[fold->top] = lo;
        fold->hi[fold->top++] = hi;
        return step;
    }
    step.slot = fold->top - 1;
    step.add = true;
    for (fold->hi[step.slot] = hi; fold->top > 1; step.merges++) {
        const int32_t last_lo = fold->lo[fold->top - 1], last_hi = fold->hi[fold->top - 1];
        fold->top--;
        if (!term_joins(fold, last_lo, last_hi)) {
            fold->top++;
            break;
        }
        fold->hi[fold->top - 1] = last_hi;
    }
    return step;
}

/* ---- terms ---- */

enum { SCOPES = WEFT_SCOPE_ACROSS + 1 };

/* Micro-batches that a rank has contributed to the first hop of a unit so far. */
typedef struct given {
    int32_t lo, hi, n;
} given;

typedef struct finder {
    const weft_program *const *programs;
    const weft_job_spec *job;
    const weft_program *own;
    int32_t rank;
    weft_terms *out;
    int32_t *head; /* [n_units][SCOPES] first own REDUCE of that unit and scope; -1: none */
    int32_t *next; /* [n_instructions] the next own REDUCE of the same unit and scope; -1: none */
    int32_t *now;  /* [n_units][SCOPES] the one that the current rank has reached */
    given *rows;   /* [n_units] of the current rank */
} finder;

static int32_t sort_of(const weft_instruction *instruction) {
    return instruction->unit * SCOPES + instruction->scope;
}

static bool is_reduce(const weft_instruction *instruction, const weft_job_spec *job) {
    return instruction->kind == WEFT_INSTRUCTION_REDUCE && instruction->unit >= 0 &&
           instruction->unit < job->view.n_units && instruction->scope >= WEFT_SCOPE_RANK &&
           instruction->scope <= WEFT_SCOPE_ACROSS;
}

static void list_own(finder *f) {
    int32_t *last = f->now;
    int32_t at = 0;
    for (int32_t i = 0; i < f->job->view.n_units * SCOPES; i++) f->head[i] = last[i] = -1;
    for (int32_t i = 0; i < f->own->n_instructions; i++) {
        const weft_instruction *instruction = &f->own->instructions[i];
        f->out->first[i] = at;
        f->out->n[i] = 0;
        f->next[i] = -1;
        if (!is_reduce(instruction, f->job)) continue;
        const weft_cut cut = weft_cut_of(f->job, instruction->unit);
        at += weft_scope_size(&cut, instruction->scope);
        if (last[sort_of(instruction)] < 0) f->head[sort_of(instruction)] = i;
        else f->next[last[sort_of(instruction)]] = i;
        last[sort_of(instruction)] = i;
    }
}

/* A row of a second hop is the sum of all micro-batches that its sender received in the first hop. */
static weft_term term_of(finder *f, const weft_instruction *instruction, int32_t rank) {
    const weft_cut cut = weft_cut_of(f->job, instruction->unit);
    const given *row = &f->rows[instruction->unit];
    weft_term term = {weft_scope_place(&cut, instruction->scope, rank), instruction->micro_batch,
                      instruction->micro_batch + 1};
    if (instruction->micro_batch >= 0) return term;
    term.lo = row->lo;
    term.hi = row->hi;
    /* the micro-batches of a group's ranks interleave */
    if (instruction->scope == WEFT_SCOPE_ACROSS) {
        term.lo = row->lo / cut.group * cut.group;
        term.hi = (row->hi + cut.group - 1) / cut.group * cut.group;
        if (row->n * cut.group != term.hi - term.lo) f->out->scattered = true;
    } else if (row->n != row->hi - row->lo) f->out->scattered = true;
    return term;
}

static void note_micro_batch(given *row, int32_t micro_batch) {
    if (micro_batch < 0) return;
    if (row->n == 0 || micro_batch < row->lo) row->lo = micro_batch;
    if (row->n == 0 || micro_batch + 1 > row->hi) row->hi = micro_batch + 1;
    row->n++;
}

static void take_rank(finder *f, int32_t rank) {
    const weft_program *program = f->programs[rank];
    memcpy(f->now, f->head, (size_t)(f->job->view.n_units * SCOPES) * sizeof *f->now);
    memset(f->rows, 0, (size_t)f->job->view.n_units * sizeof *f->rows);
    for (int32_t i = 0; i < program->n_instructions; i++) {
        const weft_instruction *instruction = &program->instructions[i];
        int32_t own = -1;
        if (!is_reduce(instruction, f->job)) continue;
        const weft_cut cut = weft_cut_of(f->job, instruction->unit);
        own = f->now[sort_of(instruction)];
        note_micro_batch(&f->rows[instruction->unit], instruction->micro_batch);
        if (own < 0) continue;
        f->now[sort_of(instruction)] = f->next[own];
        if (!weft_scope_together(&cut, instruction->scope, rank, f->rank)) continue;
        f->out->terms[f->out->first[own] + f->out->n[own]++] = term_of(f, instruction, rank);
    }
}

static int by_micro_batch(const void *a, const void *b) {
    const weft_term *x = a, *y = b;
    return (x->lo > y->lo) - (x->lo < y->lo);
}

/* Terms are usually sorted already. */
static void sort_terms(weft_term *terms, int32_t n) {
    for (int32_t i = 1; i < n; i++) {
        if (terms[i - 1].lo <= terms[i].lo) continue;
        qsort(terms, (size_t)n, sizeof *terms, by_micro_batch);
        return;
    }
}

/* programs: of all ranks. */
static weft_terms *create_terms(const weft_program *const *programs, const weft_job_spec *job, int32_t rank) {
    finder f = {.programs = programs, .job = job, .own = programs[rank], .rank = rank};
    const int32_t n = f.own->n_instructions, sorts = job->view.n_units * SCOPES;
    int64_t rows = 0;
    for (int32_t i = 0; i < n; i++)
        if (is_reduce(&f.own->instructions[i], job)) {
            const weft_cut cut = weft_cut_of(job, f.own->instructions[i].unit);
            rows += weft_scope_size(&cut, f.own->instructions[i].scope);
        }
    f.out = weft_alloc(1, sizeof *f.out);
    f.out->terms = weft_alloc(rows, sizeof *f.out->terms);
    f.out->first = weft_alloc(n, sizeof *f.out->first);
    f.out->n = weft_alloc(n, sizeof *f.out->n);
    f.head = weft_alloc(sorts, sizeof *f.head);
    f.now = weft_alloc(sorts, sizeof *f.now);
    f.next = weft_alloc(n, sizeof *f.next);
    f.rows = weft_alloc(job->view.n_units, sizeof *f.rows);
    list_own(&f);
    for (int32_t r = 0; r < job->view.world; r++) take_rank(&f, r);
    for (int32_t i = 0; i < n; i++) sort_terms(f.out->terms + f.out->first[i], f.out->n[i]);
    free(f.head);
    free(f.now);
    free(f.next);
    free(f.rows);
    return f.out;
}

/* ---- bytes of exchanges ---- */

/* A REDUCE of scope ACROSS reads the result of the first hop; the others may read a micro-batch gradient. */
void weft_sums_size_units(const weft_plan *plan, weft_job *job) {
    for (int32_t u = 0; u < job->spec.view.n_units; u++) {
        weft_unit_sizes *sizes = &job->units[u];
        sizes->gathered = weft_gathered_bytes(plan, &job->spec, u, &sizes->gather_each);
        sizes->gradient = weft_f32_bytes(weft_exchange_piece(plan, &job->spec, u)) * job->spec.view.replicas;
        for (int32_t scope = WEFT_SCOPE_RANK; sizes->gradient > 0 && scope <= WEFT_SCOPE_ACROSS; scope++)
            sizes->exchange[scope] = weft_exchange_reduce(plan, &job->spec, u, scope, scope != WEFT_SCOPE_ACROSS).bytes;
    }
}

/* ---- the state of a rank ---- */

/* A rank that runs a segment which reads an owned unit has a copy of its parameters. */
static bool has_copy(const weft_job_spec *job, int32_t unit, int32_t rank) {
    for (int32_t s = 0; s < job->view.n_segments; s++)
        if (job->view.segments[s].owner == rank && weft_job_spec_reads(job, s, unit)) return true;
    return false;
}

/* A weft_holding of parameters, gradient sums, or any state. */
static int32_t holding_of(const weft_placement *p, int32_t what) {
    return what == WEFT_HOLD_PARAMETERS ? p->parameters : what == WEFT_HOLD_GRADIENTS ? p->gradients : p->optimizer;
}

static weft_hold_part kept_part_of(const weft_plan *plan, const weft_job_spec *job, int32_t unit, int32_t what) {
    const weft_placement *p = &job->view.placements[unit];
    const int32_t holding = holding_of(p, what);
    const weft_cut cut = weft_cut_of(job, unit);
    weft_hold_part part = {cut.replicas, 0, cut.replicas};
    if (holding == WEFT_SHARDED) {
        part.first = plan->rank % cut.group * cut.groups;
        part.n = cut.groups;
    }
    if (holding == WEFT_OWNED && p->owner != plan->rank &&
        !(what == WEFT_HOLD_PARAMETERS && has_copy(job, unit, plan->rank)))
        part.n = 0;
    return part;
}

static void plan_hold(weft_plan *plan, const weft_job_spec *job, int32_t what) {
    const weft_layout *layout = plan->layout;
    const int32_t n = what == WEFT_HOLD_PARAMETERS ? layout->n_groups : layout->n_trainable_groups;
    const int32_t state = what - WEFT_HOLD_STATES;
    const int32_t dtype = what == WEFT_HOLD_PARAMETERS           ? 0 /* the group's storage type */
                          : state >= 0 && state < plan->n_states ? plan->states[state].dtype
                                                                 : WEFT_F32;
    weft_hold_part *parts = weft_alloc(n, sizeof *parts);
    plan->apart[what] = weft_alloc(layout->n_groups, sizeof **plan->apart);
    for (int32_t g = 0; g < n; g++) {
        const int32_t unit = layout->groups[g].unit;
        parts[g] = kept_part_of(plan, job, unit, what);
        plan->apart[what][g] = plan->world > 1 && holding_of(&job->view.placements[unit], what) != WEFT_REPLICATED;
    }
    plan->holds[what] = weft_hold_create(layout, parts, n, dtype);
    free(parts);
}

void weft_sums_hold(weft_plan *plan, const weft_job_spec *job) {
    const int32_t states = plan->n_states > 1 ? (int32_t)plan->n_states : 1;
    for (int32_t what = 0; what < WEFT_HOLD_STATES + states; what++)
        if (plan->holds[what] == NULL) plan_hold(plan, job, what);
}

/* ---- sums ---- */

int64_t weft_sums_target(const weft_plan *plan, const weft_job_spec *job, int32_t unit, int32_t scope) {
    const int32_t index = plan->layout->units[unit].trained;
    const weft_cut cut = weft_cut_of(job, unit);
    const weft_hold_part part = kept_part_of(plan, job, unit, WEFT_HOLD_GRADIENTS);
    const int64_t piece = weft_exchange_piece(plan, job, unit);
    int64_t at = 0;
    if (weft_scope_size(&cut, scope) > 1 || part.n < cut.replicas) {
        const int32_t place = weft_scope_place(&cut, WEFT_SCOPE_ALL, plan->rank);
        const int32_t wanted = scope == WEFT_SCOPE_NODE ? plan->rank % cut.group * cut.groups : place;
        at = piece * (wanted - part.first);
    }
    return plan->holds[WEFT_HOLD_GRADIENTS]->spans[index].at + weft_f32_bytes(at);
}

/* Simulates a unit's terms to find the maximum number of pending sums, and the scope of each hop. Returns true if each
 * hop ends with one sum. */
static bool measure_depth(const weft_mode_plan *mode_plan, weft_unit_sum *sum, int32_t scopes[2], int32_t unit) {
    const int32_t reduce = mode_plan->job->spec.view.reduce, micro_batches = mode_plan->program->micro_batches;
    weft_fold folds[2] = {weft_fold_begin(reduce, micro_batches, sum->loose),
                          weft_fold_begin(reduce, micro_batches, sum->loose)};
    sum->depth[0] = sum->depth[1] = 0;
    for (int32_t i = 0; i < mode_plan->program->n_instructions; i++) {
        const weft_instruction *instruction = &mode_plan->program->instructions[i];
        const int hop = instruction->micro_batch < 0 ? 1 : 0;
        if (instruction->kind != WEFT_INSTRUCTION_REDUCE || instruction->unit != unit) continue;
        scopes[hop] = instruction->scope;
        for (int32_t t = 0; t < mode_plan->terms->n[i]; t++) {
            const weft_term *term = &mode_plan->terms->terms[mode_plan->terms->first[i] + t];
            (void)weft_fold_push(&folds[hop], term->lo, term->hi);
            if (folds[hop].top > sum->depth[hop]) sum->depth[hop] = folds[hop].top;
        }
    }
    return folds[0].top <= 1 && folds[1].top <= 1;
}

static void plan_sum(const weft_plan *plan, weft_mode_plan *mode_plan, int32_t unit, int64_t *at) {
    weft_unit_sum *sum = &mode_plan->sums[unit];
    int32_t scopes[2] = {0, 0};
    sum->loose = mode_plan->terms->scattered;
    if (!measure_depth(mode_plan, sum, scopes, unit) && !sum->loose) {
        sum->loose = true;
        (void)measure_depth(mode_plan, sum, scopes, unit);
    }
    sum->two_hops = scopes[1] != 0;
    sum->scope = scopes[sum->two_hops];
    for (int hop = 0; hop < 2; hop++) {
        const bool last = hop == (sum->two_hops ? 1 : 0);
        const int32_t waiting = sum->depth[hop] - (last && sum->depth[hop] > 0 ? 1 : 0);
        if (scopes[hop] != 0)
            sum->length[hop] = weft_exchange_reduce(plan, &mode_plan->job->spec, unit, scopes[hop], hop == 0).row;
        sum->partials[hop] = *at;
        *at += sum->length[hop] * waiting;
    }
}

void weft_sums_plan(const weft_plan *plan, weft_mode_plan *mode_plan, const weft_program *const *programs) {
    const int32_t n_units = mode_plan->job->spec.view.n_units;
    mode_plan->terms = create_terms(programs, &mode_plan->job->spec, plan->rank);
    mode_plan->sums = weft_alloc(n_units, sizeof *mode_plan->sums);
    mode_plan->partials = 0;
    for (int32_t u = 0; u < n_units; u++) plan_sum(plan, mode_plan, u, &mode_plan->partials);
}

/* ---- losses ---- */

void weft_sums_losses(weft_mode_plan *mode_plan, const weft_program *const *programs, int32_t world) {
    const int32_t head = mode_plan->job->spec.view.n_segments - 1;
    mode_plan->losses = weft_alloc(mode_plan->program->micro_batches, sizeof *mode_plan->losses);
    for (int32_t rank = 0; rank < world; rank++) {
        int32_t n = 0;
        for (int32_t i = 0; i < programs[rank]->n_instructions; i++) {
            const weft_instruction *instruction = &programs[rank]->instructions[i];
            if (instruction->kind != WEFT_INSTRUCTION_FORWARD || instruction->segment != head) continue;
            mode_plan->losses[instruction->micro_batch].rank = rank;
            mode_plan->losses[instruction->micro_batch].position = n++;
        }
        if (n > mode_plan->most_losses) mode_plan->most_losses = n;
    }
}
