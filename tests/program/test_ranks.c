/* tests/program/test_ranks.c: results of the checker for programs of several ranks are correct.
 *
 * Programs of all strategies are accepted. If the checker reports their sums as deterministic, they reach the
 * parameters of a single rank. Every single deletion, duplication, swap of neighbours, move and changed operand of
 * one rank's program is rejected with a message, or accepted and runs to the same hash (play.h). Both counts are
 * printed. */
#include "mutants.h"
#include "suite.h"

#include "program/play.h"
#include "program/stages.h"
#include "tools/plan/print_program.h"

#include <time.h>

/* A strategy of a few ranks, and the expected coverage of its sums. */
typedef struct setting {
    const char *name, *keys; /* of a plugin; or NULL and the stages */
    int32_t world;
    bool gpipe, late;
    bool two_hops; /* exact only with reduce = tree */
} setting;

static const setting settings[] = {
    {"single", NULL, 1, false, false, false},
    {"ddp", NULL, 1, false, false, false},
    {"ddp", NULL, 2, false, false, false},
    {"ddp", NULL, 3, false, false, false},
    {"ddp", "reduce_at=last", 2, false, false, true},
    {"ddp", "reduce_at=last", 4, false, false, true},
    {"fsdp", "shard=full", 1, false, false, false},
    {"fsdp", "shard=full", 2, false, false, false},
    {"fsdp", "shard=full", 3, false, false, false},
    {"fsdp", "shard=full reshard_after_forward=no root=replicated", 2, false, false, false},
    {"fsdp", "shard=gradients", 2, false, false, false},
    {"fsdp", "shard=optimizer", 3, false, false, false},
    {"fsdp", "shard=hybrid shard_group=2", 4, false, false, false},
    {"fsdp", "shard=full reduce_at=last", 2, false, false, true},
    {"fsdp", "shard=hybrid shard_group=2 reduce_at=last", 4, false, false, true},
    {"mp", "schedule=gpipe", 1, false, false, false},
    {"mp", "schedule=naive", 2, false, false, false},
    {"mp", "device_map=embed,head=0;layers.0-1=1 schedule=gpipe", 2, false, false, false},
    {"mp", "device_map=sequential schedule=gpipe", 3, false, false, false},
    {"mp", "device_map=sequential schedule=1f1b", 4, false, false, false},
    {NULL, "0 3", 2, false, false, false},
    {NULL, "0 5", 2, true, false, false},
    {NULL, "0 1 3", 3, false, true, false},
    {NULL, "0 1 3 5", 4, true, true, false},
};

static void set_up(team *out, const setting *how, const tiny_options *options) {
    strategy by;
    tiny_options own = *options;
    own.world = how->world;
    if (how->name != NULL) load_strategy(&by, how->name, how->keys);
    else load_stages(&by, how->keys, how->gpipe, how->late);
    team_make(out, &own, &by);
}

/* Returns the result of one rank with this number of micro-batches. */
static outcome alone(const tiny_options *options, int32_t micro_batches) {
    tiny_options own = *options;
    team one;
    outcome out;
    own.micro_batches = micro_batches;
    own.prefetch = 0;
    own.checkpointing = false;
    set_up(&one, &settings[0], &own);
    out = play_team(&one);
    team_free(&one);
    return out;
}

static void expect_valid(const setting *how, const tiny_options *options) {
    const bool fast = options->reduce == WEFT_REDUCE_FAST;
    weft_error err = WEFT_ERROR_INIT;
    weft_coverage coverage;
    team ranks;
    outcome found, expected;
    int32_t micro_batches = 0;
    bool covered = false;
    set_up(&ranks, how, options);
    micro_batches = weft_job_spec_micro_batches(&ranks.job.spec);
    covered = options->mode != WEFT_MODE_TRAIN || micro_batches == 1 ||
              (!fast && (!how->two_hops || options->reduce == WEFT_REDUCE_TREE || options->micro_batches == 1));
    ck_assert_msg(team_check(&ranks, &coverage, &err) == WEFT_OK, "%s %s, %d ranks: %s", how->name, how->keys,
                  (int)how->world, err.text);
    ck_assert_msg(coverage.covered == covered, "%s %s, %d ranks: %s", how->name, how->keys, (int)how->world,
                  coverage.why);
    ck_assert_int_eq(coverage.why[0] == '\0', covered);
    found = play_team(&ranks);
    ck_assert_msg(!found.stuck && found.torn == 0, "%s %s, %d ranks: stuck or torn", how->name, how->keys,
                  (int)how->world);
    expected = alone(options, micro_batches);
    if (covered || fast) ck_assert_msg(found.parameters == expected.parameters, "%s %s", how->name, how->keys);
    else ck_assert_msg(found.parameters != expected.parameters, "%s %s is exact after all", how->name, how->keys);
    team_free(&ranks);
}

