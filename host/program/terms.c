/* host/program/terms.c: see terms.h. */
#include "program/terms.h"

#include "base/alloc.h"

#include <stdlib.h>

enum { SCOPES = WEFT_SCOPE_ACROSS + 1 };

weft_cut weft_cut_of(const weft_job_spec *job, int32_t unit) {
    const weft_placement *p = &job->view.placements[unit];
    const int32_t replicas = job->view.replicas;
    const bool sharded = p->gradients == WEFT_SHARDED || p->parameters == WEFT_SHARDED || p->optimizer == WEFT_SHARDED;
    const int32_t group = sharded && p->group >= 1 && replicas % p->group == 0 ? p->group : replicas;
    return (weft_cut){replicas, group, replicas / group};
}

int32_t weft_cut_place(const weft_cut *cut, int32_t rank) {
    return rank % cut->group * cut->groups + rank / cut->group;
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
    case WEFT_SCOPE_ALL: return cut->replicas > 1 ? weft_cut_place(cut, rank) : 0;
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

/* True if an exchange of this rank receives a row of the other rank. */
static bool takes_part(const finder *f, int32_t rank) {
    if (rank == f->rank) return true;
    for (int32_t unit = 0; unit < f->job->view.n_units; unit++) {
        const weft_cut cut = weft_cut_of(f->job, unit);
        for (int32_t scope = WEFT_SCOPE_ALL; scope <= WEFT_SCOPE_ACROSS; scope++)
            if (f->head[unit * SCOPES + scope] >= 0 && weft_scope_together(&cut, scope, rank, f->rank)) return true;
    }
    return false;
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

weft_terms *weft_terms_create(const weft_program *const *programs, const weft_job_spec *job, int32_t rank) {
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
    for (int32_t r = 0; r < job->view.world; r++)
        if (takes_part(&f, r)) take_rank(&f, r);
    for (int32_t i = 0; i < n; i++) sort_terms(f.out->terms + f.out->first[i], f.out->n[i]);
    free(f.head);
    free(f.now);
    free(f.next);
    free(f.rows);
    return f.out;
}

void weft_terms_destroy(weft_terms *terms) {
    if (terms == NULL) return;
    free(terms->terms);
    free(terms->first);
    free(terms->n);
    free(terms);
}
