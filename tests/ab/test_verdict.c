/* Verdicts of weft ab on simulated times with a known result: drifts, spikes and noise, with and without
 * differences. */
#include "suite.h"

#include <math.h>
#include <stdbool.h>

#include "tools/ab/experiment.h"
#include "tools/ab/verdict.h"

enum { TRIALS = 1000, ROUNDS = 92 };

static uint64_t state;

static double uniform(void) { /* in (0, 1) */
    state = state * 6364136223846793005u + 1442695040888963407u;
    return ((double)(state >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(void) {
    const double u = uniform(), v = uniform();
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

/* A machine: each block takes 1, changed by these effects. */
typedef struct machine {
    const char *name;
    double jitter; /* relative noise of a block */
    double drift;  /* relative change from the first block to the last */
    double spikes; /* fraction of blocks with at least double the time */
    double walk;   /* random walk of the speed between blocks */
    double skew;   /* noise with a long tail that only slows down */
    double place;  /* relative slowdown towards the end of a round, by warming up */
} machine;

static const machine machines[] = {
    {"quiet", 0.002, 0, 0, 0, 0, 0},    {"jitter", 0.05, 0, 0, 0, 0, 0},           {"drift", 0.01, 0.5, 0, 0, 0, 0},
    {"spikes", 0.01, 0, 0.15, 0, 0, 0}, {"walk", 0.01, 0, 0, 0.03, 0, 0},          {"tail", 0.01, 0, 0, 0, 0.1, 0},
    {"warm", 0.01, 0, 0, 0, 0, 0.1},    {"loud", 0.08, 0.3, 0.2, 0.03, 0.1, 0.05},
};

static double block(const machine *m, double truth, double part, double *speed, double place) {
    double t = truth * (1 + m->drift * part) * exp(m->jitter * normal()) * (1 + m->place * place);
    *speed *= exp(m->walk * normal());
    if (m->skew > 0) t *= 1 - m->skew * log(uniform());
    if (uniform() < m->spikes) t *= 2 + 3 * uniform();
    return t * *speed;
}

/* Runs rounds until the result is decided or the maximum is reached. truth: the true ratio of B to A. */
static weft_ab_verdict trial(const machine *m, double truth, uint64_t seed) {
    static double times[3][WEFT_AB_MOST_ROUNDS];
    weft_ab_times all = {2, 0, times};
    weft_ab_verdict verdict = {0};
    double speed = 1;
    while (all.rounds < ROUNDS) {
        int32_t order[3], look = 0;
        weft_ab_order(order, 2, all.rounds, seed);
        for (int i = 0; i < 3; i++)
            times[order[i]][all.rounds] =
                block(m, order[i] == 1 ? truth : 1, (all.rounds + i / 3.0) / ROUNDS, &speed, i / 2.0);
        all.rounds++;
        look = weft_ab_look(all.rounds);
        if (look == 0) continue;
        verdict = weft_ab_check(&all, 1, look);
        if (verdict.answer == WEFT_AB_FASTER || verdict.answer == WEFT_AB_SLOWER) break;
    }
    return verdict;
}

/* True for a wrong winner, or a bound below the true difference. */
static bool is_wrong(const weft_ab_verdict *verdict, double truth) {
    switch (verdict->answer) {
    case WEFT_AB_FASTER: return truth >= 1;
    case WEFT_AB_SLOWER: return truth <= 1;
    case WEFT_AB_NO_DIFFERENCE: return fabs(log(truth)) > verdict->bound;
    default: return false;
    }
}

TESTS(few_are_wrong, LENGTH(machines)) {
    static const double truths[] = {1, 1, 0.99, 1.02, 0.9, 1.3};
    const machine *m = &machines[_i];
    int wrong[6] = {0}, winners = 0;
    state = 1 + (uint64_t)_i;
    for (int t = 0; t < 6; t++)
        for (int i = 0; i < TRIALS; i++) {
            const weft_ab_verdict verdict = trial(m, truths[t], (uint64_t)(t * TRIALS + i));
            ck_assert_int_ne(verdict.answer, WEFT_AB_UNDECIDED);
            wrong[t] += is_wrong(&verdict, truths[t]);
            if (t < 2) winners += verdict.answer != WEFT_AB_NO_DIFFERENCE;
        }
    for (int t = 0; t < 6; t++)
        ck_assert_msg(wrong[t] <= TRIALS / 20, "%s, truth %g: %d of %d are wrong", m->name, truths[t], wrong[t],
                      (int)TRIALS);
    ck_assert_msg(winners <= TRIALS / 20, "%s: %d winners where nothing differs", m->name, winners);
}

/* Large differences are detected early. */
TEST(large_differences_are_found) {
    int found = 0, rounds = 0;
    state = 77;
    for (int i = 0; i < TRIALS; i++) {
        const weft_ab_verdict verdict = trial(&machines[3], i % 2 == 0 ? 0.9 : 1.1, (uint64_t)i);
        found += verdict.answer == (i % 2 == 0 ? WEFT_AB_FASTER : WEFT_AB_SLOWER);
        rounds += verdict.rounds;
    }
    ck_assert_int_ge(found, TRIALS * 96 / 100);
    ck_assert_int_le(rounds, TRIALS * 40);
}

/* The difference predicted at 50 % probability from A's blocks is detected about half of the time; a quarter of it is
 * not. */
TESTS(what_can_be_told_is_foreseen, LENGTH(machines)) {
    static const double parts[] = {1, 0.25};
    const machine *m = &machines[_i];
    int told[2] = {0};
    state = 99 + (uint64_t)_i;
    for (int part = 0; part < 2; part++)
        for (int i = 0; i < TRIALS; i++) {
            double noise[WEFT_AB_ALONE_ROUNDS], speed = 1;
            weft_ab_verdict verdict;
            for (int r = 0; r < WEFT_AB_ALONE_ROUNDS; r++) {
                const double a = block(m, 1, 0, &speed, r % 2);
                noise[r] = log(block(m, 1, 0, &speed, (r + 1) % 2) / a);
            }
            verdict = trial(m, 1 + parts[part] * weft_ab_told(noise, WEFT_AB_ALONE_ROUNDS, ROUNDS), (uint64_t)i);
            told[part] += verdict.answer == WEFT_AB_SLOWER;
        }
    ck_assert_msg(told[0] >= TRIALS * 45 / 100, "%s: of what can be told %d of %d are", m->name, told[0], (int)TRIALS);
    ck_assert_msg(told[1] <= TRIALS / 4, "%s: of a quarter of it %d of %d are told", m->name, told[1], (int)TRIALS);
}

TEST(few_rounds_tell_nothing) {
    double noise[] = {0.1, -0.1, 0.2, -0.2, 0.1, -0.1, 0.2, -0.2};
    ck_assert(isnan(weft_ab_told(noise, 8, WEFT_AB_FIRST_LOOK - 1)));
    ck_assert(isnan(weft_ab_told(noise, 0, 100)));
}

TEST(the_interval_is_that_of_the_sign_test) {
    double values[] = {9, 1, 8, 2, 7, 3, 6, 4}; /* of 8, the extremes miss with 2 / 256 */
    weft_median_interval at = weft_median_interval_of(values, 8, 0.01);
    ck_assert(at.bounded && at.low == 1 && at.high == 9 && at.median == 5);
    at = weft_median_interval_of(values, 8, 0.0078);
    ck_assert(!at.bounded && isinf(at.low) && isinf(at.high));
    at = weft_median_interval_of(values, 8, 0.0704); /* the second values: 2 * 9 / 256 = 0.0703 */
    ck_assert(at.low == 2 && at.high == 8);
    at = weft_median_interval_of(values, 8, 0.0702);
    ck_assert(at.low == 1 && at.high == 9);
}

TEST(each_place_in_a_round_is_everybodys) {
    enum { ARMS = 3, N = 20000 };
    int at[ARMS + 1][ARMS + 1] = {{0}};
    for (int round = 0; round < N; round++) {
        int32_t order[ARMS + 1], seen = 0;
        weft_ab_order(order, ARMS, round, 5);
        for (int i = 0; i <= ARMS; i++) {
            at[i][order[i]]++;
            seen |= 1 << order[i];
        }
        ck_assert_int_eq(seen, (1 << (ARMS + 1)) - 1);
    }
    for (int i = 0; i <= ARMS; i++)
        for (int arm = 0; arm <= ARMS; arm++) ck_assert_int_lt(abs(at[i][arm] - N / (ARMS + 1)), N / 50);
}

TEST(looks_come_less_and_less) {
    int looks = 0;
    for (int rounds = 1; rounds <= WEFT_AB_MOST_ROUNDS; rounds++)
        if (weft_ab_look(rounds) > 0) ck_assert_int_eq(weft_ab_look(rounds), ++looks);
    ck_assert_int_eq(weft_ab_look(8), 1);
    ck_assert_int_eq(weft_ab_look(12), 2);
    ck_assert_int_eq(weft_ab_look(13), 0);
    ck_assert_int_ge(looks, 12);
}

/* ---- learning ---- */

TEST(student_is_that_of_the_tables) {
    static const struct {
        int64_t freedom;
        double t;
    } rows[] = {{1, 12.7062}, {2, 4.30265},  {3, 3.18245},  {4, 2.77645},    {7, 2.36462},
                {9, 2.26216}, {30, 2.04227}, {99, 1.98422}, {1000, 1.96234}, {100000, 1.95998}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ck_assert_double_eq_tol(weft_student_t(rows[i].freedom), rows[i].t, 2e-5 * rows[i].t);
}

/* Losses of micro-batches of very different difficulty and size. The arms share the difficulty, and differ by noise and
 * by `truth` per target. */
static weft_paired_loss lesson(double truth, int n) {
    double a[64], b[64];
    int64_t targets[64];
    for (int i = 0; i < n; i++) {
        const double hard = 2 + 2 * uniform();
        targets[i] = i == 3 ? 0 : 5 + (int64_t)(60 * uniform());
        a[i] = (double)targets[i] * (hard + 0.02 * normal());
        b[i] = (double)targets[i] * (hard + truth + 0.03 * normal());
    }
    return weft_paired_loss_of_micro_batches(a, b, targets, n);
}

TESTS(the_true_loss_lies_within, 2) {
    static const double truths[] = {0, 0.004, -0.05};
    const int n = _i == 0 ? 12 : 60;
    state = 5 + (uint64_t)_i;
    for (int t = 0; t < 3; t++) {
        int missed = 0;
        for (int i = 0; i < TRIALS; i++) {
            const weft_paired_loss at = lesson(truths[t], n);
            ck_assert(at.bounded);
            missed += truths[t] < at.low || truths[t] > at.high;
        }
        /* 5 % of 1,000 exceed 66 with 1 % probability */
        ck_assert_msg(missed <= 66, "%d micro-batches, %g: %d of %d miss it", n, truths[t], missed, (int)TRIALS);
        ck_assert_msg(missed >= TRIALS * 2 / 100, "%d micro-batches, %g: too wide, %d miss it", n, truths[t], missed);
    }
}

TEST(seeds_count_as_one_each) {
    const double means[] = {0.1, 0.2, 0.3, 0.4};
    weft_paired_loss at = weft_paired_loss_of_seeds(means, 4); /* s = 0.129099, t = 3.18245 */
    ck_assert(at.bounded);
    ck_assert_double_eq_tol(at.mean, 0.25, 1e-12);
    ck_assert_double_eq_tol(at.high - at.mean, 3.18245 * 0.1290994 / 2, 1e-6);
    at = weft_paired_loss_of_seeds(means, 1);
    ck_assert(!at.bounded && at.mean == 0.1);
    ck_assert(!lesson(0, WEFT_AB_FEWEST_MICRO_BATCHES).bounded); /* one of them has no target */
    ck_assert(lesson(0, WEFT_AB_FEWEST_MICRO_BATCHES + 1).bounded);
}

/* ---- outcomes ---- */

static weft_ab_outcome outcome(weft_ab_answer time, bool same, weft_ab_change change, bool covered,
                               weft_ab_learning learning) {
    const weft_ab_evidence evidence = {time, same, change, covered, learning, false, false, false};
    return weft_ab_outcome_of(&evidence);
}

TEST(time_decides_among_equals) {
    ck_assert_int_eq(outcome(WEFT_AB_FASTER, true, WEFT_AB_SPREADS, true, WEFT_AB_NOT_LEARNED), WEFT_AB_BETTER);
    ck_assert_int_eq(outcome(WEFT_AB_SLOWER, false, WEFT_AB_ROUNDS, true, WEFT_AB_NOT_LEARNED), WEFT_AB_WORSE);
    ck_assert_int_eq(outcome(WEFT_AB_NO_DIFFERENCE, false, WEFT_AB_SPREADS, false, WEFT_AB_NOT_LEARNED), WEFT_AB_EQUAL);
    ck_assert_int_eq(outcome(WEFT_AB_UNDECIDED, true, WEFT_AB_SPREADS, true, WEFT_AB_NOT_LEARNED), WEFT_AB_UNKNOWN);
}

TEST(a_broken_promise_is_never_better) {
    ck_assert_int_eq(outcome(WEFT_AB_FASTER, false, WEFT_AB_SPREADS, true, WEFT_AB_NOT_LEARNED),
                     WEFT_AB_NOT_COMPARABLE);
    ck_assert_int_eq(outcome(WEFT_AB_FASTER, false, WEFT_AB_SPREADS, true, WEFT_AB_LEARNS_MORE),
                     WEFT_AB_NOT_COMPARABLE);
}

TEST(learning_counts_where_it_is_another) {
    static const weft_ab_change learns = WEFT_AB_LEARNS;
    ck_assert_int_eq(outcome(WEFT_AB_FASTER, false, learns, true, WEFT_AB_NOT_LEARNED), WEFT_AB_NOT_COMPARABLE);
    ck_assert_int_eq(outcome(WEFT_AB_FASTER, false, learns, true, WEFT_AB_LEARNS_ALIKE), WEFT_AB_BETTER);
    ck_assert_int_eq(outcome(WEFT_AB_NO_DIFFERENCE, false, learns, true, WEFT_AB_LEARNS_LESS), WEFT_AB_WORSE);
    ck_assert_int_eq(outcome(WEFT_AB_FASTER, false, learns, true, WEFT_AB_LEARNS_MORE), WEFT_AB_BETTER);
    ck_assert_int_eq(outcome(WEFT_AB_FASTER, false, learns, true, WEFT_AB_LEARNS_LESS), WEFT_AB_NOT_COMPARABLE);
    ck_assert_int_eq(outcome(WEFT_AB_FASTER, false, learns, true, WEFT_AB_LEARNING_UNKNOWN), WEFT_AB_UNKNOWN);
}

TEST(what_cannot_be_told_is_no_answer) {
    weft_ab_evidence evidence = {.time = WEFT_AB_NO_DIFFERENCE, .same_bits = true, .covered = true, .loose = true};
    ck_assert_int_eq(weft_ab_outcome_of(&evidence), WEFT_AB_UNKNOWN);
    evidence.learning = WEFT_AB_LEARNS_MORE;
    ck_assert_int_eq(weft_ab_outcome_of(&evidence), WEFT_AB_UNKNOWN); /* it may be much slower */
}

TEST(what_diverges_is_worse) {
    weft_ab_evidence evidence = {.time = WEFT_AB_UNDECIDED, .learning = WEFT_AB_LEARNS_MORE, .diverged = true};
    ck_assert_int_eq(weft_ab_outcome_of(&evidence), WEFT_AB_WORSE);
    evidence.first_diverged = true;
    ck_assert_int_eq(weft_ab_outcome_of(&evidence), WEFT_AB_NOT_COMPARABLE);
}

static int32_t winner(weft_ab_outcome b, double b_ratio, weft_ab_outcome c, double c_ratio) {
    weft_ab_arm arms[3] = {{.run_seed = 0},
                           {.outcome = b, .verdict.ratio.median = b_ratio},
                           {.outcome = c, .verdict.ratio.median = c_ratio}};
    const weft_ab_experiment experiment = {.arms = arms, .n = 3};
    return weft_ab_winner(&experiment);
}

TEST(of_several_the_fastest_of_the_better_wins) {
    ck_assert_int_eq(winner(WEFT_AB_BETTER, -0.2, WEFT_AB_BETTER, -0.3), 2);
    ck_assert_int_eq(winner(WEFT_AB_BETTER, -0.2, WEFT_AB_EQUAL, -0.3), 1);
    ck_assert_int_eq(winner(WEFT_AB_WORSE, 0.2, WEFT_AB_WORSE, 0.3), 0);
    ck_assert_int_eq(winner(WEFT_AB_WORSE, 0.2, WEFT_AB_EQUAL, 0), -1);
    ck_assert_int_eq(winner(WEFT_AB_NOT_COMPARABLE, -0.9, WEFT_AB_WORSE, 0.3), -1);
    ck_assert_int_eq(winner(WEFT_AB_NOT_COMPARABLE, -0.9, WEFT_AB_BETTER, -0.1), 2);
}

TEST(keys_say_what_they_may_change) {
    ck_assert_int_eq(weft_ab_change_of("policy.plugin"), WEFT_AB_SPREADS);
    ck_assert_int_eq(weft_ab_change_of("strategy.prefetch"), WEFT_AB_SPREADS);
    ck_assert_int_eq(weft_ab_change_of("strategy.reduce"), WEFT_AB_ROUNDS);
    ck_assert_int_eq(weft_ab_change_of("strategy.reduce_dtype"), WEFT_AB_LEARNS);
    ck_assert_int_eq(weft_ab_change_of("train.micro_batch"), WEFT_AB_ROUNDS);
    ck_assert_int_eq(weft_ab_change_of("optimizer.lr"), WEFT_AB_LEARNS);
    ck_assert_int_eq(weft_ab_change_of("run.seed"), WEFT_AB_LEARNS);
}

int main(void) {
    return run_tests(tcase_create("verdict"));
}
