/* host/tools/ab/learning.c: see learning.h. */
#include "tools/ab/learning.h"

#include "tools/ab/open_arms.h"
#include "launch/signals.h"
#include "plugin/crash.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

/* Sums of loss over each micro-batch of validation, and its targets. */
typedef struct micro_batch_losses {
    double *losses;
    int64_t *targets, n;
} micro_batch_losses;

typedef struct lesson {
    weft_ab_experiment *experiment;
    const weft_ab_options *options;
    micro_batch_losses first, now; /* of the first arm and of the one that trains, with this seed */
    double means[WEFT_AB_MOST_ARMS][WEFT_AB_MOST_SEEDS];
    double sums[WEFT_AB_MOST_ARMS]; /* of the evaluation losses over the seeds */
    int32_t seed;
} lesson;

/* ---- whether ---- */

static bool has_validation(const weft_ab_experiment *self) {
    for (int32_t i = 0; i < self->n; i++)
        if (self->arms[i].session->validation_info.rows == 0) return false;
    return true;
}

static bool somebody_parts(const weft_ab_experiment *self) {
    for (int32_t i = 1; i < self->n; i++)
        if (!self->arms[i].numbers.comparable || self->arms[i].numbers.step >= 0) return true;
    return false;
}

weft_status weft_ab_learning_judge(weft_ab_experiment *self, const weft_ab_options *options, bool *wanted,
                                   weft_error *err) {
    int32_t answer = 0;
    weft_status status = WEFT_OK;
    if (options->learn == 0)
        (void)snprintf(self->learning.why, sizeof self->learning.why, "--learn 0 micro-batches it out");
    else if (options->learn < 0 && !somebody_parts(self))
        (void)snprintf(self->learning.why, sizeof self->learning.why, "the arms compute the same");
    else if (self->stopped) (void)snprintf(self->learning.why, sizeof self->learning.why, "a signal came before");
    else if (!has_validation(self))
        (void)snprintf(self->learning.why, sizeof self->learning.why,
                       "there are no rows to measure it on: set [data] validation");
    else answer = 1;
    /* numbers are rank 0's */
    status = weft_process_group_broadcast(&self->meeting.peers, &answer, (int64_t)sizeof answer, err);
    *wanted = answer != 0;
    return status;
}

/* ---- one training ---- */

static void free_micro_batches(micro_batch_losses *self) {
    free(self->losses);
    free(self->targets);
    *self = (micro_batch_losses){NULL, NULL, 0};
}

