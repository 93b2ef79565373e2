/* tests/program/test_mutations.c: programs that the checker accepts compute the correct result.
 *
 * Applies every single deletion, duplication (to any index), swap of neighbours, move (to any index) and changed
 * operand to valid programs. Each mutant is either rejected with a message, or placed and run to the same hash
 * (simulate.h). Both counts are printed. */
#include "mutants.h"
#include "simulate.h"
#include "suite.h"

typedef struct counts {
    int64_t refused, equal;
} counts;

/* A valid program and its result. */
typedef struct bench {
    tiny_job job;
    weft_program *valid;
    weft_trace *trace;
    uint64_t hash;
    counts counts[N_MUTATIONS];
} bench;

/* Takes ownership of the mutant. A run must reach the hash without a damaged slot, and use the planned memory. */
static void judge(void *context, const mutant *m) {
    bench *b = context;
    counts *into = &b->counts[m->how];
    weft_error err = WEFT_ERROR_INIT;
    int32_t torn = 0;
    if (is_refused(m->program, &b->job.spec)) {
        into->refused++;
    } else {
        ck_assert_ok(weft_program_place(m->program, &b->job.spec, &err), err);
        if (simulate(m->program, &b->job.spec, b->trace, &torn) != b->hash || torn != 0) {
            weft_program_print(m->program, &b->job.spec, -1, stdout);
            ck_abort_msg("an accepted program computes something else: %s %s", mutation_names[m->how],
                         m->field == NULL ? "" : m->field);
        }
        /* Without its RECOMPUTE a segment keeps its tape from FORWARD on: more memory, same result. */
        ck_assert(m->how != MUTATION_DELETION ||
                  b->valid->instructions[m->instruction].kind == WEFT_INSTRUCTION_RECOMPUTE);
        into->equal++;
    }
    weft_program_destroy(m->program);
}

static void print_counts(const char *what, const counts *of) {
    printf("  %-12s %8lld refused by name, %8lld run to the same hash\n", what, (long long)of->refused,
           (long long)of->equal);
}

static void bench_open(bench *b, const tiny_options *options) {
    weft_error err = WEFT_ERROR_INIT;
    weft_program *placed = NULL;
    int32_t torn = 0;
    memset(b, 0, sizeof *b);
    b->valid = tiny_program(&b->job, options);
    b->trace = weft_trace_create(256);
    placed = copy_program(b->valid);
    ck_assert_ok(weft_program_place(placed, &b->job.spec, &err), err);
    b->hash = simulate(placed, &b->job.spec, b->trace, &torn);
    ck_assert_int_eq(torn, 0);
    ck_assert_int_eq(b->trace->high_water, placed->peak);
    weft_program_destroy(placed);
}

static void bench_close(bench *b) {
    weft_program_destroy(b->valid);
    weft_trace_destroy(b->trace);
}

TEST(every_mutant_is_refused_or_computes_the_same) {
    const uint32_t frozen[] = {0, 1u << 0, 1u << 1, 1u << 0 | 1u << 1 | 1u << 2};
    counts total[N_MUTATIONS] = {{0, 0}};
    int32_t jobs = 0;
    for (int32_t i = 0; i < 3 * 2 * 4 * 2 + 2; i++) {
        const bool inference = i >= 48;
        const tiny_options options = {.mode = inference ? i - 47 : WEFT_MODE_TRAIN,
                                      .micro_batches = inference ? 1 : 1 + i % 3,
                                      .tied = i / 3 % 2 != 0,
                                      .frozen = frozen[i / 6 % 4],
                                      .checkpointing = i / 24 % 2 != 0};
        bench b;
        bench_open(&b, &options);
        each_mutant(b.valid, &b.job.spec.view, (1u << N_MUTATIONS) - 1, judge, &b);
        for (int how = 0; how < N_MUTATIONS; how++) {
            total[how].refused += b.counts[how].refused;
            total[how].equal += b.counts[how].equal;
        }
        bench_close(&b);
        jobs++;
    }
    printf("mutants of %d programs:\n", jobs);
    for (int how = 0; how < N_MUTATIONS; how++) {
        print_counts(mutation_names[how], &total[how]);
        ck_assert_int_gt(total[how].refused, 0);
    }
    fflush(stdout);
    ck_assert(total[MUTATION_SWAP].equal > 0 && total[MUTATION_MOVE].equal > 0 && total[MUTATION_OPERAND].equal > 0);
}

