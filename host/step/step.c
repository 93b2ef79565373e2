/* host/step/step.c: see step.h. */
#include "step/step.h"

#include "engine/compute.h"
#include "plugin/enter.h"
#include "step/blame.h"
#include "step/flight.h"
#include "step/leaf.h"
#include "step/norm.h"
#include "step/run_events.h"

#include <math.h>
#include <stdlib.h>

/* before: the sum that these follow. */
static weft_status read_losses(weft_stepper *self, double before, int32_t leaves, weft_error *err) {
    weft_status status = WEFT_OK;
    self->result.loss_sum = before;
    for (int32_t m = 0; m < leaves && status == WEFT_OK; m++) {
        double loss = 0.0;
        status = weft_step_loss(self, &loss, m, err);
        self->result.loss_sum += loss;
    }
    return status;
}

/* Each rank has found what it has: the first of them, or who formed the bad loss, tells it for all. */
static weft_status find_together(weft_stepper *self, weft_error *err) {
    const weft_peers *peers = &self->engine->peers;
    bool none = true;
    weft_status status = weft_peers_all(peers, &none, self->culprit.code == WEFT_OK, err);
    if (status != WEFT_OK) return status;
    if (none) status = weft_blame_head(self, err);
    else if (self->culprit.code != WEFT_OK) {
        *err = self->culprit;
        status = (weft_status)err->code;
    }
    return weft_peers_agree(peers, status, err);
}

/* After a loss that is not finite: runs the forward again, looking at every carry. */
static weft_status find_in_forward(weft_stepper *self, weft_error *err) {
    const weft_error nobody = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    self->culprit = nobody;
    self->find_culprit = true;
    status = weft_step_run_events(self, self->stage, err);
    self->find_culprit = false;
    if (status == WEFT_OK)
        status = weft_peers_alone(&self->engine->peers) ? weft_blame_head(self, err) : find_together(self, err);
    if (err == NULL || err->text[0] == '\0') return status;
    if (self->step == 0) return weft_error_prefix(err, "evaluation: the loss is not finite; ");
    return weft_error_prefix(err, "step %llu: the loss is not finite; ", (unsigned long long)self->step);
}

/* Before the first event: a FORWARD, or what travels, may come before COUNT and needs to know its leaf. */
static weft_status count_leaves(weft_stepper *self, const weft_stage *stage, weft_error *err) {
    weft_status status = WEFT_OK;
    self->stage = stage;
    status = weft_step_count(self, err);
    if (status != WEFT_OK) self->engine->failed = true;
    return status;
}

weft_status weft_stepper_train(weft_stepper *self, weft_step_result *out, uint64_t step, double lr, double clip,
                               weft_error *err) {
    weft_engine *engine = self->engine;
    const weft_stage *stage = &engine->plan.train;
    weft_status status = WEFT_OK;
    self->step = step;
    self->lr = lr;
    self->clip = clip;
    self->split = WEFT_SPLIT_TRAIN;
    self->first_row = (step - 1) * (uint64_t)stage->graphs->rows * (uint64_t)stage->program->leaves;
    self->data_seconds = 0.0;
    weft_crash_step(step);
    engine->ranks.counts = true;
    status = count_leaves(self, stage, err);
    if (status == WEFT_OK) status = weft_step_run_events(self, stage, err);
    engine->ranks.counts = false;
    if (engine->ranks.sent != NULL) engine->ranks.sent->steps++;
    if (status == WEFT_OK && engine->ranks.world > 1) status = weft_compute_copy_refresh(engine, true, err);
    if (status == WEFT_OK) status = read_losses(self, 0.0, stage->program->leaves, err);
    if (status == WEFT_OK)
        WEFT_PLUGIN_CALL(status, engine->kernels, read, err, engine->device, NULL, &self->result.norm,
                         engine->scalars.norm, 8);
    if (status != WEFT_OK) return status;
    self->result.n_targets = self->count;
    self->result.n_places = self->places;
    self->result.lr = lr;
    self->result.data_seconds = self->data_seconds;
    self->result.skipped = self->count == 0;
    if (self->result.skipped) self->result.norm = 0.0;
    else if (!isfinite(self->result.loss_sum)) status = find_in_forward(self, err);
    else if (!isfinite(self->result.norm)) status = weft_blame_gradient(self, err);
    if (status != WEFT_OK) return status;
    engine->updates += !self->result.skipped;
    *out = self->result;
    return WEFT_OK;
}

