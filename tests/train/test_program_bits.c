/* tests/train/test_program_bits.c: programs that the checker accepts train the same bits.
 *
 * Applies every single deletion, duplication (to any index), swap of neighbours and changed operand to the training
 * program of a small model. Each mutant is either rejected with a message that names the instruction, or placed again
 * and run by the engine for two optimizer steps (with graph capture the second step is replayed in slices). The final
 * bytes must equal those of the unchanged program. Both counts are printed. tests/program/test_ranks.c does the
 * same symbolically for many more jobs. */
#include "golden.h"
#include "mutants.h"
#include "suite.h"
#include "program/exchange.h"
#include "tools/plan/print_program.h"
#include "train_rig.h"

enum { STEPS = 2, ARENAS = 4 };

typedef struct counts {
    int64_t refused, equal;
} counts;

/* Results of a run. */
typedef struct outcome {
    float *parameters;
    double loss[STEPS], norm[STEPS];
} outcome;

typedef struct bench {
    row_data data;
    train_rig rig;
    weft_program *valid;
    weft_slot_ref own_arena, arena; /* the engine's, and a larger one for any mutant */
    float *start;
    outcome expected;
    counts counts[N_MUTATIONS];
} bench;

/* ---- execution ---- */

/* Fills with NaN, so that reads of undefined values are visible. */
static void poison(const weft_engine *engine, weft_slot_ref slot) {
    weft_error err = WEFT_ERROR_INIT;
    ck_assert_ok(engine->kernels->fill(engine->device, NULL, slot.ref, 0xFFC0DEADu, slot.bytes / 4, &err), err);
}

static void begin_anew(const bench *b) {
    weft_engine *engine = b->rig.engine;
    weft_error err = WEFT_ERROR_INIT;
    engine->updates = 0;
    poison(engine, b->arena);
    poison(engine, engine->gradients);
    ck_assert_int_eq(engine->kernels->write(engine->device, NULL, engine->parameters.ref, b->start,
                                            4 * engine->plan.layout->numel, &err),
                     WEFT_OK);
    for (int64_t i = 0; i < engine->plan.n_states; i++)
        ck_assert_int_eq(engine->kernels->fill(engine->device, NULL, engine->state[i].ref, 0,
                                               engine->plan.layout->trainable_numel, &err),
                         WEFT_OK);
}

/* Runs the steps of a placed program. */
static outcome run(bench *b, weft_program *program) {
    weft_engine *engine = b->rig.engine;
    const weft_mode_plan own = engine->plan.train;
    const weft_program *const programs[] = {program};
    weft_error err = WEFT_ERROR_INIT;
    outcome out = {0};
    ck_assert_int_le(program->arena, b->arena.bytes);
    engine->plan.train.program = program;
    weft_sums_plan(&engine->plan, &engine->plan.train, programs);
    weft_sums_losses(&engine->plan.train, programs, 1);
    engine->plan.train.slices = weft_slices_create(programs, 1, 0, true);
    engine->arena = b->arena;
    ck_assert_ok(weft_stepper_create(&b->rig.stepper, engine, &row_data_plugin, b->rig.data, &err), err);
    begin_anew(b);
    for (int s = 0; s < STEPS; s++) {
        weft_step_result result = {0};
        /* An incorrect program may compute numbers that stop the step. */
        const weft_status status = weft_stepper_train(b->rig.stepper, &result, (uint64_t)s + 1, 1e-3, 0.5, &err);
        ck_assert_msg(status == WEFT_OK || status == WEFT_E_NUMERIC, "%s", err.text);
        out.loss[s] = status == WEFT_OK ? result.loss_sum : -1.0;
        out.norm[s] = result.norm;
    }
    weft_stepper_destroy(b->rig.stepper);
    b->rig.stepper = NULL;
    engine->arena = b->own_arena;
    weft_slices_destroy(engine->plan.train.slices);
    weft_terms_destroy(engine->plan.train.terms);
    free(engine->plan.train.sums);
    free(engine->plan.train.losses);
    engine->plan.train = own;
    out.parameters = train_rig_parameters(&b->rig);
    return out;
}

static bool same(const bench *b, const outcome *found) {
    return memcmp(b->expected.loss, found->loss, sizeof found->loss) == 0 &&
           memcmp(b->expected.norm, found->norm, sizeof found->norm) == 0 &&
           same_floats(b->expected.parameters, found->parameters, b->rig.engine->plan.layout->numel);
}