/* Checks that this test detects errors. */

static weft_program *placed_valid(bench *b) {
    weft_error err = WEFT_ERROR_INIT;
    weft_program *program = copy_program(b->valid);
    ck_assert_ok(weft_program_place(program, &b->job.spec, &err), err);
    return program;
}

/* Swaps two instructions with their slots. All slots then live throughout, so that the executor accepts the order. */
static void swap_placed(weft_program *program, int32_t i, int32_t j) {
    const weft_instruction_slots slots = program->instruction_slots[i];
    for (int32_t k = 0; k < program->n_slots; k++) {
        program->slots[k].first = 0;
        program->slots[k].last = program->n_instructions - 1;
    }
    swap_instructions(program, i, j);
    program->instruction_slots[i] = program->instruction_slots[j];
    program->instruction_slots[j] = slots;
}

TEST(the_simulation_sees_another_order_of_the_sum) {
    const tiny_options options = {.mode = WEFT_MODE_TRAIN, .micro_batches = 2};
    bench b;
    weft_program *program = NULL;
    bench_open(&b, &options);
    program = placed_valid(&b);
    program->instructions[find_instruction(program, WEFT_INSTRUCTION_REDUCE, -1, 1, 0)].micro_batch = 1;
    ck_assert(simulate(program, &b.job.spec, b.trace, NULL) != b.hash);
    weft_program_destroy(program);
    bench_close(&b);
}

TEST(the_simulation_sees_a_norm_that_comes_too_early) {
    const tiny_options options = {.mode = WEFT_MODE_TRAIN, .micro_batches = 1};
    bench b;
    weft_program *program = NULL;
    bench_open(&b, &options);
    program = placed_valid(&b);
    swap_placed(program, program->n_instructions - 3, program->n_instructions - 2);
    ck_assert_int_eq(program->instructions[program->n_instructions - 3].kind, WEFT_INSTRUCTION_NORM);
    ck_assert(simulate(program, &b.job.spec, b.trace, NULL) != b.hash);
    weft_program_destroy(program);
    bench_close(&b);
}

TEST(the_simulation_sees_every_slot_that_is_moved_onto_a_live_one) {
    const tiny_options options = {.mode = WEFT_MODE_TRAIN, .micro_batches = 2, .tied = true, .checkpointing = true};
    bench b;
    weft_program *program = NULL;
    int32_t seen = 0;
    bench_open(&b, &options);
    program = placed_valid(&b);
    for (int32_t i = 0; i < program->n_slots; i++)
        for (int32_t j = 0; j < program->n_slots; j++) {
            const weft_slot *one = &program->slots[i], *two = &program->slots[j];
            const int64_t offset = two->offset;
            int32_t torn = 0;
            uint64_t hash = 0;
            if (i == j || one->last < two->first || two->last < one->first || one->offset + two->bytes > program->arena)
                continue;
            program->slots[j].offset = one->offset;
            hash = simulate(program, &b.job.spec, b.trace, &torn);
            ck_assert_msg(hash != b.hash || torn > 0, "slot %d on slot %d went unseen", (int)j, (int)i);
            program->slots[j].offset = offset;
            seen++;
        }
    ck_assert_int_gt(seen, 100);
    weft_program_destroy(program);
    bench_close(&b);
}

int main(void) {
    TCase *cases = tcase_create("programs");
    tcase_set_timeout(cases, 600);
    return run_tests(cases);
}
