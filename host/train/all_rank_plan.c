/* host/train/all_rank_plan.c: see all_rank_plan.h. */
#include "train/all_rank_plan.h"

#include "base/alloc.h"
#include "program/budget.h"
#include "program/job.h"
#include "program/sums.h"

#include <stdlib.h>

enum { TRAIN, EVALUATE, N_STAGES };

/* A placed program, and its memory. */
typedef struct placed {
    weft_program *program; /* without placement; the first of each stage is the plan's own */
    weft_price price;
    int64_t partials; /* elements; known where `shared` */
    bool shared;      /* all sums include all ranks, so ranks with equal programs have equal sums */
} placed;

typedef struct planner {
    const weft_plan *plan;
    weft_all_rank_plan *all_rank_plan;
    const weft_program **reduces; /* [world] the programs with only their REDUCEs: all that the other ranks' sums
                                   * depend on */
    placed *kinds[N_STAGES];      /* [n_kinds] distinct programs */
    int32_t n_kinds[N_STAGES];
    int32_t *micro_batches, *others; /* [micro-batches] of a step: mapping between the micro-batches of two programs */
} planner;

static const weft_mode_plan *mode_plan_of(const weft_plan *plan, int mode_plan) {
    return mode_plan == TRAIN ? &plan->train : &plan->evaluate;
}

/* ---- equality of programs ---- */

static bool same_micro_batch(planner *self, int32_t a, int32_t b) {
    if (a < 0 || b < 0) return a == b;
    if (self->micro_batches[a] == -1 && self->others[b] == -1) {
        self->micro_batches[a] = b;
        self->others[b] = a;
    }
    return self->micro_batches[a] == b && self->others[b] == a;
}

static bool same_instruction(planner *self, const weft_instruction *a, const weft_instruction *b) {
    return a->kind == b->kind && a->unit == b->unit && a->segment == b->segment && a->queue == b->queue &&
           a->waits == b->waits && a->what == b->what && a->scope == b->scope &&
           same_micro_batch(self, a->micro_batch, b->micro_batch);
}

/* Returns true if the programs differ only in the numbers of micro-batches and peers. */
static bool programs_alike(planner *self, const weft_program *a, const weft_program *b) {
    bool same = a->n_instructions == b->n_instructions;
    memset(self->micro_batches, 0xFF, (size_t)a->micro_batches * sizeof *self->micro_batches);
    memset(self->others, 0xFF, (size_t)a->micro_batches * sizeof *self->others);
    for (int32_t i = 0; i < a->n_instructions && same; i++)
        same = same_instruction(self, &a->instructions[i], &b->instructions[i]);
    return same;
}

/* ---- one rank ---- */

static weft_status compile_program(const planner *self, weft_program **out, int mode_plan, int32_t rank,
                                   weft_error *err) {
    const weft_part *part = &self->plan->run->parts[WEFT_PART_STRATEGY];
    return weft_program_compile(out, self->plan->run->host, weft_loaded_table(part->loaded, strategy), part->config,
                                &mode_plan_of(self->plan, mode_plan)->job->spec, rank, err);
}

/* Adds a placed program. */
static placed *add_kind(planner *self, int mode_plan, weft_program *program) {
    const int32_t n = ++self->n_kinds[mode_plan];
    placed *kind = NULL;
    self->kinds[mode_plan] = weft_realloc(self->kinds[mode_plan], n, sizeof *self->kinds[mode_plan]);
    kind = &self->kinds[mode_plan][n - 1];
    *kind = (placed){.program = program, .partials = -1, .shared = true};
    for (int32_t i = 0; i < program->n_instructions; i++)
        if (program->instructions[i].kind == WEFT_INSTRUCTION_REDUCE &&
            program->instructions[i].scope != WEFT_SCOPE_ALL)
            kind->shared = false;
    weft_program_price(&kind->price, program);
    return kind;
}

/* Takes ownership of the program: keeps it as the first of its kind, or frees it. Reuses a placement of the plan. */
static weft_status find_kind(planner *self, placed **out, int mode_plan, weft_program *program, weft_error *err) {
    const weft_mode_plan *of = mode_plan_of(self->plan, mode_plan);
    weft_status status = WEFT_OK;
    if (self->n_kinds[mode_plan] == 0) (void)add_kind(self, mode_plan, of->program);
    for (int32_t i = 0; i < self->n_kinds[mode_plan]; i++) {
        if (!programs_alike(self, self->kinds[mode_plan][i].program, program)) continue;
        weft_program_destroy(program);
        *out = &self->kinds[mode_plan][i];
        return WEFT_OK;
    }
    status = weft_program_place(program, &of->job->spec, err);
    if (status == WEFT_OK) *out = add_kind(self, mode_plan, program);
    else weft_program_destroy(program);
    return status;
}

/* Plans the partial sums stored on the rank: equal for ranks with equal programs, if all ranks take part in each sum.
 */
