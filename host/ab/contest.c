/* host/ab/contest.c: see contest.h. How arms are opened stands in open_arms.c. */
#include "ab/contest.h"

#include "ab/open_arms.h"
#include "base/clock.h"
#include "program/phases.h"
#include "prove/marks.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

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

/* What the first went through. */
typedef struct course {
    int32_t n;       /* marks */
    uint64_t *marks; /* [1 + WEFT_AB_COMPARED][n] */
    double losses[WEFT_AB_COMPARED];
    uint64_t *now;
} course;

static void note_difference(weft_ab_numbers *numbers, int32_t step, int32_t mark) {
    if (numbers->step >= 0) return;
    numbers->step = step;
    numbers->mark = mark;
}

static weft_status compare(weft_ab_arm *arm, course *first, bool keep, int32_t step, double loss, weft_error *err) {
    uint64_t *then = first->marks + (size_t)step * (size_t)first->n;
    weft_marks_odd odd;
    int32_t i = 0;
    const weft_status status = weft_marks_take(first->now, &odd, arm->session->engine, err);
    if (status != WEFT_OK) return status;
    if (keep) memcpy(then, first->now, (size_t)first->n * sizeof *then);
    if (keep && step > 0) first->losses[step - 1] = loss;
    while (i < first->n && then[i] == first->now[i]) i++;
    if (i < first->n) note_difference(&arm->numbers, step, i);
    if (step > 0 && memcmp(&first->losses[step - 1], &loss, sizeof loss) != 0) note_difference(&arm->numbers, step, -1);
    return WEFT_OK;
}

/* The first steps of an arm, which warm it up, too. */
static weft_status warm_up(weft_ab_contest *self, int32_t i, course *first, weft_error *err) {
    weft_ab_arm *arm = &self->arms[i];
    took step = {0};
    weft_status status = WEFT_OK;
    arm->numbers.comparable = weft_ab_alike(self->arms[0].session, arm->session);
    arm->numbers.step = arm->numbers.mark = -1;
    if (arm->numbers.comparable) status = compare(arm, first, i == 0, 0, 0, err);
    for (int32_t s = 1; s <= WEFT_AB_COMPARED && status == WEFT_OK; s++) {
        status = one_step(arm, &step, err);
        if (status == WEFT_OK && arm->numbers.comparable) status = compare(arm, first, i == 0, s, step.loss, err);
    }
    return status;
}

static weft_status warm_up_all(weft_ab_contest *self, weft_error *err) {
    course first = {.n = weft_marks_count(self->arms[0].session->engine)};
    weft_status status = WEFT_OK;
    first.marks = calloc((size_t)(1 + WEFT_AB_COMPARED) * (size_t)first.n + 1, sizeof *first.marks);
    first.now = calloc((size_t)first.n + 1, sizeof *first.now);
    if (first.marks == NULL || first.now == NULL)
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the marks of %d parameters", (int)first.n);
    status = weft_peers_agree(&self->meeting.peers, status, err);
    for (int32_t i = 0; i < self->n && status == WEFT_OK; i++) status = warm_up(self, i, &first, err);
    free(first.marks);
    free(first.now);
    return status;
}

/* ---- rounds ---- */

enum { BLOCK_MOST = 1000 };
#define BLOCK_SECONDS 0.5
#define NOTHING       0.01 /* a difference below that is none that is worth more rounds */

/* A block of one arm: the median of its steps' times. */
static weft_status run_block(weft_ab_contest *self, int32_t place, weft_error *err) {
    weft_ab_arm *arm = &self->arms[place == self->n ? 0 : place];
    double seconds[BLOCK_MOST], exchange[BLOCK_MOST];
    int64_t targets = 0;
    int32_t ready = 1;
    weft_status status = weft_peers_share(&self->meeting.peers, &ready, (int64_t)sizeof ready, err); /* all begin */
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

static void show_progress(const weft_ab_contest *self, const weft_ab_options *options, double since, bool last) {
    if (!options->progress || weft_platform_rank(self->meeting.platform) != 0 || isatty(STDERR_FILENO) == 0) return;
    if (last) (void)fprintf(stderr, "\r\033[K");
    else
        (void)fprintf(stderr, "\rround %d of %d arms, %lld steps a block, %.0f s of %.0f\033[K",
                      (int)self->times.rounds + 1, (int)self->n, (long long)self->block, since, 60 * options->minutes);
    (void)fflush(stderr);
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

static void sum_up(weft_ab_contest *self) {
    double copy[WEFT_AB_MOST_ROUNDS];
    const size_t bytes = (size_t)self->times.rounds * sizeof *copy;
    for (int32_t i = 0; i < self->n; i++) {
        memcpy(copy, self->times.of[i], bytes);
        self->arms[i].seconds = weft_median_of(copy, self->times.rounds);
        if (self->per_target) self->arms[i].seconds *= (double)self->arms[i].targets;
        memcpy(copy, self->exchange[i], bytes);
        self->arms[i].exchange = weft_median_of(copy, self->times.rounds);
    }
}

/* The verdicts are rank 0's, whose exit status must be all ranks'. */
static weft_status share_verdicts(weft_ab_contest *self, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t i = 1; i < self->n && status == WEFT_OK; i++)
        status =
            weft_peers_share(&self->meeting.peers, &self->arms[i].verdict, (int64_t)sizeof self->arms[i].verdict, err);
    return status;
}

weft_status weft_ab_run(weft_ab_contest *out, const weft_ab_spec *specs, int32_t n, const weft_ab_options *options,
                        weft_error *err) {
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
    status = warm_up_all(out, err);
    if (status == WEFT_OK) status = choose_block(out, options->steps, err);
    if (status == WEFT_OK) status = run_rounds(out, options, err);
    if (status == WEFT_OK) status = share_verdicts(out, err);
    out->meeting.failed = out->meeting.failed || status != WEFT_OK;
    if (status == WEFT_OK) sum_up(out);
    return status;
}

void weft_ab_close(weft_ab_contest *self) {
    for (int32_t i = self->n - 1; i >= 0; i--) weft_session_close(self->arms[i].session); /* the lender last */
    free(self->arms);
    free((void *)self->times.of);
    free((void *)self->exchange);
    weft_meeting_close(&self->meeting);
    memset(self, 0, sizeof *self);
}
