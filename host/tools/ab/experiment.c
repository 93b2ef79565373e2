/* host/tools/ab/experiment.c: learning.c opens the arms. */
#include "tools/ab/experiment.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/units.h"
#include "launch/signals.h"
#include "launch/watchdog.h"
#include "plugin/crash.h"
#include "program/execute.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weft/base.h>
#include <weft/random.h>

/* Leaves no file at `path`. */
static weft_status weft_ab_page_try(const char *path, weft_error *err) {
    weft_file file;
    struct stat at;
    if (stat(path, &at) == 0 && S_ISDIR(at.st_mode))
        return weft_error_set(err, WEFT_E_USER, "--html %s is a directory. Allowed: a file name", path);
    if (weft_file_begin(&file, path, err) == NULL) return weft_error_prefix(err, "--html: ");
    weft_file_cancel(&file);
    return WEFT_OK;
}

/* ---- steps ---- */

typedef struct took {
    double seconds, exchange;
    int64_t targets;
    double loss;
} took;

/* Excludes an arm with non-finite numbers from further steps. All ranks detect it together; one message is used. */
static weft_status note_divergence(weft_ab_experiment *self, weft_ab_arm *arm, int64_t step, weft_error *err) {
    const weft_error none = WEFT_ERROR_INIT;
    const weft_status status = weft_process_group_agree(&self->meeting.peers, WEFT_E_NUMERIC, err);
    const char *why = err != NULL ? err->text : "a number is not finite";
    char head[40];
    if (status != WEFT_E_NUMERIC) return status;
    arm->diverged.step = step;
    (void)snprintf(head, sizeof head, "step %lld: ", (long long)step);
    if (strncmp(why, head, strlen(head)) == 0) why += strlen(head); /* the message starts with the step */
    (void)snprintf(arm->diverged.why, sizeof arm->diverged.why, "%.399s", why);
    if (err != NULL) *err = none;
    return WEFT_OK;
}

/* Runs one step. Steps beyond the configured ones use the last learning rate. */
static weft_status one_step(weft_ab_experiment *self, weft_ab_arm *arm, int64_t step, took *out, weft_error *err) {
    weft_session *session = arm->session;
    weft_stepper *stepper = session->stepper;
    const double lr = weft_session_lr(session, step < session->steps ? step : session->steps);
    double phases[WEFT_N_PHASES] = {0};
    weft_step_result result = {0};
    const double begin = weft_clock_seconds();
    const char *const before = atomic_exchange(&weft_crash_where.arm, arm->spec->label);
    const weft_status status = weft_stepper_train(stepper, &result, (uint64_t)step, lr, session->clip, err);
    atomic_store(&weft_crash_where.arm, before);
    if (status == WEFT_E_NUMERIC) return note_divergence(self, arm, step, err);
    out->seconds = weft_clock_seconds() - begin;
    out->targets = result.n_targets;
    out->loss = result.loss_sum;
    if (!result.replayed) weft_phases_add(phases, stepper->trace, stepper->mode_plan->program);
    out->exchange = result.replayed ? -1.0 : phases[WEFT_PHASE_EXCHANGE];
    return status == WEFT_OK ? WEFT_OK : weft_ab_name(arm, err);
}

static bool has_diverged(const weft_ab_experiment *self, int32_t i) {
    return self->arms[i].diverged.step > 0;
}

/* ---- comparison of numbers ---- */

/* Runs the first steps of an arm, which are also its warm-up. */
static weft_status warm_up(weft_ab_experiment *self, int32_t i, weft_ab_bits *course, weft_error *err) {
    took step = {0};
    weft_status status = weft_ab_bits_begin(course, i, err);
    for (int32_t s = 1; s <= WEFT_AB_COMPARED && status == WEFT_OK && !has_diverged(self, i); s++) {
        status = one_step(self, &self->arms[i], s, &step, err);
        if (status == WEFT_OK && !has_diverged(self, i)) status = weft_ab_bits_step(course, s, err);
    }
    weft_ab_bits_end(course);
    return status;
}

static weft_status warm_up_all(weft_ab_experiment *self, weft_error *err) {
    weft_ab_bits *course = weft_ab_bits_create(self);
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < self->n && status == WEFT_OK; i++) status = warm_up(self, i, course, err);
    weft_ab_bits_destroy(course);
    return status;
}

