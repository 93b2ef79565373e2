/* host/tools/plan/forecast.c: see forecast.h. */
#include "tools/plan/forecast.h"

#include "base/alloc.h"
#include "base/units.h"
#include "program/budget.h"
#include "program/exchange.h"
#include "program/job.h"

#include <stdlib.h>

/* Segments cost their measured time. Other work is counted in elements and in bytes sent (program/exchange.h),
 * multiplied by a rate. Not counted: reading micro-batches, and host work between instructions. */

typedef struct pricing {
    const weft_rates *rates;
    const weft_engine *engine;
    const weft_job_spec *job;
    int32_t rank;
    int64_t updated; /* elements that the rank updates */
    bool *begun;     /* [n_units][2] this hop's sum has its first term */
} pricing;

static weft_work add_work(weft_work a, weft_work b) {
    return (weft_work){a.alone + b.alone, a.together + b.together};
}

static weft_work price_elements(const pricing *self, int32_t kind, double n) {
    const weft_work one = self->rates->elements[kind];
    return (weft_work){one.alone * n, one.together * n};
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

/* ---- other instructions ---- */

static void price_norm(const pricing *self, weft_instruction_cost *out) {
    const weft_plan *plan = &self->engine->plan;
    weft_norm_exchange walk = {0};
    out->own = price_elements(self, WEFT_RATE_SQUARES, (double)weft_norm_elements(plan, self->rank));
    while (weft_norm_exchange_next(plan, &walk))
        out->travel += weft_rates_exchange(self->rates, WEFT_RATE_ALL_GATHER,
                                           (double)weft_dtype_span(WEFT_F64, walk.n * (walk.cut.replicas - 1)));
}

static void price_instruction(pricing *self, weft_instruction_cost *out, const weft_instruction *instruction) {
    static const int32_t rates[] = {[WEFT_EXCHANGE_ALL_GATHER] = WEFT_RATE_ALL_GATHER,
                                    [WEFT_EXCHANGE_ALL_TO_ALL] = WEFT_RATE_ALL_TO_ALL,
                                    [WEFT_EXCHANGE_REDUCE_SCATTER] = WEFT_RATE_REDUCE_SCATTER,
                                    [WEFT_EXCHANGE_SEND] = WEFT_RATE_SEND,
                                    [WEFT_EXCHANGE_RECV] = WEFT_RATE_SEND};
    const weft_planned_exchange x = weft_exchange_plan(&self->engine->plan, self->job, instruction, self->rank);
    const weft_segment_rate *segment = instruction->segment >= 0 ? &self->rates->segments[instruction->segment] : NULL;
    const bool narrow = self->engine->plan.dtype != WEFT_F32;
    out->travel = x.sent > 0 ? weft_rates_exchange(self->rates, rates[x.way], (double)x.sent) : 0.0;
    switch (instruction->kind) {
    case WEFT_INSTRUCTION_FORWARD:
    case WEFT_INSTRUCTION_RECOMPUTE: out->own = segment->forward; break;
    case WEFT_INSTRUCTION_BACKWARD: out->own = segment->backward; break;
    case WEFT_INSTRUCTION_REDUCE: price_reduce(self, out, instruction); break;
    case WEFT_INSTRUCTION_GATHER: /* a shard is rounded before it is sent */
        if (narrow && instruction->what != WEFT_PAYLOAD_SUM)
            out->own = price_elements(self, WEFT_RATE_CONVERT, (double)x.each / 2.0);
        break;
    case WEFT_INSTRUCTION_NORM: price_norm(self, out); break;
    case WEFT_INSTRUCTION_STEP: /* copies that the update does not write are refreshed */
        out->own = price_elements(self, WEFT_RATE_CONVERT, (double)weft_copies_elements(&self->engine->plan, false));
        out->own = add_work(out->own, price_elements(self, WEFT_RATE_UPDATE, (double)self->updated));
        break;
    default: break;
    }
}

static weft_instruction_cost *price_rank(pricing *self, const weft_program *program) {
    weft_instruction_cost *out = weft_alloc(program->n_instructions, sizeof *out);
    self->begun = weft_alloc(2 * self->job->view.n_units, sizeof *self->begun);
    for (int32_t i = 0; i < program->n_instructions; i++) price_instruction(self, &out[i], &program->instructions[i]);
    free(self->begun);
    return out;
}

static void assume(weft_forecast *self, const char *format, ...) WEFT_PRINTF(2, 3);
static void assume(weft_forecast *self, const char *format, ...) {
    char text[400];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)json_array_append_new(self->assumed, json_string(text));
}

static void note_assumptions(weft_forecast *self, const weft_rates *rates, const weft_all_rank_plan *all_rank_plan) {
    const int32_t room = weft_rates_room(rates);
    assume(self, "every micro-batch has %d sequence%s of %d positions; reading the data is not counted",
           (int)rates->rows, rates->rows == 1 ? "" : "s", (int)rates->places);
    if (rates->own_processors)
        assume(self, "each rank computes on a device (%s), as the %d that were measured on each machine", rates->device,
               (int)rates->ranks_per_node);
    else
        assume(self, "each rank computes with %d thread%s, as the %d that were measured on each machine",
               (int)rates->threads, rates->threads == 1 ? "" : "s", (int)rates->ranks_per_node);
    if (all_rank_plan->ranks_per_node > room)
        assume(self,
               "%d ranks are on a machine whose %d processors are enough for %d at a time: ranks that work at "
               "once beyond that share them evenly",
               (int)all_rank_plan->ranks_per_node, (int)rates->processors, (int)room);
    if (rates->own_processors && all_rank_plan->ranks_per_node > rates->ranks_per_node)
        assume(self, "%d ranks on a machine slow each other down no more than the %d that were measured",
               (int)all_rank_plan->ranks_per_node, (int)rates->ranks_per_node);
    if (all_rank_plan->world > 1 && !rates->own_progress)
        assume(self,
               "an exchange is counted in full where its rank waits for it: %s moves bytes only when it is called",
               rates->comm);
    if (all_rank_plan->nodes > 1 && rates->ranks == rates->ranks_per_node)
        assume(self, "exchanges between machines are as fast as those that were measured on one");
}

