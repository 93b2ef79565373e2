/* tests/program/test_mutations.c: what the checker lets through computes what was asked for.
 *
 * Every single deletion, duplication (to any place), swap of neighbours, move (to any place) and changed operand of
 * valid programs is either refused with a sentence, or placed and run to the same hash (simulate.h). Both counts are
 * printed. */
#include "simulate.h"
#include "suite.h"

typedef struct counts {
    int64_t refused, equal;
} counts;

/* One valid program and what it computes. */
typedef struct bench {
    tiny_job job;
    weft_program *valid;
    weft_trace *trace;
    uint64_t hash;
    counts deleted, duplicated, swapped, moved, changed;
} bench;

static void describe_failure(const weft_program *mutant, const weft_job_spec *job, const char *how) {
    printf("%s:\n", how);
    weft_program_print(mutant, job, stdout);
}

/* Takes the mutant over. A run must reach the hash without touching a damaged slot, and use what the plan says. */
static void judge(bench *b, counts *into, weft_program *mutant, const char *how) {
    weft_error err = WEFT_ERROR_INIT;
    int32_t torn = 0;
    uint64_t hash = 0;
    if (weft_program_check(mutant, &b->job.spec, &err) != WEFT_OK) {
        ck_assert_msg(strncmp(err.text, "event ", 6) == 0 || strncmp(err.text, "the program ends after", 22) == 0,
                      "a refusal that names nothing: %s", err.text);
        into->refused++;
    } else {
        ck_assert_msg(weft_program_place(mutant, &b->job.spec, &err) == WEFT_OK, "%s", err.text);
        hash = simulate(mutant, &b->job.spec, b->trace, &torn);
        if (hash != b->hash || torn != 0) describe_failure(mutant, &b->job.spec, how);
        ck_assert_msg(hash == b->hash && torn == 0, "an accepted program computes something else: %s", how);
        into->equal++;
    }
    weft_program_destroy(mutant);
}

static weft_program *copy_of(const bench *b) {
    weft_error err = WEFT_ERROR_INIT;
    weft_program *copy = NULL;
    ck_assert_int_eq(weft_program_copy(&copy, b->valid, &err), WEFT_OK);
    return copy;
}

static void delete_each(bench *b) {
    for (int32_t i = 0; i < b->valid->n_events; i++) {
        const int64_t before = b->deleted.equal;
        weft_program *mutant = copy_of(b);
        remove_event(mutant, i);
        judge(b, &b->deleted, mutant, "a deletion");
        /* Without its RECOMPUTE a segment keeps its tape from FORWARD on: dearer, and the same. */
        ck_assert(b->deleted.equal == before || b->valid->events[i].kind == WEFT_EVENT_RECOMPUTE);
    }
}

static void duplicate_each(bench *b) {
    for (int32_t i = 0; i < b->valid->n_events; i++)
        for (int32_t to = 0; to <= b->valid->n_events; to++) {
            weft_program *mutant = copy_of(b);
            insert_event(mutant, to, b->valid->events[i]);
            judge(b, &b->duplicated, mutant, "a duplication");
        }
}

static void swap_each(bench *b) {
    for (int32_t i = 0; i + 1 < b->valid->n_events; i++) {
        weft_program *mutant = copy_of(b);
        swap_events(mutant, i, i + 1);
        judge(b, &b->swapped, mutant, "a swap of neighbours");
    }
}

static void move_each(bench *b) {
    for (int32_t i = 0; i < b->valid->n_events; i++)
        for (int32_t to = 0; to < b->valid->n_events; to++) {
            weft_program *mutant = NULL;
            if (to == i) continue;
            mutant = copy_of(b);
            remove_event(mutant, i);
            insert_event(mutant, to, b->valid->events[i]);
            judge(b, &b->moved, mutant, "a move");
        }
}

