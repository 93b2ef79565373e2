/* tests/tensor/test_generate.c: logits with and without previous positions in the key-value cache. */
#include "graph_models.h"
#include "suite.h"

#include <math.h>

enum { V = RIG_V, HD = RIG_HEAD };
enum { ROWS = 2, LENGTH = 9 };

/* Graphs for `length` positions after `past`, with caches that outlive them. */
typedef struct generator {
    rig *r;
    int32_t cache_rows;
    const int32_t *ids; /* (ROWS, cache_rows) */
    weft_slot_ref states[RIG_SEGMENTS], logits;
} generator;

static weft_slot_ref places_slot(const generator *self, int32_t length, int64_t past, int what) {
    weft_slot_ref slot = rig_slot(self->r, (int64_t)ROWS * length * 4);
    int32_t *values = calloc((size_t)(ROWS * length), sizeof *values);
    ck_assert_ptr_nonnull(values);
    for (int32_t i = 0; i < ROWS * length; i++) {
        const int32_t place = (int32_t)past + i % length;
        values[i] = what == 0 ? self->ids[i / length * self->cache_rows + place] : what == 1 ? place : 0;
    }
    rig_write(self->r, slot.ref, values, slot.bytes);
    free(values);
    return slot;
}

static void generate(generator *self, int32_t length, int64_t past) {
    rig *r = self->r;
    const weft_graph_spec spec = {.mode = WEFT_MODE_GENERATE,
                                  .dtype = r->dtype,
                                  .rows = ROWS,
                                  .length = length,
                                  .cache_rows = self->cache_rows,
                                  .kernels = r->kernels,
                                  .device = r->device};
    weft_error err = WEFT_ERROR_INIT;
    weft_graph_binding b = {.parameters = r->reads, .tables = r->tables, .logits = self->logits};
    b.past = rig_slot(r, (int64_t)sizeof past);
    rig_write(r, b.past.ref, &past, (int64_t)sizeof past);
    b.ids = places_slot(self, length, past, 0);
    b.positions = places_slot(self, length, past, 1);
    b.starts = places_slot(self, length, past, 2);
    for (int32_t s = 0; s < 4; s++) {
        weft_graph *graph = NULL;
        rig_ok(weft_graph_record(&graph, &r->declared, s, &spec, &err), &err);
        weft_graph_plan(graph);
        if (self->states[s].bytes == 0) self->states[s] = rig_slot(r, weft_graph_size(graph)->state);
        ck_assert_int_eq(self->states[s].bytes, weft_graph_size(graph)->state);
        b.state = self->states[s];
        b.work = rig_slot(r, weft_graph_size(graph)->forward_work);
        b.carry_in = b.carry_out;
        b.carry_out = rig_slot(r, weft_graph_size(graph)->carry);
        rig_ok(weft_graph_forward(graph, &b, false, &err), &err);
        weft_graph_destroy(graph);
    }
}

static const rig_model *const models[] = {&rig_language_model, &rig_family_model};

/* The index selects the device, the dtype and the model. */
TESTS(the_cache_changes_no_logits, 2 * RIG_DEVICES * LENGTH(models)) {
    static const int32_t prompts[] = {1, 3, 8};
    rig r;
    generator cached, fresh;
    float *a = NULL, *b = NULL;
    int32_t ids[ROWS * LENGTH];
    const bool narrow = (_i / RIG_DEVICES & 1) != 0;
    const double tolerance = narrow ? 2e-2 : 1e-5;
    rig_open(&r, _i % RIG_DEVICES, models[_i / RIG_DEVICES / 2], ROWS, LENGTH);
    if (narrow) rig_round(&r);
    for (int32_t i = 0; i < ROWS * LENGTH; i++) ids[i] = rig_below(&r, V);
    for (int k = 0; k < 3; k++) {
        const generator start = {.r = &r, .cache_rows = LENGTH, .ids = ids};
        cached = start;
        cached.logits = rig_slot(&r, (int64_t)ROWS * V * 4);
        generate(&cached, prompts[k], 0);
        ck_assert_int_eq(cached.states[1].bytes, 2 * ROWS * LENGTH * RIG_KV_HEADS * HD * (narrow ? 2 : 4));
        ck_assert_int_eq(cached.states[2].bytes, 0);
        for (int32_t past = prompts[k]; past < LENGTH; past++) {
            generate(&cached, 1, past);
            a = rig_floats(&r, cached.logits.ref, ROWS * V);
            fresh = start;
            fresh.logits = rig_slot(&r, (int64_t)ROWS * V * 4);
            generate(&fresh, past + 1, 0); /* the complete prefix in one pass */
            b = rig_floats(&r, fresh.logits.ref, ROWS * V);
            ck_assert_msg(rig_distance(a, b, ROWS * V) <= tolerance, "behind %d places: apart by %g", past,
                          rig_distance(a, b, ROWS * V));
            free(a);
            free(b);
        }
    }
    rig_close(&r);
}

/* Writes a micro-batch with the generator's ids in one document, with a target only at the last position of the first
 * sequence. */
static void write_micro_batch(const rig *r, const int32_t *ids, int32_t target) {
    int32_t places[ROWS * LENGTH], starts[ROWS * LENGTH] = {0}, targets[ROWS * LENGTH];
    float weights[ROWS * LENGTH] = {0.0f};
    for (int32_t i = 0; i < ROWS * LENGTH; i++) places[i] = i % LENGTH, targets[i] = target;
    weights[LENGTH - 1] = 1.0f;
    rig_write(r, r->ids.ref, ids, ROWS * LENGTH * 4);
    rig_write(r, r->positions.ref, places, sizeof places);
    rig_write(r, r->starts.ref, starts, sizeof starts);
    rig_write(r, r->targets.ref, targets, sizeof targets);
    rig_write(r, r->weights_of_targets.ref, weights, sizeof weights);
}

/* Bias, scale and cap are the same in generation and evaluation. */
TESTS(logits_are_those_of_the_loss, RIG_DEVICES *LENGTH(models)) {
    rig r;
    rig_chain chain;
    generator all;
    float *logits = NULL;
    double sum = 0.0;
    int32_t ids[ROWS * LENGTH];
    rig_open(&r, _i % RIG_DEVICES, models[_i / RIG_DEVICES], ROWS, LENGTH);
    for (int32_t i = 0; i < ROWS * LENGTH; i++) ids[i] = rig_below(&r, V);
    {
        const generator start = {.r = &r, .cache_rows = LENGTH, .ids = ids, .logits = rig_slot(&r, ROWS * V * 4)};
        all = start;
    }
    generate(&all, LENGTH, 0);
    logits = rig_floats(&r, all.logits.ref, ROWS * V);
    write_micro_batch(&r, ids, 5);
    rig_chain_open(&chain, &r, WEFT_MODE_EVALUATE, 0, 3);
    for (int32_t v = 0; v < V; v++) sum += exp((double)logits[v] - (double)logits[5]);
    ck_assert_double_eq_tol(rig_chain_objective(&chain), log(sum), 1e-5);
    free(logits);
    rig_chain_close(&chain);
    rig_close(&r);
}

int main(void) {
    return run_tests(test_case("generation", 60, NULL, NULL));
}
