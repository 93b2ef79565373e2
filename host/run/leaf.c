/* host/run/leaf.c: see leaf.h. */
#include "run/leaf.h"

#include "base/clock.h"
#include "plugin/enter.h"
#include "run/judge_leaf.h"

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

int64_t weft_step_leaf_room(const weft_engine *engine) {
    const weft_plan_spec *spec = &engine->plan.spec;
    const int32_t rows = spec->rows > spec->evaluate_rows ? spec->rows : spec->evaluate_rows;
    return weft_leaf_bytes(rows, (int32_t)weft_plan_table_rows(spec));
}

/* Leaf m into `memory`, which has room for the largest. */
static weft_status make_leaf(weft_stepper *self, int32_t m, char *memory, weft_error *err) {
    const int64_t apart = weft_step_leaf_room(self->engine) / WEFT_LEAF_PARTS;
    const double begin = weft_clock_seconds();
    weft_status status = WEFT_OK;
    point_arrays(&self->leaf, memory, apart);
    memset(memory, WEFT_LEAF_POISON, (size_t)(WEFT_LEAF_PARTS * apart));
    status = ask_leaf(self, m, err);
    if (status == WEFT_OK) close_up_parts(&self->leaf, memory, apart);
    self->data_seconds += weft_clock_seconds() - begin;
    return status;
}

weft_status weft_step_make_leaves(weft_stepper *self, const bool *wanted, weft_error *err) {
    const int64_t room = weft_step_leaf_room(self->engine);
    for (int32_t m = 0; m < self->stage->program->leaves; m++) {
        if (!wanted[m] || make_leaf(self, m, self->leaves + room * m, err) == WEFT_OK) continue;
        (void)weft_error_prefix(err, "leaf %d: ", (int)m);
        if (self->step > 0) (void)weft_error_prefix(err, "step %llu, ", (unsigned long long)self->step);
        return (weft_status)err->code;
    }
    return WEFT_OK;
}

/* Its content is there; what is recorded is that it goes, from where it lies. */
static weft_status send_made_leaf(weft_stepper *self, int32_t m, weft_slot_ref slot, weft_error *err) {
    self->leaf.rows = self->stage->graphs->rows;
    self->leaf.length = self->leaf_lengths[m];
    return weft_order_send(&self->order, slot.ref, self->leaves + weft_step_leaf_room(self->engine) * m,
                           weft_leaf_bytes(self->leaf.rows, self->leaf.length), NULL, err);
}

static weft_status make_and_send_leaf(weft_stepper *self, int32_t m, weft_slot_ref slot, weft_error *err) {
    weft_status status = weft_order_await(&self->order, &self->leaf_sent[self->leaf_turn], err);
    if (status == WEFT_OK) status = make_leaf(self, m, self->leaf_memory[self->leaf_turn], err);
    return status == WEFT_OK ? send_leaf(self, slot, err) : status;
}

weft_status weft_step_load_leaf(weft_stepper *self, int32_t m, weft_slot_ref slot, weft_error *err) {
    weft_status status = WEFT_OK;
    if (self->leaf_now == m) return WEFT_OK;
    status = self->leaves != NULL ? send_made_leaf(self, m, slot, err) : make_and_send_leaf(self, m, slot, err);
    self->leaf_now = status == WEFT_OK ? m : -1;
    return status;
}
