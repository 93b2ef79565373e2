/* host/run/step.c: a pass of training or evaluation from its micro-batches to its result. */
#include "base/alloc.h"
#include "base/units.h"
#include "base/text.h"
#include "plugin/enter.h"
#include "program/budget.h"
#include "run/validate.h"
#include "run/values.h"

#include <math.h>
#include <stdlib.h>

static weft_micro_batch_request micro_batch_request(const weft_stepper *self, int32_t micro_batch) {
    weft_micro_batch_request request = {.struct_size = (uint32_t)sizeof request};
    request.split = self->split;
    request.rows = self->mode_plan->graphs->rows;
    request.first_row = self->first_row + (uint64_t)micro_batch * (uint64_t)request.rows;
    return request;
}

static weft_status count_micro_batches(weft_stepper *self, weft_error *err) {
    weft_status status = WEFT_OK;
    const weft_micro_batch_bounds bounds = weft_micro_batch_bounds_of(&self->engine->plan);
    const double begin = weft_clock_seconds();
    self->count = 0;
    for (int32_t m = 0; m < self->mode_plan->program->micro_batches && status == WEFT_OK; m++) {
        const weft_micro_batch_request request = micro_batch_request(self, m);
        weft_micro_batch shape = {.struct_size = (uint32_t)sizeof shape};
        WEFT_PLUGIN_CALL(status, self->data_plugin, shape, err, self->data, &shape, &request);
        if (status == WEFT_OK)
            status = weft_plugin_blame(self->data_plugin,
                                       weft_micro_batch_validate_shape(&shape, &request, &bounds, err), err);
        self->micro_batch_targets[m] = shape.n_targets;
        self->micro_batch_lengths[m] = shape.length;
        self->count += shape.n_targets;
        self->result.n_places += (int64_t)shape.rows * shape.length;
    }
    self->result.data_seconds += weft_clock_seconds() - begin;
    return status;
}

int64_t weft_step_micro_batch_bytes(const weft_engine *engine) {
    const weft_plan_spec *spec = &engine->plan.spec;
    const int32_t rows = spec->rows > spec->evaluate_rows ? spec->rows : spec->evaluate_rows;
    return weft_micro_batch_bytes(rows, (int32_t)weft_plan_table_rows(spec));
}

/* Fetches micro-batch m into `memory`, which has the size of the largest. The parts of a shorter one move together, as
 * the device expects them. */
static weft_status make_micro_batch(weft_stepper *self, int32_t m, char *memory, weft_error *err) {
    const int64_t part = weft_step_micro_batch_bytes(self->engine) / WEFT_MICRO_BATCH_PARTS;
    const double begin = weft_clock_seconds();
    const weft_micro_batch_request request = micro_batch_request(self, m);
    const weft_micro_batch shape = {.length = self->micro_batch_lengths[m], .n_targets = self->micro_batch_targets[m]};
    weft_micro_batch *out = &self->micro_batch;
    const weft_status status = weft_micro_batch_fetch(out, memory, part, self->data_plugin, self->data, &request,
                                                      &self->engine->plan, &shape, err);
    for (int i = 1; i < WEFT_MICRO_BATCH_PARTS && status == WEFT_OK; i++)
        memmove(memory + weft_micro_batch_part_offset(out->rows, out->length, i), memory + i * part,
                (size_t)weft_micro_batch_part_bytes(out->rows, out->length));
    self->result.data_seconds += weft_clock_seconds() - begin;
    return status;
}

weft_status weft_step_make_micro_batches(weft_stepper *self, const bool *wanted, weft_error *err) {
    const int64_t room = weft_step_micro_batch_bytes(self->engine);
    for (int32_t m = 0; m < self->mode_plan->program->micro_batches; m++) {
        if (!wanted[m] || make_micro_batch(self, m, self->micro_batches + room * m, err) == WEFT_OK) continue;
        (void)weft_error_prefix(err, "micro-batch %d: ", (int)m);
        if (self->step > 0) (void)weft_error_prefix(err, "step %llu, ", (unsigned long long)self->step);
        return (weft_status)err->code;
    }
    return WEFT_OK;
}

