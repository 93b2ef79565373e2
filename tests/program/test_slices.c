/* tests/program/test_slices.c: where programs are cut so that parts of them can be recorded by the lengths of their own
 * leaves: nothing is under way there, every rank is cut at the same events, and each leaf lies in one slice. */
#include "suite.h"

#include "program/jobs.h"
#include "program/slices.h"

typedef struct setting {
    const char *name, *keys;
    int32_t world, leaves;                   /* of each replica */
    int32_t prefetch, slices, slices_frozen; /* where the lowest two units are not trained */
} setting;

static const setting settings[] = {
    {"single", NULL, 1, 1, 0, 1, 1},
    {"single", NULL, 1, 8, 0, 8, 8},
    {"ddp", NULL, 1, 3, 0, 3, 3},
    {"ddp", NULL, 2, 4, 0, 4, 4}, /* the last sum of a leaf sets out in the next slice */
    {"ddp", "reduce_at=last", 2, 4, 0, 4, 4},
    {"fsdp", "shard=full", 2, 4, 0, 4, 4},
    {"fsdp", "shard=full reduce_at=last", 2, 4, 0, 4, 4},
    {"fsdp", "shard=full reshard_after_forward=no", 3, 4, 0, 4, 1}, /* a frozen unit is released behind the last sum */
    {"fsdp", "shard=full", 2, 4, 1, 1, 1},                          /* the next unit is always under way */
    {"fsdp", "shard=gradients", 2, 4, 0, 4, 4},
    {"fsdp", "shard=optimizer", 2, 4, 0, 4, 4},
    {"fsdp", "shard=hybrid shard_group=2 reduce_at=last", 4, 3, 0, 3, 3},
    {"mp", "schedule=1f1b", 2, 4, 0, 1, 1}, /* ranks do different things */
    {"mp", "schedule=naive", 1, 4, 0, 4, 4},
};
enum { N_SETTINGS = sizeof settings / sizeof *settings };

static void make(team *out, const setting *how, uint32_t frozen) {
    tiny_options options = {.mode = WEFT_MODE_TRAIN, .leaves = how->leaves, .frozen = frozen};
    strategy by;
    options.world = how->world;
    options.prefetch = how->prefetch;
    options.reduce = WEFT_REDUCE_TREE;
    load_strategy(&by, how->name, how->keys);
    team_make(out, &options, &by);
}

static weft_slices *cut(const team *of, int32_t rank, bool wanted) {
    weft_error err = WEFT_ERROR_INIT;
    weft_slices *out = NULL;
    ck_assert_int_eq(weft_slices_create(&out, (const weft_program *const *)of->programs, of->world, rank, wanted, &err),
                     WEFT_OK);
    return out;
}

static int32_t slice_of_event(const weft_slices *slices, int32_t event) {
    int32_t k = 0;
    while (slices->first[k + 1] <= event) k++;
    return k;
}

static bool has_leaf(const weft_slices *slices, int32_t k, int32_t leaf) {
    for (int32_t i = slices->at[k]; i < slices->at[k + 1]; i++)
        if (slices->leaves[i] == leaf) return true;
    return false;
}

/* Looked at event by event: what has begun in a slice ends in it, and the slice has the leaf that the event is of. */
static void look_at(const weft_program *program, const weft_slices *slices) {
    for (int32_t i = 0; i < program->n_events; i++) {
        const weft_event *event = &program->events[i];
        const int32_t k = slice_of_event(slices, i), kind = event->kind;
        int32_t end = i;
        if (kind == WEFT_EVENT_WAIT) ck_assert_int_eq(slice_of_event(slices, event->waits), k);
        if (kind == WEFT_EVENT_FORWARD || kind == WEFT_EVENT_RECOMPUTE || kind == WEFT_EVENT_BACKWARD)
            ck_assert(has_leaf(slices, k, event->leaf));
        if (kind != WEFT_EVENT_GATHER || event->what != WEFT_WHAT_PARAMETERS) continue;
        while (program->events[end].kind != WEFT_EVENT_RELEASE || program->events[end].unit != event->unit) end++;
        ck_assert_int_eq(slice_of_event(slices, end), k);
    }
}

static void look_at_leaves(const weft_slices *slices, int32_t leaves) {
    ck_assert_int_eq(slices->at[0], 0);
    ck_assert_int_eq(slices->at[slices->n], leaves);
    for (int32_t m = 0; m < leaves; m++) {
        int32_t n = 0;
        for (int32_t k = 0; k < slices->n; k++) n += has_leaf(slices, k, m);
        ck_assert_int_eq(n, 1);
    }
}

