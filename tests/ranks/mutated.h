/* tests/ranks/mutated.h: one rank of a launch that trains mutants of its programs, for test_mutants.c.
 *
 * Between strategy and checker one instruction of one rank's program is changed, or the same one on all ranks. Programs
 * that the checker accepts are placed and run by the engine with the real communicator: two optimizer steps from the
 * same start, in poisoned memory. The rank's parameters and optimizer states, and each step's loss and norm, are
 * hashed. All ranks run the same mutants in the same order and all-gather their hashes after each, so that no rank
 * starts the next one before all have finished. A rank that times out prints the mutant. */
#ifndef WEFT_TESTS_RANKS_MUTATED_H
#define WEFT_TESTS_RANKS_MUTATED_H

#include "mutants.h"
#include "suite.h"
#include "program/exchange.h"
#include "train_rig.h"

#include <signal.h>

enum { RANKS_MAX = 4, STEPS = 2, ROOM = 4, SHORT = 5, LONG = 8, VOCABULARY = 23 };

/* Programs of several ranks. */
typedef struct setting {
    enum { QUICK, FULL } suite;
    const char *name;
    int32_t world, micro_batches;
    const char *keys[6];
} setting;

typedef struct tally {
    int64_t refused, same, equal; /* same: equal to a program that was run before */
} tally;

/* Results of the ranks. */
typedef struct outcome {
    uint64_t hash[RANKS_MAX];
} outcome;

typedef struct bench {
    const setting *how;
    train_rig rig;
    ragged_data data;
    int32_t rank;                          /* this process */
    weft_program *valid[RANKS_MAX];        /* of all ranks */
    const weft_program *mutant[RANKS_MAX]; /* the same with one changed program, or all changed */
    int32_t changed;                       /* rank of the changed program; -1: all ranks */
    weft_coverage coverage;
    weft_slot_ref own_arena, arena, own_partials, partials; /* the engine's, and larger ones for any mutant */
    float *start;
    outcome expected;
    uint64_t *seen; /* hashes of the programs that were run, open addressing; 0: free */
    size_t n_seen;
    tally tally;
} bench;

/* ---- timeout ---- */

static char under_way[300];
static int patience = 600; /* seconds per mutant */

static void give_up(int number) {
    static const char late[] = "accepted, and its ranks never get to the end: ";
    if (write(STDOUT_FILENO, late, sizeof late - 1) < 0 || write(STDOUT_FILENO, under_way, strlen(under_way)) < 0 ||
        write(STDOUT_FILENO, "\n", 1) < 0)
        _exit(3);
    (void)sleep(1); /* the launcher drops output that it has not forwarded when a rank fails */
    _exit(2);
}

/* ---- execution ---- */

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t n) {
    const unsigned char *at = bytes;
    for (size_t i = 0; i < n; i++) hash = (hash ^ at[i]) * 0x100000001B3u;
    return hash;
}

static uint64_t hash_device(const bench *b, uint64_t hash, weft_ref ref, int64_t numel) {
    const weft_engine *engine = b->rig.engine;
    weft_error err = WEFT_ERROR_INIT;
    float *values = malloc((size_t)numel * sizeof *values + 1);
    ck_assert_ptr_nonnull(values);
    ck_assert_ok(engine->kernels->read(engine->device, NULL, values, ref, 4 * numel, &err), err);
    hash = hash_bytes(hash, values, (size_t)numel * sizeof *values);
    free(values);
    return hash;
}

/* Fills with NaN, so that reads of undefined values are visible. */
static void poison(const bench *b, weft_slot_ref slot) {
    const weft_engine *engine = b->rig.engine;
    weft_error err = WEFT_ERROR_INIT;
    if (slot.bytes < 4) return;
    ck_assert_ok(engine->kernels->fill(engine->device, NULL, slot.ref, 0xFFC0DEADu, slot.bytes / 4, &err), err);
}

static void begin_anew(const bench *b) {
    weft_engine *engine = b->rig.engine;
    weft_error err = WEFT_ERROR_INIT;
    const int64_t n = engine->plan.holds[WEFT_HOLD_PARAMETERS]->bytes,
                  states = engine->plan.holds[WEFT_HOLD_STATES]->bytes;
    engine->updates = 0;
    poison(b, b->arena);
    poison(b, b->partials);
    poison(b, engine->gradients);
    ck_assert_int_eq(engine->kernels->write(engine->device, NULL, engine->parameters.ref, b->start, n, &err), WEFT_OK);
    for (int64_t i = 0; i < engine->plan.n_states; i++)
        ck_assert_int_eq(engine->kernels->fill(engine->device, NULL, engine->state[i].ref, 0, states / 4, &err),
                         WEFT_OK);
}

