/* host/report/cost.c: see cost.h.
 *
 * Segments cost their measured time. Other work is counted in elements and in bytes sent (program/exchange.h),
 * multiplied by a rate. Not counted: reading micro-batches, and host work between instructions. */
#include "report/cost.h"

#include "program/exchange.h"
#include "program/norm_nodes.h"
#include "program/job.h"

#include <stdlib.h>

typedef struct pricing {
    const weft_rates *rates;
    const weft_engine *engine;
    const weft_job_spec *job;
    const weft_rank_plan *plan;
    int32_t rank;
    bool *begun; /* [n_units][2] this hop's sum has its first term */
} pricing;

static weft_work scale_work(weft_work one, double n) {
    const weft_work out = {one.alone * n, one.together * n};
    return out;
}

static weft_work add_work(weft_work a, weft_work b) {
    const weft_work out = {a.alone + b.alone, a.together + b.together};
    return out;
}

static weft_work price_elements(const pricing *self, int32_t kind, double n) {
    return scale_work(self->rates->elements[kind], n);
}

/* ---- communication ---- */

static weft_planned_exchange planned_of(const pricing *self, const weft_instruction *instruction) {
    return weft_exchange_plan(&self->engine->plan, self->job, instruction, self->rank);
}

static double travel_of(const pricing *self, const weft_instruction *instruction) {
    static const int32_t rates[] = {[WEFT_EXCHANGE_ALL_GATHER] = WEFT_RATE_ALL_GATHER,
                                    [WEFT_EXCHANGE_ALL_TO_ALL] = WEFT_RATE_ALL_TO_ALL,
                                    [WEFT_EXCHANGE_REDUCE_SCATTER] = WEFT_RATE_REDUCE_SCATTER,
                                    [WEFT_EXCHANGE_SEND] = WEFT_RATE_SEND,
                                    [WEFT_EXCHANGE_RECV] = WEFT_RATE_SEND};
    const weft_planned_exchange x = planned_of(self, instruction);
    return x.sent > 0 ? weft_rates_exchange(self->rates, rates[x.way], (double)x.sent) : 0.0;
}

/* ---- sums ---- */

/* Prices a REDUCE: the operand is rounded first, if at all, and each received row is added. */
static void price_reduce(pricing *self, weft_instruction_cost *out, const weft_instruction *instruction) {
    const weft_reduce_rows rows = weft_exchange_reduce(&self->engine->plan, self->job, instruction->unit,
                                                       instruction->scope, instruction->micro_batch >= 0);
    const bool fast = self->job->view.reduce == WEFT_REDUCE_FAST, tree = self->job->view.reduce == WEFT_REDUCE_TREE;
    const bool narrow = rows.dtype != WEFT_F32;
    const double whole = (double)rows.whole, row = (double)rows.row;
    const int32_t terms = fast ? 1 : rows.ranks;
    bool *begun = &self->begun[2 * instruction->unit + (instruction->micro_batch < 0)];
    /* the micro-batch's gradient is the sum */
    if (weft_job_spec_micro_batches(self->job) == 1 && rows.ranks == 1) return;
    if (narrow) out->own = price_elements(self, WEFT_RATE_CONVERT, rows.ranks == 1 ? 2.0 * whole : whole);
    if (narrow && rows.ranks > 1) out->after = price_elements(self, WEFT_RATE_CONVERT, row * terms);
    for (int32_t i = 0; i < terms; i++) {
        if (!*begun || tree) out->after = add_work(out->after, price_elements(self, WEFT_RATE_COPY, row));
        if (*begun) out->after = add_work(out->after, price_elements(self, WEFT_RATE_ADD, row));
        *begun = true;
    }
}

/* ---- the end of a step ---- */

static void price_norm(const pricing *self, weft_instruction_cost *out) {
    const weft_plan *plan = &self->engine->plan;
    weft_norm_exchange walk = {0};
    out->own = price_elements(self, WEFT_RATE_SQUARES, (double)weft_norm_elements(plan, self->rank));
    while (weft_norm_exchange_next(plan, &walk))
        out->travel += weft_rates_exchange(self->rates, WEFT_RATE_ALL_GATHER,
                                           (double)weft_dtype_span(WEFT_F64, walk.n * (walk.cut.replicas - 1)));
}

/* Prices a STEP: the compute copy of updated parameters is written again. */
static void price_step(const pricing *self, weft_instruction_cost *out) {
    out->own = price_elements(self, WEFT_RATE_UPDATE, (double)self->plan->updated);
    if (self->engine->plan.dtype != WEFT_F32)
        out->own = add_work(out->own, price_elements(self, WEFT_RATE_CONVERT, (double)self->plan->updated));
}