weft_status weft_step_load_micro_batch(weft_stepper *self, int32_t m, weft_slot_ref slot, weft_error *err) {
    const char *made = self->micro_batches;
    weft_micro_batch *out = &self->micro_batch;
    void *memory = NULL;
    weft_status status = WEFT_OK;
    if (self->loaded_micro_batch == m) return WEFT_OK;
    if (made != NULL) { /* the content is there: the upload is captured */
        out->rows = self->mode_plan->graphs->rows;
        out->length = self->micro_batch_lengths[m];
        status = weft_stream_sync_upload(&self->order, slot.ref, made + weft_step_micro_batch_bytes(self->engine) * m,
                                         weft_micro_batch_bytes(out->rows, out->length), NULL, err);
    } else {
        status = weft_double_buffer_take(&self->uploads, 1, &memory, err);
        if (status == WEFT_OK) status = make_micro_batch(self, m, memory, err);
        if (status == WEFT_OK)
            status =
                weft_double_buffer_send(&self->uploads, slot.ref, weft_micro_batch_bytes(out->rows, out->length), err);
    }
    self->loaded_micro_batch = status == WEFT_OK ? m : -1;
    return status;
}

/* ---- a pass ---- */

/* Norm and losses are adjacent: one copy downloads them. */
static int64_t outcome_bytes(const weft_engine *engine) {
    int64_t sizes[WEFT_N_SCALAR_PARTS];
    (void)weft_budget_scalars(&engine->plan, sizes);
    return sizes[WEFT_SCALAR_NORM] + sizes[WEFT_SCALAR_LOSSES] + sizes[WEFT_SCALAR_ALL_LOSSES];
}

double weft_step_loss(const weft_stepper *self, int32_t micro_batch) {
    const weft_scalars *scalars = &self->engine->scalars;
    const weft_loss_place *place = &self->mode_plan->losses[micro_batch];
    const int64_t at = (int64_t)place->rank * self->mode_plan->most_losses + place->position;
    return self->outcome[(scalars->all_losses.offset - scalars->norm.offset) / weft_f64_bytes(1) + at];
}

weft_status weft_step_of_pass(const weft_stepper *self, const char *detail, weft_status status, weft_error *err) {
    if (status == WEFT_OK) return WEFT_OK;
    if (self->step == 0) (void)weft_error_prefix(err, "evaluation%s: ", detail);
    else (void)weft_error_prefix(err, "step %llu%s: ", (unsigned long long)self->step, detail);
    return status;
}

static weft_status download_outcome(weft_stepper *self, weft_error *err) {
    const weft_status status = weft_stream_sync_download(&self->order, (double *)(uintptr_t)self->outcome,
                                                         self->engine->scalars.norm, outcome_bytes(self->engine), NULL,
                                                         err);
    return weft_step_of_pass(self, ", bringing its norm and losses", status, err);
}

/* Queues instructions [first, end) of a training pass, and the work before the first and after the last instruction. */
static weft_status queue_training(weft_stepper *self, int32_t first, int32_t end, weft_error *err) {
    weft_status status = WEFT_OK;
    if (first == 0)
        status = weft_step_of_pass(self, ", its first sequences", weft_step_send_first_rows(self, err), err);
    if (status == WEFT_OK) status = weft_step_run_part(self, first, end, err);
    if (status != WEFT_OK || end < self->mode_plan->program->n_instructions) return status;
    /* After REFRESH: STEP cannot write the copy of a parameter that other ranks update in part. */
    status = weft_step_of_pass(self, ", its compute copies", weft_engine_refresh_copy(self->engine, true, err), err);
    return status == WEFT_OK ? download_outcome(self, err) : status;
}