TESTS(programs_of_every_strategy_are_accepted_and_come_to_what_one_rank_does, LENGTH(settings)) {
    int32_t n = 0;
    for (int32_t bits = 0; bits < 2 * 3 * 3 * 4 * 2 * 2; bits++) {
        const uint32_t frozen[] = {0, 2, 3, 6};
        const tiny_options options = {.mode = bits % 2 == 0 ? WEFT_MODE_TRAIN : WEFT_MODE_EVALUATE,
                                      .reduce = bits / 2 % 3,
                                      .micro_batches = bits % 2 == 0 ? 1 + bits / 6 % 3 : 1,
                                      .frozen = frozen[bits / 18 % 4],
                                      .tied = bits / 72 % 2 == 0,
                                      .checkpointing = bits / 144 != 0,
                                      .prefetch = bits / 18 % 3};
        expect_valid(&settings[_i], &options);
        n++;
    }
    ck_assert_int_gt(n, 200);
}

/* ---- mutants ---- */

typedef struct counts {
    int64_t refused, equal;
} counts;

typedef struct bench {
    team ranks;
    int32_t rank; /* rank with the mutated program */
    weft_coverage coverage;
    outcome expected;
    counts counts[N_MUTATIONS];
} bench;

/* m: the last change. */
static void abort_accepted(const outcome *found, const mutant *m) {
    fflush(stdout);
    ck_abort_msg("accepted, and %s: %s of instruction %d %s",
                 found->stuck       ? "never ends"
                 : found->torn != 0 ? "reads what is being written"
                                    : "comes to something else",
                 mutation_names[m->how], (int)m->instruction, m->field == NULL ? "" : m->field);
}

/* Takes ownership of the mutant. */
static void judge(void *context, const mutant *m) {
    bench *b = context;
    counts *into = &b->counts[m->how];
    weft_program *const valid = b->ranks.programs[b->rank];
    weft_coverage coverage;
    weft_error err = WEFT_ERROR_INIT;
    b->ranks.programs[b->rank] = m->program;
    if (are_refused((const weft_program *const *)b->ranks.programs, &b->ranks.job.spec, &coverage)) {
        into->refused++;
    } else {
        const outcome found = play_team(&b->ranks);
        if (found.stuck || found.torn != 0 || found.hash != b->expected.hash ||
            coverage.covered != b->coverage.covered) {
            weft_program_print(m->program, &b->ranks.job.spec, -1, stdout);
            abort_accepted(&found, m);
        }
        /* Without its RECOMPUTE a segment keeps its tape from FORWARD on: more memory, same result. */
        ck_assert(b->ranks.world > 1 || m->how != MUTATION_DELETION ||
                  valid->instructions[m->instruction].kind == WEFT_INSTRUCTION_RECOMPUTE);
        ck_assert_ok(weft_program_place(m->program, &b->ranks.job.spec, &err), err);
        check_slots(m->program);
        into->equal++;
    }
    b->ranks.programs[b->rank] = valid;
    weft_program_destroy(m->program);
}

static void print_counts(const bench *b, const setting *how) {
    printf("%s %s, rank %d of %d, %d instructions:", how->name == NULL ? "stages" : how->name,
           how->keys == NULL ? "" : how->keys, (int)b->rank, (int)how->world,
           (int)b->ranks.programs[b->rank]->n_instructions);
    for (int i = 0; i < N_MUTATIONS; i++)
        printf("%s %lld %s refused, %lld equal", i == 0 ? "" : ";", (long long)b->counts[i].refused, mutation_names[i],
               (long long)b->counts[i].equal);
    putchar('\n');
}

