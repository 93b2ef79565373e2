/* tests/program/test_slices.c: boundaries of slices, which are captured as graphs by the lengths of their own
 * micro-batches. No operation is in flight at a boundary, all ranks have the same boundaries, and each micro-batch is
 * in one slice. */
#include "suite.h"

#include "program/jobs.h"
#include "program/plan.h"

typedef struct setting {
    const char *name, *keys;
    int32_t world, micro_batches;            /* per replica */
    int32_t prefetch, slices, slices_frozen; /* with the lowest two units frozen */
} setting;

static const setting settings[] = {
    {"single", NULL, 1, 1, 0, 1, 1},
    {"single", NULL, 1, 8, 0, 8, 8},
    {"ddp", NULL, 1, 3, 0, 3, 3},
    {"ddp", NULL, 2, 4, 0, 4, 4}, /* the last sum of a micro-batch starts in the next slice */
    {"ddp", "reduce_at=last", 2, 4, 0, 4, 4},
    {"fsdp", "shard=full", 2, 4, 0, 4, 4},
    {"fsdp", "shard=full reduce_at=last", 2, 4, 0, 4, 4},
    {"fsdp", "shard=full reshard_after_forward=no", 3, 4, 0, 4, 1}, /* a frozen unit is released after the last sum */
    {"fsdp", "shard=full", 2, 4, 1, 1, 1},                          /* the next unit is always in flight */
    {"fsdp", "shard=gradients", 2, 4, 0, 4, 4},
    {"fsdp", "shard=optimizer", 2, 4, 0, 4, 4},
    {"fsdp", "shard=hybrid shard_group=2 reduce_at=last", 4, 3, 0, 3, 3},
    {"mp", "schedule=1f1b", 2, 4, 0, 1, 1}, /* ranks have different instructions */
    {"mp", "schedule=naive", 1, 4, 0, 4, 4},
};

static void make(team *out, const setting *how, uint32_t frozen) {
    tiny_options options = {.mode = WEFT_MODE_TRAIN, .micro_batches = how->micro_batches, .frozen = frozen};
    strategy by;
    options.world = how->world;
    options.prefetch = how->prefetch;
    options.reduce = WEFT_REDUCE_TREE;
    load_strategy(&by, how->name, how->keys);
    team_make(out, &options, &by);
}

static weft_slices *cut(const team *of, int32_t rank, bool wanted) {
    return weft_slices_create((const weft_program *const *)of->programs, of->world, rank, wanted);
}

static int32_t slice_of_instruction(const weft_slices *slices, int32_t instruction) {
    int32_t k = 0;
    while (slices->first[k + 1] <= instruction) k++;
    return k;
}

static bool has_micro_batch(const weft_slices *slices, int32_t k, int32_t micro_batch) {
    for (int32_t i = slices->at[k]; i < slices->at[k + 1]; i++)
        if (slices->micro_batches[i] == micro_batch) return true;
    return false;
}

/* Checks each instruction: operations of a slice end in it, and the slice contains the instruction's micro-batch. */
static void look_at(const weft_program *program, const weft_slices *slices) {
    for (int32_t i = 0; i < program->n_instructions; i++) {
        const weft_instruction *instruction = &program->instructions[i];
        const int32_t k = slice_of_instruction(slices, i), kind = instruction->kind;
        int32_t end = i;
        if (kind == WEFT_INSTRUCTION_WAIT) ck_assert_int_eq(slice_of_instruction(slices, instruction->waits), k);
        if (kind == WEFT_INSTRUCTION_FORWARD || kind == WEFT_INSTRUCTION_RECOMPUTE || kind == WEFT_INSTRUCTION_BACKWARD)
            ck_assert(has_micro_batch(slices, k, instruction->micro_batch));
        if (kind != WEFT_INSTRUCTION_GATHER || instruction->what != WEFT_PAYLOAD_PARAMETERS) continue;
        while (program->instructions[end].kind != WEFT_INSTRUCTION_RELEASE ||
               program->instructions[end].unit != instruction->unit)
            end++;
        ck_assert_int_eq(slice_of_instruction(slices, end), k);
    }
}