static weft_status queue_evaluation(weft_stepper *self, int32_t first, int32_t end, weft_error *err) {
    weft_status status = weft_step_run_part(self, first, end, err);
    if (status != WEFT_OK || end < self->mode_plan->program->n_instructions) return status;
    status = weft_step_of_pass(self, ", its losses", weft_step_gather_losses(self, err), err);
    return status == WEFT_OK ? download_outcome(self, err) : status;
}

/* Reads the downloaded losses. before: the sum of losses so far. */
static void note_outcome(weft_stepper *self, double before) {
    weft_step_result *out = &self->result;
    out->loss_sum = before;
    for (int32_t m = 0; m < self->mode_plan->program->micro_batches && self->count > 0; m++)
        out->loss_sum += weft_step_loss(self, m);
    out->n_targets = self->count;
    out->skipped = self->count == 0;
}

/* After a loss that is not finite: runs the forward again and checks every carry. Among several ranks the first that
 * found a carry reports it, else the one that computed the loss. */
static weft_status find_in_forward(weft_stepper *self, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_process_group *peers = &engine->peers;
    char title[700];
    bool none = true;
    weft_status status = WEFT_OK;
    self->culprit = (weft_error)WEFT_ERROR_INIT;
    self->find_culprit = true;
    status = weft_step_run_part(self, 0, self->mode_plan->program->n_instructions, err);
    self->find_culprit = false;
    if (status == WEFT_OK) status = weft_process_group_all_true(peers, &none, self->culprit.code == WEFT_OK, err);
    if (status == WEFT_OK) {
        if (none) status = weft_nonfinite_head(self, err);
        else if (self->culprit.code != WEFT_OK) {
            *err = self->culprit;
            status = (weft_status)err->code;
        }
        status = weft_process_group_agree(peers, status, err);
    }
    if (err == NULL || err->text[0] == '\0') return status;
    if (engine->optimizer_plugin != NULL && engine->updates > 0) {
        weft_plugin_title(title, sizeof title, engine->optimizer_plugin);
        weft_words_append(err->text, sizeof err->text, "; the weights are as update %llu by %s left them",
                          (unsigned long long)engine->updates, title);
    }
    if (self->step == 0) return weft_error_prefix(err, "evaluation: the loss is not finite; ");
    return weft_error_prefix(err, "step %llu: the loss is not finite; ", (unsigned long long)self->step);
}

/* step 0: no optimizer step. */
static void begin_pass(weft_stepper *self, const weft_mode_plan *mode_plan, int32_t split, uint64_t first_row,
                       uint64_t step) {
    self->mode_plan = mode_plan;
    self->split = split;
    self->first_row = first_row;
    self->step = step;
    self->result = (weft_step_result){0};
}

/* Waits for the device and checks for asynchronous failures, which may occur on one rank only. */
static weft_status finish_pass(weft_stepper *self, weft_status status, weft_error *err) {
    if (status != WEFT_OK) return status;
    status = weft_stream_sync_finish(&self->order, err);
    if (status == WEFT_OK) status = weft_ranks_check(&self->engine->ranks, err);
    if (status == WEFT_OK) return WEFT_OK;
    self->engine->failed = true;
    return weft_step_of_pass(self, ", behind its instructions", status, err);
}

bool weft_loss_scale_note(weft_loss_scale *self, const weft_train_settings *keys, bool finite) {
    if (finite && ++self->good < keys->scale_every) return true;
    if (finite) { /* an fp32 number times one of fp64, rounded once, as on PyTorch's devices */
        const float grown = (float)((double)self->scale * keys->scale_growth);
        self->good = 0;
        if (isfinite(grown)) self->scale = grown;
        return true;
    }
    self->skipped++;
    self->good = 0;
    self->scale = (float)((double)self->scale * keys->scale_backoff);
    return (double)self->scale >= keys->scale_floor;
}

/* In fp16 a gradient that is not finite ends the run only at the lowest scale: the device has skipped the update,
 * and the scale decreases. */