/* ---- rounds ---- */

enum { BLOCK_MOST = 1000 };
#define BLOCK_SECONDS 0.5
#define NOTHING       0.01 /* smaller differences are not worth more rounds */

/* Stores the results of a block. NaN: diverged. */
static void note_block(weft_ab_experiment *self, int32_t place, double seconds, double exchange, int64_t targets) {
    const int32_t round = self->times.rounds;
    const double of_step = (double)targets / (double)self->block;
    self->step[place][round] = seconds;
    self->rate[place][round] = of_step / seconds;
    self->times.of[place][round] = self->per_target && targets > 0 ? seconds / of_step : seconds;
    self->exchange[place][round] = exchange;
}

/* Starts a block on all ranks. A signal on rank 0 stops all ranks here, outside the timed steps. */
static weft_status begin_block(weft_ab_experiment *self, weft_error *err) {
    int32_t stops = weft_signals_stop();
    const weft_status status = weft_process_group_broadcast(&self->meeting.peers, &stops, (int64_t)sizeof stops, err);
    self->stopped = self->stopped || (status == WEFT_OK && stops != 0);
    return status;
}

/* Runs a block of one arm and stores the median of its step times. One uncounted step comes first, because the previous
 * arm's data are still in the caches. `turn`, the number of previous rounds, selects the steps. All arms run the same
 * steps in a round, with the same sequences and learning rates. */
static weft_status run_block(weft_ab_experiment *self, int32_t place, int32_t turn, weft_error *err) {
    const int32_t of = place == self->n ? 0 : place;
    const int64_t first = WEFT_AB_COMPARED + 2 + (int64_t)turn * (self->block + 1);
    weft_ab_arm *arm = &self->arms[of];
    took before = {0};
    double seconds[BLOCK_MOST], exchange[BLOCK_MOST];
    int64_t targets = 0;
    weft_status status = WEFT_OK;
    note_block(self, place, NAN, NAN, 0);
    if (has_diverged(self, of)) return WEFT_OK;
    status = begin_block(self, err);
    if (self->stopped) return status;
    if (status == WEFT_OK) status = one_step(self, arm, first, &before, err);
    for (int64_t i = 0; i < self->block && status == WEFT_OK && !has_diverged(self, of); i++) {
        took step = {0};
        status = one_step(self, arm, first + 1 + i, &step, err);
        seconds[i] = step.seconds;
        exchange[i] = step.exchange;
        targets += step.targets;
    }
    if (status != WEFT_OK || has_diverged(self, of)) return status;
    note_block(self, place, weft_median_of(seconds, (int32_t)self->block),
               weft_median_of(exchange, (int32_t)self->block), targets);
    return WEFT_OK;
}

static weft_status run_round(weft_ab_experiment *self, uint64_t seed, weft_error *err) {
    int32_t order[WEFT_AB_MOST_ARMS + 1];
    weft_status status = WEFT_OK;
    weft_ab_order(order, self->n, self->times.rounds, seed);
    for (int32_t i = 0; i <= self->n && status == WEFT_OK && !has_diverged(self, 0) && !self->stopped; i++)
        status = run_block(self, order[i], self->alone.rounds + self->times.rounds, err);
    if (status == WEFT_OK && !has_diverged(self, 0) && !self->stopped) self->times.rounds++;
    return status;
}

void weft_ab_show(const weft_ab_experiment *self, const weft_ab_options *options, const char *format, ...) {
    va_list args;
    if (!options->progress || self->meeting.process_context->comm_info.rank != 0 || isatty(STDERR_FILENO) == 0) return;
    (void)fputc('\r', stderr);
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fputs("\033[K", stderr);
    (void)fflush(stderr);
}

static void show_round(const weft_ab_experiment *self, const weft_ab_options *options, double since) {
    weft_ab_show(self, options, "round %d of %d arms, %lld steps a block, %.0f s of %.0f", (int)self->times.rounds + 1,
                 (int)self->n, (long long)self->block, since, 60 * options->minutes);
}

