/* host/report/survey.c: see survey.h. */
#include "report/survey.h"

#include "report/sent.h"
#include "program/budget.h"
#include "program/sums.h"
#include "program/job.h"

#include <stdlib.h>

enum { TRAIN, EVALUATE, N_STAGES };

/* A placed program, and its memory. */
typedef struct placed {
    weft_program *program; /* without placement; the first of each stage is the plan's own */
    weft_price price;
    int64_t partials; /* elements; known where `shared` */
    bool shared;      /* all sums include all ranks, so ranks with equal programs have equal sums */
} placed;

typedef struct surveyor {
    const weft_plan *plan;
    weft_survey *survey;
    const weft_program **programs; /* [world] of training */
    const weft_program **reduces;  /* [world] the same with only their REDUCEs: all that the other ranks' sums
                                   * depend on */
    placed *kinds[N_STAGES];       /* [n_kinds] distinct programs */
    int32_t n_kinds[N_STAGES], room[N_STAGES];
    int32_t *leaves, *others; /* [leaves] of a step: mapping between the micro-batches of two programs */
} surveyor;

static const weft_stage *stage_of(const weft_plan *plan, int stage) {
    return stage == TRAIN ? &plan->train : &plan->evaluate;
}

/* ---- equality of programs ---- */

static bool same_leaf(surveyor *self, int32_t a, int32_t b) {
    if (a < 0 || b < 0) return a == b;
    if (self->leaves[a] == -1 && self->others[b] == -1) {
        self->leaves[a] = b;
        self->others[b] = a;
    }
    return self->leaves[a] == b && self->others[b] == a;
}

static bool same_event(surveyor *self, const weft_event *a, const weft_event *b) {
    return a->kind == b->kind && a->unit == b->unit && a->segment == b->segment && a->queue == b->queue &&
           a->waits == b->waits && a->what == b->what && a->scope == b->scope && same_leaf(self, a->leaf, b->leaf);
}

/* Returns true if the programs differ only in the numbers of micro-batches and peers. */
static bool programs_alike(surveyor *self, const weft_program *a, const weft_program *b) {
    bool same = a->n_events == b->n_events;
    memset(self->leaves, 0xFF, (size_t)a->leaves * sizeof *self->leaves);
    memset(self->others, 0xFF, (size_t)a->leaves * sizeof *self->others);
    for (int32_t i = 0; i < a->n_events && same; i++) same = same_event(self, &a->events[i], &b->events[i]);
    return same;
}

static bool all_shared(const weft_program *program) {
    for (int32_t i = 0; i < program->n_events; i++)
        if (program->events[i].kind == WEFT_EVENT_REDUCE && program->events[i].scope != WEFT_SCOPE_ALL) return false;
    return true;
}

/* ---- one rank ---- */

static weft_status compile_program(const surveyor *self, weft_program **out, int stage, int32_t rank, weft_error *err) {
    const weft_part *part = &self->plan->run->parts[WEFT_PART_STRATEGY];
    return weft_program_compile(out, self->plan->run->host, weft_loaded_table(part->loaded, strategy), part->config,
                                &stage_of(self->plan, stage)->job->spec, rank, err);
}