/* Fields of an event, each with the values that it is set to: from..to, and two that no field should survive. */
typedef struct field {
    const char *name;
    size_t offset;
    int32_t from, to;
} field;

static void change_each(bench *b) {
    const field fields[] = {
        {"a struct_size", offsetof(weft_event, struct_size), 0, (int32_t)sizeof(weft_event) - 1},
        {"flags", offsetof(weft_event, flags), 0, 2},
        {"a kind", offsetof(weft_event, kind), -1, WEFT_EVENT_REFRESH + 2},
        {"a unit", offsetof(weft_event, unit), -2, TINY_UNITS + 1},
        {"a segment", offsetof(weft_event, segment), -2, TINY_SEGMENTS + 1},
        {"a leaf", offsetof(weft_event, leaf), -2, b->job.spec.view.leaves + 1},
        {"a peer", offsetof(weft_event, peer), -2, 2},
        {"a queue", offsetof(weft_event, queue), -2, 2},
        {"an after", offsetof(weft_event, after), -2, b->valid->n_events + 1},
        {"a reserved field", offsetof(weft_event, reserved), -1, 1},
    };
    for (int32_t i = 0; i < b->valid->n_events; i++)
        for (size_t f = 0; f < sizeof fields / sizeof *fields; f++)
            for (int64_t k = (int64_t)fields[f].from - 2; k <= fields[f].to; k++) {
                const int32_t extremes[2] = {INT32_MIN, INT32_MAX};
                const int32_t value = k < fields[f].from ? extremes[k - fields[f].from + 2] : (int32_t)k;
                weft_program *mutant = NULL;
                int32_t *at = (int32_t *)(void *)((char *)&b->valid->events[i] + fields[f].offset);
                /* A larger struct_size is a later SDK's event: as good as this one. */
                if (value == *at || (f == 0 && (value > *at || value < 0))) continue;
                mutant = copy_of(b);
                at = (int32_t *)(void *)((char *)&mutant->events[i] + fields[f].offset);
                *at = value;
                judge(b, &b->changed, mutant, fields[f].name);
            }
}

static void print_counts(const char *what, const counts *of) {
    printf("  %-12s %8lld refused by name, %8lld run to the same hash\n", what, (long long)of->refused,
           (long long)of->equal);
}

static void add_counts(counts *sum, const counts *more) {
    sum->refused += more->refused;
    sum->equal += more->equal;
}

static void bench_open(bench *b, const tiny_options *options) {
    weft_error err = WEFT_ERROR_INIT;
    weft_program *placed = NULL;
    int32_t torn = 0;
    memset(b, 0, sizeof *b);
    b->valid = tiny_program(&b->job, options);
    ck_assert_int_eq(weft_trace_create(&b->trace, 256, &err), WEFT_OK);
    placed = copy_of(b);
    ck_assert_msg(weft_program_place(placed, &b->job.spec, &err) == WEFT_OK, "%s", err.text);
    b->hash = simulate(placed, &b->job.spec, b->trace, &torn);
    ck_assert_int_eq(torn, 0);
    ck_assert_int_eq(weft_trace_high_water(b->trace), placed->peak);
    weft_program_destroy(placed);
}

static void bench_close(bench *b) {
    weft_program_destroy(b->valid);
    weft_trace_destroy(b->trace);
}