START_TEST(nothing_is_under_way_where_a_program_is_cut) {
    const setting *how = &settings[_i];
    for (uint32_t frozen = 0; frozen <= 3; frozen += 3) {
        team t;
        weft_slices *slices = NULL;
        make(&t, how, frozen);
        slices = cut(&t, 0, true);
        ck_assert_int_eq(slices->n, frozen == 0 ? how->slices : how->slices_frozen);
        ck_assert_int_eq(slices->first[0], 0);
        ck_assert_int_eq(slices->first[slices->n], t.programs[0]->n_events);
        for (int32_t k = 0; k < slices->n; k++) ck_assert_int_lt(slices->first[k], slices->first[k + 1]);
        for (int32_t rank = 0; rank < t.world && slices->n > 1; rank++) look_at(t.programs[rank], slices);
        look_at_leaves(slices, t.programs[0]->leaves);
        weft_slices_destroy(slices);
        team_free(&t);
    }
}
END_TEST

/* The only slice of each rank of a pipeline ends with its own last event. */
START_TEST(ranks_of_different_lengths_end_where_their_own_programs_do) {
    const setting pipeline = {"mp", "device_map=embed,head=0;layers.0-1=1 schedule=gpipe", 2, 4, 0, 1, 1};
    team t;
    make(&t, &pipeline, 0);
    ck_assert_int_ne(t.programs[0]->n_events, t.programs[1]->n_events);
    for (int32_t rank = 0; rank < t.world; rank++) {
        weft_slices *slices = cut(&t, rank, true);
        ck_assert_int_eq(slices->n, 1);
        ck_assert_int_eq(slices->first[1], t.programs[rank]->n_events);
        weft_slices_destroy(slices);
    }
    team_free(&t);
}
END_TEST

START_TEST(who_wants_one_slice_has_it_with_all_leaves) {
    team t;
    weft_slices *slices = NULL;
    make(&t, &settings[3], 0);
    slices = cut(&t, 0, false);
    ck_assert_int_eq(slices->n, 1);
    ck_assert_int_eq(slices->first[1], t.programs[0]->n_events);
    look_at_leaves(slices, t.programs[0]->leaves);
    weft_slices_destroy(slices);
    team_free(&t);
}
END_TEST

START_TEST(a_leaf_that_is_worked_on_again_holds_its_neighbours_together) {
    const tiny_options options = {.mode = WEFT_MODE_TRAIN, .leaves = 3};
    team t = {.world = 1};
    weft_slices *slices = NULL;
    int32_t one = -1, other = -1;
    t.programs[0] = tiny_program(&t.job, &options);
    one = find_event(t.programs[0], WEFT_EVENT_FORWARD, 0, -1, 0);
    other = find_event(t.programs[0], WEFT_EVENT_FORWARD, 0, -1, 1);
    t.programs[0]->events[one].leaf = 1; /* as if leaf 1 were begun before leaf 0 is done */
    t.programs[0]->events[other].leaf = 0;
    slices = cut(&t, 0, true);
    ck_assert_int_eq(slices->n, 2);
    ck_assert(has_leaf(slices, 0, 0) && has_leaf(slices, 0, 1) && has_leaf(slices, 1, 2));
    weft_slices_destroy(slices);
    team_free(&t);
}
END_TEST

/* One rank starts an exchange a little earlier than the others: all are one slice. */
START_TEST(ranks_that_differ_are_not_cut) {
    team t;
    weft_slices *slices = NULL;
    make(&t, &settings[3], 0);
    t.programs[1]->events[t.programs[1]->n_events - 1].queue = 1;
    slices = cut(&t, 0, true);
    ck_assert_int_eq(slices->n, 1);
    weft_slices_destroy(slices);
    team_free(&t);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("slices");
    TCase *tests = tcase_create("slices");
    tcase_add_loop_test(tests, nothing_is_under_way_where_a_program_is_cut, 0, N_SETTINGS);
    tcase_add_test(tests, ranks_of_different_lengths_end_where_their_own_programs_do);
    tcase_add_test(tests, who_wants_one_slice_has_it_with_all_leaves);
    tcase_add_test(tests, a_leaf_that_is_worked_on_again_holds_its_neighbours_together);
    tcase_add_test(tests, ranks_that_differ_are_not_cut);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