/* Takes ownership of the mutant. */
static void judge(void *context, const mutant *m) {
    bench *b = context;
    counts *into = &b->counts[m->how];
    const weft_job_spec *job = &b->rig.engine->plan.train.job->spec;
    weft_error err = WEFT_ERROR_INIT;
    if (is_refused(m->program, job)) {
        into->refused++;
    } else {
        outcome found;
        ck_assert_ok(weft_program_place(m->program, job, &err), err);
        found = run(b, m->program);
        if (!same(b, &found)) weft_program_print(m->program, job, -1, stdout);
        ck_assert_msg(same(b, &found), "an accepted program trains something else: %s %s", mutation_names[m->how],
                      m->field == NULL ? "" : m->field);
        free(found.parameters);
        into->equal++;
    }
    weft_program_destroy(m->program);
}

/* ---- mutants ---- */

static void bench_open(bench *b, const char *model, int32_t micro_batches, const char *checkpointing,
                       const char *trainable) {
    const char *overrides[] = {"optimizer.plugin=adamw", "optimizer.weight_decay=0.01", checkpointing, trainable};
    weft_error err = WEFT_ERROR_INIT;
    memset(b, 0, sizeof *b);
    row_data_golden(&b->data, model);
    train_rig_begin(&b->rig, model, &b->data, micro_batches, false, overrides, 4);
    weft_stepper_destroy(b->rig.stepper);
    b->rig.stepper = NULL;
    b->own_arena = b->rig.engine->arena;
    ck_assert_ok(weft_account_alloc(&b->rig.engine->account, &b->arena, b->own_arena.bytes * ARENAS, WEFT_ACCOUNT_ARENA,
                                    &err),
                 err);
    b->valid = b->rig.engine->plan.train.program;
    b->start = train_rig_parameters(&b->rig);
    b->expected = run(b, b->valid);
}

static void bench_close(bench *b) {
    weft_account_free(&b->rig.engine->account, &b->arena, WEFT_ACCOUNT_ARENA);
    free(b->start);
    free(b->expected.parameters);
    train_rig_close(&b->rig);
    row_data_free(&b->data);
}

static void print_counts(const char *what, const counts *of) {
    printf("  %-12s %6lld refused by name, %5lld trained the same bits", what, (long long)of->refused,
           (long long)of->equal);
    putchar('\n');
}

static void mutate(const char *model, int32_t micro_batches, const char *checkpointing, const char *trainable) {
    const uint32_t kinds = 1u << MUTATION_DELETION | 1u << MUTATION_DUPLICATION | 1u << MUTATION_SWAP |
                           1u << MUTATION_OPERAND;
    bench b;
    bench_open(&b, model, micro_batches, checkpointing, trainable);
    each_mutant(b.valid, &b.rig.engine->plan.train.job->spec.view, kinds, judge, &b);
    printf("mutants of the %d instructions of %s, %d micro-batches, %s, %s:\n", (int)b.valid->n_instructions, model,
           (int)micro_batches, checkpointing, trainable);
    for (int how = 0; how < N_MUTATIONS; how++) {
        if ((kinds & 1u << how) == 0) continue;
        print_counts(mutation_names[how], &b.counts[how]);
        ck_assert_int_gt(b.counts[how].refused, 0);
    }
    fflush(stdout);
    ck_assert_int_gt(b.counts[MUTATION_SWAP].equal, 0);
    bench_close(&b);
}

TEST(every_mutant_is_refused_or_trains_the_same_bits) {
    mutate("llama-tied", 2, "train.activation_checkpointing=no", "train.trainable=all");
}

TEST(every_mutant_of_a_checkpointed_program_is_refused_or_trains_the_same_bits) {
    mutate("llama-tied", 2, "train.activation_checkpointing=yes", "train.trainable=all");
}

TEST(every_mutant_with_frozen_blocks_is_refused_or_trains_the_same_bits) {
    mutate("llama-gqa", 3, "train.activation_checkpointing=yes", "train.trainable=last:1");
}

/* Checks that this test detects errors: a slot moved onto a live one changes the bits or fails. */
TEST(a_slot_moved_onto_a_live_one_shows) {
    bench b;
    weft_program *program = NULL;
    int32_t seen = 0, tried = 0;
    bench_open(&b, "llama-tied", 2, "train.activation_checkpointing=no", "train.trainable=all");
    program = b.valid;
    for (int32_t i = 0; i < program->n_slots; i++)
        for (int32_t j = 0; j < program->n_slots; j++) {
            weft_slot *one = &program->slots[i], *two = &program->slots[j];
            const int64_t offset = two->offset;
            outcome found;
            if (one->kind != WEFT_SLOT_TAPE || two->kind != WEFT_SLOT_TAPE || i == j ||
                one->micro_batch != two->micro_batch)
                continue;
            two->offset = one->offset;
            found = run(&b, program);
            two->offset = offset;
            seen += !same(&b, &found);
            tried++;
            free(found.parameters);
        }
    ck_assert_int_gt(tried, 20);
    ck_assert_int_eq(seen, tried);
    bench_close(&b);
}

int main(void) {
    return run_tests(test_case("program bits", 600, NULL, NULL));
}
