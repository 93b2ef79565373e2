/* tests/ranks/test_mutants.c: programs of several ranks that the checker accepts train the same bits.
 *
 * Applies every single deletion, duplication (to any index), swap of neighbours, move (to any index) and changed
 * operand to every rank's program, and to all ranks at once if their programs are equal. Each mutant is rejected with a
 * message that names the instruction, or run by the real engine with a real communicator (mutated.h) to the hash of the
 * unchanged programs. Prints the counts for each strategy. tests/program/test_ranks.c does the same symbolically for
 * many more jobs.
 *
 * The ranks are launches of this program under MPICH. */
#include "mutated.h"

#include "launched.h"

static const char *rank_model, *rank_does;

/* Strategies that are exact only as a tree use one here. The quick suite has one setting per strategy and number of
 * ranks. */
static const setting settings[] = {
    {QUICK, "ddp", 2, 4, {"strategy.plugin=ddp"}},
    {FULL, "ddp, reduce_at = last", 2, 4, {"strategy.plugin=ddp", "strategy.reduce_at=last", "strategy.reduce=tree"}},
    {FULL,
     "fsdp optimizer",
     2,
     4,
     {"strategy.plugin=fsdp", "strategy.shard=optimizer", "train.activation_checkpointing=yes"}},
    {FULL, "fsdp gradients", 2, 4, {"strategy.plugin=fsdp", "strategy.shard=gradients", "strategy.reduce=tree"}},
    {QUICK, "fsdp full", 2, 4, {"strategy.plugin=fsdp", "strategy.shard=full", "strategy.prefetch=1"}},
    {FULL, "mp naive", 2, 2, {"strategy.plugin=mp", "strategy.schedule=naive"}},
    {QUICK, "mp, one micro-batch", 2, 1, {"strategy.plugin=mp"}},
    {QUICK, "mp gpipe", 2, 2, {"strategy.plugin=mp", "strategy.schedule=gpipe", "train.activation_checkpointing=yes"}},
    {FULL, "mp 1f1b", 2, 2, {"strategy.plugin=mp", "strategy.schedule=1f1b"}},
    {FULL, "ddp", 3, 3, {"strategy.plugin=ddp"}},
    {QUICK, "mp 1f1b", 3, 2, {"strategy.plugin=mp", "strategy.schedule=1f1b"}},
    {FULL, "fsdp hybrid", 4, 4, {"strategy.plugin=fsdp", "strategy.shard=hybrid", "strategy.shard_group=2"}},
    {QUICK,
     "fsdp hybrid, last",
     4,
     4,
     {"strategy.plugin=fsdp", "strategy.shard=hybrid", "strategy.shard_group=2", "strategy.reduce_at=last",
      "strategy.reduce=tree", "strategy.prefetch=0"}},
};

/* ---- a rank ---- */

static const uint32_t kinds = (1u << N_MUTATIONS) - 1;

static void mutate(bench *b) {
    const weft_strategy_job *view = &b->rig.engine->plan.train.job->spec.view;
    for (b->changed = 0; b->changed < b->how->world; b->changed++)
        each_mutant(b->valid[b->changed], view, kinds, judge_one_rank, b);
    b->changed = -1;
    if (view->replicas > 1) each_mutant(b->valid[0], view, kinds, judge_all_ranks, b);
    if (b->rank == 0)
        printf("counts %-22s %d ranks: %7lld refused, %5lld the same as another, %5lld run to the same hash\n",
               b->how->name, (int)b->how->world, (long long)b->tally.refused, (long long)b->tally.same,
               (long long)b->tally.equal);
    (void)fflush(stdout);
    ck_assert(b->tally.refused > 0 && b->tally.equal > 0);
}

static weft_instruction *find(weft_program *program, int32_t kind) {
    for (int32_t i = 0; i < program->n_instructions; i++)
        if (program->instructions[i].kind == kind) return &program->instructions[i];
    ck_abort();
    return NULL;
}

/* Checks that this test detects errors in programs that the checker has not seen. */
static void plant(bench *b) {
    weft_coverage coverage = b->coverage;
    weft_program *of = b->valid[1];
    (void)snprintf(under_way, sizeof under_way, "planted");
    patience = 2;
    if (strcmp(rank_does, "standstill") == 0)
        remove_instruction(of, (int32_t)(find(of, WEFT_INSTRUCTION_NORM) - of->instructions));
    else
        for (int32_t rank = 0; rank < b->how->world; rank++) /* swaps two micro-batches, which changes rounding */
            for (int32_t i = 0; i < b->valid[rank]->n_instructions; i++)
                if (b->valid[rank]->instructions[i].micro_batch == 1 ||
                    b->valid[rank]->instructions[i].micro_batch == 2)
                    b->valid[rank]->instructions[i].micro_batch = 3 - b->valid[rank]->instructions[i].micro_batch;
    expect_equal(b, &coverage);
}