/* Mutates every rank. Moves are numerous, so each setting has those of only one rank. */
static void mutate(const setting *how, const tiny_options *options, int32_t rank, uint32_t kinds) {
    bench b;
    weft_error err = WEFT_ERROR_INIT;
    memset(&b, 0, sizeof b);
    set_up(&b.ranks, how, options);
    b.rank = rank;
    ck_assert_ok(team_check(&b.ranks, &b.coverage, &err), err);
    b.expected = play_team(&b.ranks);
    ck_assert(!b.expected.stuck && b.expected.torn == 0);
    each_mutant(b.ranks.programs[rank], &b.ranks.job.spec.view, kinds, judge, &b);
    print_counts(&b, how);
    for (int i = 0; i < N_MUTATIONS; i++)
        if (kinds & 1u << i) ck_assert_int_gt(b.counts[i].refused, 0);
    team_free(&b.ranks);
    fflush(stdout);
}

enum { ALL_KINDS = (1 << N_MUTATIONS) - 1 };

TESTS(every_mutant_of_one_rank_is_refused_or_comes_to_the_same, LENGTH(settings)) {
    const setting *how = &settings[_i];
    const uint32_t all = ALL_KINDS, most = all & ~(1u << MUTATION_MOVE);
    const tiny_options options = {.mode = WEFT_MODE_TRAIN,
                                  .reduce = _i % 3 == 0 || how->two_hops ? WEFT_REDUCE_TREE : WEFT_REDUCE_ORDERED,
                                  .micro_batches = 2,
                                  .frozen = _i % 4 == 1 ? 2 : 0,
                                  .tied = true,
                                  .checkpointing = _i % 2 != 0,
                                  .prefetch = _i % 3};
    const tiny_options evaluate = {.mode = WEFT_MODE_EVALUATE, .micro_batches = 1, .tied = true, .prefetch = _i % 3};
    for (int32_t rank = 0; rank < how->world; rank++) {
        mutate(how, &options, rank, rank == _i % how->world ? all : most);
        mutate(how, &evaluate, rank, most);
    }
}

/* Jobs of one rank, with every kind of mutant. */
TESTS(every_mutant_of_single_is_refused_or_comes_to_the_same, 3 * 2 * 4 * 2 + 2) {
    const uint32_t frozen[] = {0, 1u << 0, 1u << 1, 1u << 0 | 1u << 1 | 1u << 2};
    const bool inference = _i >= 48;
    const tiny_options options = {.mode = inference ? _i - 47 : WEFT_MODE_TRAIN,
                                  .micro_batches = inference ? 1 : 1 + _i % 3,
                                  .tied = _i / 3 % 2 != 0,
                                  .frozen = frozen[_i / 6 % 4],
                                  .checkpointing = _i / 24 % 2 != 0};
    mutate(&settings[0], &options, 0, ALL_KINDS);
}

/* ---- the same change on all ranks, and several changes ---- */

enum { DRAWS = 600, DRAWS_OF_FULL = 6000 };

/* Draws a mutant, possibly without effect; field values are plausible ones. */
static mutant draw_mutant(const team *ranks, uint64_t *state) {
    static const char *const fields[] = {"kind",  "unit",  "segment", "micro-batch", "peer",
                                         "queue", "waits", "what",    "scope"};
    uint32_t bits[4];
    mutant m = {0};
    for (int i = 0; i < 4; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        bits[i] = (uint32_t)(*state >> 33);
    }
    m.how = (mutation)(bits[0] % N_MUTATIONS);
    m.instruction = (int32_t)(bits[1] % (uint32_t)ranks->programs[0]->n_instructions);
    m.to = (int32_t)(bits[2] % (uint32_t)ranks->programs[0]->n_instructions);
    if (m.how == MUTATION_DELETION) m.to = -1;
    if (m.how != MUTATION_OPERAND) return m;
    m.field = fields[bits[3] % (LENGTH(fields))];
    m.to = strcmp(m.field, "waits") == 0 ? m.to : (int32_t)(bits[2] % 9) - 1;
    return m;
}

/* only: -1: all ranks. Returns true if a program changed. */
static bool change(team *ranks, const mutant *m, int32_t only) {
    bool any = false;
    for (int32_t rank = 0; rank < ranks->world; rank++) {
        weft_program *changed = NULL;
        if (only >= 0 && rank != only) continue;
        changed = mutate_alike(ranks->programs[rank], &ranks->job.spec.view, m);
        if (changed == NULL) continue;
        weft_program_destroy(ranks->programs[rank]);
        ranks->programs[rank] = changed;
        any = true;
    }
    return any;
}

