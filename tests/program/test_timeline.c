/* tests/program/test_timeline.c: simulated timelines of programs have the times computed by hand.
 *
 * Short programs are written here; pipelines come from strategies. Costs are whole seconds. */
#include "suite.h"

#include "tools/plan/timeline.h"
#include "program/stages.h"

enum { MOST = 128 };

/* Ranks of ddp with instructions written by the test. */
typedef struct written {
    tiny_job job;
    int32_t world;
    weft_program *programs[TEAM_MAX];
    weft_instruction_cost costs[TEAM_MAX][MOST];
    weft_simulation_spec spec;
    weft_rank_time times[TEAM_MAX];
    double seconds;
} written;

static void open_job(written *w, const strategy *by, int32_t world, int32_t micro_batches) {
    const tiny_options options = {.mode = WEFT_MODE_TRAIN, .micro_batches = micro_batches, .world = world};
    memset(w, 0, sizeof *w);
    tiny_make(&w->job, &options);
    place_job(&w->job, by);
    w->world = world;
    w->spec.job = &w->job.spec;
    w->spec.ranks_per_node = w->spec.together = w->spec.room = world;
}

static void begin(written *w, int32_t world) {
    strategy by;
    load_strategy(&by, "ddp", NULL);
    open_job(w, &by, world, 1);
    for (int32_t r = 0; r < world; r++) w->programs[r] = weft_program_create(&w->job.spec, r);
}

static void end(written *w) {
    for (int32_t r = 0; r < w->world; r++) weft_program_destroy(w->programs[r]);
}

/* Appends a copy of this instruction; of: its unit or segment. */
static int32_t say(written *w, int32_t rank, int32_t kind, int32_t of, int32_t queue, weft_instruction_cost cost) {
    const bool unit = kind == WEFT_INSTRUCTION_REDUCE;
    weft_instruction instruction = {
        (uint32_t)sizeof instruction, 0, kind, unit ? of : -1, unit ? -1 : of, rank, -1, queue, -1, -1, -1, 0};
    int32_t at = -1;
    if (unit) instruction.scope = WEFT_SCOPE_ALL;
    at = weft_program_emit(w->programs[rank], &instruction);
    ck_assert(at >= 0 && at < MOST);
    w->costs[rank][at] = cost;
    return at;
}

static void wait_for(written *w, int32_t rank, int32_t what) {
    const weft_instruction instruction = {
        (uint32_t)sizeof instruction, 0, WEFT_INSTRUCTION_WAIT, -1, -1, -1, -1, 0, what, -1, -1, 0};
    ck_assert_int_ge(weft_program_emit(w->programs[rank], &instruction), 0);
}

static weft_instruction_cost works(double seconds) {
    const weft_instruction_cost cost = {.own = {seconds, seconds}};
    return cost;
}

static weft_instruction_cost travels(double seconds, double after) {
    const weft_instruction_cost cost = {.travel = seconds, .after = {after, after}};
    return cost;
}

static void play(written *w) {
    const weft_instruction_cost *costs[TEAM_MAX];
    weft_error err = WEFT_ERROR_INIT;
    for (int32_t r = 0; r < w->world; r++) costs[r] = w->costs[r];
    w->spec.programs = (const weft_program *const *)w->programs;
    w->spec.costs = costs;
    ck_assert_ok(weft_programs_simulate(w->times, &w->seconds, &w->spec, &err), err);
    for (int32_t r = 0; r < w->world; r++)
        ck_assert_double_eq_tol(w->times[r].compute + w->times[r].exposed + w->times[r].idle, w->seconds, 1e-9);
}

static void holds(const written *w, int32_t rank, double compute, double exposed, double idle) {
    ck_assert_double_eq_tol(w->times[rank].compute, compute, 1e-9);
    ck_assert_double_eq_tol(w->times[rank].exposed, exposed, 1e-9);
    ck_assert_double_eq_tol(w->times[rank].idle, idle, 1e-9);
}

/* BACKWARD of 1 s; a REDUCE of `travel` s, which then takes 1 s to add; in parallel a BACKWARD of 4 s. */
static void two_backwards(written *w, int32_t queue, double travel) {
    begin(w, 2);
    for (int32_t r = 0; r < 2; r++) {
        int32_t reduce = -1;
        (void)say(w, r, WEFT_INSTRUCTION_BACKWARD, 1, 0, works(1));
        reduce = say(w, r, WEFT_INSTRUCTION_REDUCE, 1, queue, travels(travel, 1));
        (void)say(w, r, WEFT_INSTRUCTION_BACKWARD, 0, 0, works(4));
        if (queue > 0) wait_for(w, r, reduce);
    }
}

