/* host/ab/contest.c: see contest.h. How arms are opened stands in open_arms.c. */
#include "ab/contest.h"

#include "ab/learning.h"
#include "ab/numbers.h"
#include "ab/open_arms.h"
#include "base/clock.h"
#include "program/phases.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>
#include <weft/random.h>

/* ---- steps ---- */

typedef struct took {
    double seconds, exchange;
    int64_t targets;
    double loss;
} took;

/* Steps beyond the configured ones have the last one's learning rate. */
static weft_status one_step(weft_ab_arm *arm, took *out, weft_error *err) {
    weft_session *session = arm->session;
    weft_stepper *stepper = session->stepper;
    const int64_t step = ++arm->step;
    const double lr = weft_session_lr(session, step < session->steps ? step : session->steps);
    double phases[WEFT_N_PHASES] = {0};
    weft_step_result result = {0};
    const double begin = weft_clock_seconds();
    const weft_status status = weft_stepper_train(stepper, &result, (uint64_t)step, lr, session->clip, err);
    out->seconds = weft_clock_seconds() - begin;
    out->targets = result.n_targets;
    out->loss = result.loss_sum;
    if (!result.replayed) weft_phases_add(phases, stepper->trace, stepper->stage->program);
    out->exchange = result.replayed ? -1.0 : phases[WEFT_PHASE_EXCHANGE];
    return status == WEFT_OK ? WEFT_OK : weft_ab_name(arm, err);
}

/* ---- numbers ---- */

/* The first steps of an arm, which warm it up, too. */
static weft_status warm_up(weft_ab_contest *self, int32_t i, weft_ab_course *course, weft_error *err) {
    took step = {0};
    weft_status status = weft_ab_course_begin(course, i, err);
    for (int32_t s = 1; s <= WEFT_AB_COMPARED && status == WEFT_OK; s++) {
        status = one_step(&self->arms[i], &step, err);
        if (status == WEFT_OK) status = weft_ab_course_step(course, s, err);
    }
    weft_ab_course_end(course);
    return status;
}

static weft_status warm_up_all(weft_ab_contest *self, weft_error *err) {
    weft_ab_course *course = NULL;
    weft_status status = weft_ab_course_create(&course, self, err);
    status = weft_peers_agree(&self->meeting.peers, status, err);
    for (int32_t i = 0; i < self->n && status == WEFT_OK; i++) status = warm_up(self, i, course, err);
    weft_ab_course_destroy(course);
    return status;
}

/* ---- rounds ---- */

enum { BLOCK_MOST = 1000 };
#define BLOCK_SECONDS 0.5
#define NOTHING       0.01 /* a difference below that is none that is worth more rounds */

/* A block of one arm: the median of its steps' times. A step before it is not counted: it finds in the caches what the
 * arm before has left. */
static weft_status run_block(weft_ab_contest *self, int32_t place, weft_error *err) {
    weft_ab_arm *arm = &self->arms[place == self->n ? 0 : place];
    took before = {0};
    double seconds[BLOCK_MOST], exchange[BLOCK_MOST];
    int64_t targets = 0;
    int32_t ready = 1;
    weft_status status = weft_peers_share(&self->meeting.peers, &ready, (int64_t)sizeof ready, err); /* all begin */
    if (status == WEFT_OK) status = one_step(arm, &before, err);
    for (int64_t i = 0; i < self->block && status == WEFT_OK; i++) {
        took step = {0};
        status = one_step(arm, &step, err);
        seconds[i] = step.seconds;
        exchange[i] = step.exchange;
        targets += step.targets;
    }
    if (status != WEFT_OK) return status;
    arm->targets = targets / self->block;
    self->times.of[place][self->times.rounds] = weft_median_of(seconds, (int32_t)self->block) /
                                                (self->per_target && arm->targets > 0 ? (double)arm->targets : 1);
    self->exchange[place][self->times.rounds] = weft_median_of(exchange, (int32_t)self->block);
    return WEFT_OK;
}

