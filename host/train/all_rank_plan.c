/* host/train/all_rank_plan.c: see all_rank_plan.h. */
#include "train/all_rank_plan.h"

#include "base/alloc.h"
#include "program/budget.h"
#include "program/job.h"
#include "program/exchange.h"

#include <stdlib.h>

enum { TRAIN, EVALUATE, N_MODES };

/* A placed program. */
typedef struct placed {
    const weft_program *program; /* the first of each mode is the plan's own */
    int64_t partials;            /* elements; -1: unknown */
    bool shared;                 /* all sums include all ranks, so ranks with equal programs have equal sums */
} placed;

typedef struct planner {
    const weft_plan *plan;
    const weft_mode_plan *modes[N_MODES];
    weft_all_rank_plan *all;
    const weft_program **reduces; /* [world] copies of the training programs with their REDUCEs only: all that the
                                   * other ranks' sums depend on */
    placed *kinds[N_MODES];       /* [n_kinds] distinct programs */
    int32_t n_kinds[N_MODES];
    int32_t *micro_batches, *others; /* [micro-batches] of a step: mapping between the micro-batches of two programs */
} planner;

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

static weft_status compile_program(const planner *self, weft_program **out, int mode, int32_t rank, weft_error *err) {
    const weft_part *part = &self->plan->run->parts[WEFT_PART_STRATEGY];
    return weft_program_compile(out, self->plan->run->host, weft_loaded_table(part->loaded, strategy), part->config,
                                &self->modes[mode]->job->spec, rank, err);
}

/* Adds a placed program. */
static placed *add_kind(planner *self, int mode, const weft_program *program) {
    const int32_t n = ++self->n_kinds[mode];
    placed *kind = NULL;
    self->kinds[mode] = weft_realloc(self->kinds[mode], n, sizeof *self->kinds[mode]);
    kind = &self->kinds[mode][n - 1];
    *kind = (placed){.program = program, .partials = -1, .shared = true};
    for (int32_t i = 0; i < program->n_instructions; i++)
        if (program->instructions[i].kind == WEFT_INSTRUCTION_REDUCE &&
            program->instructions[i].scope != WEFT_SCOPE_ALL)
            kind->shared = false;
    return kind;
}

/* Finds the program's kind. Places the program if it is the first of its kind; the caller keeps it then. */
static weft_status find_kind(planner *self, placed **out, int mode, weft_program *program, weft_error *err) {
    weft_status status = WEFT_OK;
    if (self->n_kinds[mode] == 0) (void)add_kind(self, mode, self->modes[mode]->program);
    for (int32_t i = 0; i < self->n_kinds[mode]; i++) {
        *out = &self->kinds[mode][i];
        if (programs_alike(self, (*out)->program, program)) return WEFT_OK;
    }
    status = weft_program_place(program, &self->modes[mode]->job->spec, err);
    if (status == WEFT_OK) *out = add_kind(self, mode, program);
    return status;
}

static weft_status plan_rank(planner *self, weft_plan *rank, weft_error *err) {
    placed *kind = NULL;
    weft_program *program = (weft_program *)self->all->programs[rank->rank];
    weft_status status = find_kind(self, &kind, TRAIN, program, err);
    if (status != WEFT_OK) return status;
    weft_sums_hold(rank, &self->modes[TRAIN]->job->spec);
    rank->train.program = (weft_program *)kind->program;
    /* the stored partial sums are equal for ranks with equal programs, if all ranks take part in each sum */
    if (!kind->shared || kind->partials < 0) {
        const weft_program *reduces = self->reduces[rank->rank];
        self->reduces[rank->rank] = program;
        weft_sums_plan(rank, &rank->train, self->reduces);
        self->reduces[rank->rank] = reduces;
        kind->partials = rank->train.partials;
    }
    rank->train.partials = kind->partials;
    if (self->modes[EVALUATE]->program != NULL) {
        program = NULL;
        status = compile_program(self, &program, EVALUATE, rank->rank, err);
        if (status == WEFT_OK) status = find_kind(self, &kind, EVALUATE, program, err);
        if (status != WEFT_OK || kind->program != program) weft_program_destroy(program);
        if (status == WEFT_OK) rank->evaluate.program = (weft_program *)kind->program;
    }
    if (status == WEFT_OK) weft_plan_budget(rank);
    self->all->bytes[rank->rank] = rank->bytes;
    return status;
}

/* Returns a copy of the program with its REDUCEs only. */
static const weft_program *copy_reduces(const weft_program *program) {
    weft_program *out = weft_alloc(1, sizeof *out);
    *out = (weft_program){.rank = program->rank, .micro_batches = program->micro_batches};
    out->instructions = weft_alloc(program->n_instructions, sizeof *out->instructions);
    for (int32_t i = 0; i < program->n_instructions; i++)
        if (program->instructions[i].kind == WEFT_INSTRUCTION_REDUCE)
            out->instructions[out->n_instructions++] = program->instructions[i];
    return out;
}

weft_status weft_all_rank_plan_create(weft_all_rank_plan **out, const weft_plan *plan, weft_error *err) {
    const weft_job_spec *spec = &plan->train.job->spec;
    const int32_t world = spec->view.world;
    const int64_t micro_batches = weft_job_spec_micro_batches(spec) + world;
    weft_all_rank_plan *all = weft_alloc(1, sizeof *all);
    planner self = {.plan = plan,
                    .modes = {&plan->train, &plan->evaluate},
                    .all = all,
                    .reduces = weft_alloc(world, sizeof *self.reduces),
                    .micro_batches = weft_alloc(micro_batches, sizeof *self.micro_batches),
                    .others = weft_alloc(micro_batches, sizeof *self.others)};
    weft_status status = WEFT_OK;
    all->bytes = weft_alloc(world, sizeof *all->bytes);
    all->programs = weft_alloc(world, sizeof *all->programs);
    all->world = world;
    all->nodes = spec->view.nodes;
    all->ranks_per_node = spec->view.ranks_per_node;
    for (int32_t r = 0; r < world && status == WEFT_OK; r++) {
        status = compile_program(&self, (weft_program **)&all->programs[r], TRAIN, r, err);
        if (status == WEFT_OK) self.reduces[r] = copy_reduces(all->programs[r]);
    }
    for (int32_t r = 0; r < world && status == WEFT_OK; r++) {
        weft_plan rank = weft_plan_as_rank(plan, r);
        status = plan_rank(&self, &rank, err);
        weft_plan_drop_rank(&rank);
    }
    for (int32_t i = 1; i < self.n_kinds[EVALUATE]; i++)
        weft_program_destroy((weft_program *)self.kinds[EVALUATE][i].program);
    for (int32_t r = 0; r < world; r++) weft_program_destroy((weft_program *)self.reduces[r]);
    free(self.reduces);
    free(self.kinds[TRAIN]);
    free(self.kinds[EVALUATE]);
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
