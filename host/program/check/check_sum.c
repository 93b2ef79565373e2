/* host/program/check/check_sum.c: that the sums are the ones that the job's `reduce` defines, to the bit.
 *
 * Which micro-batch joined where is known by now, and that each did so once. What is left is the order. A sum that
 * is being made is a row of ranges of micro-batches, [lo, hi): `ordered` grows one range from micro-batch 0, a
 * micro-batch at a time; `tree` puts two neighbours together where they are the two halves of one node of the tree
 * over all n micro-batches, which halves a range after its first ceil(n / 2). A sum that ends as the one range [0,
 * n) and never did anything else is exact. */
#include "program/check/check.h"

#include <stdlib.h>

enum { MOST_RANGES = 64 }; /* a row of a tree's nodes, two of each size at most */

typedef struct range {
    int32_t lo, hi;
} range;

typedef struct sum {
    range row[MOST_RANGES];
    int32_t n;
    bool exact; /* so far */
} sum;

/* What joins a sum, and where it stands in the order in which it does. */
typedef struct joining {
    int32_t group, round;
    range micro_batches;
    bool exact;
} joining;

/* True if two ranges are the halves of one node of the tree over n micro-batches. */
static bool are_halves(range left, range right, int32_t n) {
    range node = {0, n};
    if (left.hi != right.lo) return false;
    while (node.hi - node.lo > 1) {
        const int32_t middle = node.lo + (node.hi - node.lo + 1) / 2;
        if (node.lo == left.lo && node.hi == right.hi) return middle == left.hi;
        if (right.hi <= middle) node.hi = middle;
        else if (left.lo >= middle) node.lo = middle;
        else return false;
    }
    return false;
}

static void join_ordered(sum *self, range term) {
    if (self->n == 0) self->row[self->n++] = term;
    else if (self->row[0].lo == 0 && self->row[0].hi == term.lo && term.hi == term.lo + 1) self->row[0].hi = term.hi;
    else self->exact = false;
}

static void join_tree(sum *self, range term, int32_t n) {
    if (self->n == MOST_RANGES || (self->n > 0 && self->row[self->n - 1].hi != term.lo)) {
        self->exact = false;
        return;
    }
    self->row[self->n++] = term;
    while (self->n > 1 && are_halves(self->row[self->n - 2], self->row[self->n - 1], n)) {
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

/* Which ranks gather a first hop together, by number. */
static int32_t group_of(const weft_checker *check, int32_t u, int32_t rank) {
    const weft_instruction instruction = {.kind = WEFT_INSTRUCTION_REDUCE, .unit = u, .scope = check->units[u].scope};
    return weft_job_spec_ranks(check->job, &instruction, rank).first;
}

/* Adds up each group's terms; returns how many sums there are. terms is in the order of by_way. */
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

/* True if the unit's sum is the one that is defined. */
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

/* ---- why not ---- */

static bool is_power_of_two(int32_t n) {
    return (n & (n - 1)) == 0;
}

static const char *nearest_of(const weft_checker *check, int32_t u, int32_t groups) {
    const weft_strategy_job *view = &check->job->view;
    const bool ordered = view->reduce == WEFT_REDUCE_ORDERED;
    switch (check->units[u].scope) {
    case WEFT_SCOPE_RANK:
        return ordered && is_power_of_two(view->replicas) ? "each replica adds up its own micro-batches before they "
                                                            "travel; reduce_at = each, or reduce = tree, is "
                                                            "covered"
                                                          : "each replica adds up its own micro-batches before they "
                                                            "travel, and that is covered by reduce = tree on "
                                                            "a "
                                                            "power of two of replicas; reduce_at = each is covered";
    case WEFT_SCOPE_NODE:
        return ordered && is_power_of_two(groups) && is_power_of_two(view->micro_batches)
                   ? "each shard group adds up its own micro-batches before they travel further; reduce_at = each, or "
                     "reduce "
                     "= "
                     "tree, is covered"
                   : "each shard group adds up its own micro-batches before they travel further, and that is covered "
                     "by "
                     "reduce "
                     "= tree where the groups, and the micro-batches of a replica, are powers of two; reduce_at = each "
                     "is "
                     "covered";
    default:
        return "the replicas take the micro-batches in another order than the batch has; the numbering of "
               "weft_job_micro_batch is "
               "covered";
    }
}

static void tell_coverage(const weft_checker *check, weft_coverage *out, int32_t u) {
    const int32_t size = check->job->view.placements[u].group;
    const int32_t groups = size > 0 ? check->world / size : 1;
    out->covered = false;
    (void)snprintf(out->why, sizeof out->why, "unit %s: reduce = %s: %s", check->job->view.units[u].name,
                   check->job->view.reduce == WEFT_REDUCE_TREE ? "tree" : "ordered", nearest_of(check, u, groups));
}

weft_status weft_check_sums_order(weft_checker *check, weft_coverage *out) {
    joining *terms = malloc(((size_t)check->micro_batches + 1) * sizeof *terms);
    if (terms == NULL)
        return weft_error_set(check->err, WEFT_E_MEMORY, "no memory for the terms of %d micro-batches",
                              (int)check->micro_batches);
    out->covered = true;
    if (check->job->view.reduce == WEFT_REDUCE_FAST && check->micro_batches > 1) {
        out->covered = false;
        (void)snprintf(out->why, sizeof out->why,
                       "reduce = fast takes whatever order the library adds in; reduce = ordered or tree is covered");
    }
    for (int32_t u = 0; u < check->job->view.n_units && out->covered; u++)
        if (check->units[u].trains && !is_exact(check, u, terms)) tell_coverage(check, out, u);
    free(terms);
    return WEFT_OK;
}
