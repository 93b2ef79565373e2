/* host/step/leaf.c: see leaf.h. */
#include "step/leaf.h"

#include "base/clock.h"
#include "plugin/enter.h"

static weft_leaf_request leaf_request(const weft_stepper *self, int32_t leaf) {
    weft_leaf_request request = {.struct_size = (uint32_t)sizeof request};
    request.split = self->split;
    request.rows = self->stage->graphs->rows;
    request.first_row = self->first_row + (uint64_t)leaf * (uint64_t)request.rows;
    return request;
}

weft_status weft_step_count(weft_stepper *self, weft_error *err) {
    weft_status status = WEFT_OK;
    const double begin = weft_clock_seconds();
    self->count = 0;
    self->places = 0;
    for (int32_t m = 0; m < self->stage->program->leaves && status == WEFT_OK; m++) {
        const weft_leaf_request request = leaf_request(self, m);
        weft_leaf shape = {.struct_size = (uint32_t)sizeof shape};
        WEFT_PLUGIN_CALL(status, self->data_plugin, shape, err, self->data, &shape, &request);
        self->leaf_targets[m] = shape.n_targets;
        self->leaf_lengths[m] = shape.length;
        self->count += shape.n_targets;
        self->places += (int64_t)shape.rows * shape.length;
    }
    self->data_seconds += weft_clock_seconds() - begin;
    return status;
}

weft_status weft_step_load_leaf(weft_stepper *self, int32_t m, weft_slot_ref slot, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_leaf_request request = leaf_request(self, m);
    const double begin = weft_clock_seconds();
    const void *parts[WEFT_LEAF_PARTS] = {self->leaf.ids, self->leaf.targets, self->leaf.weights, self->leaf.starts,
                                          self->leaf.positions};
    weft_status status = WEFT_OK;
    if (self->leaf_now == m) return WEFT_OK;
    WEFT_PLUGIN_CALL(status, self->data_plugin, leaf, err, self->data, &self->leaf, &request);
    self->data_seconds += weft_clock_seconds() - begin;
    for (int i = 0; i < WEFT_LEAF_PARTS && status == WEFT_OK; i++) {
        const int64_t at = weft_leaf_part_offset(self->leaf.rows, self->leaf.length, i);
        WEFT_PLUGIN_CALL(status, engine->kernels, write, err, engine->device, NULL, weft_ref_at(slot.ref, at), parts[i],
                         (int64_t)self->leaf.rows * self->leaf.length * 4);
    }
    self->leaf_now = status == WEFT_OK ? m : -1;
    return status;
}
