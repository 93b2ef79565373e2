/* host/report/all_rank_plan.c: see all_rank_plan.h. */
#include "report/all_rank_plan.h"

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
    weft_all_rank_plan *all_rank_plan;
    const weft_program **programs; /* [world] of training */
    const weft_program **reduces;  /* [world] the same with only their REDUCEs: all that the other ranks' sums
                                   * depend on */
    placed *kinds[N_STAGES];       /* [n_kinds] distinct programs */
    int32_t n_kinds[N_STAGES], room[N_STAGES];
    int32_t *micro_batches, *others; /* [micro-batches] of a step: mapping between the micro-batches of two programs */
} surveyor;

static const weft_mode_plan *mode_plan_of(const weft_plan *plan, int mode_plan) {
    return mode_plan == TRAIN ? &plan->train : &plan->evaluate;
}

/* ---- equality of programs ---- */

static bool same_micro_batch(surveyor *self, int32_t a, int32_t b) {
    if (a < 0 || b < 0) return a == b;
    if (self->micro_batches[a] == -1 && self->others[b] == -1) {
        self->micro_batches[a] = b;
        self->others[b] = a;
    }
    return self->micro_batches[a] == b && self->others[b] == a;
}

static bool same_instruction(surveyor *self, const weft_instruction *a, const weft_instruction *b) {
    return a->kind == b->kind && a->unit == b->unit && a->segment == b->segment && a->queue == b->queue &&
           a->waits == b->waits && a->what == b->what && a->scope == b->scope &&
           same_micro_batch(self, a->micro_batch, b->micro_batch);
}

/* Returns true if the programs differ only in the numbers of micro-batches and peers. */
static bool programs_alike(surveyor *self, const weft_program *a, const weft_program *b) {
    bool same = a->n_instructions == b->n_instructions;
    memset(self->micro_batches, 0xFF, (size_t)a->micro_batches * sizeof *self->micro_batches);
    memset(self->others, 0xFF, (size_t)a->micro_batches * sizeof *self->others);
    for (int32_t i = 0; i < a->n_instructions && same; i++)
        same = same_instruction(self, &a->instructions[i], &b->instructions[i]);
    return same;
}

static bool all_shared(const weft_program *program) {
    for (int32_t i = 0; i < program->n_instructions; i++)
        if (program->instructions[i].kind == WEFT_INSTRUCTION_REDUCE &&
            program->instructions[i].scope != WEFT_SCOPE_ALL)
            return false;
    return true;
}

/* ---- one rank ---- */

static weft_status compile_program(const surveyor *self, weft_program **out, int mode_plan, int32_t rank,
                                   weft_error *err) {
    const weft_part *part = &self->plan->run->parts[WEFT_PART_STRATEGY];
    return weft_program_compile(out, self->plan->run->host, weft_loaded_table(part->loaded, strategy), part->config,
                                &mode_plan_of(self->plan, mode_plan)->job->spec, rank, err);
}

