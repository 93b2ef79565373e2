/* host/run/hidden.c: see hidden.h. */
#include "run/hidden.h"

#include "base/alloc.h"
#include "model/convert.h"
#include "base/units.h"

#include <stdlib.h>

enum { MOST_AT_ONCE = 1 << 18 }; /* numbers of a download, at least those of a position */

static int64_t doubles_of_rank(const weft_hidden *self) {
    return self->engine->plan.evaluate.most_losses * self->width;
}

weft_hidden *weft_hidden_create(const weft_engine *engine) {
    const size_t size = (size_t)weft_dtype_bytes(engine->plan.dtype);
    const weft_plan_spec *spec = &engine->plan.spec;
    const int32_t longest = spec->lengths[spec->n_lengths - 1];
    weft_hidden *self = weft_alloc(1, sizeof *self);
    self->engine = engine;
    self->width = weft_graph_hidden_width(
        weft_graph_set_at(engine->plan.evaluate.graphs, longest, engine->plan.declared->n_segments - 1));
    self->at_once = weft_larger(MOST_AT_ONCE / self->width, 1);
    self->micro_batches = weft_alloc(doubles_of_rank(self) * engine->ranks.world, sizeof *self->micro_batches);
    self->sum = weft_alloc(self->width, sizeof *self->sum);
    self->weights = weft_alloc((int64_t)spec->evaluate_rows * longest, sizeof *self->weights);
    self->numbers = weft_alloc(self->at_once * self->width, sizeof *self->numbers);
    self->stored = weft_alloc(self->at_once * self->width, size);
    return self;
}

void weft_hidden_destroy(weft_hidden *self) {
    if (self == NULL) return;
    free(self->micro_batches);
    free(self->sum);
    free(self->weights);
    free(self->numbers);
    free(self->stored);
    free(self);
}

void weft_hidden_begin(weft_hidden *self) {
    if (self == NULL) return;
    memset(self->sum, 0, (size_t)self->width * sizeof *self->sum);
    self->targets = 0;
}

/* Adds the states of n positions from `first` on to `to`, if they have a target. */
static weft_status add_places(weft_hidden *self, double *to, weft_ref states, int64_t first, int64_t n,
                              weft_error *err) {
    const int32_t dtype = self->engine->plan.dtype;
    const int64_t bytes = weft_dtype_bytes(dtype) * self->width;
    const weft_status status =
        weft_engine_read(self->engine, self->stored, weft_ref_at(states, first * bytes), n * bytes, err);
    if (status != WEFT_OK) return status;
    (void)weft_convert(self->numbers, WEFT_F32, self->stored, dtype, n * self->width);
    for (int64_t p = 0; p < n; p++) {
        const float *place = self->numbers + p * self->width;
        for (int64_t i = 0; self->weights[first + p] != 0.0F && i < self->width; i++) to[i] += (double)place[i];
    }
    return WEFT_OK;
}

weft_status weft_hidden_add(weft_hidden *self, const weft_stepper *stepper, const weft_instruction *instruction,
                            const weft_graph *graph, const weft_graph_binding *binding, weft_error *err) {
    const int64_t places = (int64_t)stepper->micro_batch.rows * stepper->micro_batch.length;
    const weft_loss_place *at = &stepper->mode_plan->losses[instruction->micro_batch];
    double *to = self->micro_batches + at->rank * doubles_of_rank(self) + at->position * self->width;
    weft_slot_ref states = {0};
    weft_status status = WEFT_OK;
    if (weft_graph_hidden_width(graph) == 0) return WEFT_OK;
    states = weft_graph_hidden(graph, binding);
    memset(to, 0, (size_t)self->width * sizeof *to);
    status = weft_engine_read(self->engine, self->weights, binding->weights.ref, places * WEFT_PLACE_BYTES, err);
    for (int64_t first = 0; first < places && status == WEFT_OK; first += self->at_once)
        status = add_places(self, to, states.ref, first, weft_smaller(places - first, self->at_once), err);
    return status;
}

weft_status weft_hidden_end_pass(weft_hidden *self, int64_t targets, weft_error *err) {
    const weft_mode_plan *mode_plan = &self->engine->plan.evaluate;
    const weft_process_group *peers = &self->engine->peers;
    weft_status status = WEFT_OK;
    if (!weft_process_group_is_single(peers))
        status = weft_process_group_gather(peers, self->micro_batches,
                                           doubles_of_rank(self) * (int64_t)sizeof *self->micro_batches, err);
    if (status != WEFT_OK) return status;
    self->targets += targets;
    for (int32_t m = 0; m < mode_plan->program->micro_batches; m++) {
        const weft_loss_place *at = &mode_plan->losses[m];
        const double *micro_batch = self->micro_batches + at->rank * doubles_of_rank(self) + at->position * self->width;
        for (int64_t i = 0; i < self->width; i++) self->sum[i] += micro_batch[i];
    }
    return WEFT_OK;
}

void weft_hidden_mean(const weft_hidden *self, double *out) {
    for (int64_t i = 0; i < self->width; i++) out[i] = self->sum[i] / (double)self->targets;
}