static weft_status run_round(weft_ab_contest *self, uint64_t seed, weft_error *err) {
    int32_t order[WEFT_AB_MOST_ARMS + 1];
    weft_status status = WEFT_OK;
    weft_ab_order(order, self->n, self->times.rounds, seed);
    for (int32_t i = 0; i <= self->n && status == WEFT_OK; i++) status = run_block(self, order[i], err);
    if (status == WEFT_OK) self->times.rounds++;
    return status;
}

static void show_progress(const weft_ab_contest *self, const weft_ab_options *options, double since, bool last) {
    if (!options->progress || weft_platform_rank(self->meeting.platform) != 0 || isatty(STDERR_FILENO) == 0) return;
    if (last) (void)fprintf(stderr, "\r\033[K");
    else
        (void)fprintf(stderr, "\rround %d of %d arms, %lld steps a block, %.0f s of %.0f\033[K",
                      (int)self->times.rounds + 1, (int)self->n, (long long)self->block, since, 60 * options->minutes);
    (void)fflush(stderr);
}

/* The first against itself, before the others run: rounds of two blocks, A and A', in either order. What they tell of
 * the noise of one round tells what so many minutes can tell at all: a median of n values with deviation s lies within
 * 1.96 * 1.2533 s / sqrt(n) of the true one in 95 % (the asymptotic efficiency of the median, 2 / pi), and s is 1.4826
 * times the median deviation from the median. */
static weft_status run_alone(weft_ab_contest *self, const weft_ab_options *options, weft_error *err) {
    const int32_t n = (int32_t)(options->rounds < WEFT_AB_ALONE_ROUNDS ? options->rounds : WEFT_AB_ALONE_ROUNDS);
    const double begin = weft_clock_seconds();
    double noise[WEFT_AB_ALONE_ROUNDS], spread[WEFT_AB_ALONE_ROUNDS], rounds = 0;
    weft_status status = WEFT_OK;
    for (int32_t r = 0; r < n && status == WEFT_OK; r++) {
        const bool turned =
            weft_random_permute(2, (uint64_t)r % 2, options->seed, WEFT_RANDOM_EPOCH, (uint64_t)r / 2) == 1;
        show_progress(self, options, weft_clock_seconds() - begin, false);
        status = run_block(self, turned ? self->n : 0, err);
        if (status == WEFT_OK) status = run_block(self, turned ? 0 : self->n, err);
        noise[r] = spread[r] = log(self->times.of[self->n][0]) - log(self->times.of[0][0]);
    }
    if (status != WEFT_OK) return status;
    self->alone.rounds = n;
    self->alone.noise = weft_median_interval_of(noise, n, 0.05);
    for (int32_t r = 0; r < n; r++) spread[r] = fabs(spread[r] - self->alone.noise.median);
    rounds = 60 * options->minutes / ((weft_clock_seconds() - begin) / n) * 2 / (self->n + 1);
    self->alone.told = expm1(1.96 * 1.2533 * 1.4826 * weft_median_of(spread, n) /
                             sqrt(fmin(fmax(rounds, 1), (double)options->rounds)));
    if (n < WEFT_AB_ALONE_ROUNDS) self->alone.told = NAN;
    return WEFT_OK;
}

/* The steps of a block by what they take after the warm-up: those of the slowest arm. */
static weft_status choose_block(weft_ab_contest *self, int64_t asked, weft_error *err) {
    double slowest = 0;
    int64_t steps = asked;
    for (int32_t i = 0; i < self->n; i++) {
        took step = {0};
        const weft_status status = one_step(&self->arms[i], &step, err);
        if (status != WEFT_OK) return status;
        slowest = fmax(slowest, step.seconds);
    }
    if (asked == 0) steps = (int64_t)fmin(fmax(ceil(BLOCK_SECONDS / slowest), 1), 50);
    self->block = steps;
    return weft_peers_share(&self->meeting.peers, &self->block, (int64_t)sizeof self->block, err);
}