/* Prices a GATHER: a shard is rounded before it is sent if the model computes in 16 bits. */
static void price_gather(const pricing *self, weft_instruction_cost *out, const weft_instruction *instruction) {
    const weft_planned_exchange x = planned_of(self, instruction);
    if (instruction->what == WEFT_PAYLOAD_SUM || self->engine->plan.dtype == WEFT_F32) return;
    out->own = price_elements(self, WEFT_RATE_CONVERT, (double)x.each / 2.0);
}

static void price_instruction(pricing *self, weft_instruction_cost *out, const weft_instruction *instruction) {
    const weft_segment_rate *segment = instruction->segment >= 0 ? &self->rates->segments[instruction->segment] : NULL;
    out->travel = travel_of(self, instruction);
    switch (instruction->kind) {
    case WEFT_INSTRUCTION_FORWARD:
    case WEFT_INSTRUCTION_RECOMPUTE: out->own = segment->forward; break;
    case WEFT_INSTRUCTION_BACKWARD: out->own = segment->backward; break;
    case WEFT_INSTRUCTION_REDUCE: price_reduce(self, out, instruction); break;
    case WEFT_INSTRUCTION_GATHER: price_gather(self, out, instruction); break;
    case WEFT_INSTRUCTION_NORM: price_norm(self, out); break;
    case WEFT_INSTRUCTION_STEP: price_step(self, out); break;
    default: break;
    }
}

static weft_status price_rank(weft_instruction_cost **out, pricing *self, const weft_program *program,
                              weft_error *err) {
    const size_t units = (size_t)self->job->view.n_units;
    weft_instruction_cost *costs = calloc((size_t)program->n_instructions + 1, sizeof *costs);
    self->begun = calloc(2 * units + 1, sizeof *self->begun);
    *out = costs;
    if (costs == NULL || self->begun == NULL) {
        free(self->begun);
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for the costs of %d instructions",
                              (int)program->n_instructions);
    }
    for (int32_t i = 0; i < program->n_instructions; i++) price_instruction(self, &costs[i], &program->instructions[i]);
    free(self->begun);
    return WEFT_OK;
}

/* ---- all ranks ---- */

static weft_status price_all(const weft_program **programs, weft_instruction_cost **costs, const weft_rates *rates,
                             const weft_engine *engine, const weft_all_rank_plan *all_rank_plan, weft_error *err) {
    const weft_part *part = &engine->plan.run->parts[WEFT_PART_STRATEGY];
    const weft_job_spec *job = &engine->plan.train.job->spec;
    weft_status status = WEFT_OK;
    for (int32_t rank = 0; rank < all_rank_plan->world && status == WEFT_OK; rank++) {
        pricing self = {rates, engine, job, &all_rank_plan->ranks[rank], rank, NULL};
        weft_program *program = NULL;
        status = weft_program_compile(&program, engine->plan.run->host, weft_loaded_table(part->loaded, strategy),
                                      part->config, job, rank, err);
        programs[rank] = program;
        if (status == WEFT_OK) status = price_rank(&costs[rank], &self, program, err);
    }
    return status;
}

/* Returns the simulation. If the plan's machines have more ranks than were measured, they have as many processors per
 * rank as this machine. */
static weft_simulation_spec simulation_of(const weft_rates *rates, const weft_engine *engine,
                                          const weft_all_rank_plan *all_rank_plan) {
    const weft_simulation_spec out = {.job = &engine->plan.train.job->spec,
                                      .ranks_per_node = all_rank_plan->ranks_per_node,
                                      .together = rates->ranks_per_node,
                                      .room = weft_rates_room(rates),
                                      .own_progress = rates->own_progress};
    return out;
}

weft_status weft_costs_play(weft_rank_time *out, double *step_seconds, const weft_rates *rates,
                            const weft_engine *engine, const weft_all_rank_plan *all_rank_plan, weft_error *err) {
    weft_simulation_spec spec = simulation_of(rates, engine, all_rank_plan);
    const weft_program **programs = calloc((size_t)all_rank_plan->world, sizeof *programs);
    weft_instruction_cost **costs = calloc((size_t)all_rank_plan->world, sizeof *costs);
    weft_status status = WEFT_OK;
    if (programs == NULL || costs == NULL)
        status =
            weft_error_set(err, WEFT_E_MEMORY, "no memory for the programs of %d ranks", (int)all_rank_plan->world);
    if (status == WEFT_OK) status = price_all(programs, costs, rates, engine, all_rank_plan, err);
    spec.programs = programs;
    spec.costs = (const weft_instruction_cost *const *)costs;
    if (status == WEFT_OK) status = weft_programs_simulate(out, step_seconds, &spec, err);
    for (int32_t rank = 0; rank < all_rank_plan->world; rank++) {
        if (programs != NULL) weft_program_destroy((weft_program *)programs[rank]);
        if (costs != NULL) free(costs[rank]);
    }
    free(programs);
    free(costs);
    return status;
}