static uint64_t train(bench *b) {
    weft_engine *engine = b->rig.engine;
    weft_error err = WEFT_ERROR_INIT;
    uint64_t hash = 0xCBF29CE484222325u;
    begin_anew(b);
    for (uint64_t step = 1; step <= STEPS; step++) {
        weft_step_result result = {0};
        const weft_status status = weft_stepper_train(b->rig.stepper, &result, step, 1e-3, 0.5, &err);
        if (status != WEFT_OK) printf("rank %d fails in %s: %s\n", (int)b->rank, under_way, err.text);
        ck_assert_int_eq(status, WEFT_OK);
        hash = hash_bytes(hash, &result.loss_sum, sizeof result.loss_sum);
        hash = hash_bytes(hash, &result.norm, sizeof result.norm);
    }
    hash = hash_device(b, hash, engine->parameters.ref, engine->plan.holds[WEFT_HOLD_PARAMETERS]->bytes / 4);
    for (int64_t i = 0; i < engine->plan.n_states; i++)
        hash = hash_device(b, hash, engine->state[i].ref, engine->plan.holds[WEFT_HOLD_STATES]->bytes / 4);
    return hash;
}

/* Runs the engine with other programs; each rank has its own. [collective] */
static outcome run(bench *b) {
    weft_engine *engine = b->rig.engine;
    const weft_mode_plan own = engine->plan.train;
    weft_program *program = copy_program(b->mutant[b->rank]);
    weft_error err = WEFT_ERROR_INIT;
    outcome out = {{0}};
    uint64_t hash = 0;
    ck_assert_ok(weft_program_place(program, &own.job->spec, &err), err);
    engine->plan.train.program = program;
    weft_sums_plan(&engine->plan, &engine->plan.train, b->mutant);
    weft_sums_losses(&engine->plan.train, b->mutant, b->how->world);
    engine->plan.train.slices = weft_slices_create(b->mutant, b->how->world, b->rank, true);
    ck_assert_int_le(program->arena, b->arena.bytes);
    ck_assert_int_le(4 * engine->plan.train.partials, b->partials.bytes);
    engine->arena = b->arena;
    engine->partials = b->partials;
    ck_assert_ok(weft_stepper_create(&b->rig.stepper, engine, b->rig.data_plugin, b->rig.data, &err), err);
    (void)alarm((unsigned)patience);
    hash = train(b);
    ck_assert_ok(weft_process_context_share(engine->ranks.process_context, out.hash, &hash, sizeof hash, &err), err);
    (void)alarm(0);
    weft_stepper_destroy(b->rig.stepper);
    b->rig.stepper = NULL;
    engine->arena = b->own_arena;
    engine->partials = b->own_partials;
    weft_slices_destroy(engine->plan.train.slices);
    weft_terms_destroy(engine->plan.train.terms);
    free(engine->plan.train.sums);
    free(engine->plan.train.losses);
    engine->plan.train = own;
    weft_program_destroy(program);
    return out;
}

/* ---- mutants ---- */

static void describe(const bench *b, const mutant *m) {
    char instruction[160], who[24] = "all ranks";
    const weft_job_spec *job = &b->rig.engine->plan.train.job->spec;
    weft_instruction_describe(instruction, sizeof instruction,
                              &b->valid[b->changed < 0 ? 0 : b->changed]->instructions[m->instruction], job);
    if (b->changed >= 0) (void)snprintf(who, sizeof who, "rank %d", (int)b->changed);
    (void)snprintf(under_way, sizeof under_way, "%s, %s, %s of instruction %d, %s, %s %d", b->how->name, who,
                   mutation_names[m->how], (int)m->instruction, instruction, m->field == NULL ? "to" : m->field,
                   (int)m->to);
}

/* True if no equal program was run before. */
static bool is_new(bench *b, uint64_t identity) {
    enum { PLACES = 1 << 16 };
    size_t at = identity % PLACES;
    identity += identity == 0;
    for (; b->seen[at] != 0; at = (at + 1) % PLACES)
        if (b->seen[at] == identity) return false;
    ck_assert_uint_lt(b->n_seen, PLACES / 2);
    b->seen[at] = identity;
    b->n_seen++;
    return true;
}

/* All ranks compare all hashes with the same result, so rank 0 reports. */
static void expect_equal(bench *b, const weft_coverage *coverage) {
    const outcome found = run(b);
    for (int32_t rank = 0; rank < b->how->world; rank++) {
        if (found.hash[rank] == b->expected.hash[rank]) continue;
        if (b->rank == 0) printf("accepted, and rank %d trains something else: %s\n", (int)rank, under_way);
        (void)fflush(stdout);
        ck_abort();
    }
    if (coverage->covered != b->coverage.covered && b->rank == 0)
        printf("accepted, trains the same and is said to be %scovered: %s\n", coverage->covered ? "" : "not ",
               under_way);
    ck_assert_int_eq(coverage->covered, b->coverage.covered);
}

static void judge_set(bench *b, const mutant *m) {
    const weft_job_spec *job = &b->rig.engine->plan.train.job->spec;
    weft_coverage coverage;
    if (are_refused(b->mutant, job, &coverage)) {
        b->tally.refused++;
    } else if (!is_new(b, weft_programs_identity(b->mutant, job))) {
        b->tally.same++;
    } else {
        describe(b, m);
        expect_equal(b, &coverage);
        b->tally.equal++;
    }
}

