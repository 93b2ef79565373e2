/* host/report/segment_rig.c: see segment_rig.h. */
#include "report/segment_rig.h"

#include "base/sizes.h"
#include "report/rater.h"
#include "program/budget.h"
#include "plugin/enter.h"

#include <stdlib.h>

static weft_slot_ref take_piece(weft_segment_rig *self, int64_t bytes) {
    weft_slot_ref out = {.bytes = bytes};
    if (bytes == 0) return out;
    out.ref.buffer = self->buffer;
    out.ref.offset = self->at;
    self->at += weft_cache_lines(bytes);
    return out;
}

static void take_micro_batch(weft_segment_rig *self) {
    const int64_t bytes = weft_micro_batch_part_bytes(self->rows, self->places);
    weft_slot_ref *const parts[WEFT_MICRO_BATCH_PARTS] = {&self->binding.ids, &self->binding.targets,
                                                          &self->binding.weights, &self->binding.starts,
                                                          &self->binding.positions};
    for (int i = 0; i < WEFT_MICRO_BATCH_PARTS; i++) *parts[i] = take_piece(self, bytes);
}

static void take_parameters(weft_segment_rig *self) {
    const weft_declared *declared = self->engine->plan.declared;
    int32_t n = 0;
    const weft_graph_read *reads = weft_graph_reads((weft_graph *)self->graph, &n);
    for (int32_t i = 0; i < n; i++) {
        const weft_parameter *p = &declared->parameters[reads[i].parameter];
        self->parameters[reads[i].parameter] = take_piece(self, weft_f32_bytes(p->numel)).ref;
        if (p->trainable) self->gradients[reads[i].parameter] = take_piece(self, weft_f32_bytes(p->numel));
    }
    for (int32_t i = 0; i < declared->n_tables; i++)
        self->tables[i] = take_piece(self, weft_budget_table(&self->engine->plan, i));
}

/* Lays out all operands in the buffer; without a buffer, counts its size. */
static void place_operands(weft_segment_rig *self) {
    const weft_graph_sizes *sizes = weft_graph_size(self->graph);
    const int64_t below = self->segment > 0 ? self->engine->plan.train.job->spec.segments[self->segment - 1].carry : 0;
    weft_graph_binding *b = &self->binding;
    const weft_graph_binding empty = {0};
    const int64_t work = sizes->forward_work > sizes->backward_work ? sizes->forward_work : sizes->backward_work;
    *b = empty;
    self->at = 0;
    take_parameters(self);
    take_micro_batch(self);
    b->parameters = self->parameters;
    b->gradients = self->gradients;
    b->tables = self->tables;
    b->carry_in = take_piece(self, below);
    b->carry_out = take_piece(self, sizes->carry);
    b->d_carry_out = take_piece(self, sizes->carry);
    b->d_carry_in = take_piece(self, below);
    b->tape = take_piece(self, sizes->tape);
    b->work = take_piece(self, work);
    if (sizes->draws) b->first = take_piece(self, weft_dtype_bytes(WEFT_I64));
    b->loss = take_piece(self, weft_f64_bytes(1)).ref;
    b->seed = take_piece(self, weft_dtype_bytes(WEFT_F32));
}

static weft_status write_operand(const weft_segment_rig *self, weft_slot_ref to, const void *from, weft_error *err) {
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, self->engine->kernels, write, err, self->engine->device, NULL, to.ref, from, to.bytes);
    return status;
}

/* Writes a micro-batch: ids spread over the vocabulary; every position has a target and attends to its sequence from
 * the start. */
