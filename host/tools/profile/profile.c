/* host/tools/profile/profile.c: see profile.h. */
#include "tools/profile/profile.h"

#include "base/clock.h"
#include "run/compute.h"
#include "program/copies.h"
#include "program/states.h"

#include <stdlib.h>

struct weft_profile {
    weft_stepper *stepper;
    weft_call_sink sink;
    weft_profile_step *steps; /* [capacity + 1]: kept ones, then the one that runs */
    int64_t n_steps, capacity;
    weft_profile_product products[WEFT_PROFILE_PRODUCTS];
    int32_t n_products;
    bool keep; /* the step that runs */
};

static weft_profile_step *running_step(weft_profile *self) {
    return &self->steps[self->n_steps];
}

enum { OWN_ROWS = 5 }; /* reduce, norm, optimizer, data, rest: always with room */
static const char whole[] = "";

/* Names are compared as pointers: each is one text of the program or of a plugin. NULL: there are `room` other kinds
 * already. */
static weft_profile_row *row_of(weft_profile_step *step, const char *operation, const char *part, int32_t room) {
    weft_profile_row *row = step->rows;
    const weft_profile_row empty = {.operation = operation, .part = part};
    for (; row < step->rows + step->n_rows; row++)
        if (row->operation == operation && row->part == part) return row;
    if (step->n_rows >= room) return NULL;
    *row = empty;
    step->n_rows++;
    return row;
}

static void add_to_row(weft_profile_row *row, double seconds, double flops, double bytes) {
    if (row == NULL) return;
    row->calls++;
    row->seconds += seconds;
    row->flops += flops;
    row->bytes += bytes;
}

static bool same_shape(const weft_product_shape *a, const weft_product_shape *b) {
    return a->m == b->m && a->n == b->n && a->k == b->k && a->transpose_a == b->transpose_a &&
           a->transpose_b == b->transpose_b;
}

static void note_product(weft_profile *self, const weft_call_info *info, const weft_product_shape *shape) {
    weft_profile_product *product = self->products;
    const weft_profile_product *end = product + self->n_products;
    while (product < end && (product->operation != info->operation || product->part != info->part ||
                             !same_shape(&product->shape, shape)))
        product++;
    if (product == self->products + WEFT_PROFILE_PRODUCTS) return;
    if (product == end) self->n_products++;
    product->operation = info->operation;
    product->part = info->part;
    product->shape = *shape;
    product->calls++;
}

static void on_call(void *context, const weft_graph *graph, const weft_call *call, double seconds) {
    weft_profile *self = context;
    weft_profile_step *step = running_step(self);
    weft_profile_row *row = NULL;
    weft_call_info info;
    weft_call_describe(&info, graph, call);
    row = row_of(step, info.operation, info.part, WEFT_PROFILE_ROWS - OWN_ROWS);
    add_to_row(row, seconds, info.flops, info.bytes);
    if (row != NULL) row->recompute = info.recompute;
    if (info.recompute) step->recompute_flops += info.flops;
    else step->flops += info.flops;
    for (int32_t i = 0; i < info.n_products && self->keep && !info.recompute; i++)
        note_product(self, &info, &info.products[i]);
}

static weft_profile_row *own_row(weft_profile_step *step, const char *operation) {
    return row_of(step, operation, whole, WEFT_PROFILE_ROWS);
}

/* ---- the instructions that call no segment ---- */

/* A micro-batch's gradient is copied into the sum or added to it; with one micro-batch it lies there already. A
 * REDUCE among ranks has no micro-batch's gradient: alone, the sum of one rank is the sum of all. */
static double reduce_bytes(const weft_stepper *stepper, const weft_trace_entry *entry) {
    const weft_program *program = stepper->mode_plan->program;
    const weft_layout *layout = stepper->engine->plan.layout;
    const int32_t slot = program->instruction_slots[entry->instruction].gradients[entry->unit];
    const int64_t elements = layout->groups[layout->units[entry->unit].trained].numel;
    if (slot < 0 || program->slots[slot].offset < 0) return 0.0;
    return (entry->micro_batch == 0 ? 2.0 : 3.0) * (double)weft_f32_bytes(elements);
}

/* Weight and states are read and written, the gradient read, the compute copy made again. */
static double update_bytes(const weft_engine *engine) {
    int64_t elements = 0;
    for (int32_t g = 0; g < engine->plan.layout->n_trainable_groups; g++)
        elements += engine->plan.layout->groups[g].numel;
    return (double)weft_f32_bytes(elements) * 3.0 +
           2.0 * (double)weft_states_bytes(engine->plan.states, engine->plan.n_states, elements) +
           (double)weft_copies_traffic(&engine->plan);
}

