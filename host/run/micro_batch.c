/* host/run/micro_batch.c: see micro_batch.h. */
#include "run/micro_batch.h"

#include "base/clock.h"
#include "plugin/enter.h"
#include "run/validate_micro_batch.h"

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

/* The arrays lie as on the device for the largest shape: `places` of them apart. */
static void point_arrays(weft_micro_batch *micro_batch, char *memory, int64_t apart) {
    micro_batch->ids = (int32_t *)(void *)memory;
    micro_batch->targets = (int32_t *)(void *)(memory + apart);
    micro_batch->weights = (float *)(void *)(memory + 2 * apart);
    micro_batch->starts = (int32_t *)(void *)(memory + 3 * apart);
    micro_batch->positions = (int32_t *)(void *)(memory + 4 * apart);
}

/* A shorter micro-batch's parts move together, as the device has them. */
static void close_up_parts(const weft_micro_batch *micro_batch, char *memory, int64_t apart) {
    for (int i = 1; i < WEFT_MICRO_BATCH_PARTS; i++) {
        const int64_t to = weft_micro_batch_part_offset(micro_batch->rows, micro_batch->length, i);
        if (to != i * apart)
            memmove(memory + to, memory + i * apart,
                    (size_t)weft_micro_batch_part_bytes(micro_batch->rows, micro_batch->length));
    }
}

/* One upload for all parts. */
static weft_status send_micro_batch(weft_stepper *self, weft_slot_ref slot, weft_error *err) {
    const int turn = self->micro_batch_turn;
    self->micro_batch_turn = 1 - turn;
    return weft_stream_sync_send(&self->order, slot.ref, self->micro_batch_memory[turn],
                                 weft_micro_batch_bytes(self->micro_batch.rows, self->micro_batch.length),
                                 &self->micro_batch_sent[turn], err);
}

/* Asks for a micro-batch's content, in arrays of which nothing is a value that could be meant, and judges it before
 * it goes anywhere. */
static weft_status ask_micro_batch(weft_stepper *self, int32_t m, weft_error *err) {
    const weft_micro_batch_request request = micro_batch_request(self, m);
    const weft_micro_batch_bounds bounds = weft_micro_batch_bounds_of(&self->engine->plan);
    const weft_micro_batch asked = self->micro_batch;
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, self->data_plugin, micro_batch, err, self->data, &self->micro_batch, &request);
    if (status != WEFT_OK) return status;
    if (self->micro_batch.length != self->micro_batch_lengths[m] ||
        self->micro_batch.n_targets != self->micro_batch_targets[m])
        status = weft_error_set(
            err, WEFT_E_PLUGIN,
            "its shape says %d places and %lld targets for the micro-batch at row %llu, and its micro-batch has "
            "%d and %lld: both are the same",
            (int)self->micro_batch_lengths[m], (long long)self->micro_batch_targets[m],
            (unsigned long long)request.first_row, (int)self->micro_batch.length,
            (long long)self->micro_batch.n_targets);
    if (status == WEFT_OK) status = weft_micro_batch_validate(&self->micro_batch, &asked, &request, &bounds, err);
    return weft_plugin_blame(self->data_plugin, status, err);
}

int64_t weft_step_micro_batch_room(const weft_engine *engine) {
    const weft_plan_spec *spec = &engine->plan.spec;
    const int32_t rows = spec->rows > spec->evaluate_rows ? spec->rows : spec->evaluate_rows;
    return weft_micro_batch_bytes(rows, (int32_t)weft_plan_table_rows(spec));
}

/* Micro-batch m into `memory`, which has room for the largest. */
static weft_status make_micro_batch(weft_stepper *self, int32_t m, char *memory, weft_error *err) {
    const int64_t apart = weft_step_micro_batch_room(self->engine) / WEFT_MICRO_BATCH_PARTS;
    const double begin = weft_clock_seconds();
    weft_status status = WEFT_OK;
    point_arrays(&self->micro_batch, memory, apart);
    memset(memory, WEFT_MICRO_BATCH_POISON, (size_t)(WEFT_MICRO_BATCH_PARTS * apart));
    status = ask_micro_batch(self, m, err);
    if (status == WEFT_OK) close_up_parts(&self->micro_batch, memory, apart);
    self->data_seconds += weft_clock_seconds() - begin;
    return status;
}

weft_status weft_step_make_micro_batches(weft_stepper *self, const bool *wanted, weft_error *err) {
    const int64_t room = weft_step_micro_batch_room(self->engine);
    for (int32_t m = 0; m < self->mode_plan->program->micro_batches; m++) {
        if (!wanted[m] || make_micro_batch(self, m, self->micro_batches + room * m, err) == WEFT_OK) continue;
        (void)weft_error_prefix(err, "micro-batch %d: ", (int)m);
        if (self->step > 0) (void)weft_error_prefix(err, "step %llu, ", (unsigned long long)self->step);
        return (weft_status)err->code;
    }
    return WEFT_OK;
}

/* Its content is there; what is recorded is that it goes, from where it lies. */
static weft_status send_made_micro_batch(weft_stepper *self, int32_t m, weft_slot_ref slot, weft_error *err) {
    self->micro_batch.rows = self->mode_plan->graphs->rows;
    self->micro_batch.length = self->micro_batch_lengths[m];
    return weft_stream_sync_send(&self->order, slot.ref,
                                 self->micro_batches + weft_step_micro_batch_room(self->engine) * m,
                                 weft_micro_batch_bytes(self->micro_batch.rows, self->micro_batch.length), NULL, err);
}

static weft_status make_and_send_micro_batch(weft_stepper *self, int32_t m, weft_slot_ref slot, weft_error *err) {
    weft_status status = weft_stream_sync_await(&self->order, &self->micro_batch_sent[self->micro_batch_turn], err);
    if (status == WEFT_OK) status = make_micro_batch(self, m, self->micro_batch_memory[self->micro_batch_turn], err);
    return status == WEFT_OK ? send_micro_batch(self, slot, err) : status;
}

weft_status weft_step_load_micro_batch(weft_stepper *self, int32_t m, weft_slot_ref slot, weft_error *err) {
    weft_status status = WEFT_OK;
    if (self->micro_batch_now == m) return WEFT_OK;
    status = self->micro_batches != NULL ? send_made_micro_batch(self, m, slot, err)
                                         : make_and_send_micro_batch(self, m, slot, err);
    self->micro_batch_now = status == WEFT_OK ? m : -1;
    return status;
}