static weft_status take_micro_batches(micro_batch_losses *out, int64_t n, weft_error *err) {
    free_micro_batches(out);
    out->losses = calloc((size_t)n + 1, sizeof *out->losses);
    out->targets = calloc((size_t)n + 1, sizeof *out->targets);
    if (out->losses == NULL || out->targets == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for the losses of %lld micro-batches", (long long)n);
    out->n = n;
    return WEFT_OK;
}

/* Micro-batch by micro-batch, as weft_session_evaluate goes; what pads the last pass has no targets. */
static weft_status evaluate_micro_batches(micro_batch_losses *out, weft_session *session, weft_error *err) {
    const weft_plan *plan = &session->engine->plan;
    const int64_t rows = (int64_t)session->validation_info.rows, of_micro_batch = plan->spec.evaluate_rows;
    const int32_t micro_batches = plan->evaluate.program->micro_batches;
    weft_step_result result = {0};
    weft_status status = take_micro_batches(out, (rows + of_micro_batch - 1) / of_micro_batch, err);
    status = weft_process_group_agree(&session->engine->peers, status, err);
    for (int64_t micro_batch = 0; micro_batch < out->n && status == WEFT_OK; micro_batch += micro_batches) {
        status = weft_stepper_evaluate(session->stepper, &result, WEFT_SPLIT_VALIDATION,
                                       (uint64_t)(micro_batch * of_micro_batch), err);
        for (int32_t m = 0; m < micro_batches && micro_batch + m < out->n && status == WEFT_OK; m++) {
            out->targets[micro_batch + m] = session->stepper->micro_batch_targets[m];
            out->losses[micro_batch + m] = out->targets[micro_batch + m] > 0 ? weft_step_loss(session->stepper, m) : 0;
        }
    }
    return status;
}

/* Rank 0's signal stops all ranks after the same step. */
static weft_status train_steps(weft_session *session, int64_t steps, weft_error *err) {
    weft_status status = WEFT_OK;
    weft_step_result result = {0};
    for (int64_t step = 1; step <= steps && status == WEFT_OK; step++) {
        int32_t stops = weft_signals_stop();
        status = weft_process_group_broadcast(&session->engine->peers, &stops, (int64_t)sizeof stops, err);
        if (status != WEFT_OK) break;
        if (stops != 0) return weft_error_set(err, WEFT_E_STOPPED, "stopped while it learned");
        status = weft_stepper_train(session->stepper, &result, (uint64_t)step, weft_session_lr(session, step),
                                    session->clip, err);
    }
    return status;
}

/* As many as each arm's run has, at most as many as are asked for: part of a run with its own schedule. */
static int64_t steps_of(const weft_ab_options *options, const weft_session *session) {
    const int64_t most = options->learn > 0 ? options->learn : WEFT_AB_LEARN_STEPS;
    return session->steps < most ? session->steps : most;
}

/* What diverges has learned nothing, and is no failure of the comparison. */
static weft_status take_divergence(micro_batch_losses *out, weft_status status, weft_error *err) {
    const weft_error none = WEFT_ERROR_INIT;
    if (status != WEFT_E_NUMERIC) return status;
    if (err != NULL) *err = none;
    for (int64_t i = 0; i < out->n; i++) out->losses[i] = INFINITY;
    return WEFT_OK;
}

static weft_status train_arm(lesson *self, int32_t i, weft_error *err) {
    weft_ab_arm *arm = &self->experiment->arms[i];
    const weft_ab_spec *spec = arm->spec;
    const char **overrides = calloc(spec->n_overrides + 2, sizeof *overrides);
    char seed[48];
    int64_t steps = 0;
    weft_session *session = NULL;
    const char *before = NULL;
    weft_status status = WEFT_OK;
    if (overrides == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the settings of an arm");
    for (size_t k = 0; k < spec->n_overrides; k++) overrides[k] = spec->overrides[k];
    (void)snprintf(seed, sizeof seed, "run.seed=%lld", (long long)(arm->run_seed + self->seed));
    overrides[spec->n_overrides] = seed;
    before = weft_crash_arm(spec->label);
    status = weft_ab_open_session(&session, self->experiment, spec, overrides, spec->n_overrides + (self->seed > 0),
                                  WEFT_SESSION_PROFILE, NULL, err);
    free((void *)overrides);
    if (status == WEFT_OK) {
        steps = steps_of(self->options, session);
        status = evaluate_micro_batches(&self->now, session, err); /* makes the room, should it diverge */
        if (status == WEFT_OK) status = take_divergence(&self->now, train_steps(session, steps, err), err);
        if (status == WEFT_OK && (self->now.n == 0 || isfinite(self->now.losses[0])))
            status = take_divergence(&self->now, evaluate_micro_batches(&self->now, session, err), err);
        if (self->experiment->learning.steps == 0 || steps < self->experiment->learning.steps)
            self->experiment->learning.steps = steps;
    }
    weft_session_close(session);
    (void)weft_crash_arm(before);
    return status == WEFT_OK ? WEFT_OK : weft_ab_name(arm, err);
}

/* ---- beside the first ---- */

static bool same_micro_batches(const micro_batch_losses *a, const micro_batch_losses *b) {
    return a->n == b->n && memcmp(a->targets, b->targets, (size_t)a->n * sizeof *a->targets) == 0;
}

static double mean_loss(const micro_batch_losses *self) {
    double sum = 0, targets = 0;
    for (int64_t i = 0; i < self->n; i++) {
        sum += self->losses[i];
        targets += (double)self->targets[i];
    }
    return sum / targets;
}

static weft_status keep_micro_batches(weft_ab_experiment *experiment, weft_ab_learned *learned,
                                      const micro_batch_losses *now, weft_error *err) {
    learned->micro_batches = calloc((size_t)now->n + 1, sizeof *learned->micro_batches);
    if (learned->micro_batches == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for the losses of %lld micro-batches", (long long)now->n);
    for (int64_t k = 0; k < now->n; k++)
        learned->micro_batches[k] = now->targets[k] > 0 ? now->losses[k] / (double)now->targets[k] : NAN;
    experiment->learning.micro_batches = now->n;
    return WEFT_OK;
}

/* False: the two are not made of the same micro-batches. */
static weft_status note_arm(lesson *self, int32_t i, bool *same, weft_error *err) {
    weft_ab_learned *learned = &self->experiment->arms[i].learned;
    const double loss = mean_loss(&self->now);
    *same = i == 0 || same_micro_batches(&self->first, &self->now);
    self->sums[i] += loss;
    if (i == 0) {
        micro_batch_losses last = self->first;
        self->first = self->now;
        self->now = last;
        return self->seed == 0 ? keep_micro_batches(self->experiment, learned, &self->first, err) : WEFT_OK;
    }
    if (!*same) return WEFT_OK;
    learned->beside =
        weft_paired_loss_of_micro_batches(self->first.losses, self->now.losses, self->now.targets, self->now.n);
    self->means[i][self->seed] = loss - mean_loss(&self->first);
    return self->seed == 0 ? keep_micro_batches(self->experiment, learned, &self->now, err) : WEFT_OK;
}

static weft_ab_learning answer_of(const weft_ab_learned *learned, double first) {
    if (isinf(learned->loss) || isinf(first)) {
        if (isinf(learned->loss) && isinf(first)) return WEFT_AB_LEARNING_UNKNOWN;
        return isinf(first) ? WEFT_AB_LEARNS_MORE : WEFT_AB_LEARNS_LESS;
    }
    if (!learned->beside.bounded) return WEFT_AB_LEARNING_UNKNOWN;
    if (learned->beside.high < 0) return WEFT_AB_LEARNS_MORE;
    return learned->beside.low > 0 ? WEFT_AB_LEARNS_LESS : WEFT_AB_LEARNS_ALIKE;
}

static void judge(lesson *self) {
    weft_ab_experiment *experiment = self->experiment;
    for (int32_t i = 0; i < experiment->n; i++) {
        weft_ab_learned *learned = &experiment->arms[i].learned;
        learned->loss = self->sums[i] / experiment->learning.seeds;
        if (i == 0) continue;
        if (experiment->learning.seeds > 1)
            learned->beside = weft_paired_loss_of_seeds(self->means[i], experiment->learning.seeds);
        learned->answer = answer_of(learned, experiment->arms[0].learned.loss);
    }
}

static void show_progress(const lesson *self, int32_t i, bool last) {
    if (!self->options->progress || weft_process_context_rank(self->experiment->meeting.process_context) != 0 ||
        isatty(STDERR_FILENO) == 0)
        return;
    if (last) (void)fprintf(stderr, "\r\033[K");
    else
        (void)fprintf(stderr, "\rwhat is learned: seed %d of %d, arm %c\033[K", (int)self->seed + 1,
                      (int)self->options->seeds, 'A' + i);
    (void)fflush(stderr);
}

static weft_status run_lessons(lesson *self, bool *same, weft_error *err) {
    weft_status status = WEFT_OK;
    for (self->seed = 0; self->seed < self->options->seeds && status == WEFT_OK; self->seed++)
        for (int32_t i = 0; i < self->experiment->n && status == WEFT_OK && *same; i++) {
            show_progress(self, i, false);
            status = train_arm(self, i, err);
            if (status == WEFT_OK) status = note_arm(self, i, same, err);
            status = weft_process_group_agree(&self->experiment->meeting.peers, status, err);
        }
    show_progress(self, 0, true);
    return status;
}

/* What was timed is told, and nothing of what some of them have learned. */
static weft_status leave_off(weft_ab_experiment *experiment, weft_error *err) {
    const weft_error none = WEFT_ERROR_INIT;
    if (err != NULL) *err = none;
    experiment->stopped = true;
    experiment->learning.steps = 0;
    (void)snprintf(experiment->learning.why, sizeof experiment->learning.why, "a signal came while it was measured");
    return WEFT_OK;
}

weft_status weft_ab_learn(weft_ab_experiment *experiment, const weft_ab_options *options, weft_error *err) {
    bool same = true;
    weft_status status = WEFT_OK;
    lesson *self = calloc(1, sizeof *self);
    if (self == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory to measure what is learned");
    self->experiment = experiment;
    self->options = options;
    experiment->learning.seeds = (int32_t)options->seeds;
    status = run_lessons(self, &same, err);
    if (status == WEFT_OK && same) judge(self);
    if (status == WEFT_E_STOPPED) status = leave_off(experiment, err);
    if (status == WEFT_OK && !same) {
        experiment->learning.steps = 0;
        (void)snprintf(experiment->learning.why, sizeof experiment->learning.why,
                       "their micro-batches of validation are others: set the same [data], tokenizer and micro_batch");
    }
    free_micro_batches(&self->first);
    free_micro_batches(&self->now);
    free(self);
    return status;
}
