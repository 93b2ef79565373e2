/* host/run/step.c: see step.h. */
#include "run/step.h"

#include "base/sizes.h"
#include "base/words.h"
#include "run/compute.h"
#include "program/budget.h"
#include "plugin/enter.h"
#include "run/nonfinite.h"
#include "run/in_flight.h"
#include "run/hidden.h"
#include "run/p2p_channels.h"
#include "run/micro_batch.h"
#include "run/norm.h"
#include "run/graph_capture.h"
#include "run/run_instructions.h"

#include <math.h>
#include <stdlib.h>

/* Norm and losses lie side by side: one copy brings them. */
static int64_t outcome_bytes(const weft_engine *engine) {
    int64_t sizes[WEFT_N_SCALAR_PARTS];
    (void)weft_budget_scalars(&engine->plan, sizes);
    return sizes[WEFT_SCALAR_NORM] + sizes[WEFT_SCALAR_LOSSES] + sizes[WEFT_SCALAR_ALL_LOSSES];
}

static weft_status bring_outcome(weft_stepper *self, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_status status = weft_stream_sync_bring(&self->order, (double *)(uintptr_t)self->outcome,
                                                      engine->scalars.norm, outcome_bytes(engine), err);
    return weft_step_of_pass(self, ", bringing its norm and losses", status, err);
}

/* All of a training pass that the device does with these instructions: before the first and behind the last there is
 * more. */
static weft_status queue_training(weft_stepper *self, int32_t first, int32_t end, weft_error *err) {
    weft_engine *engine = self->engine;
    weft_status status = WEFT_OK;
    if (first == 0) status = weft_step_of_pass(self, ", its first rows", weft_step_send_first_rows(self, err), err);
    if (status == WEFT_OK) status = weft_step_run_part(self, first, end, err);
    if (status != WEFT_OK || end < self->mode_plan->program->n_instructions) return status;
    /* A rank alone has done it in STEP; here REFRESH came after that. */
    if (engine->ranks.world > 1)
        status = weft_step_of_pass(self, ", the copies that are computed with",
                                   weft_compute_copy_refresh(engine, true, err), err);
    return status == WEFT_OK ? bring_outcome(self, err) : status;
}

/* The same of a pass of evaluation. */
static weft_status queue_evaluation(weft_stepper *self, int32_t first, int32_t end, weft_error *err) {
    weft_status status = weft_step_run_part(self, first, end, err);
    if (status != WEFT_OK || end < self->mode_plan->program->n_instructions) return status;
    status = weft_step_of_pass(self, ", its losses", weft_norm_losses(self, err), err);
    return status == WEFT_OK ? bring_outcome(self, err) : status;
}

/* What the device has told of the pass. before: the sum of losses that these follow. */
static void note_outcome(weft_stepper *self, double before) {
    weft_step_result *out = &self->result;
    out->loss_sum = before;
    for (int32_t m = 0; m < self->mode_plan->program->micro_batches && self->count > 0; m++)
        out->loss_sum += weft_step_loss(self, m);
    out->n_targets = self->count;
    out->n_places = self->places;
    out->data_seconds = self->data_seconds;
    out->skipped = self->count == 0;
}

/* Each rank has found what it has: the first of them, or who formed the bad loss, tells it for all. */
static weft_status find_together(weft_stepper *self, weft_error *err) {
    const weft_process_group *peers = &self->engine->peers;
    bool none = true;
    weft_status status = weft_process_group_all_true(peers, &none, self->culprit.code == WEFT_OK, err);
    if (status != WEFT_OK) return status;
    if (none) status = weft_nonfinite_head(self, err);
    else if (self->culprit.code != WEFT_OK) {
        *err = self->culprit;
        status = (weft_status)err->code;
    }
    return weft_process_group_agree(peers, status, err);
}

/* Whose update made the weights with which it happened. */
static void name_optimizer(const weft_engine *engine, weft_error *err) {
    char title[700];
    if (engine->optimizer_plugin == NULL || engine->updates == 0) return;
    weft_plugin_title(title, sizeof title, engine->optimizer_plugin);
    weft_words_append(err->text, sizeof err->text, "; the weights are as update %llu by %s left them",
                      (unsigned long long)engine->updates, title);
}

/* After a loss that is not finite: runs the forward again, looking at every carry. */
static weft_status find_in_forward(weft_stepper *self, weft_error *err) {
    const weft_error nobody = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    self->culprit = nobody;
    self->find_culprit = true;
    status = weft_step_run_instructions(self, err);
    self->find_culprit = false;
    if (status == WEFT_OK)
        status = weft_process_group_is_single(&self->engine->peers) ? weft_nonfinite_head(self, err)
                                                                    : find_together(self, err);
    if (err == NULL || err->text[0] == '\0') return status;
    name_optimizer(self->engine, err);
    if (self->step == 0) return weft_error_prefix(err, "evaluation: the loss is not finite; ");
    return weft_error_prefix(err, "step %llu: the loss is not finite; ", (unsigned long long)self->step);
}

