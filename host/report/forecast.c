/* host/report/forecast.c: see forecast.h. */
#include "report/forecast.h"

#include "base/units.h"

#include <jansson.h>
#include <stdlib.h>

static void assume(weft_forecast *self, const char *format, ...) WEFT_PRINTF(2, 3);
static void assume(weft_forecast *self, const char *format, ...) {
    va_list args;
    if (self->n_assumed == WEFT_FORECAST_ASSUMED) return;
    va_start(args, format);
    (void)vsnprintf(self->assumed[self->n_assumed++], sizeof self->assumed[0], format, args);
    va_end(args);
}

static void note_assumptions(weft_forecast *self, const weft_all_rank_plan *all_rank_plan) {
    const weft_rates *rates = self->rates;
    const int32_t room = weft_rates_room(rates);
    assume(self, "every micro-batch has %d row%s of %d places; reading the data is not counted", (int)rates->rows,
           rates->rows == 1 ? "" : "s", (int)rates->places);
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
        assume(self, "%d ranks on a machine hold each other up no more than the %d that were measured",
               (int)all_rank_plan->ranks_per_node, (int)rates->ranks_per_node);
    if (all_rank_plan->world > 1 && !rates->own_progress)
        assume(self,
               "an exchange is counted in full where its rank waits for it: %s moves bytes only when it is called",
               rates->comm);
    if (all_rank_plan->nodes > 1 && rates->ranks == rates->ranks_per_node)
        assume(self, "exchanges between machines are as fast as those that were measured on one");
}

weft_status weft_forecast_make(weft_forecast *out, const weft_rates *rates, const weft_engine *engine,
                               const weft_all_rank_plan *all_rank_plan, weft_error *err) {
    const weft_plan_spec *spec = &engine->plan.spec;
    memset(out, 0, sizeof *out);
    out->rates = rates;
    out->world = all_rank_plan->world;
    out->tokens = (int64_t)spec->micro_batches * spec->rows * spec->lengths[spec->n_lengths - 1];
    out->ranks = calloc((size_t)out->world, sizeof *out->ranks);
    if (out->ranks == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for the times of %d ranks", (int)out->world);
    note_assumptions(out, all_rank_plan);
    return weft_costs_play(out->ranks, &out->step_seconds, rates, engine, all_rank_plan, err);
}

void weft_forecast_free(weft_forecast *self) {
    free(self->ranks);
    memset(self, 0, sizeof *self);
}

/* ---- the table ---- */

static double milliseconds(double seconds) {
    return 1e3 * seconds;
}

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
        (void)fprintf(to, "  %-10s %12.2f %12.2f %12.2f", name, milliseconds(rank->compute),
                      milliseconds(rank->exposed), milliseconds(rank->idle));
        weft_overlap_print(&rank->overlap, WEFT_OVERLAP_REDUCE, to);
        weft_overlap_print(&rank->overlap, WEFT_OVERLAP_GATHER, to);
        (void)fputc('\n', to);
    }
}

void weft_forecast_print(const weft_forecast *self, FILE *to) {
    char text[WEFT_UNIT_SIZE];
    (void)fprintf(to, "time        %.2f ms a step, %.1f places/s of %s in a step\n", milliseconds(self->step_seconds),
                  (double)self->tokens / self->step_seconds, weft_unit_count(text, self->tokens));
    (void)fprintf(to, "  %-10s %12s %12s %12s %14s %14s\n", "ranks", "compute, ms", "exposed, ms", "idle, ms",
                  "reduce hidden", "gather hidden");
    print_rank_rows(self, to);
    for (int32_t i = 0; i < self->n_assumed; i++)
        (void)fprintf(to, "  %s %s\n", i == 0 ? "assumed:" : "        ", self->assumed[i]);
}

/* ---- the object ---- */

static json_t *hidden_value(const weft_overlap *overlap, int32_t kind) {
    return overlap->under_way[kind] > 0.0 ? json_real(weft_overlap_hidden(overlap, kind)) : json_null();
}

static json_t *rank_object(const weft_rank_time *rank, int32_t r) {
    return json_pack("{s:i, s:f, s:f, s:f, s:o, s:o}", "rank", (int)r, "compute", rank->compute, "exposed",
                     rank->exposed, "idle", rank->idle, "reduce_hidden",
                     hidden_value(&rank->overlap, WEFT_OVERLAP_REDUCE), "gather_hidden",
                     hidden_value(&rank->overlap, WEFT_OVERLAP_GATHER));
}

json_t *weft_forecast_object(const weft_forecast *self) {
    json_t *ranks = json_array(), *assumed = json_array();
    for (int32_t r = 0; r < self->world; r++) (void)json_array_append_new(ranks, rank_object(&self->ranks[r], r));
    for (int32_t i = 0; i < self->n_assumed; i++) (void)json_array_append_new(assumed, json_string(self->assumed[i]));
    return json_pack("{s:f, s:I, s:f, s:o, s:o}", "step_seconds", self->step_seconds, "tokens_per_step",
                     (json_int_t)self->tokens, "tokens_per_second", (double)self->tokens / self->step_seconds, "ranks",
                     ranks, "assumed", assumed);
}