static void plan_partials(const planner *self, weft_plan *rank, placed *kind) {
    const int32_t r = rank->rank;
    const weft_program *own = self->reduces[r];
    rank->train.partials = kind->partials;
    if (kind->shared && kind->partials >= 0) return;
    self->reduces[r] = self->all_rank_plan->programs[r];
    weft_sums_plan(rank, &rank->train, self->reduces);
    self->reduces[r] = own;
    kind->partials = rank->train.partials;
    weft_terms_destroy(rank->train.terms);
    free(rank->train.sums);
    rank->train.terms = NULL;
    rank->train.sums = NULL;
}

static weft_status plan_rank(planner *self, weft_plan *rank, weft_error *err) {
    const weft_plan *plan = self->plan;
    const int32_t r = rank->rank;
    placed *kind = NULL;
    weft_program *program = NULL;
    weft_status status = WEFT_OK;
    weft_sums_hold(rank, &plan->train.job->spec);
    status = find_kind(self, &kind, TRAIN, weft_program_copy(self->all_rank_plan->programs[r]), err);
    if (status != WEFT_OK) return status;
    rank->train.program = kind->program;
    rank->train.price = kind->price;
    plan_partials(self, rank, kind);
    if (plan->evaluate.program != NULL) {
        status = compile_program(self, &program, EVALUATE, r, err);
        if (status != WEFT_OK) weft_program_destroy(program);
        if (status == WEFT_OK) status = find_kind(self, &kind, EVALUATE, program, err);
        if (status == WEFT_OK) rank->evaluate.price = kind->price;
    }
    if (status == WEFT_OK) weft_plan_budget(rank);
    self->all_rank_plan->bytes[r] = rank->bytes;
    return status;
}

/* ---- all ranks ---- */

/* Compiles a rank's program, and one of its REDUCEs only. */
static weft_status compile_rank(planner *self, int32_t rank, weft_error *err) {
    weft_program *program = NULL, *reduces = NULL;
    weft_status status = compile_program(self, &program, TRAIN, rank, err);
    self->all_rank_plan->programs[rank] = program;
    if (status != WEFT_OK) return status;
    self->reduces[rank] = reduces = weft_program_copy(program);
    reduces->n_instructions = 0;
    for (int32_t i = 0; i < program->n_instructions; i++)
        if (program->instructions[i].kind == WEFT_INSTRUCTION_REDUCE)
            reduces->instructions[reduces->n_instructions++] = program->instructions[i];
    return WEFT_OK;
}

weft_status weft_all_rank_plan_create(weft_all_rank_plan **out, const weft_plan *plan, weft_error *err) {
    const weft_job_spec *spec = &plan->train.job->spec;
    const int32_t world = spec->view.world;
    const int64_t micro_batches = weft_job_spec_micro_batches(spec) + world;
    weft_all_rank_plan *all = weft_alloc(1, sizeof *all);
    planner self = {.plan = plan,
                    .all_rank_plan = all,
                    .reduces = weft_alloc(world, sizeof *self.reduces),
                    .micro_batches = weft_alloc(micro_batches, sizeof *self.micro_batches),
                    .others = weft_alloc(micro_batches, sizeof *self.others)};
    weft_status status = WEFT_OK;
    all->bytes = weft_alloc(world, sizeof *all->bytes);
    all->programs = weft_alloc(world, sizeof *all->programs);
    all->world = world;
    all->nodes = spec->view.nodes;
    all->ranks_per_node = spec->view.ranks_per_node;
    for (int32_t rank = 0; rank < world && status == WEFT_OK; rank++) status = compile_rank(&self, rank, err);
    for (int32_t r = 0; r < world && status == WEFT_OK; r++) {
        weft_plan rank = weft_plan_as_rank(plan, r);
        status = plan_rank(&self, &rank, err);
        weft_plan_drop_rank(&rank);
    }
    for (int mode_plan = 0; mode_plan < N_STAGES; mode_plan++) {
        for (int32_t i = 1; i < self.n_kinds[mode_plan]; i++) weft_program_destroy(self.kinds[mode_plan][i].program);
        free(self.kinds[mode_plan]);
    }
    for (int32_t rank = 0; rank < world; rank++) weft_program_destroy((weft_program *)self.reduces[rank]);
    free(self.reduces);
    free(self.micro_batches);
    free(self.others);
    if (status == WEFT_OK) *out = all;
    else weft_all_rank_plan_destroy(all);
    return status;
}

void weft_all_rank_plan_destroy(weft_all_rank_plan *all_rank_plan) {
    if (all_rank_plan == NULL) return;
    for (int32_t rank = 0; rank < all_rank_plan->world; rank++)
        weft_program_destroy((weft_program *)all_rank_plan->programs[rank]);
    free(all_rank_plan->programs);
    free(all_rank_plan->bytes);
    free(all_rank_plan);
}