/* Takes ownership of the mutant. */
static void judge_one_rank(void *context, const mutant *m) {
    bench *b = context;
    for (int32_t rank = 0; rank < b->how->world; rank++) b->mutant[rank] = b->valid[rank];
    b->mutant[b->changed] = m->program;
    judge_set(b, m);
    weft_program_destroy(m->program);
}

/* Takes ownership of rank 0's mutant, and applies the same change to the other ranks. */
static void judge_all_ranks(void *context, const mutant *m) {
    bench *b = context;
    weft_program *others[RANKS_MAX] = {m->program};
    bool all = true;
    for (int32_t rank = 0; rank < b->how->world; rank++) {
        if (rank > 0) others[rank] = mutate_alike(b->valid[rank], &b->rig.engine->plan.train.job->spec.view, m);
        b->mutant[rank] = others[rank];
        all = all && others[rank] != NULL;
    }
    if (all) judge_set(b, m);
    for (int32_t rank = 0; rank < b->how->world; rank++) weft_program_destroy(others[rank]);
}

/* ---- one setting ---- */

static void compile_all(bench *b) {
    const weft_run *run_of = b->rig.run;
    const weft_mode_plan *mode_plan = &b->rig.engine->plan.train;
    weft_error err = WEFT_ERROR_INIT;
    for (int32_t rank = 0; rank < b->how->world; rank++) {
        ck_assert_ok(weft_program_compile(&b->valid[rank], run_of->host,
                                          weft_run_table(run_of, WEFT_PART_STRATEGY, strategy),
                                          run_of->parts[WEFT_PART_STRATEGY].config, &mode_plan->job->spec, rank, &err),
                     err);
        b->mutant[rank] = b->valid[rank];
    }
    ck_assert_uint_eq(weft_programs_identity(b->mutant, &mode_plan->job->spec), mode_plan->identity);
}

static void take_room(bench *b, weft_slot_ref *out, int64_t bytes, int32_t line) {
    weft_error err = WEFT_ERROR_INIT;
    ck_assert_ok(weft_account_alloc(&b->rig.engine->account, out, bytes, line, &err), err);
}

static void bench_open(bench *b, const setting *how, const char *model, weft_process_context *process_context) {
    const char *keys[16] = {"model.start=fresh", "device.threads=1", "comm.plugin=mpi-mpich", "optimizer.plugin=adamw"};
    const weft_rank_span rank_span = weft_process_context_rank_span(process_context);
    const ragged_data data = {SHORT, LONG, VOCABULARY};
    weft_plan_spec spec = {
        .training = true, .micro_batches = how->micro_batches, .rows = 1, .n_lengths = 2, .lengths = {SHORT, LONG}};
    weft_engine *engine = NULL;
    weft_error err = WEFT_ERROR_INIT;
    size_t n = 4;
    memset(b, 0, sizeof *b);
    b->how = how;
    b->data = data;
    b->rank = process_context->comm_info.rank;
    while (n < 10 && how->keys[n - 4] != NULL) {
        keys[n] = how->keys[n - 4];
        n++;
    }
    train_rig_open_at(&b->rig, &rank_span, model, NULL, keys, n);
    b->rig.data_plugin = &ragged_data_plugin;
    b->rig.data = (weft_data *)(void *)&b->data;
    train_rig_start(&b->rig, &spec);
    weft_stepper_destroy(b->rig.stepper);
    b->rig.stepper = NULL;
    engine = b->rig.engine;
    compile_all(b);
    b->coverage = engine->plan.train.coverage;
    b->own_arena = engine->arena;
    b->own_partials = engine->partials;
    take_room(b, &b->arena, b->own_arena.bytes * ROOM, WEFT_ACCOUNT_ARENA);
    take_room(b, &b->partials, (b->own_partials.bytes + 4096) * ROOM, WEFT_ACCOUNT_GRADIENTS);
    b->start = malloc((size_t)(engine->plan.holds[WEFT_HOLD_PARAMETERS]->bytes) + 1);
    b->seen = calloc(1 << 16, sizeof *b->seen);
    ck_assert(b->start != NULL && b->seen != NULL);
    ck_assert_int_eq(engine->kernels->read(engine->device, NULL, b->start, engine->parameters.ref,
                                           engine->plan.holds[WEFT_HOLD_PARAMETERS]->bytes, &err),
                     WEFT_OK);
    (void)snprintf(under_way, sizeof under_way, "%s as it is", how->name);
    (void)is_new(b, engine->plan.train.identity);
    b->expected = run(b);
}

static void bench_close(bench *b) {
    weft_account_free(&b->rig.engine->account, &b->partials, WEFT_ACCOUNT_GRADIENTS);
    weft_account_free(&b->rig.engine->account, &b->arena, WEFT_ACCOUNT_ARENA);
    for (int32_t rank = 0; rank < b->how->world; rank++) weft_program_destroy(b->valid[rank]);
    train_rig_close(&b->rig);
    free(b->start);
    free(b->seen);
}

#endif