static void add_instruction(weft_profile_step *step, const weft_stepper *stepper, const weft_trace_entry *entry) {
    const double seconds = 1e-9 * (double)(entry->end_ns - entry->start_ns);
    switch (entry->kind) {
    case WEFT_INSTRUCTION_REDUCE:
        add_to_row(own_row(step, "reduce"), seconds, 0.0, reduce_bytes(stepper, entry));
        break;
    case WEFT_INSTRUCTION_NORM:
        add_to_row(own_row(step, "norm"), seconds, 0.0,
                   (double)weft_f32_bytes(weft_declared_numel(stepper->engine->plan.declared, true)));
        break;
    case WEFT_INSTRUCTION_STEP:
        add_to_row(own_row(step, "optimizer"), seconds, 0.0, update_bytes(stepper->engine));
        break;
    default: break;
    }
}

/* The trace's newest entries are the step's instructions. */
static void add_instructions(weft_profile_step *step, const weft_stepper *stepper) {
    const int32_t held = weft_trace_count(stepper->trace),
                  instructions = stepper->engine->plan.train.program->n_instructions;
    for (int32_t i = held - instructions; i < held; i++)
        add_instruction(step, stepper, weft_trace_entry_at(stepper->trace, i));
}

/* The last rows: what the data plugin took, and what is left of the step. */
static void close_step(weft_profile_step *step) {
    double named = 0.0;
    add_to_row(own_row(step, "data"), step->result.data_seconds, 0.0, 0.0);
    for (int32_t i = 0; i < step->n_rows; i++) named += step->rows[i].seconds;
    add_to_row(own_row(step, "rest"), step->seconds - named, 0.0, 0.0);
}

weft_status weft_profile_train(weft_profile *self, uint64_t step, double lr, double clip, bool keep, weft_error *err) {
    weft_profile_step *now = running_step(self);
    const double begin = weft_clock_seconds();
    weft_status status = WEFT_OK;
    if (keep && self->n_steps == self->capacity)
        return weft_error_set(err, WEFT_E_HOST, "a profile of %lld steps cannot keep another",
                              (long long)self->capacity);
    memset(now, 0, sizeof *now);
    self->keep = keep;
    status = weft_stepper_train(self->stepper, &now->result, step, lr, clip, err);
    if (status != WEFT_OK) return status;
    now->seconds = weft_clock_seconds() - begin;
    add_instructions(now, self->stepper);
    close_step(now);
    if (keep) self->n_steps++;
    return WEFT_OK;
}

weft_status weft_profile_create(weft_profile **out, weft_stepper *stepper, int64_t keep, weft_error *err) {
    weft_profile *self = calloc(1, sizeof *self);
    if (self != NULL) self->steps = calloc((size_t)keep + 1, sizeof *self->steps);
    if (self == NULL || self->steps == NULL) {
        free(self);
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for a profile of %lld steps", (long long)keep);
    }
    self->stepper = stepper;
    self->capacity = keep;
    self->sink.context = self;
    self->sink.ran = on_call;
    stepper->sink = &self->sink;
    *out = self;
    return WEFT_OK;
}

void weft_profile_destroy(weft_profile *self) {
    if (self == NULL) return;
    self->stepper->sink = NULL;
    free(self->steps);
    free(self);
}

int64_t weft_profile_count(const weft_profile *self) {
    return self->n_steps;
}

const weft_profile_step *weft_profile_at(const weft_profile *self, int64_t i) {
    return &self->steps[i];
}

/* Steps that come before step i when all are sorted by time. */
static int64_t rank_of(const weft_profile *self, int64_t i) {
    const double seconds = self->steps[i].seconds;
    int64_t rank = 0;
    for (int64_t j = 0; j < self->n_steps; j++)
        rank += self->steps[j].seconds < seconds || (self->steps[j].seconds <= seconds && j < i);
    return rank;
}

const weft_profile_step *weft_profile_median(const weft_profile *self) {
    int64_t i = 0;
    while (rank_of(self, i) != (self->n_steps - 1) / 2) i++;
    return &self->steps[i];
}

const weft_profile_product *weft_profile_products(const weft_profile *self, int32_t *n) {
    *n = self->n_products;
    return self->products;
}