static void judge_arms(weft_ab_contest *self, int32_t look) {
    for (int32_t i = 1; i < self->n; i++) self->arms[i].verdict = weft_ab_judge(&self->times, i, look);
}

static bool all_are_decided(const weft_ab_contest *self) {
    for (int32_t i = 1; i < self->n; i++) {
        const weft_ab_verdict *verdict = &self->arms[i].verdict;
        const bool differs = verdict->answer == WEFT_AB_FASTER || verdict->answer == WEFT_AB_SLOWER;
        if (!differs && verdict->bound > NOTHING) return false;
    }
    return true;
}

/* Rank 0 has the times, and says when it is enough. */
static weft_status run_rounds(weft_ab_contest *self, const weft_ab_options *options, weft_error *err) {
    const double begin = weft_clock_seconds();
    int32_t looks = 0;
    weft_status status = WEFT_OK;
    for (int32_t go_on = 1; go_on != 0 && status == WEFT_OK;) {
        show_progress(self, options, weft_clock_seconds() - begin, false);
        status = run_round(self, options->seed, err);
        if (status != WEFT_OK) break;
        if (weft_ab_look(self->times.rounds) > 0) judge_arms(self, ++looks);
        go_on = !(weft_ab_look(self->times.rounds) > 0 && all_are_decided(self)) &&
                self->times.rounds < options->rounds && weft_clock_seconds() - begin < 60 * options->minutes;
        status = weft_peers_share(&self->meeting.peers, &go_on, (int64_t)sizeof go_on, err);
    }
    show_progress(self, options, 0, true);
    self->seconds = weft_clock_seconds() - begin;
    if (status == WEFT_OK && weft_ab_look(self->times.rounds) == 0) judge_arms(self, looks + 1);
    return status;
}

/* Exchanges beside the first's, as times are; where a block has none, or nobody saw it, nothing is bounded. */
static weft_median_interval compare_exchange(const weft_ab_contest *self, int32_t i) {
    const weft_median_interval none = {NAN, -INFINITY, INFINITY, false};
    const weft_ab_times all = {self->n, self->times.rounds, self->exchange};
    for (int32_t r = 0; r < all.rounds; r++)
        if (all.of[0][r] <= 0 || all.of[self->n][r] <= 0 || all.of[i][r] <= 0) return none;
    return weft_ab_judge(&all, i, 1).ratio;
}

static void sum_up(weft_ab_contest *self) {
    double copy[WEFT_AB_MOST_ROUNDS];
    const size_t bytes = (size_t)self->times.rounds * sizeof *copy;
    for (int32_t i = 0; i < self->n; i++) {
        memcpy(copy, self->times.of[i], bytes);
        self->arms[i].seconds = weft_median_of(copy, self->times.rounds);
        if (self->per_target) self->arms[i].seconds *= (double)self->arms[i].targets;
        memcpy(copy, self->exchange[i], bytes);
        self->arms[i].exchange = weft_median_of(copy, self->times.rounds);
        self->arms[i].exchange_of = compare_exchange(self, i);
    }
}

/* ---- what it comes to ---- */

static void find_outcomes(weft_ab_contest *self) {
    for (int32_t i = 1; i < self->n; i++) {
        weft_ab_arm *arm = &self->arms[i];
        const weft_ab_evidence evidence = weft_ab_evidence_of(self, i);
        arm->outcome = weft_ab_outcome_of(&evidence);
    }
}

/* Times, numbers and losses are rank 0's, whose exit status must be all ranks'. */
static weft_status share_outcomes(weft_ab_contest *self, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t i = 1; i < self->n && status == WEFT_OK; i++) {
        weft_ab_arm *arm = &self->arms[i];
        status = weft_peers_share(&self->meeting.peers, &arm->verdict, (int64_t)sizeof arm->verdict, err);
        if (status == WEFT_OK)
            status = weft_peers_share(&self->meeting.peers, &arm->outcome, (int64_t)sizeof arm->outcome, err);
    }
    return status;
}