static void look_at_micro_batches(const weft_slices *slices, int32_t micro_batches) {
    ck_assert_int_eq(slices->at[0], 0);
    ck_assert_int_eq(slices->at[slices->n], micro_batches);
    for (int32_t m = 0; m < micro_batches; m++) {
        int32_t n = 0;
        for (int32_t k = 0; k < slices->n; k++) n += has_micro_batch(slices, k, m);
        ck_assert_int_eq(n, 1);
    }
}

TESTS(no_operation_is_in_flight_between_slices, LENGTH(settings)) {
    const setting *how = &settings[_i];
    for (uint32_t frozen = 0; frozen <= 3; frozen += 3) {
        team t;
        weft_slices *slices = NULL;
        make(&t, how, frozen);
        slices = cut(&t, 0, true);
        ck_assert_int_eq(slices->n, frozen == 0 ? how->slices : how->slices_frozen);
        ck_assert_int_eq(slices->first[0], 0);
        ck_assert_int_eq(slices->first[slices->n], t.programs[0]->n_instructions);
        for (int32_t k = 0; k < slices->n; k++) ck_assert_int_lt(slices->first[k], slices->first[k + 1]);
        for (int32_t rank = 0; rank < t.world && slices->n > 1; rank++) look_at(t.programs[rank], slices);
        look_at_micro_batches(slices, t.programs[0]->micro_batches);
        weft_slices_destroy(slices);
        team_free(&t);
    }
}

/* In a pipeline the only slice of each rank ends at that rank's own last instruction. */
TEST(ranks_of_different_lengths_end_where_their_own_programs_do) {
    const setting pipeline = {"mp", "device_map=embed,head=0;layers.0-1=1 schedule=gpipe", 2, 4, 0, 1, 1};
    team t;
    make(&t, &pipeline, 0);
    ck_assert_int_ne(t.programs[0]->n_instructions, t.programs[1]->n_instructions);
    for (int32_t rank = 0; rank < t.world; rank++) {
        weft_slices *slices = cut(&t, rank, true);
        ck_assert_int_eq(slices->n, 1);
        ck_assert_int_eq(slices->first[1], t.programs[rank]->n_instructions);
        weft_slices_destroy(slices);
    }
    team_free(&t);
}

TEST(a_single_slice_has_all_micro_batches) {
    team t;
    weft_slices *slices = NULL;
    make(&t, &settings[3], 0);
    slices = cut(&t, 0, false);
    ck_assert_int_eq(slices->n, 1);
    ck_assert_int_eq(slices->first[1], t.programs[0]->n_instructions);
    look_at_micro_batches(slices, t.programs[0]->micro_batches);
    weft_slices_destroy(slices);
    team_free(&t);
}

TEST(a_micro_batch_that_is_worked_on_again_holds_its_neighbours_together) {
    const tiny_options options = {.mode = WEFT_MODE_TRAIN, .micro_batches = 3};
    team t = {.world = 1};
    weft_slices *slices = NULL;
    int32_t one = -1, other = -1;
    t.programs[0] = tiny_program(&t.job, &options);
    one = find_instruction(t.programs[0], WEFT_INSTRUCTION_FORWARD, 0, -1, 0);
    other = find_instruction(t.programs[0], WEFT_INSTRUCTION_FORWARD, 0, -1, 1);
    t.programs[0]->instructions[one].micro_batch = 1; /* as if micro-batch 1 started before the end of micro-batch 0 */
    t.programs[0]->instructions[other].micro_batch = 0;
    slices = cut(&t, 0, true);
    ck_assert_int_eq(slices->n, 2);
    ck_assert(has_micro_batch(slices, 0, 0) && has_micro_batch(slices, 0, 1) && has_micro_batch(slices, 1, 2));
    weft_slices_destroy(slices);
    team_free(&t);
}

/* One rank starts a collective slightly earlier than the others: there is only one slice. */
TEST(ranks_that_differ_are_not_cut) {
    team t;
    weft_slices *slices = NULL;
    make(&t, &settings[3], 0);
    t.programs[1]->instructions[t.programs[1]->n_instructions - 1].queue = 1;
    slices = cut(&t, 0, true);
    ck_assert_int_eq(slices->n, 1);
    weft_slices_destroy(slices);
    team_free(&t);
}

int main(void) {
    return run_tests(tcase_create("slices"));
}