/* Compares the first arm to itself before the others run, in rounds of two blocks, A and A', in either order. The noise
 * of a round predicts the smallest difference that the given minutes can detect. */
static weft_status run_alone(weft_ab_experiment *self, const weft_ab_options *options, weft_error *err) {
    const int32_t n = (int32_t)(options->rounds < WEFT_AB_ALONE_ROUNDS ? options->rounds : WEFT_AB_ALONE_ROUNDS);
    const double begin = weft_clock_seconds();
    double noise[WEFT_AB_ALONE_ROUNDS], rounds = 0;
    weft_status status = WEFT_OK;
    self->alone.told = NAN;
    self->alone.noise = (weft_median_interval){NAN, -INFINITY, INFINITY, false};
    for (int32_t r = 0; r < n && status == WEFT_OK; r++) {
        const bool turned =
            weft_random_permute(2, (uint64_t)r % 2, options->seed, WEFT_RANDOM_EPOCH, (uint64_t)r / 2) == 1;
        show_round(self, options, weft_clock_seconds() - begin);
        status = run_block(self, turned ? self->n : 0, r, err);
        if (status == WEFT_OK) status = run_block(self, turned ? 0 : self->n, r, err);
        if (has_diverged(self, 0) || self->stopped) break;
        noise[r] = log(self->times.of[self->n][0]) - log(self->times.of[0][0]);
    }
    if (status != WEFT_OK || has_diverged(self, 0) || self->stopped) return status;
    self->alone.rounds = n;
    self->alone.noise = weft_median_interval_of(noise, n, 0.05);
    rounds = 60 * options->minutes / ((weft_clock_seconds() - begin) / n) * 2 / (self->n + 1);
    if (n == WEFT_AB_ALONE_ROUNDS)
        self->alone.told = weft_ab_told(noise, n, (int32_t)fmin(rounds, (double)options->rounds));
    return WEFT_OK;
}

/* Chooses the steps of a block from the warm-up steps of the slowest arm. */
static weft_status choose_block(weft_ab_experiment *self, int64_t asked, weft_error *err) {
    double slowest = 0;
    int64_t steps = asked;
    for (int32_t i = 0; i < self->n; i++) {
        took step = {0};
        const weft_status status =
            has_diverged(self, i) ? WEFT_OK : one_step(self, &self->arms[i], WEFT_AB_COMPARED + 1, &step, err);
        if (status != WEFT_OK) return status;
        slowest = fmax(slowest, step.seconds);
    }
    if (asked == 0) steps = (int64_t)fmin(fmax(ceil(BLOCK_SECONDS / slowest), 1), 50);
    self->block = steps;
    return weft_process_group_broadcast(&self->meeting.peers, &self->block, (int64_t)sizeof self->block, err);
}

static void check_arms(weft_ab_experiment *self, int32_t look) {
    for (int32_t i = 1; i < self->n; i++) {
        weft_ab_verdict *verdict = &self->arms[i].verdict;
        *verdict = weft_ab_check(&self->times, i, look);
        if (!has_diverged(self, i)) continue;
        verdict->answer = WEFT_AB_UNDECIDED;
        verdict->ratio = (weft_median_interval){NAN, -INFINITY, INFINITY, false};
    }
}

static bool all_are_decided(const weft_ab_experiment *self) {
    for (int32_t i = 1; i < self->n; i++) {
        const weft_ab_verdict *verdict = &self->arms[i].verdict;
        const bool differs = verdict->answer == WEFT_AB_FASTER || verdict->answer == WEFT_AB_SLOWER;
        if (!differs && !has_diverged(self, i) && verdict->bound > fmin(NOTHING, self->within)) return false;
    }
    return true;
}

/* True if the first arm and at least one other have not diverged. */
static bool are_left(const weft_ab_experiment *self) {
    bool left = false;
    for (int32_t i = 1; i < self->n; i++) left = left || !has_diverged(self, i);
    return left && !has_diverged(self, 0);
}

static weft_ab_end find_end(const weft_ab_experiment *self, const weft_ab_options *options) {
    if (self->stopped) return WEFT_AB_END_SIGNAL;
    if (self->times.rounds < options->rounds) return WEFT_AB_END_MINUTES;
    return options->rounds < WEFT_AB_MOST_ROUNDS ? WEFT_AB_END_ROUNDS : WEFT_AB_END_MOST;
}