START_TEST(every_mutant_is_refused_or_computes_the_same) {
    const uint32_t frozen[] = {0, 1u << 0, 1u << 1, 1u << 0 | 1u << 1 | 1u << 2};
    bench total = {0};
    int32_t jobs = 0;
    for (int32_t i = 0; i < 3 * 2 * 4 * 2 + 2; i++) {
        const bool inference = i >= 48;
        const tiny_options options = {inference ? i - 47 : WEFT_MODE_TRAIN, inference ? 1 : 1 + i % 3, i / 3 % 2 != 0,
                                      frozen[i / 6 % 4], i / 24 % 2 != 0};
        bench b;
        bench_open(&b, &options);
        delete_each(&b);
        duplicate_each(&b);
        swap_each(&b);
        move_each(&b);
        change_each(&b);
        add_counts(&total.deleted, &b.deleted);
        add_counts(&total.duplicated, &b.duplicated);
        add_counts(&total.swapped, &b.swapped);
        add_counts(&total.moved, &b.moved);
        add_counts(&total.changed, &b.changed);
        bench_close(&b);
        jobs++;
    }
    printf("mutants of %d programs:\n", jobs);
    print_counts("deletions", &total.deleted);
    print_counts("duplications", &total.duplicated);
    print_counts("swaps", &total.swapped);
    print_counts("moves", &total.moved);
    print_counts("operands", &total.changed);
    fflush(stdout);
    ck_assert(total.deleted.refused > 0 && total.duplicated.refused > 0 && total.swapped.refused > 0);
    ck_assert(total.swapped.equal > 0 && total.moved.equal > 0 && total.changed.equal > 0);
}
END_TEST

/* The rest is about this test's own eyes. */

static weft_program *placed_valid(bench *b) {
    weft_error err = WEFT_ERROR_INIT;
    weft_program *program = copy_of(b);
    ck_assert_msg(weft_program_place(program, &b->job.spec, &err) == WEFT_OK, "%s", err.text);
    return program;
}

/* Two events with their slots, which then live throughout as far as the executor knows. */
static void swap_placed(weft_program *program, int32_t i, int32_t j) {
    const weft_event_slots slots = program->event_slots[i];
    for (int32_t k = 0; k < program->n_slots; k++) {
        program->slots[k].first = 0;
        program->slots[k].last = program->n_events - 1;
    }
    swap_events(program, i, j);
    program->event_slots[i] = program->event_slots[j];
    program->event_slots[j] = slots;
}

START_TEST(the_simulation_sees_another_order_of_the_sum) {
    const tiny_options options = {WEFT_MODE_TRAIN, 2, false, 0, false};
    bench b;
    weft_program *program = NULL;
    bench_open(&b, &options);
    program = placed_valid(&b);
    program->events[find_event(program, WEFT_EVENT_REDUCE, -1, 1, 0)].leaf = 1;
    ck_assert(simulate(program, &b.job.spec, b.trace, NULL) != b.hash);
    weft_program_destroy(program);
    bench_close(&b);
}
END_TEST

START_TEST(the_simulation_sees_a_norm_that_comes_too_early) {
    const tiny_options options = {WEFT_MODE_TRAIN, 1, false, 0, false};
    bench b;
    weft_program *program = NULL;
    bench_open(&b, &options);
    program = placed_valid(&b);
    swap_placed(program, program->n_events - 3, program->n_events - 2);
    ck_assert_int_eq(program->events[program->n_events - 3].kind, WEFT_EVENT_NORM);
    ck_assert(simulate(program, &b.job.spec, b.trace, NULL) != b.hash);
    weft_program_destroy(program);
    bench_close(&b);
}
END_TEST

START_TEST(the_simulation_sees_every_slot_that_is_moved_onto_a_live_one) {
    const tiny_options options = {WEFT_MODE_TRAIN, 2, true, 0, true};
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
            if (i == j || one->last < two->first || two->last < one->first ||
                one->offset + two->bytes > program->arena) continue;
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
END_TEST

int main(void) {
    Suite *suite = suite_create("mutations");
    TCase *cases = tcase_create("programs");
    tcase_set_timeout(cases, 600);
    tcase_add_test(cases, every_mutant_is_refused_or_computes_the_same);
    tcase_add_test(cases, the_simulation_sees_another_order_of_the_sum);
    tcase_add_test(cases, the_simulation_sees_a_norm_that_comes_too_early);
    tcase_add_test(cases, the_simulation_sees_every_slot_that_is_moved_onto_a_live_one);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
