/* host/run/micro_batch.c: the micro-batches of one step, from the data plugin into the host's arrays and the slot. */
#include "base/units.h"
#include "plugin/enter.h"
#include "run/stepper.h"
#include "run/validate.h"

static weft_micro_batch_request micro_batch_request(const weft_stepper *self, int32_t micro_batch) {
    weft_micro_batch_request request = {.struct_size = (uint32_t)sizeof request};
    request.split = self->split;
    request.rows = self->mode_plan->graphs->rows;
    request.first_row = self->first_row + (uint64_t)micro_batch * (uint64_t)request.rows;
    return request;
}

weft_status weft_step_count(weft_stepper *self, weft_error *err) {
    weft_status status = WEFT_OK;
    const weft_micro_batch_bounds bounds = weft_micro_batch_bounds_of(&self->engine->plan);
    const double begin = weft_clock_seconds();
    self->count = 0;
    self->places = 0;
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
        self->places += (int64_t)shape.rows * shape.length;
    }
    self->data_seconds += weft_clock_seconds() - begin;
    return status;
}

int64_t weft_step_micro_batch_bytes(const weft_engine *engine) {
    const weft_plan_spec *spec = &engine->plan.spec;
    const int32_t rows = spec->rows > spec->evaluate_rows ? spec->rows : spec->evaluate_rows;
    return weft_micro_batch_bytes(rows, (int32_t)weft_plan_table_rows(spec));
}

/* Fetches micro-batch m into poisoned arrays and validates it. */
static weft_status fetch_micro_batch(weft_stepper *self, int32_t m, weft_error *err) {
    const weft_micro_batch_request request = micro_batch_request(self, m);
    const weft_micro_batch_bounds bounds = weft_micro_batch_bounds_of(&self->engine->plan);
    const weft_micro_batch requested = self->micro_batch;
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, self->data_plugin, micro_batch, err, self->data, &self->micro_batch, &request);
    if (status != WEFT_OK) return status;
    if (self->micro_batch.length != self->micro_batch_lengths[m] ||
        self->micro_batch.n_targets != self->micro_batch_targets[m])
        status = weft_error_set(err, WEFT_E_PLUGIN,
                                "its shape reports %d positions and %lld targets for the micro-batch at row %llu, but "
                                "its micro_batch returns %d and %lld",
                                (int)self->micro_batch_lengths[m], (long long)self->micro_batch_targets[m],
                                (unsigned long long)request.first_row, (int)self->micro_batch.length,
                                (long long)self->micro_batch.n_targets);
    if (status == WEFT_OK) status = weft_micro_batch_validate(&self->micro_batch, &requested, &request, &bounds, err);
    return weft_plugin_blame(self->data_plugin, status, err);
}

/* Fetches micro-batch m into `memory`, which has the size of the largest. The parts of a shorter one move together, as
 * the device expects them. */
static weft_status make_micro_batch(weft_stepper *self, int32_t m, char *memory, weft_error *err) {
    const int64_t part = weft_step_micro_batch_bytes(self->engine) / WEFT_MICRO_BATCH_PARTS;
    const double begin = weft_clock_seconds();
    weft_micro_batch *out = &self->micro_batch;
    weft_status status = WEFT_OK;
    out->ids = (int32_t *)(void *)memory;
    out->targets = (int32_t *)(void *)(memory + part);
    out->weights = (float *)(void *)(memory + 2 * part);
    out->starts = (int32_t *)(void *)(memory + 3 * part);
    out->positions = (int32_t *)(void *)(memory + 4 * part);
    memset(memory, WEFT_MICRO_BATCH_POISON, (size_t)(WEFT_MICRO_BATCH_PARTS * part));
    status = fetch_micro_batch(self, m, err);
    for (int i = 1; i < WEFT_MICRO_BATCH_PARTS && status == WEFT_OK; i++)
        memmove(memory + weft_micro_batch_part_offset(out->rows, out->length, i), memory + i * part,
                (size_t)weft_micro_batch_part_bytes(out->rows, out->length));
    self->data_seconds += weft_clock_seconds() - begin;
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
    const int turn = self->micro_batch_turn;
    const char *from = self->micro_batch_memory[turn];
    weft_status status = WEFT_OK;
    if (self->loaded_micro_batch == m) return WEFT_OK;
    if (self->micro_batches != NULL) { /* the content is there: the upload is captured */
        from = self->micro_batches + weft_step_micro_batch_bytes(self->engine) * m;
        self->micro_batch.rows = self->mode_plan->graphs->rows;
        self->micro_batch.length = self->micro_batch_lengths[m];
    } else {
        status = weft_stream_sync_await(&self->order, &self->micro_batch_sent[turn], err);
        if (status == WEFT_OK) status = make_micro_batch(self, m, self->micro_batch_memory[turn], err);
        if (status == WEFT_OK) self->micro_batch_turn = 1 - turn;
    }
    if (status == WEFT_OK)
        status = weft_stream_sync_upload(&self->order, slot.ref, from,
                                         weft_micro_batch_bytes(self->micro_batch.rows, self->micro_batch.length),
                                         self->micro_batches != NULL ? NULL : &self->micro_batch_sent[turn], err);
    self->loaded_micro_batch = status == WEFT_OK ? m : -1;
    return status;
}