static weft_status make_room(surveyor *self, int mode_plan, weft_error *err) {
    const int32_t room = self->room[mode_plan] == 0 ? 8 : 2 * self->room[mode_plan];
    placed *kinds = NULL;
    if (self->n_kinds[mode_plan] < self->room[mode_plan]) return WEFT_OK;
    kinds = realloc(self->kinds[mode_plan], (size_t)room * sizeof *kinds);
    if (kinds == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for %d kinds of programs", (int)room);
    self->kinds[mode_plan] = kinds;
    self->room[mode_plan] = room;
    return WEFT_OK;
}

/* Places the program. */
static placed *add_kind(surveyor *self, int mode_plan, weft_program *program) {
    placed *kind = &self->kinds[mode_plan][self->n_kinds[mode_plan]++];
    memset(kind, 0, sizeof *kind);
    kind->program = program;
    kind->partials = -1;
    kind->shared = all_shared(program);
    weft_program_price(&kind->price, program);
    return kind;
}

/* Takes ownership of the program: keeps it as the first of its kind, or frees it. Reuses a placement of the plan. */
static weft_status find_kind(surveyor *self, placed **out, int mode_plan, weft_program *program, weft_error *err) {
    const weft_mode_plan *of = mode_plan_of(self->plan, mode_plan);
    weft_status status = make_room(self, mode_plan, err);
    if (status == WEFT_OK && self->n_kinds[mode_plan] == 0) (void)add_kind(self, mode_plan, of->program);
    for (int32_t i = 0; i < self->n_kinds[mode_plan] && status == WEFT_OK; i++) {
        if (!programs_alike(self, self->kinds[mode_plan][i].program, program)) continue;
        weft_program_destroy(program);
        *out = &self->kinds[mode_plan][i];
        return WEFT_OK;
    }
    if (status == WEFT_OK) status = make_room(self, mode_plan, err);
    if (status == WEFT_OK) status = weft_program_place(program, &of->job->spec, err);
    if (status == WEFT_OK) *out = add_kind(self, mode_plan, program);
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

static void count_instructions(weft_rank_plan *plan, const weft_program *program) {
    plan->n_instructions = program->n_instructions;
    for (int32_t i = 0; i < program->n_instructions; i++) plan->instructions[program->instructions[i].kind]++;
}

static weft_status all_rank_plan_bytes(surveyor *self, weft_plan *rank, weft_error *err) {
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

static weft_status all_rank_plan_rank(surveyor *self, int32_t r, weft_error *err) {
    weft_rank_plan *plan = &self->all_rank_plan->ranks[r];
    weft_plan rank = weft_plan_as_rank(self->plan, r);
    weft_status status = all_rank_plan_bytes(self, &rank, err);
    if (status == WEFT_OK) {
        plan->bytes = rank.bytes;
        plan->kept = count_elements(rank.holds[WEFT_HOLD_PARAMETERS], rank.declared, false);
        plan->updated = count_elements(rank.holds[WEFT_HOLD_STATES], rank.declared, true);
        plan->padding = rank.holds[WEFT_HOLD_PARAMETERS]->bytes -
                        parameter_bytes(rank.holds[WEFT_HOLD_PARAMETERS], rank.declared);
        count_instructions(plan, self->programs[r]);
        status = weft_sent_plan(plan, self->all_rank_plan, self->plan, self->programs[r], r, err);
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
    reduces->n_instructions = 0;
    for (int32_t i = 0; i < program->n_instructions; i++)
        if (program->instructions[i].kind == WEFT_INSTRUCTION_REDUCE)
            reduces->instructions[reduces->n_instructions++] = program->instructions[i];
    return WEFT_OK;
}

static weft_status begin_all_rank_plan(surveyor *self, weft_error *err) {
    const weft_strategy_job *job = &self->plan->train.job->spec.view;
    const size_t micro_batches = (size_t)weft_job_spec_micro_batches(&self->plan->train.job->spec) + (size_t)job->world;
    weft_status status = WEFT_OK;
    self->all_rank_plan = calloc(1, sizeof *self->all_rank_plan);
    self->programs = calloc((size_t)job->world, sizeof *self->programs);
    self->reduces = calloc((size_t)job->world, sizeof *self->reduces);
    self->micro_batches = malloc(micro_batches * sizeof *self->micro_batches);
    self->others = malloc(micro_batches * sizeof *self->others);
    if (self->all_rank_plan != NULL)
        self->all_rank_plan->ranks = calloc((size_t)job->world, sizeof *self->all_rank_plan->ranks);
    if (self->programs == NULL || self->reduces == NULL || self->micro_batches == NULL || self->others == NULL ||
        self->all_rank_plan == NULL || self->all_rank_plan->ranks == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for the plans of %d ranks", (int)job->world);
    self->all_rank_plan->world = job->world;
    self->all_rank_plan->nodes = job->nodes;
    self->all_rank_plan->ranks_per_node = job->ranks_per_node;
    for (int32_t rank = 0; rank < job->world && status == WEFT_OK; rank++) status = compile_rank(self, rank, err);
    return status;
}

static void end_all_rank_plan(surveyor *self, int32_t world) {
    for (int mode_plan = 0; mode_plan < N_STAGES; mode_plan++) {
        for (int32_t i = 1; i < self->n_kinds[mode_plan]; i++) weft_program_destroy(self->kinds[mode_plan][i].program);
        free(self->kinds[mode_plan]);
    }
    for (int32_t rank = 0; rank < world; rank++) {
        if (self->programs != NULL) weft_program_destroy((weft_program *)self->programs[rank]);
        if (self->reduces != NULL) weft_program_destroy((weft_program *)self->reduces[rank]);
    }
    free(self->reduces);
    free(self->programs);
    free(self->micro_batches);
    free(self->others);
}

weft_status weft_all_rank_plan_create(weft_all_rank_plan **out, const weft_plan *plan, weft_error *err) {
    surveyor self = {.plan = plan};
    const int32_t world = plan->world;
    weft_status status = begin_all_rank_plan(&self, err);
    for (int32_t rank = 0; rank < world && status == WEFT_OK; rank++) status = all_rank_plan_rank(&self, rank, err);
    end_all_rank_plan(&self, world);
    if (status == WEFT_OK) *out = self.all_rank_plan;
    else weft_all_rank_plan_destroy(self.all_rank_plan);
    return status;
}

void weft_all_rank_plan_destroy(weft_all_rank_plan *all_rank_plan) {
    if (all_rank_plan == NULL) return;
    for (int32_t rank = 0; all_rank_plan->ranks != NULL && rank < all_rank_plan->world; rank++)
        free(all_rank_plan->ranks[rank].links);
    free(all_rank_plan->ranks);
    free(all_rank_plan);
}

void weft_all_rank_plan_links(const weft_all_rank_plan *all_rank_plan, int64_t *to, int32_t rank) {
    const weft_rank_plan *plan = &all_rank_plan->ranks[rank];
    memset(to, 0, (size_t)all_rank_plan->world * sizeof *to);
    for (int32_t i = 0; i < plan->n_links; i++) {
        const weft_link *link = &plan->links[i];
        if (link->peer >= 0) to[link->peer] += link->each;
        for (int32_t r = 0; link->peer < 0 && r < all_rank_plan->world; r++)
            if (r != rank && weft_scope_together(&link->cut, link->scope, r, rank)) to[r] += link->each;
    }
}

weft_status weft_all_rank_plan_hold(weft_hold **out, const weft_plan *plan, int32_t rank, weft_error *err) {
    weft_plan other = weft_plan_as_rank(plan, rank);
    const weft_status status = weft_sums_hold(&other, &plan->train.job->spec, err);
    if (status == WEFT_OK) {
        *out = other.holds[WEFT_HOLD_PARAMETERS];
        other.holds[WEFT_HOLD_PARAMETERS] = NULL;
    }
    weft_plan_drop_rank(&other);
    return status;
}