static weft_status make_room(surveyor *self, int stage, weft_error *err) {
    const int32_t room = self->room[stage] == 0 ? 8 : 2 * self->room[stage];
    placed *kinds = NULL;
    if (self->n_kinds[stage] < self->room[stage]) return WEFT_OK;
    kinds = realloc(self->kinds[stage], (size_t)room * sizeof *kinds);
    if (kinds == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for %d kinds of programs", (int)room);
    self->kinds[stage] = kinds;
    self->room[stage] = room;
    return WEFT_OK;
}

/* Places the program. */
static placed *add_kind(surveyor *self, int stage, weft_program *program) {
    placed *kind = &self->kinds[stage][self->n_kinds[stage]++];
    memset(kind, 0, sizeof *kind);
    kind->program = program;
    kind->partials = -1;
    kind->shared = all_shared(program);
    weft_program_price(&kind->price, program);
    return kind;
}

/* Takes ownership of the program: keeps it as the first of its kind, or frees it. Reuses a placement of the plan. */
static weft_status find_kind(surveyor *self, placed **out, int stage, weft_program *program, weft_error *err) {
    const weft_stage *of = stage_of(self->plan, stage);
    weft_status status = make_room(self, stage, err);
    if (status == WEFT_OK && self->n_kinds[stage] == 0) (void)add_kind(self, stage, of->program);
    for (int32_t i = 0; i < self->n_kinds[stage] && status == WEFT_OK; i++) {
        if (!programs_alike(self, self->kinds[stage][i].program, program)) continue;
        weft_program_destroy(program);
        *out = &self->kinds[stage][i];
        return WEFT_OK;
    }
    if (status == WEFT_OK) status = make_room(self, stage, err);
    if (status == WEFT_OK) status = weft_program_place(program, &of->job->spec, err);
    if (status == WEFT_OK) *out = add_kind(self, stage, program);
    else weft_program_destroy(program);
    return status;
}

/* Plans the partial sums stored on the rank: equal for ranks with equal programs, if all ranks take part in each sum.
 */
static weft_status plan_partials(const surveyor *self, weft_plan *rank, placed *kind, weft_error *err) {
    const int32_t r = rank->rank;
    const weft_program *own = self->reduces[r];
    weft_status status = WEFT_OK;
    rank->train.partials = kind->partials;
    if (kind->shared && kind->partials >= 0) return WEFT_OK;
    self->reduces[r] = self->programs[r];
    status = weft_sums_plan(rank, &rank->train, self->reduces, err);
    self->reduces[r] = own;
    kind->partials = rank->train.partials;
    weft_terms_destroy(rank->train.terms);
    free(rank->train.sums);
    rank->train.terms = NULL;
    rank->train.sums = NULL;
    return status;
}

static int64_t count_elements(const weft_hold *hold, const weft_declared *declared, bool trained) {
    int64_t n = 0, begin = 0, end = 0, at = 0;
    for (int32_t i = 0; i < declared->n_parameters; i++) {
        const weft_parameter *p = &declared->parameters[i];
        if (trained && !p->trainable) continue;
        if (weft_hold_find(hold, p, 0, p->numel, &begin, &end, &at)) n += end - begin;
    }
    return n;
}

/* Returns the bytes of the rank's shards, without padding. */
static int64_t parameter_bytes(const weft_hold *hold, const weft_declared *declared) {
    int64_t bytes = 0, begin = 0, end = 0, at = 0;
    for (int32_t i = 0; i < declared->n_parameters; i++) {
        const weft_parameter *p = &declared->parameters[i];
        if (weft_hold_find(hold, p, 0, p->numel, &begin, &end, &at)) bytes += weft_dtype_span(p->dtype, end - begin);
    }
    return bytes;
}

static void count_events(weft_rank_plan *plan, const weft_program *program) {
    plan->n_events = program->n_events;
    for (int32_t i = 0; i < program->n_events; i++) plan->events[program->events[i].kind]++;
}

static weft_status survey_bytes(surveyor *self, weft_plan *rank, weft_error *err) {
    const weft_plan *plan = self->plan;
    const int32_t r = rank->rank;
    placed *kind = NULL;
    weft_program *program = NULL;
    weft_status status = weft_sums_hold(rank, &plan->train.job->spec, err);
    if (status == WEFT_OK) status = weft_program_copy(&program, self->programs[r], err);
    if (status == WEFT_OK) status = find_kind(self, &kind, TRAIN, program, err);
    if (status != WEFT_OK) return status;
    rank->train.program = kind->program;
    rank->train.price = kind->price;
    status = plan_partials(self, rank, kind, err);
    if (status == WEFT_OK && plan->evaluate.program != NULL) {
        status = compile_program(self, &program, EVALUATE, r, err);
        if (status != WEFT_OK) weft_program_destroy(program);
        if (status == WEFT_OK) status = find_kind(self, &kind, EVALUATE, program, err);
        if (status == WEFT_OK) rank->evaluate.price = kind->price;
    }
    if (status == WEFT_OK) weft_plan_budget(rank);
    return status;
}

static weft_status survey_rank(surveyor *self, int32_t r, weft_error *err) {
    weft_rank_plan *plan = &self->survey->ranks[r];
    weft_plan rank = weft_plan_as_rank(self->plan, r);
    weft_status status = survey_bytes(self, &rank, err);
    if (status == WEFT_OK) {
        plan->bytes = rank.bytes;
        plan->kept = count_elements(rank.holds[WEFT_HOLD_PARAMETERS], rank.declared, false);
        plan->updated = count_elements(rank.holds[WEFT_HOLD_STATES], rank.declared, true);
        plan->padding = rank.holds[WEFT_HOLD_PARAMETERS]->bytes -
                        parameter_bytes(rank.holds[WEFT_HOLD_PARAMETERS], rank.declared);
        count_events(plan, self->programs[r]);
        status = weft_sent_plan(plan, self->survey, self->plan, self->programs[r], r, err);
    }
    weft_plan_drop_rank(&rank);
    return status;
}

/* ---- all ranks ---- */

/* Compiles a rank's program, and one of its REDUCEs only. */
static weft_status compile_rank(surveyor *self, int32_t rank, weft_error *err) {
    weft_program *program = NULL, *reduces = NULL;
    weft_status status = compile_program(self, &program, TRAIN, rank, err);
    self->programs[rank] = program;
    if (status == WEFT_OK) status = weft_program_copy(&reduces, program, err);
    self->reduces[rank] = reduces;
    if (status != WEFT_OK) return status;
    reduces->n_events = 0;
    for (int32_t i = 0; i < program->n_events; i++)
        if (program->events[i].kind == WEFT_EVENT_REDUCE) reduces->events[reduces->n_events++] = program->events[i];
    return WEFT_OK;
}

static weft_status begin_survey(surveyor *self, weft_error *err) {
    const weft_strategy_job *job = &self->plan->train.job->spec.view;
    const size_t leaves = (size_t)weft_job_spec_leaves(&self->plan->train.job->spec) + (size_t)job->world;
    weft_status status = WEFT_OK;
    self->survey = calloc(1, sizeof *self->survey);
    self->programs = calloc((size_t)job->world, sizeof *self->programs);
    self->reduces = calloc((size_t)job->world, sizeof *self->reduces);
    self->leaves = malloc(leaves * sizeof *self->leaves);
    self->others = malloc(leaves * sizeof *self->others);
    if (self->survey != NULL) self->survey->ranks = calloc((size_t)job->world, sizeof *self->survey->ranks);
    if (self->programs == NULL || self->reduces == NULL || self->leaves == NULL || self->others == NULL ||
        self->survey == NULL || self->survey->ranks == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for the plans of %d ranks", (int)job->world);
    self->survey->world = job->world;
    self->survey->nodes = job->nodes;
    self->survey->ranks_per_node = job->ranks_per_node;
    for (int32_t rank = 0; rank < job->world && status == WEFT_OK; rank++) status = compile_rank(self, rank, err);
    return status;
}

static void end_survey(surveyor *self, int32_t world) {
    for (int stage = 0; stage < N_STAGES; stage++) {
        for (int32_t i = 1; i < self->n_kinds[stage]; i++) weft_program_destroy(self->kinds[stage][i].program);
        free(self->kinds[stage]);
    }
    for (int32_t rank = 0; rank < world; rank++) {
        if (self->programs != NULL) weft_program_destroy((weft_program *)self->programs[rank]);
        if (self->reduces != NULL) weft_program_destroy((weft_program *)self->reduces[rank]);
    }
    free(self->reduces);
    free(self->programs);
    free(self->leaves);
    free(self->others);
}

weft_status weft_survey_create(weft_survey **out, const weft_plan *plan, weft_error *err) {
    surveyor self = {.plan = plan};
    const int32_t world = plan->world;
    weft_status status = begin_survey(&self, err);
    for (int32_t rank = 0; rank < world && status == WEFT_OK; rank++) status = survey_rank(&self, rank, err);
    end_survey(&self, world);
    if (status == WEFT_OK) *out = self.survey;
    else weft_survey_destroy(self.survey);
    return status;
}

void weft_survey_destroy(weft_survey *survey) {
    if (survey == NULL) return;
    for (int32_t rank = 0; survey->ranks != NULL && rank < survey->world; rank++) free(survey->ranks[rank].links);
    free(survey->ranks);
    free(survey);
}

void weft_survey_links(const weft_survey *survey, int64_t *to, int32_t rank) {
    const weft_rank_plan *plan = &survey->ranks[rank];
    memset(to, 0, (size_t)survey->world * sizeof *to);
    for (int32_t i = 0; i < plan->n_links; i++) {
        const weft_link *link = &plan->links[i];
        if (link->peer >= 0) to[link->peer] += link->each;
        for (int32_t r = 0; link->peer < 0 && r < survey->world; r++)
            if (r != rank && weft_scope_together(&link->cut, link->scope, r, rank)) to[r] += link->each;
    }
}

weft_status weft_survey_hold(weft_hold **out, const weft_plan *plan, int32_t rank, weft_error *err) {
    weft_plan other = weft_plan_as_rank(plan, rank);
    const weft_status status = weft_sums_hold(&other, &plan->train.job->spec, err);
    if (status == WEFT_OK) {
        *out = other.holds[WEFT_HOLD_PARAMETERS];
        other.holds[WEFT_HOLD_PARAMETERS] = NULL;
    }
    weft_plan_drop_rank(&other);
    return status;
}