/* step 0: no optimizer step. */
static void begin_pass(weft_stepper *self, const weft_mode_plan *mode_plan, int32_t split, uint64_t first_row,
                       uint64_t step) {
    const weft_step_result none = {0};
    self->mode_plan = mode_plan;
    self->split = split;
    self->first_row = first_row;
    self->step = step;
    self->data_seconds = 0.0;
    self->result = none;
}

/* The micro-batches are counted before the first instruction: a FORWARD, or what travels, may come before COUNT and
 * needs to know its micro-batch. */
static weft_status run_counted(weft_stepper *self, weft_error *err) {
    weft_engine *engine = self->engine;
    weft_status status = WEFT_OK;
    engine->ranks.counts = true;
    status = weft_step_count(self, err);
    if (status != WEFT_OK) engine->failed = true;
    if (status == WEFT_OK) status = weft_graph_capture_queue(self, queue_training, err);
    engine->ranks.counts = false;
    if (engine->ranks.sent != NULL) engine->ranks.sent->steps++;
    return status;
}

/* What went wrong behind the calls of a pass is told here, and may be so to one rank alone. */
static weft_status finish_pass(weft_stepper *self, weft_status status, weft_error *err) {
    if (status != WEFT_OK) return status;
    status = weft_stream_sync_finish(&self->order, err);
    if (status == WEFT_OK) status = weft_ranks_check(&self->engine->ranks, err);
    if (status == WEFT_OK) return WEFT_OK;
    self->engine->failed = true;
    return weft_step_of_pass(self, ", behind its instructions", status, err);
}

/* What has no finite gradient at any scale, and where it begins. */
static weft_status blame_at_floor(weft_stepper *self, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_status status = isfinite(self->result.loss_sum) ? weft_nonfinite_gradient(self, err)
                                                               : find_in_forward(self, err);
    if (err == NULL || err->text[0] == '\0') return status;
    return weft_error_prefix(
        err,
        "the loss scale has fallen to %g, below [train] scale_floor = %g, and what fp16 cannot hold "
        "is still there: precision = bf16 or fp32 holds larger numbers, and a lower learning rate "
        "keeps weights from growing so far; ",
        (double)engine->scale.scale, engine->plan.run->settings.train.scale_floor);
}

/* A gradient that is not finite ends no run in fp16: the device has made no update, and the scale falls. */
static weft_status judge_scaled(weft_stepper *self, weft_error *err) {
    weft_engine *engine = self->engine;
    weft_step_result *out = &self->result;
    out->scale = (double)engine->scale.scale;
    if (out->skipped) return WEFT_OK;
    out->overflowed = out->skipped = !isfinite(out->norm);
    if (weft_loss_scale_note(&engine->scale, &engine->plan.run->settings.train, !out->overflowed)) {
        if (out->overflowed || isfinite(out->loss_sum)) return WEFT_OK;
        return find_in_forward(self, err);
    }
    return blame_at_floor(self, err);
}

static weft_status judge_unscaled(weft_stepper *self, weft_error *err) {
    if (!isfinite(self->result.loss_sum)) return find_in_forward(self, err);
    return isfinite(self->result.norm) ? WEFT_OK : weft_nonfinite_gradient(self, err);
}

static weft_status run_training_pass(weft_stepper *self, weft_step_result *out, uint64_t step, double lr, double clip,
                                     weft_error *err) {
    weft_engine *engine = self->engine;
    const weft_mode_plan *mode_plan = &engine->plan.train;
    weft_status status = WEFT_OK;
    begin_pass(self, mode_plan, WEFT_SPLIT_TRAIN,
               (step - 1) * (uint64_t)mode_plan->graphs->rows * (uint64_t)mode_plan->program->micro_batches, step);
    self->lr = lr;
    self->clip = clip;
    weft_crash_step(step);
    status = finish_pass(self, run_counted(self, err), err);
    if (status != WEFT_OK) return status;
    note_outcome(self, 0.0);
    self->result.lr = lr;
    self->result.norm = self->result.skipped ? 0.0 : self->outcome[0];
    status = weft_plan_scales(&engine->plan) ? judge_scaled(self, err) : judge_unscaled(self, err);
    if (status != WEFT_OK) return status;
    engine->updates += !self->result.skipped;
    *out = self->result;
    return WEFT_OK;
}

weft_status weft_stepper_train(weft_stepper *self, weft_step_result *out, uint64_t step, double lr, double clip,
                               weft_error *err) {
    const char *before = weft_plugin_serve(weft_mode_name(WEFT_MODE_TRAIN));
    const weft_status status = run_training_pass(self, out, step, lr, clip, err);
    (void)weft_plugin_serve(before);
    return status;
}

static weft_status run_evaluation_pass(weft_stepper *self, weft_step_result *out, int32_t split, uint64_t first_row,
                                       weft_error *err) {
    weft_status status = WEFT_OK;
    begin_pass(self, &self->engine->plan.evaluate, split, first_row, 0);
    status = weft_step_count(self, err);
    if (status == WEFT_OK && self->count > 0) status = weft_graph_capture_queue(self, queue_evaluation, err);
    if (self->count > 0) status = finish_pass(self, status, err);
    if (status != WEFT_OK) return status;
    note_outcome(self, out->loss_sum);
    if (!isfinite(self->result.loss_sum)) return find_in_forward(self, err);
    if (self->hidden != NULL && self->count > 0) status = weft_hidden_end_pass(self->hidden, self->count, err);
    *out = self->result;
    return status;
}

