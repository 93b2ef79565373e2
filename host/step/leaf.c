/* host/step/leaf.c: see leaf.h. */
#include "step/leaf.h"

#include "base/clock.h"
#include "plugin/enter.h"
#include "step/judge_leaf.h"

static weft_leaf_request leaf_request(const weft_stepper *self, int32_t leaf) {
    weft_leaf_request request = {.struct_size = (uint32_t)sizeof request};
    request.split = self->split;
    request.rows = self->stage->graphs->rows;
    request.first_row = self->first_row + (uint64_t)leaf * (uint64_t)request.rows;
    return request;
}

weft_status weft_step_count(weft_stepper *self, weft_error *err) {
    weft_status status = WEFT_OK;
    const weft_leaf_bounds bounds = weft_leaf_bounds_of(&self->engine->plan);
    const double begin = weft_clock_seconds();
    self->count = 0;
    self->places = 0;
    for (int32_t m = 0; m < self->stage->program->leaves && status == WEFT_OK; m++) {
        const weft_leaf_request request = leaf_request(self, m);
        weft_leaf shape = {.struct_size = (uint32_t)sizeof shape};
        WEFT_PLUGIN_CALL(status, self->data_plugin, shape, err, self->data, &shape, &request);
        if (status == WEFT_OK)
            status = weft_plugin_blame(self->data_plugin, weft_leaf_judge_shape(&shape, &request, &bounds, err), err);
        self->leaf_targets[m] = shape.n_targets;
        self->leaf_lengths[m] = shape.length;
        self->count += shape.n_targets;
        self->places += (int64_t)shape.rows * shape.length;
    }
    self->data_seconds += weft_clock_seconds() - begin;
    return status;
}

/* The arrays lie as on the device for the largest shape: `places` of them apart. */
static void point_arrays(weft_leaf *leaf, char *memory, int64_t apart) {
    leaf->ids = (int32_t *)(void *)memory;
    leaf->targets = (int32_t *)(void *)(memory + apart);
    leaf->weights = (float *)(void *)(memory + 2 * apart);
    leaf->starts = (int32_t *)(void *)(memory + 3 * apart);
    leaf->positions = (int32_t *)(void *)(memory + 4 * apart);
}

/* A shorter leaf's parts move together, as the device has them. */
static void close_up_parts(const weft_leaf *leaf, char *memory, int64_t apart) {
    for (int i = 1; i < WEFT_LEAF_PARTS; i++) {
        const int64_t to = weft_leaf_part_offset(leaf->rows, leaf->length, i);
        if (to != i * apart)
            memmove(memory + to, memory + i * apart, (size_t)weft_leaf_part_bytes(leaf->rows, leaf->length));
    }
}

/* One upload for all parts. */
static weft_status send_leaf(weft_stepper *self, weft_slot_ref slot, weft_error *err) {
    const int turn = self->leaf_turn;
    self->leaf_turn = 1 - turn;
    return weft_order_send(&self->order, slot.ref, self->leaf_memory[turn],
                           weft_leaf_bytes(self->leaf.rows, self->leaf.length), &self->leaf_sent[turn], err);
}

/* Asks for a leaf's content, in arrays of which nothing is a value that could be meant, and judges it before it goes
 * anywhere. */
static weft_status ask_leaf(weft_stepper *self, int32_t m, weft_error *err) {
    const weft_leaf_request request = leaf_request(self, m);
    const weft_leaf_bounds bounds = weft_leaf_bounds_of(&self->engine->plan);
    const weft_leaf asked = self->leaf;
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, self->data_plugin, leaf, err, self->data, &self->leaf, &request);
    if (status != WEFT_OK) return status;
    if (self->leaf.length != self->leaf_lengths[m] || self->leaf.n_targets != self->leaf_targets[m])
        status = weft_error_set(err, WEFT_E_PLUGIN,
                                "its shape says %d places and %lld targets for the leaf at row %llu, and its leaf has "
                                "%d and %lld: both are the same",
                                (int)self->leaf_lengths[m], (long long)self->leaf_targets[m],
                                (unsigned long long)request.first_row, (int)self->leaf.length,
                                (long long)self->leaf.n_targets);
    if (status == WEFT_OK) status = weft_leaf_judge(&self->leaf, &asked, &request, &bounds, err);
    return weft_plugin_blame(self->data_plugin, status, err);
}

weft_status weft_step_load_leaf(weft_stepper *self, int32_t m, weft_slot_ref slot, weft_error *err) {
    const int64_t apart = (self->leaf_memory[1] - self->leaf_memory[0]) / WEFT_LEAF_PARTS;
    char *memory = self->leaf_memory[self->leaf_turn];
    double begin = 0.0;
    weft_status status = WEFT_OK;
    if (self->leaf_now == m) return WEFT_OK;
    status = weft_order_await(&self->order, &self->leaf_sent[self->leaf_turn], err);
    if (status != WEFT_OK) return status;
    point_arrays(&self->leaf, memory, apart);
    begin = weft_clock_seconds();
    memset(memory, WEFT_LEAF_POISON, (size_t)(WEFT_LEAF_PARTS * apart));
    status = ask_leaf(self, m, err);
    self->data_seconds += weft_clock_seconds() - begin;
    if (status == WEFT_OK) {
        close_up_parts(&self->leaf, memory, apart);
        status = send_leaf(self, slot, err);
    }
    self->leaf_now = status == WEFT_OK ? m : -1;
    return status;
}