static bool too_long(const team *ranks) {
    for (int32_t rank = 0; rank < ranks->world; rank++)
        if (ranks->programs[rank]->n_instructions > PLAY_INSTRUCTIONS) return true;
    return false;
}

/* Applies one to three changes, each on one rank or on all. */
static void judge_changes(team *ranks, const bench *valid, uint64_t *state, counts *into) {
    const int32_t n = 1 + (int32_t)(*state >> 60) % 3;
    weft_coverage coverage;
    outcome found;
    mutant m = {0};
    for (int32_t i = 0; i < n; i++) {
        m = draw_mutant(ranks, state);
        (void)change(ranks, &m, (*state >> 40) % 2 == 0 ? -1 : (int32_t)((*state >> 50) % (uint64_t)ranks->world));
    }
    if (too_long(ranks) || are_refused((const weft_program *const *)ranks->programs, &ranks->job.spec, &coverage)) {
        into->refused++;
        return;
    }
    found = play_team(ranks);
    if (found.stuck || found.torn != 0 || (coverage.covered && found.hash != valid->expected.hash)) {
        for (int32_t rank = 0; rank < ranks->world; rank++)
            weft_program_print(ranks->programs[rank], &ranks->job.spec, -1, stdout);
        abort_accepted(&found, &m);
    }
    into->equal++;
}

TESTS(changes_of_all_ranks_and_several_are_refused_or_come_to_the_same, LENGTH(settings)) {
    const setting *how = &settings[_i];
    const tiny_options options = {.mode = WEFT_MODE_TRAIN,
                                  .reduce = how->two_hops ? WEFT_REDUCE_TREE : WEFT_REDUCE_ORDERED,
                                  .micro_batches = 2,
                                  .frozen = _i % 4 == 2 ? 2 : 0,
                                  .tied = _i % 3 != 0,
                                  .checkpointing = _i % 2 == 0,
                                  .prefetch = (_i + 1) % 3};
    const int32_t draws = is_full() ? DRAWS_OF_FULL : DRAWS;
    uint64_t state = (uint64_t)_i + 1;
    counts all = {0, 0};
    bench b;
    memset(&b, 0, sizeof b);
    set_up(&b.ranks, how, &options);
    b.expected = play_team(&b.ranks);
    for (int32_t i = 0; i < draws; i++) {
        team ranks = b.ranks;
        for (int32_t rank = 0; rank < ranks.world; rank++) ranks.programs[rank] = copy_program(b.ranks.programs[rank]);
        judge_changes(&ranks, &b, &state, &all);
        team_free(&ranks);
    }
    printf("%s %s, %d ranks, one to three changes: %lld refused, %lld equal\n",
           how->name == NULL ? "stages" : how->name, how->keys == NULL ? "" : how->keys, (int)how->world,
           (long long)all.refused, (long long)all.equal);
    fflush(stdout);
    ck_assert(all.refused > 0 && all.equal > 0);
    team_free(&b.ranks);
}

/* ---- detection by play.h ---- */

TEST(the_play_sees_what_the_checker_is_there_for) {
    const tiny_options options = {.mode = WEFT_MODE_TRAIN, .micro_batches = 2, .tied = true};
    team ranks;
    outcome expected, found;
    weft_program *program = NULL;
    set_up(&ranks, &settings[2], &options);
    expected = play_team(&ranks);
    program = ranks.programs[1];
    /* a sum in another order */
    for (int32_t i = 0; i < program->n_instructions; i++)
        if (program->instructions[i].micro_batch >= 0)
            program->instructions[i].micro_batch = 4 - program->instructions[i].micro_batch;
    found = play_team(&ranks);
    ck_assert(found.parameters != expected.parameters);
    team_free(&ranks);
    /* a missing WAIT */
    set_up(&ranks, &settings[2], &options);
    program = ranks.programs[1];
    for (int32_t i = program->n_instructions - 1; program->n_instructions > 0; i--)
        if (program->instructions[i].kind == WEFT_INSTRUCTION_WAIT) {
            remove_instruction(program, i);
            break;
        }
    found = play_team(&ranks);
    ck_assert(found.parameters != expected.parameters || found.torn > 0);
    /* a collective skipped by one rank */
    remove_instruction(program, find_instruction(program, WEFT_INSTRUCTION_NORM, -1, -1, -1));
    ck_assert(play_team(&ranks).stuck);
    team_free(&ranks);
}

int main(void) {
    return run_tests(test_case("valid", 600, NULL, NULL));
}