/* An exchange hides behind work if it travels by itself; what exceeds the work, what the caller must move, and what is
 * awaited at once is exposed. */
TESTS(exchanges_hide_behind_work, 5) {
    static const struct {
        int32_t queue;
        bool own_progress;
        double travel, seconds, exposed, hidden; /* in percent */
    } rows[] = {{1, true, 3, 6, 0, 80},
                {1, true, 6, 8, 2, 100 * 4.0 / 7},
                {1, false, 3, 9, 3, 50},
                {0, true, 3, 9, 3, 0},
                {0, false, 3, 9, 3, 0}};
    written w;
    two_backwards(&w, rows[_i].queue, rows[_i].travel);
    w.spec.own_progress = rows[_i].own_progress;
    play(&w);
    ck_assert_double_eq_tol(w.seconds, rows[_i].seconds, 1e-9);
    for (int32_t r = 0; r < 2; r++) {
        holds(&w, r, 6, rows[_i].exposed, 0);
        ck_assert_double_eq_tol(weft_overlap_hidden(&w.times[r].overlap, WEFT_OVERLAP_REDUCE), rows[_i].hidden, 1e-6);
    }
    end(&w);
}

TEST(one_ranks_exchanges_travel_one_after_the_other) {
    written w;
    int32_t reduces[2][2];
    begin(&w, 2);
    w.spec.own_progress = true;
    for (int32_t r = 0; r < 2; r++) {
        reduces[r][0] = say(&w, r, WEFT_INSTRUCTION_REDUCE, 1, 1, travels(3, 0));
        reduces[r][1] = say(&w, r, WEFT_INSTRUCTION_REDUCE, 2, 2, travels(3, 0));
        (void)say(&w, r, WEFT_INSTRUCTION_BACKWARD, 0, 0, works(1));
        for (int32_t i = 0; i < 2; i++) wait_for(&w, r, reduces[r][i]);
    }
    play(&w);
    ck_assert_double_eq_tol(w.seconds, 6, 1e-9);
    holds(&w, 0, 1, 5, 0);
    end(&w);
}

TEST(early_ranks_wait) {
    written w;
    begin(&w, 3);
    for (int32_t r = 0; r < 3; r++) {
        (void)say(&w, r, WEFT_INSTRUCTION_BACKWARD, 0, 0, works(1 + r));
        (void)say(&w, r, WEFT_INSTRUCTION_REDUCE, 0, 0, travels(2, 0));
        (void)say(&w, r, WEFT_INSTRUCTION_BACKWARD, 1, 0, works(r == 0 ? 5 : 1));
    }
    play(&w);
    ck_assert_double_eq_tol(w.seconds, 10, 1e-9);
    holds(&w, 0, 6, 2, 2);
    holds(&w, 1, 3, 2, 1 + 4);
    holds(&w, 2, 4, 2, 4);
    end(&w);
}

/* Work that takes 1 s on an idle machine and 2 s in parallel: 1 s of it on rank 1, 3 s on rank 0. */
TEST(ranks_at_work_slow_each_other_down) {
    const weft_instruction_cost slow = {.own = {1, 2}}, long_one = {.own = {3, 6}};
    written w;
    begin(&w, 2);
    (void)say(&w, 0, WEFT_INSTRUCTION_BACKWARD, 0, 0, long_one);
    (void)say(&w, 1, WEFT_INSTRUCTION_BACKWARD, 0, 0, slow);
    play(&w);
    holds(&w, 1, 2, 0, 2);
    holds(&w, 0, 4, 0, 0); /* a third of it in 2 s in parallel with rank 1, the rest in 2 s */
    end(&w);
}

TEST(ranks_without_processors_of_their_own_share) {
    written w;
    begin(&w, 4);
    w.spec.together = w.spec.room = 2;
    for (int32_t r = 0; r < 4; r++) (void)say(&w, r, WEFT_INSTRUCTION_BACKWARD, 0, 0, works(3));
    play(&w);
    ck_assert_double_eq_tol(w.seconds, 6, 1e-9);
    w.spec.ranks_per_node = 2; /* on two nodes */
    play(&w);
    ck_assert_double_eq_tol(w.seconds, 3, 1e-9);
    end(&w);
}

/* The measurement also shared processors, so the slowdown is already included. */
TEST(measured_slowdown_is_not_applied_twice) {
    const weft_instruction_cost crowded = {.own = {1, 2}};
    written w;
    begin(&w, 4);
    w.spec.room = 2;
    for (int32_t r = 0; r < 4; r++) (void)say(&w, r, WEFT_INSTRUCTION_BACKWARD, 0, 0, crowded);
    play(&w);
    ck_assert_double_eq_tol(w.seconds, 2, 1e-9);
    w.spec.ranks_per_node = 2;
    play(&w);
    ck_assert_double_eq_tol(w.seconds, 1, 1e-9);
    end(&w);
}