/* Runs rounds until rank 0, which has the times, ends them. */
static weft_status run_rounds(weft_ab_experiment *self, const weft_ab_options *options, weft_error *err) {
    const double begin = weft_clock_seconds();
    int32_t looks = 0, go_on = are_left(self) && !self->stopped;
    weft_status status = WEFT_OK;
    while (go_on != 0 && status == WEFT_OK) {
        show_round(self, options, weft_clock_seconds() - begin);
        status = run_round(self, options->seed, err);
        if (status != WEFT_OK || self->stopped) break;
        if (weft_ab_look(self->times.rounds) > 0) check_arms(self, ++looks);
        go_on = !(weft_ab_look(self->times.rounds) > 0 && all_are_decided(self)) &&
                self->times.rounds < options->rounds && are_left(self) &&
                weft_clock_seconds() - begin < 60 * options->minutes;
        status = weft_process_group_broadcast(&self->meeting.peers, &go_on, (int64_t)sizeof go_on, err);
    }
    weft_ab_show(self, options, "%s", "");
    self->end = find_end(self, options);
    self->seconds = weft_clock_seconds() - begin;
    if (status == WEFT_OK && weft_ab_look(self->times.rounds) == 0) check_arms(self, looks + 1);
    return status;
}

/* Compares communication time to the first arm's. Unbounded if a block has no measurement of it. */
static weft_median_interval compare_exchange(const weft_ab_experiment *self, int32_t i) {
    const weft_median_interval none = {NAN, -INFINITY, INFINITY, false};
    const weft_ab_times all = {self->n, self->times.rounds, self->exchange};
    if (has_diverged(self, i) || all.rounds == 0) return none;
    for (int32_t r = 0; r < all.rounds; r++)
        if (all.of[0][r] <= 0 || all.of[self->n][r] <= 0 || all.of[i][r] <= 0) return none;
    return weft_ab_check(&all, i, 1).ratio;
}

/* Returns the median over rounds. NaN: diverged. */
static double over_rounds(const weft_ab_experiment *self, int32_t i, const double *blocks) {
    double copy[WEFT_AB_MOST_ROUNDS];
    if (has_diverged(self, i)) return NAN;
    memcpy(copy, blocks, (size_t)self->times.rounds * sizeof *copy);
    return weft_median_of(copy, self->times.rounds);
}

static void sum_up(weft_ab_experiment *self) {
    for (int32_t i = 0; i < self->n; i++) {
        weft_ab_arm *arm = &self->arms[i];
        arm->seconds = over_rounds(self, i, self->step[i]);
        arm->rate = over_rounds(self, i, self->rate[i]);
        arm->exchange = over_rounds(self, i, self->exchange[i]);
        arm->exchange_of = compare_exchange(self, i);
    }
}

/* ---- results ---- */

static void find_outcomes(weft_ab_experiment *self) {
    for (int32_t i = 1; i < self->n; i++) {
        weft_ab_arm *arm = &self->arms[i];
        const weft_ab_evidence evidence = weft_ab_evidence_of(self, i);
        arm->outcome = weft_ab_outcome_of(&evidence);
    }
}

/* Broadcasts results from rank 0, which has times, numbers and losses, so that all ranks exit with the same status. */
static weft_status share_outcomes(weft_ab_experiment *self, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t i = 1; i < self->n && status == WEFT_OK; i++) {
        weft_ab_arm *arm = &self->arms[i];
        status = weft_process_group_broadcast(&self->meeting.peers, &arm->verdict, (int64_t)sizeof arm->verdict, err);
        if (status == WEFT_OK)
            status =
                weft_process_group_broadcast(&self->meeting.peers, &arm->outcome, (int64_t)sizeof arm->outcome, err);
    }
    return status;
}

weft_ab_evidence weft_ab_evidence_of(const weft_ab_experiment *self, int32_t i) {
    const weft_ab_arm *first = &self->arms[0], *arm = &self->arms[i];
    const weft_ab_evidence out = {
        arm->verdict.answer,   arm->numbers.comparable && arm->numbers.step < 0,
        arm->change,           first->not_covered[0] == '\0' && arm->not_covered[0] == '\0',
        arm->learned.answer,   arm->verdict.answer == WEFT_AB_NO_DIFFERENCE && arm->verdict.bound > self->within,
        has_diverged(self, i), has_diverged(self, 0)};
    return out;
}