weft_status weft_stepper_evaluate(weft_stepper *self, weft_step_result *out, int32_t split, uint64_t first_row,
                                  weft_error *err) {
    const char *before = weft_plugin_serve(weft_mode_name(WEFT_MODE_EVALUATE));
    const weft_status status = run_evaluation_pass(self, out, split, first_row, err);
    (void)weft_plugin_serve(before);
    return status;
}

weft_status weft_stepper_rehearse(weft_stepper *self, weft_error *err) {
    const weft_plan *plan = &self->engine->plan;
    weft_status status = WEFT_OK;
    begin_pass(self, &plan->train, WEFT_SPLIT_TRAIN, 0, 1);
    self->count = 1;
    for (int32_t m = 0; m < plan->train.program->micro_batches; m++) {
        self->micro_batch_targets[m] = 1;
        self->micro_batch_lengths[m] = plan->spec.lengths[plan->spec.n_lengths - 1];
    }
    self->micro_batches = self->shared; /* an address that nobody reads */
    status = queue_training(self, 0, plan->train.program->n_instructions, err);
    self->micro_batches = NULL;
    return status;
}

/* Memory that the device shares, part after part, each on cache lines of its own. */
static weft_status take_shared(weft_stepper *self, weft_error *err) {
    const weft_engine *engine = self->engine;
    const int64_t micro_batch = weft_step_micro_batch_room(engine), hp = weft_cache_lines(WEFT_MAX_HP);
    const int64_t first = weft_cache_lines(weft_budget_first_rows(&engine->plan));
    void *memory = NULL;
    weft_status status = weft_stream_sync_open(&self->order, engine->kernels, engine->device, err);
    if (status == WEFT_OK)
        status = weft_stream_sync_take(&self->order, &memory, 2 * micro_batch + 64 + hp + first + outcome_bytes(engine),
                                       err);
    if (status != WEFT_OK) return status;
    self->shared = memory;
    self->micro_batch_memory[0] = self->shared;
    self->micro_batch_memory[1] = self->shared + micro_batch;
    self->count_out = (double *)(void *)(self->shared + 2 * micro_batch);
    self->hp = self->shared + 2 * micro_batch + 64;
    self->first_out = (int64_t *)(void *)(self->shared + 2 * micro_batch + 64 + hp);
    self->outcome = (const double *)(const void *)(self->shared + 2 * micro_batch + 64 + hp + first);
    self->micro_batch.struct_size = (uint32_t)sizeof self->micro_batch;
    return WEFT_OK;
}

weft_status weft_stepper_create(weft_stepper **out, weft_engine *engine, const weft_data_plugin *data_plugin,
                                weft_data *data, weft_error *err) {
    const size_t micro_batches = (size_t)weft_plan_most_micro_batches(&engine->plan) + 1;
    const int32_t instructions = weft_plan_most_instructions(&engine->plan);
    weft_stepper *self = calloc(1, sizeof *self);
    weft_status status = WEFT_OK;
    if (self == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the steps of a run");
    self->engine = engine;
    self->data_plugin = data_plugin;
    self->data = data;
    self->micro_batch_targets = calloc(micro_batches, sizeof *self->micro_batch_targets);
    self->micro_batch_lengths = calloc(micro_batches, sizeof *self->micro_batch_lengths);
    self->gradients = calloc((size_t)engine->plan.declared->n_parameters + 1, sizeof *self->gradients);
    self->used = calloc((size_t)weft_plan_most_slots(&engine->plan) + 1, sizeof *self->used);
    if (self->micro_batch_targets == NULL || self->micro_batch_lengths == NULL || self->gradients == NULL ||
        self->used == NULL)
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the instructions of a step");
    if (status == WEFT_OK) status = take_shared(self, err);
    if (status == WEFT_OK) status = weft_graph_capture_open(&self->graph_capture, self, err);
    if (status == WEFT_OK) status = weft_step_connect(engine, err);
    if (status == WEFT_OK) status = weft_in_flight_create(&self->flights, engine, err);
    if (status == WEFT_OK) status = weft_trace_create(&self->trace, instructions > 4096 ? instructions : 4096, err);
    if (status == WEFT_OK) *out = self;
    else weft_stepper_destroy(self);
    return status;
}

void weft_stepper_destroy(weft_stepper *self) {
    if (self == NULL) return;
    for (int i = 0; i < 2; i++) (void)weft_stream_sync_await(&self->order, &self->micro_batch_sent[i], NULL);
    weft_graph_capture_close(self->graph_capture, &self->order);
    if (self->shared != NULL) weft_stream_sync_give_back(&self->order, self->shared);
    weft_stream_sync_close(&self->order);
    weft_trace_destroy(self->trace);
    weft_in_flight_destroy(self->flights);
    free(self->micro_batch_targets);
    free(self->micro_batch_lengths);
    free(self->gradients);
    free(self->used);
    free(self);
}