/* ---- programs of strategies ---- */

/* Sets the cost of forward and backward of each segment, and of sending a carry. */
static void price(written *w, double forward, double backward, double travel) {
    for (int32_t r = 0; r < w->world; r++)
        for (int32_t i = 0; i < w->programs[r]->n_instructions; i++) {
            const int32_t kind = w->programs[r]->instructions[i].kind;
            ck_assert_int_lt(i, MOST);
            if (kind == WEFT_INSTRUCTION_FORWARD) w->costs[r][i] = works(forward);
            if (kind == WEFT_INSTRUCTION_BACKWARD) w->costs[r][i] = works(backward);
            if (kind == WEFT_INSTRUCTION_SEND || kind == WEFT_INSTRUCTION_RECV) w->costs[r][i] = travels(travel, 0);
        }
}

static void compile(written *w, const strategy *by, int32_t world, int32_t micro_batches) {
    open_job(w, by, world, micro_batches);
    for (int32_t r = 0; r < world; r++) w->programs[r] = compile_rank(&w->job, by, r);
}

/* gpipe of S equal stages and M micro-batches idles (S - 1) of M + S - 1 parts of its time. */
TEST(the_bubble_of_gpipe_is_the_one_of_the_books) {
    static const struct {
        const char *firsts;
        int32_t stages;
    } cuts[] = {{"0 3", 2}, {"0 2 4", 3}, {"0 1 2 3 4 5", 6}};
    for (int c = 0; c < 3; c++)
        for (int32_t micro_batches = 1; micro_batches <= 4; micro_batches++) {
            const double depth = cuts[c].stages, slots = micro_batches + depth - 1;
            strategy by;
            written w;
            load_stages(&by, cuts[c].firsts, true, true);
            compile(&w, &by, cuts[c].stages, micro_batches);
            price(&w, 1, 2, 0);
            play(&w);
            ck_assert_double_eq_tol(w.seconds, slots * 3 * TINY_SEGMENTS / depth, 1e-9);
            for (int32_t r = 0; r < w.world; r++)
                ck_assert_double_eq_tol(w.times[r].idle / w.seconds, (depth - 1) / slots, 1e-9);
            end(&w);
        }
}

/* One micro-batch after the other: one rank works at a time, and every carry is awaited. */
TEST(stages_one_after_the_other_add_up) {
    strategy by;
    written w;
    load_stages(&by, "0 3", false, false);
    compile(&w, &by, 2, 2);
    price(&w, 1, 2, 1);
    play(&w);
    ck_assert_double_ge(w.seconds, 2 * (TINY_SEGMENTS * 3 + 2));
    holds(&w, 1, 18, w.times[1].exposed, w.seconds - 18 - w.times[1].exposed);
    ck_assert_double_eq_tol(w.times[1].exposed, 2 + 2, 1e-9); /* per micro-batch: receive a carry, send a gradient */
    ck_assert_double_ge(w.times[1].idle, 18);
    end(&w);
}

TEST(one_rank_does_one_thing_after_the_other) {
    strategy by;
    written w;
    load_strategy(&by, "single", NULL);
    compile(&w, &by, 1, 3);
    price(&w, 1, 2, 100);
    play(&w);
    ck_assert_double_eq_tol(w.seconds, 3 * 3 * TINY_SEGMENTS, 1e-9);
    holds(&w, 0, w.seconds, 0, 0);
    end(&w);
}

/* Programs that wait for each other do not hang the simulation. */
TEST(a_program_without_its_other_half_is_refused) {
    const weft_instruction_cost *costs[2];
    weft_error err = WEFT_ERROR_INIT;
    written w;
    begin(&w, 2);
    (void)say(&w, 0, WEFT_INSTRUCTION_REDUCE, 0, 0, travels(1, 0));
    (void)say(&w, 1, WEFT_INSTRUCTION_BACKWARD, 0, 0, works(1));
    for (int32_t r = 0; r < 2; r++) costs[r] = w.costs[r];
    w.spec.programs = (const weft_program *const *)w.programs;
    w.spec.costs = costs;
    ck_assert_int_eq(weft_programs_simulate(w.times, &w.seconds, &w.spec, &err), WEFT_E_HOST);
    ck_assert_ptr_nonnull(strstr(err.text, "wait for one another"));
    end(&w);
}

int main(void) {
    return run_tests(tcase_create("time"));
}