weft_ab_evidence weft_ab_evidence_of(const weft_ab_contest *self, int32_t i) {
    const weft_ab_arm *first = &self->arms[0], *arm = &self->arms[i];
    const weft_ab_evidence out = {arm->verdict.answer, arm->numbers.comparable && arm->numbers.step < 0, arm->change,
                                  first->not_covered[0] == '\0' && arm->not_covered[0] == '\0', arm->learned.answer};
    return out;
}

int32_t weft_ab_winner(const weft_ab_contest *contest) {
    int32_t best = -1, worse = 0;
    for (int32_t i = 1; i < contest->n; i++) {
        const weft_ab_arm *arm = &contest->arms[i];
        worse += arm->outcome == WEFT_AB_WORSE;
        if (arm->outcome != WEFT_AB_BETTER) continue;
        if (best < 0 || arm->verdict.ratio.median < contest->arms[best].verdict.ratio.median) best = i;
    }
    return best < 0 && worse == contest->n - 1 ? 0 : best;
}

/* The lender last. */
static void close_sessions(weft_ab_contest *self) {
    for (int32_t i = self->n - 1; i >= 0; i--) {
        weft_session_close(self->arms[i].session);
        self->arms[i].session = NULL;
    }
}

static weft_status time_arms(weft_ab_contest *self, const weft_ab_options *options, weft_error *err) {
    weft_status status = warm_up_all(self, err);
    if (status == WEFT_OK) status = choose_block(self, options->steps, err);
    if (status == WEFT_OK) status = run_alone(self, options, err);
    return status == WEFT_OK ? run_rounds(self, options, err) : status;
}

weft_status weft_ab_run(weft_ab_contest *out, const weft_ab_spec *specs, int32_t n, const weft_ab_options *options,
                        weft_error *err) {
    bool learns = false;
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    out->arms = calloc((size_t)n, sizeof *out->arms);
    out->times.of = calloc((size_t)n + 1, sizeof *out->times.of);
    out->exchange = calloc((size_t)n + 1, sizeof *out->exchange);
    if (out->arms == NULL || out->times.of == NULL || out->exchange == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for %d arms", (int)n);
    out->n = out->times.arms = n;
    for (int32_t i = 0; i < n; i++) out->arms[i].spec = &specs[i];
    status = weft_meeting_open(&out->meeting, specs[0].path, specs[0].overrides, specs[0].n_overrides, err);
    if (status == WEFT_OK) status = weft_ab_open_arms(out, err);
    if (status != WEFT_OK) return status;
    for (int32_t i = 1; i < n; i++) out->per_target = out->per_target || !weft_ab_same_batches(out, i);
    status = time_arms(out, options, err);
    if (status == WEFT_OK) status = weft_ab_learning_judge(out, options, &learns, err);
    out->meeting.failed = out->meeting.failed || status != WEFT_OK;
    if (status != WEFT_OK) return status;
    sum_up(out);
    close_sessions(out);
    if (learns) status = weft_ab_learn(out, options, err);
    if (status == WEFT_OK) {
        find_outcomes(out);
        status = share_outcomes(out, err);
    }
    out->meeting.failed = out->meeting.failed || status != WEFT_OK;
    return status;
}

static void free_arm(weft_ab_arm *arm) {
    json_decref(arm->facts);
    json_decref(arm->difference);
    free(arm->learned.leaves);
}

void weft_ab_close(weft_ab_contest *self) {
    close_sessions(self);
    for (int32_t i = 0; i < self->n; i++) free_arm(&self->arms[i]);
    free(self->arms);
    free((void *)self->times.of);
    free((void *)self->exchange);
    weft_meeting_close(&self->meeting);
    memset(self, 0, sizeof *self);
}