/* Uses an alternate stack, as in host/launch/signals.c: a running matmul may keep data at the stack pointer. Called in
 * the test, because Check installs its own handler. */
static void install_give_up(void) {
    static unsigned char memory[65536];
    const stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = give_up;
    action.sa_flags = SA_ONSTACK;
    (void)sigemptyset(&action.sa_mask);
    ck_assert_int_eq(sigaltstack(&stack, NULL), 0);
    ck_assert_int_eq(sigaction(SIGALRM, &action, NULL), 0);
}

START_TEST(rank) {
    static const char *const keys[] = {"model.plugin=llama", "device.threads=1", "comm.plugin=mpi-mpich",
                                       "optimizer.plugin=adamw", "strategy.plugin=ddp"};
    const uint32_t needs = WEFT_NEEDS_ALL & ~WEFT_NEEDS(WEFT_PART_DATA) & ~WEFT_NEEDS(WEFT_PART_TOKENIZER);
    const bool plants = strcmp(rank_does, "mutants") != 0;
    weft_error err = WEFT_ERROR_INIT;
    weft_run *run_of = NULL;
    weft_process_context *process_context = NULL;
    char path[4200];
    const char *all[] = {path, keys[0], keys[1], keys[2], keys[3], keys[4]};
    install_give_up();
    (void)snprintf(path, sizeof path, "model.path=%s", rank_model);
    ck_assert_ok(weft_run_open(&run_of, NULL, all, 6, needs, &err), err);
    ck_assert_ok(weft_process_context_open(&process_context, run_of, &err), err);
    for (size_t i = 0; i < (plants ? 1 : LENGTH(settings)); i++) {
        bench b;
        if (settings[i].world != process_context->comm_info.size || (settings[i].suite == FULL && !is_full())) continue;
        bench_open(&b, &settings[i], rank_model, process_context);
        if (plants) plant(&b);
        else mutate(&b);
        bench_close(&b);
    }
    weft_process_context_close(process_context, false);
    weft_run_close(run_of);
}
END_TEST

/* ---- launches ---- */

static void print_line(void *context, const char *line) {
    printf("  %s", line);
}

/* Returns true if all ranks succeeded; said: all lines except counts, which are printed. */
static bool launch(char *said, size_t size, int ranks, const char *does) {
    const fresh_shape shape = {.hidden = 8,
                               .mlp = 12,
                               .layers = 1,
                               .heads = 2,
                               .kv_heads = 2,
                               .vocabulary = VOCABULARY,
                               .context = LONG,
                               .tied = true};
    fresh_model model;
    char command[8192];
    bool succeeded = false;
    fresh_model_make(&model, &shape);
    (void)snprintf(command, sizeof command, "timeout 1200 mpiexec.mpich -n %d '%s' %s %s 2>&1", ranks, self_path,
                   model.path, does);
    succeeded = run_command(command, said, size, "counts ", print_line, NULL);
    (void)fflush(stdout);
    fresh_model_remove(&model);
    return succeeded;
}

TEST_RANGE(every_mutant_is_refused_or_trains_the_same_bits, 2, 5) {
    char said[8000];
    if (!has_mpich()) return;
    ck_assert_msg(launch(said, sizeof said, _i, "mutants"), "%d ranks: %s", _i, said);
}

TEST(another_order_of_the_sum_shows) {
    char said[8000];
    if (!has_mpich()) return;
    ck_assert(!launch(said, sizeof said, 2, "order"));
    ck_assert_msg(strstr(said, "trains something else: planted") != NULL, "%s", said);
}

TEST(a_standstill_shows) {
    char said[8000];
    if (!has_mpich()) return;
    ck_assert(!launch(said, sizeof said, 2, "standstill"));
    ck_assert_msg(strstr(said, "never get to the end: planted") != NULL, "%s", said);
}

int main(int argc, char **argv) {
    if (argc != 3) return run_launcher(test_case("mutants", 320, NULL, NULL));
    rank_model = argv[1];
    rank_does = argv[2];
    return run_rank(rank);
}