int32_t weft_ab_winner(const weft_ab_experiment *experiment) {
    int32_t best = -1, worse = 0;
    for (int32_t i = 1; i < experiment->n; i++) {
        const weft_ab_arm *arm = &experiment->arms[i];
        worse += arm->outcome == WEFT_AB_WORSE;
        if (arm->outcome != WEFT_AB_BETTER) continue;
        if (best < 0 || arm->verdict.ratio.median < experiment->arms[best].verdict.ratio.median) best = i;
    }
    return best < 0 && worse == experiment->n - 1 ? 0 : best;
}

/* Closes the plugin lookup last. */
static void close_sessions(weft_ab_experiment *self) {
    for (int32_t i = self->n - 1; i >= 0; i--) {
        const char *const before = atomic_exchange(&weft_crash_where.arm, self->arms[i].spec->label);
        weft_session_close(self->arms[i].session);
        atomic_store(&weft_crash_where.arm, before);
        self->arms[i].session = NULL;
    }
}

static weft_status time_arms(weft_ab_experiment *self, const weft_ab_options *options, weft_error *err) {
    weft_status status = WEFT_OK;
    weft_signals_install("block");
    weft_slow_call_give_up(options->give_up, 60 * options->minutes);
    status = warm_up_all(self, err);
    if (status == WEFT_OK) status = choose_block(self, options->steps, err);
    if (status == WEFT_OK) status = run_alone(self, options, err);
    if (status == WEFT_OK) status = run_rounds(self, options, err);
    weft_slow_call_give_up(options->give_up, INFINITY); /* what follows has no such limit */
    return status;
}

static void take_memory(weft_ab_experiment *out, int32_t n) {
    memset(out, 0, sizeof *out);
    out->arms = weft_alloc(n, sizeof *out->arms);
    out->times.of = weft_alloc(n + 1, sizeof *out->times.of);
    out->step = weft_alloc(n + 1, sizeof *out->step);
    out->rate = weft_alloc(n + 1, sizeof *out->rate);
    out->exchange = weft_alloc(n + 1, sizeof *out->exchange);
    out->n = out->times.arms = n;
}

/* Checks before the measurement that rank 0 can write the page. */
static weft_status try_page(weft_ab_experiment *self, const weft_ab_options *options, weft_error *err) {
    const bool mine = options->page != NULL && self->meeting.process_context->comm_info.rank == 0;
    return weft_process_group_agree(&self->meeting.peers, mine ? weft_ab_page_try(options->page, err) : WEFT_OK, err);
}

weft_status weft_ab_run(weft_ab_experiment *out, const weft_ab_spec *specs, int32_t n, const weft_ab_options *options,
                        weft_error *err) {
    bool learns = false;
    weft_status status = WEFT_OK;
    take_memory(out, n);
    out->within = log1p(options->within / 100);
    for (int32_t i = 0; i < n; i++) out->arms[i].spec = &specs[i];
    status = weft_meeting_open(&out->meeting, specs[0].path, specs[0].overrides, specs[0].n_overrides, err);
    if (status == WEFT_OK) status = try_page(out, options, err);
    if (status == WEFT_OK) status = weft_ab_open_arms(out, err);
    if (status != WEFT_OK) return status;
    for (int32_t i = 1; i < n; i++) out->per_target = out->per_target || !weft_ab_same_batches(out, i);
    status = time_arms(out, options, err);
    if (status == WEFT_OK) status = weft_ab_learning_check(out, options, &learns, err);
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
    free(arm->learned.micro_batches);
}

void weft_ab_close(weft_ab_experiment *self) {
    close_sessions(self);
    for (int32_t i = 0; i < self->n; i++) free_arm(&self->arms[i]);
    free(self->arms);
    free((void *)self->times.of);
    free((void *)self->step);
    free((void *)self->rate);
    free((void *)self->exchange);
    weft_meeting_close(&self->meeting);
    memset(self, 0, sizeof *self);
}