weft_status weft_stepper_evaluate(weft_stepper *self, weft_step_result *out, int32_t split, uint64_t first_row,
                                  weft_error *err) {
    const weft_stage *stage = &self->engine->plan.evaluate;
    weft_status status = WEFT_OK;
    self->split = split;
    self->first_row = first_row;
    self->step = 0;
    self->stage = stage;
    self->leaf_now = -1;
    self->data_seconds = 0.0;
    memset(&self->result, 0, sizeof self->result);
    status = weft_step_count(self, err);
    if (status == WEFT_OK && self->count > 0) status = weft_step_run_events(self, stage, err);
    if (status == WEFT_OK && self->count > 0) status = weft_norm_losses(self, err);
    if (status == WEFT_OK) status = read_losses(self, out->loss_sum, self->count > 0 ? stage->program->leaves : 0, err);
    if (status != WEFT_OK) return status;
    self->result.n_targets = self->count;
    self->result.n_places = self->places;
    self->result.data_seconds = self->data_seconds;
    if (!isfinite(self->result.loss_sum)) return find_in_forward(self, err);
    *out = self->result;
    return WEFT_OK;
}

weft_status weft_stepper_create(weft_stepper **out, weft_engine *engine, const weft_data_plugin *data_plugin,
                                weft_data *data, weft_error *err) {
    const int64_t rows = engine->plan.spec.rows > engine->plan.spec.evaluate_rows ? engine->plan.spec.rows
                                                                                  : engine->plan.spec.evaluate_rows;
    const size_t slots = (size_t)weft_plan_most_slots(&engine->plan);
    const size_t places = (size_t)(rows * weft_plan_table_rows(&engine->plan.spec)) + 1;
    weft_stepper *self = calloc(1, sizeof *self);
    int32_t *arrays = calloc(places * WEFT_LEAF_PARTS, sizeof *arrays);
    weft_status status = WEFT_OK;
    if (self != NULL) {
        self->engine = engine;
        self->data_plugin = data_plugin;
        self->data = data;
        self->leaf_targets = calloc((size_t)weft_plan_most_leaves(&engine->plan) + 1, sizeof *self->leaf_targets);
        self->leaf_lengths = calloc((size_t)weft_plan_most_leaves(&engine->plan) + 1, sizeof *self->leaf_lengths);
        self->gradients = calloc((size_t)engine->plan.declared->n_parameters + 1, sizeof *self->gradients);
        self->used = calloc(slots + 1, sizeof *self->used);
        self->hp = calloc(1, WEFT_MAX_HP);
        self->leaf.ids = arrays;
    }
    if (self == NULL || arrays == NULL || self->leaf_targets == NULL || self->leaf_lengths == NULL ||
        self->gradients == NULL || self->used == NULL || self->hp == NULL) {
        free(self == NULL ? arrays : NULL);
        weft_stepper_destroy(self);
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for a leaf of %zu places", places);
    }
    self->leaf.struct_size = (uint32_t)sizeof self->leaf;
    self->leaf.targets = arrays + places;
    self->leaf.starts = arrays + 2 * places;
    self->leaf.positions = arrays + 3 * places;
    self->leaf.weights = (float *)(void *)(arrays + 4 * places);
    status = weft_flight_create(&self->flights, engine, err);
    if (status == WEFT_OK)
        status =
            weft_trace_create(&self->trace,
                              weft_plan_most_events(&engine->plan) > 4096 ? weft_plan_most_events(&engine->plan) : 4096,
                              err);
    if (status == WEFT_OK) *out = self;
    else weft_stepper_destroy(self);
    return status;
}

void weft_stepper_destroy(weft_stepper *self) {
    if (self == NULL) return;
    weft_trace_destroy(self->trace);
    weft_flight_destroy(self->flights);
    free(self->leaf.ids);
    free(self->leaf_targets);
    free(self->leaf_lengths);
    free(self->gradients);
    free(self->used);
    free(self->hp);
    free(self);
}