static weft_status check_scaled(weft_stepper *self, weft_error *err) {
    weft_engine *engine = self->engine;
    weft_step_result *out = &self->result;
    bool above_floor = true;
    weft_status status = WEFT_OK;
    out->scale = (double)engine->scale.scale;
    if (out->skipped) return WEFT_OK;
    out->overflowed = out->skipped = !isfinite(out->norm);
    above_floor = weft_loss_scale_note(&engine->scale, &engine->plan.run->settings.train, !out->overflowed);
    if (above_floor && (out->overflowed || isfinite(out->loss_sum))) return WEFT_OK;
    status = isfinite(out->loss_sum) ? weft_nonfinite_gradient(self, err) : find_in_forward(self, err);
    if (above_floor || err == NULL || err->text[0] == '\0') return status;
    return weft_error_prefix(
        err,
        "the loss scale has fallen to %g, below [train] scale_floor = %g, and numbers still exceed fp16. Fix: set "
        "precision = bf16 or fp32, or a lower learning rate; ",
        (double)engine->scale.scale, engine->plan.run->settings.train.scale_floor);
}

/* Micro-batches are counted before the first instruction: a FORWARD, or communication, may precede COUNT and needs the
 * shape of its micro-batch. */
static weft_status run_training_pass(weft_stepper *self, weft_step_result *out, uint64_t step, double lr, double clip,
                                     weft_error *err) {
    weft_engine *engine = self->engine;
    const weft_mode_plan *mode_plan = &engine->plan.train;
    weft_status status = WEFT_OK;
    begin_pass(self, mode_plan, WEFT_SPLIT_TRAIN,
               (step - 1) * (uint64_t)mode_plan->graphs->rows * (uint64_t)mode_plan->program->micro_batches, step);
    self->lr = lr;
    self->clip = clip;
    atomic_store(&weft_crash_where.step, step);
    engine->ranks.counts = true;
    status = count_micro_batches(self, err);
    if (status != WEFT_OK) engine->failed = true;
    if (status == WEFT_OK) status = weft_graph_capture_queue(self, queue_training, err);
    engine->ranks.counts = false;
    if (engine->ranks.sent != NULL) engine->ranks.sent->steps++;
    status = finish_pass(self, status, err);
    if (status != WEFT_OK) return status;
    note_outcome(self, 0.0);
    self->result.lr = lr;
    self->result.norm = self->result.skipped ? 0.0 : self->outcome[0];
    if (weft_plan_scales(&engine->plan)) status = check_scaled(self, err);
    else if (!isfinite(self->result.loss_sum)) status = find_in_forward(self, err);
    else if (!isfinite(self->result.norm)) status = weft_nonfinite_gradient(self, err);
    if (status != WEFT_OK) return status;
    engine->updates += !self->result.skipped;
    *out = self->result;
    return WEFT_OK;
}

weft_status weft_stepper_train(weft_stepper *self, weft_step_result *out, uint64_t step, double lr, double clip,
                               weft_error *err) {
    const char *before = atomic_exchange(&weft_crash_where.mode, weft_mode_name(WEFT_MODE_TRAIN));
    const weft_status status = run_training_pass(self, out, step, lr, clip, err);
    atomic_store(&weft_crash_where.mode, before);
    return status;
}