static weft_status write_micro_batch(const weft_segment_rig *self, weft_error *err) {
    const int32_t n = self->rows * self->places;
    const int64_t vocabulary = self->engine->plan.declared->info.vocab_size;
    weft_status status = WEFT_OK;
    int32_t *ids = malloc(3 * sizeof *ids * (size_t)n), *starts = NULL, *positions = NULL;
    float *weights = malloc(sizeof *weights * (size_t)n);
    if (ids == NULL || weights == NULL)
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for a micro-batch of %d places", (int)n);
    if (ids != NULL) {
        starts = ids + n;
        positions = starts + n;
    }
    for (int32_t i = 0; i < n && status == WEFT_OK; i++) {
        ids[i] = (int32_t)((int64_t)((uint32_t)i * 2654435761u >> 1) % vocabulary);
        starts[i] = 0;
        positions[i] = i % self->places;
        weights[i] = 1.0f;
    }
    if (status == WEFT_OK) status = write_operand(self, self->binding.ids, ids, err);
    if (status == WEFT_OK) status = write_operand(self, self->binding.targets, ids, err);
    if (status == WEFT_OK) status = write_operand(self, self->binding.weights, weights, err);
    if (status == WEFT_OK) status = write_operand(self, self->binding.starts, starts, err);
    if (status == WEFT_OK) status = write_operand(self, self->binding.positions, positions, err);
    free(ids);
    free(weights);
    return status;
}

weft_status weft_segment_rig_run(void *context, weft_error *err) {
    const weft_segment_rig *self = context;
    if (self->back) return weft_graph_backward(self->graph, &self->binding, err);
    return weft_graph_forward(self->graph, &self->binding, false, err);
}

weft_status weft_segment_rig_take(weft_segment_rig *self, int32_t segment, weft_error *err) {
    weft_status status = WEFT_OK;
    weft_rater_give(self->engine, self->buffer);
    self->buffer = NULL;
    self->segment = segment;
    self->graph = weft_graph_set_at(self->engine->plan.train.graphs, self->places, segment);
    place_operands(self);
    status = weft_rater_take(self->engine, &self->buffer, self->at, err);
    place_operands(self);
    return status == WEFT_OK ? write_micro_batch(self, err) : status;
}

bool weft_segment_rig_has_backward(const weft_segment_rig *self) {
    return weft_graph_size(self->graph)->has_backward;
}

weft_status weft_segment_rig_open(weft_segment_rig *out, weft_engine *engine, int32_t rows, int32_t places,
                                  weft_error *err) {
    const weft_declared *declared = engine->plan.declared;
    const weft_segment_rig rig = {.engine = engine, .rows = rows, .places = places};
    *out = rig;
    out->parameters = calloc((size_t)declared->n_parameters + 1, sizeof *out->parameters);
    out->gradients = calloc((size_t)declared->n_parameters + 1, sizeof *out->gradients);
    out->tables = calloc((size_t)declared->n_tables + 1, sizeof *out->tables);
    if (out->parameters != NULL && out->gradients != NULL && out->tables != NULL) return WEFT_OK;
    return weft_error_set(err, WEFT_E_MEMORY, "no memory to measure %d segments", (int)declared->n_segments);
}

void weft_segment_rig_close(weft_segment_rig *self) {
    if (self->buffer != NULL) weft_rater_give(self->engine, self->buffer);
    free(self->parameters);
    free(self->gradients);
    free(self->tables);
    memset(self, 0, sizeof *self);
}

/* Returns whether two graphs have equal memory and work. */
static bool cost_alike(const weft_graph *a, const weft_graph *b) {
    const weft_graph_sizes *x = weft_graph_size(a), *y = weft_graph_size(b);
    return x->carry == y->carry && x->tape == y->tape && x->forward_work == y->forward_work &&
           x->backward_work == y->backward_work && x->has_backward == y->has_backward && x->has_loss == y->has_loss &&
           x->forward_flops == y->forward_flops && x->backward_flops == y->backward_flops &&
           x->forward_bytes == y->forward_bytes && x->backward_bytes == y->backward_bytes;
}

int32_t weft_segment_like(const weft_engine *engine, int32_t places, int32_t segment) {
    const weft_graph_set *graphs = engine->plan.train.graphs;
    const weft_graph *graph = weft_graph_set_at(graphs, places, segment);
    int32_t like = 0;
    while (like < segment && !cost_alike(weft_graph_set_at(graphs, places, like), graph)) like++;
    return like;
}