/* If the plan's machines have more ranks than were measured, they have as many processors per rank as this machine. */
weft_status weft_forecast_make(weft_forecast *out, const weft_rates *rates, const weft_engine *engine,
                               const weft_all_rank_plan *all_rank_plan, const weft_rank_costs *costs, weft_error *err) {
    const weft_plan_spec *spec = &engine->plan.spec;
    const int32_t world = all_rank_plan->world;
    const weft_instruction_cost **prices = weft_alloc(world, sizeof *prices);
    const weft_simulation_spec simulation = {.job = &engine->plan.train.job->spec,
                                             .ranks_per_node = all_rank_plan->ranks_per_node,
                                             .together = rates->ranks_per_node,
                                             .room = weft_rates_room(rates),
                                             .own_progress = rates->own_progress,
                                             .programs = all_rank_plan->programs,
                                             .costs = prices};
    weft_status status = WEFT_OK;
    *out = (weft_forecast){.world = world,
                           .tokens = (int64_t)spec->micro_batches * spec->rows * spec->lengths[spec->n_lengths - 1],
                           .ranks = weft_alloc(world, sizeof *out->ranks),
                           .assumed = json_array()};
    note_assumptions(out, rates, all_rank_plan);
    for (int32_t rank = 0; rank < world; rank++) {
        pricing self = {rates, engine, simulation.job, rank, costs[rank].updated, NULL};
        prices[rank] = price_rank(&self, all_rank_plan->programs[rank]);
    }
    status = weft_programs_simulate(out->ranks, &out->step_seconds, &simulation, err);
    for (int32_t rank = 0; rank < world; rank++) free((void *)(uintptr_t)prices[rank]);
    free(prices);
    return status;
}

void weft_forecast_free(weft_forecast *self) {
    free(self->ranks);
    json_decref(self->assumed);
    memset(self, 0, sizeof *self);
}

/* ---- the table ---- */

/* Returns whether two ranks' printed figures are equal. */
static bool ranks_take_alike(const weft_rank_time *a, const weft_rank_time *b, double step) {
    const double near = 1e-4 * step;
    const double differences[] = {a->compute - b->compute, a->exposed - b->exposed, a->idle - b->idle};
    for (int i = 0; i < 3; i++)
        if (differences[i] > near || differences[i] < -near) return false;
    return true;
}

static void print_rank_rows(const weft_forecast *self, FILE *to) {
    int32_t last = 0;
    for (int32_t first = 0; first < self->world; first = last + 1) {
        const weft_rank_time *rank = &self->ranks[first];
        char name[32];
        for (last = first;
             last + 1 < self->world && ranks_take_alike(rank, &self->ranks[last + 1], self->step_seconds);)
            last++;
        (void)snprintf(name, sizeof name, first == last ? "%d" : "%d-%d", (int)first, (int)last);
        (void)fprintf(to, "  %-10s %12.2f %12.2f %12.2f", name, 1e3 * rank->compute, 1e3 * rank->exposed,
                      1e3 * rank->idle);
        weft_overlap_print(&rank->overlap, WEFT_OVERLAP_REDUCE, to);
        weft_overlap_print(&rank->overlap, WEFT_OVERLAP_GATHER, to);
        (void)fputc('\n', to);
    }
}

void weft_forecast_print(const weft_forecast *self, FILE *to) {
    char text[WEFT_UNIT_SIZE];
    const json_t *assumption = NULL;
    size_t i = 0;
    (void)fprintf(to, "time        %.2f ms a step, %.1f tokens/s of %s in a step\n", 1e3 * self->step_seconds,
                  (double)self->tokens / self->step_seconds, weft_unit_count(text, self->tokens));
    (void)fprintf(to, "  %-10s %12s %12s %12s %14s %14s\n", "ranks", "compute, ms", "exposed, ms", "idle, ms",
                  "reduce hidden", "gather hidden");
    print_rank_rows(self, to);
    json_array_foreach(self->assumed, i, assumption)(void)
        fprintf(to, "  %s %s\n", i == 0 ? "assumed:" : "        ", json_string_value(assumption));
}

/* ---- the object ---- */

static json_t *hidden_value(const weft_overlap *overlap, int32_t kind) {
    return overlap->under_way[kind] > 0.0 ? json_real(weft_overlap_hidden(overlap, kind)) : json_null();
}

json_t *weft_forecast_object(const weft_forecast *self) {
    json_t *ranks = json_array();
    for (int32_t r = 0; r < self->world; r++) {
        const weft_rank_time *rank = &self->ranks[r];
        (void)json_array_append_new(ranks,
                                    json_pack("{s:i, s:f, s:f, s:f, s:o, s:o}", "rank", (int)r, "compute",
                                              rank->compute, "exposed", rank->exposed, "idle", rank->idle,
                                              "reduce_hidden", hidden_value(&rank->overlap, WEFT_OVERLAP_REDUCE),
                                              "gather_hidden", hidden_value(&rank->overlap, WEFT_OVERLAP_GATHER)));
    }
    return json_pack("{s:f, s:I, s:f, s:o, s:O}", "step_seconds", self->step_seconds, "tokens_per_step",
                     (json_int_t)self->tokens, "tokens_per_second", (double)self->tokens / self->step_seconds, "ranks",
                     ranks, "assumed", self->assumed);
}