weft_status weft_stepper_evaluate(weft_stepper *self, weft_step_result *out, int32_t split, uint64_t first_row,
                                  weft_error *err) {
    const char *before = atomic_exchange(&weft_crash_where.mode, weft_mode_name(WEFT_MODE_EVALUATE));
    weft_status status = WEFT_OK;
    begin_pass(self, &self->engine->plan.evaluate, split, first_row, 0);
    status = count_micro_batches(self, err);
    if (status == WEFT_OK && self->count > 0) status = weft_graph_capture_queue(self, queue_evaluation, err);
    if (self->count > 0) status = finish_pass(self, status, err);
    if (status == WEFT_OK) {
        note_outcome(self, out->loss_sum);
        if (!isfinite(self->result.loss_sum)) status = find_in_forward(self, err);
        else {
            if (self->hidden != NULL && self->count > 0) status = weft_hidden_end_pass(self->hidden, self->count, err);
            *out = self->result;
        }
    }
    atomic_store(&weft_crash_where.mode, before);
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
    self->micro_batches = self->shared; /* an address that is not read */
    status = queue_training(self, 0, plan->train.program->n_instructions, err);
    self->micro_batches = NULL;
    return status;
}

weft_status weft_stepper_create(weft_stepper **out, weft_engine *engine, const weft_data_plugin *data_plugin,
                                weft_data *data, weft_error *err) {
    const size_t micro_batches = (size_t)weft_plan_most(&engine->plan, micro_batches) + 1;
    const int32_t instructions = weft_plan_most(&engine->plan, n_instructions);
    const int64_t hp = weft_cache_lines(WEFT_MAX_HP);
    const int64_t first = weft_cache_lines(weft_budget_first_rows(&engine->plan));
    const int64_t bytes = 64 + hp + first + outcome_bytes(engine); /* each on its own cache lines */
    void *memory = NULL;
    weft_stepper *self = weft_alloc(1, sizeof *self);
    weft_status status = WEFT_OK;
    self->engine = engine;
    self->data_plugin = data_plugin;
    self->data = data;
    self->micro_batch_targets = weft_alloc(micro_batches, sizeof *self->micro_batch_targets);
    self->micro_batch_lengths = weft_alloc(micro_batches, sizeof *self->micro_batch_lengths);
    self->gradients = weft_alloc(engine->plan.declared->n_parameters, sizeof *self->gradients);
    self->used = weft_alloc(weft_plan_most(&engine->plan, n_slots), sizeof *self->used);
    self->handles = weft_alloc(instructions + 1, sizeof *self->handles);
    self->folds = weft_alloc(2 * engine->plan.layout->n_units, sizeof *self->folds);
    status = weft_stream_sync_open(&self->order, engine->kernels, engine->device, WEFT_QUEUES, err);
    if (status == WEFT_OK) status = weft_stream_sync_alloc(&self->order, &memory, bytes, err);
    if (status == WEFT_OK) {
        self->shared = memset(memory, 0, (size_t)bytes);
        self->count_out = (double *)(void *)self->shared;
        self->hp = self->shared + 64;
        self->first_out = (int64_t *)(void *)(self->shared + 64 + hp);
        self->outcome = (const double *)(const void *)(self->shared + 64 + hp + first);
        status = weft_double_buffer_open(&self->uploads, engine->kernels, engine->device,
                                         weft_step_micro_batch_bytes(engine), err);
    }
    if (status == WEFT_OK) status = weft_device_ranges_find(&self->ranges, engine->kernels, engine->device, err);
    if (status == WEFT_OK) status = weft_graph_capture_open(&self->graph_capture, self, err);
    if (status == WEFT_OK) status = weft_engine_connect(engine, err);
    if (status == WEFT_OK) self->trace = weft_trace_create(instructions > 4096 ? instructions : 4096);
    if (status == WEFT_OK) *out = self;
    else weft_stepper_destroy(self);
    return status;
}

void weft_stepper_destroy(weft_stepper *self) {
    if (self == NULL) return;
    (void)weft_double_buffer_close(&self->uploads, NULL);
    weft_graph_capture_close(self->graph_capture, self);
    if (self->shared != NULL) weft_stream_sync_free(&self->order, self->shared);
    weft_stream_sync_close(&self->order);
    weft_trace_destroy(self->trace);
    free(self->handles);
    free(self->folds);
    free(self->micro_batch_targets);
    free(self->micro_batch_lengths);
    free(self->gradients);
    free(self->used);
    free(self);
}
