/* host/train/trainer.c: see trainer.h. Checkpoints are saved synchronously, or asynchronously if the plan has memory
 * for it (program/budget.h). */
#include "train/trainer.h"

#include "base/file.h"
#include "base/units.h"
#include "launch/signals.h"
#include "launch/world.h"
#include "program/plan.h"
#include "run/coherence.h"
#include "run/values.h"
#include "train/fit.h"
#include "train/journal.h"
#include "train/progress.h"
#include "train/rehearsal.h"
#include "train/summary.h"

#include <math.h>
#include <stdlib.h>

typedef struct trainer {
    weft_session *session;
    weft_output *output;
    const weft_train_options *options;
    weft_fit_question question;
    weft_identities identities;
    weft_text_files text_files; /* as read at the start */
    weft_checkpoint_state state;
    char from[WEFT_PATH_BYTES];         /* the resumed checkpoint; "": new run */
    int64_t evaluate_every, save_every; /* steps; 0: never */
    bool stops;                         /* a signal on any rank has requested a stop: identical on all ranks */
    bool quiet;                         /* as requested, and on every rank that does not print */
    weft_progress *progress;
    weft_journal journal;
    bool unrecorded;              /* a record could not be written: identical on all ranks */
    weft_async_checkpoint *async; /* NULL: all saves are synchronous */
    bool records_failed; /* rank 0: a record could not be written; owned by the save's thread until it has ended */
    double held;         /* seconds that the current save has blocked training so far */
    double save_seconds; /* that all saves have blocked training */
    uint64_t saved_step; /* of the newest complete one; UINT64_MAX: no save by this process yet */
    weft_similarity similarity;
    char similarity_path[WEFT_PATH_BYTES];
    weft_fit fit; /* on the first rank, unless disabled */
    weft_train_summary summary;
    weft_rank_notes notes;
} trainer;

static const weft_process_group *peers_of(const trainer *self) {
    return &self->session->engine->peers;
}

static bool is_rank_0(const trainer *self) {
    return weft_process_group_is_rank_0(peers_of(self));
}

/* A failure of one rank becomes a failure of all. */
static weft_status agree(const trainer *self, weft_status status, weft_error *err) {
    return weft_process_group_agree(peers_of(self), status, err);
}

/* Agrees on the status of records. Returns another code if the ranks cannot agree because one is dead. */
static weft_status agree_on_record(trainer *self, weft_status status, weft_error *err) {
    status = agree(self, status, err);
    self->unrecorded = self->unrecorded || status == WEFT_E_SYSTEM;
    return status;
}

/* ---- saves: all are [collective] ---- */

/* Allocates the memory for asynchronous saving if the plan has it and every rank can allocate it. */
static weft_status open_saving(trainer *self, weft_error *err) {
    weft_engine *engine = self->session->engine;
    const bool wanted = engine->plan.saves == WEFT_SAVES_BESIDE; /* by the memory of this rank's machine */
    bool all = false;
    weft_status status = WEFT_OK;
    if (!engine->plan.spec.saves) return WEFT_OK;
    status = weft_process_group_all_true(peers_of(self), &all, wanted, err);
    if (status == WEFT_OK && !all && wanted && is_rank_0(self))
        weft_log(
            self->session->run->host, WEFT_LOG_WARN,
            "[checkpoint] async = auto: the machine of a rank lacks memory for the copies, so saves block training");
    if (status != WEFT_OK || !all) return status;
    return agree(self, weft_async_checkpoint_create(&self->async, engine, err), err);
}

/* Records a save of this step ("checkpoint" or "model"), which blocked training for `held` seconds; beside: seconds of
 * asynchronous writing. */
static weft_status record_save(trainer *self, const weft_checkpoint_state *state, const char *what, double held,
                               double beside, weft_error *err) {
    const bool best = state->best_step == state->step && !isnan(state->best_loss);
    char fields[160];
    (void)snprintf(fields, sizeof fields, "\"what\": \"%s\", \"best\": %s, \"took\": %.6f, \"beside\": %.6f", what,
                   best ? "true" : "false", held, beside);
    return agree_on_record(self, weft_journal_add(&self->journal, WEFT_RECORD_CHECKPOINTS, state->step, fields, err),
                           err);
}

/* Finishes a save, or the cleanup after a kill that followed the resumed save: removes old and incomplete checkpoints,
 * and points `best` to the best one. status: of the save. */
static weft_status settle_save(trainer *self, const weft_checkpoint_state *state, weft_status status, weft_error *err) {
    const weft_host *host = self->session->run->host;
    const weft_checkpoint_settings *keys = &self->session->run->settings.checkpoint;
    char directory[WEFT_PATH_BYTES];
    if (status == WEFT_OK && is_rank_0(self)) {
        status = weft_checkpoint_retain(weft_output_path(self->output, directory, "checkpoints"), state->step,
                                        keys->keep, keys->keep_best ? state->best_step : 0, host, err);
        if (status == WEFT_OK) status = weft_best_point(directory, state->best_step, host, err);
    }
    status = agree(self, status, err);
    if (status == WEFT_OK) self->saved_step = state->step;
    return status;
}

/* Saves the current state synchronously, without records. */
static weft_status save_in_place(trainer *self, weft_error *err) {
    char directory[WEFT_PATH_BYTES];
    const double begin = weft_clock_seconds();
    weft_status status = agree(self, weft_output_check(self->output, err), err);
    if (status == WEFT_OK)
        status = weft_checkpoint_save(self->session->engine, weft_output_path(self->output, directory, "checkpoints"),
                                      &self->state, &self->identities, &self->text_files, err);
    status = settle_save(self, &self->state, status, err);
    self->held = weft_clock_seconds() - begin;
    self->save_seconds += self->held;
    return status;
}

/* Runs in the save's thread on rank 0. */
static weft_status sync_records(void *context, weft_error *err) {
    trainer *self = context;
    const weft_status status = weft_journal_sync(&self->journal, err);
    self->records_failed = status != WEFT_OK;
    return status == WEFT_OK ? weft_output_check(self->output, err) : status;
}

/* Advances a save in progress, if any; waits: until it is complete. */
static weft_status advance_save(trainer *self, bool waits, weft_error *err) {
    const double begin = weft_clock_seconds();
    double held = 0.0;
    weft_async_result result = {.ended = false};
    weft_status status = WEFT_OK;
    if (self->async == NULL) return WEFT_OK;
    status = weft_async_checkpoint_look(self->async, waits, &result, err);
    if (result.ended && status != WEFT_OK) { /* only rank 0 knows whether records failed */
        bool records = self->records_failed;
        const weft_status shared = weft_process_group_broadcast(peers_of(self), &records, (int64_t)sizeof records, err);
        self->unrecorded = self->unrecorded || (shared == WEFT_OK && records);
        return status;
    }
    if (result.ended) status = settle_save(self, &result.state, status, err);
    held = weft_clock_seconds() - begin;
    self->save_seconds += held;
    self->held += held;
    if (!result.ended || status != WEFT_OK) return status;
    if (self->options->verbose)
        weft_progress_line(self->progress, "step %llu is saved: %.3f s asynchronously, %.3f s of blocked training",
                           (unsigned long long)result.state.step, result.seconds, self->held);
    return record_save(self, &result.state, "checkpoint", self->held, result.seconds, err);
}

/* Saves the current state, after a save in progress has completed. lasts: no step follows, so the save is synchronous.
 * Work that a checkpoint contains is in the records, too. */
static weft_status save(trainer *self, bool lasts, weft_error *err) {
    char directory[WEFT_PATH_BYTES];
    double begin = 0.0;
    weft_status status = advance_save(self, true, err);
    if (status == WEFT_OK)
        status = agree_on_record(self, weft_journal_phases(&self->journal, self->state.step, err), err);
    if (status != WEFT_OK) return status;
    if (self->async == NULL || lasts) {
        status = agree_on_record(self, weft_journal_sync(&self->journal, err), err);
        if (status == WEFT_OK) status = save_in_place(self, err);
        return status == WEFT_OK ? record_save(self, &self->state, "checkpoint", self->held, 0.0, err) : status;
    }
    begin = weft_clock_seconds();
    self->records_failed = false;
    status = agree(self, weft_output_check(self->output, err), err);
    if (status == WEFT_OK)
        status = weft_async_checkpoint_begin(self->async, weft_output_path(self->output, directory, "checkpoints"),
                                             &self->state, &self->identities, &self->text_files, sync_records, self,
                                             err);
    self->held = weft_clock_seconds() - begin;
    self->save_seconds += self->held;
    return status;
}

/* ---- the run ---- */

/* Finds the newest checkpoint for --resume. A run that stopped before its first save restarts, so that a job can be
 * queued again unchanged. A finished run has a result, which a restart would replace. */
static weft_status find_start(trainer *self, weft_error *err) {
    char directory[WEFT_PATH_BYTES], model[WEFT_PATH_BYTES];
    bool saved = false, has_model = false;
    weft_status status = WEFT_OK;
    if (self->options->mode != WEFT_OUTPUT_RESUME) return WEFT_OK;
    (void)weft_output_path(self->output, directory, "checkpoints");
    if (is_rank_0(self)) status = weft_tree_has(&saved, directory, "step-", err);
    status = agree(self, status, err);
    if (status == WEFT_OK) status = weft_process_group_broadcast(peers_of(self), &saved, (int64_t)sizeof saved, err);
    if (status != WEFT_OK) return status;
    if (saved)
        return weft_checkpoint_newest(self->from, &self->state, directory, peers_of(self), self->session->run->host,
                                      err);
    if (is_rank_0(self)) status = weft_file_exists(&has_model, weft_output_path(self->output, model, "model"), err);
    if (status == WEFT_OK && has_model)
        status = weft_error_set(err, WEFT_E_USER,
                                "%s is the result of a run that ended without a checkpoint. Fix: --overwrite trains "
                                "from the start; another [run] out with model.path=%s continues with its weights only",
                                model, model);
    return agree(self, status, err);
}

/* Identifies the base of the adapters on rank 0, from the checkpoint's record if the files are unchanged. */
static weft_status find_base(trainer *self, weft_error *err) {
    weft_plan *plan = &self->session->engine->plan;
    const weft_model_settings *model = &self->session->run->settings.model;
    weft_adapter_origin of = {.n_all = 0}, base = {.n_all = 0};
    weft_error why = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    if (plan->declared->n_adapters == 0 || model->start == WEFT_START_FRESH) return WEFT_OK;
    if (is_rank_0(self)) {
        if (self->from[0] != '\0') status = weft_origin_load(&of, self->from, err);
        if (status == WEFT_OK) {
            status = weft_base_identify(&base, model->path, &of, &why);
            if (status == WEFT_E_SYSTEM) (void)weft_error_set(err, status, "%s", why.text);
            else status = WEFT_OK; /* missing weights are reported when they are loaded */
        }
    }
    status = agree(self, status, err);
    if (status == WEFT_OK) status = weft_process_group_broadcast(peers_of(self), &base, (int64_t)sizeof base, err);
    if (status == WEFT_OK) weft_plan_set_base(plan, &base);
    return status;
}

static weft_status start_weights(trainer *self, weft_error *err) {
    const weft_train_settings *keys = &self->session->run->settings.train;
    const long long steps = (long long)self->session->steps;
    char more[60];
    weft_status status = WEFT_OK;
    if (self->from[0] == '\0') {
        if (self->options->mode == WEFT_OUTPUT_RESUME)
            weft_progress_line(self->progress, "no checkpoint in %s/checkpoints: starting at step 0",
                               self->output->directory);
        /* the files must be identical on all ranks */
        status = weft_coherence_weights(peers_of(self), self->session->run, WEFT_OK, err);
        return status == WEFT_OK ? agree(self, weft_engine_load(self->session->engine, err), err) : status;
    }
    status = weft_checkpoint_restore(self->session->engine, self->from, &self->identities, self->options->inexact, err);
    if (status != WEFT_OK) return status;
    weft_progress_line(self->progress, "resumed from %s", self->from);
    self->saved_step = self->state.step;
    if (self->state.step < (uint64_t)steps) return WEFT_OK;
    if (keys->steps == WEFT_NONE_I64) (void)snprintf(more, sizeof more, "train.epochs=%g", 2.0 * keys->epochs);
    else (void)snprintf(more, sizeof more, "train.steps=%lld", 2 * steps);
    weft_progress_line(self->progress, "finished: all %lld step%s are done. To train longer: %s --resume", steps,
                       steps == 1 ? "" : "s", more);
    return WEFT_OK;
}

static weft_status protect_path(void *context, const char *key, const char *path, weft_error *err) {
    (void)key;
    return weft_output_protect(context, path, err);
}

/* Prepares the directory. It changes only after all checks that are possible before training: the run's inputs must not
 * be among the files that it removes or overwrites. */
static weft_status prepare_output(trainer *self, weft_error *err) {
    const weft_run *run = self->session->run;
    const char *const inputs[] = {self->question.path, run->settings.model.path, run->settings.adapter_from,
                                  self->session->text.directory};
    const bool resumed = self->from[0] != '\0', resumes = self->options->mode == WEFT_OUTPUT_RESUME;
    char path[WEFT_PATH_BYTES];
    weft_status status = WEFT_OK;
    for (int i = 0; !resumes && i < 4 && status == WEFT_OK; i++)
        status = weft_output_protect(self->output, inputs[i], err);
    for (int32_t part = 0; !resumes && part < WEFT_N_PARTS && status == WEFT_OK; part++)
        status = weft_part_each_path(&run->parts[part], protect_path, self->output, err);
    if (status == WEFT_OK) status = weft_output_check(self->output, err);
    if (status == WEFT_OK) status = weft_output_begin(self->output, err);
    if (status == WEFT_OK && is_rank_0(self))
        status = weft_config_save_resolved(run->config, weft_output_path(self->output, path, "config.ini"), err);
    status = agree(self, status, err);
    if (status == WEFT_OK)
        status = weft_journal_open(&self->journal, self->session, self->output->directory,
                                   resumed ? &self->state : NULL, self->summary.begin, err);
    if (status == WEFT_OK && resumed) status = settle_save(self, &self->state, WEFT_OK, err);
    if (status != WEFT_OK) return status;
    (void)weft_output_path(self->output, self->similarity_path, "similarity.json");
    return weft_similarity_open(&self->similarity, self->session->stepper, self->similarity_path, resumed, err);
}

static void count_evaluation(trainer *self, double loss) {
    weft_train_summary *summary = &self->summary;
    if (summary->evaluations++ == 0) {
        summary->first_eval_loss = loss;
        summary->first_eval_step = (int64_t)self->state.step;
    }
    summary->last_eval_loss = loss;
}

static weft_status evaluate(trainer *self, weft_error *err) {
    weft_evaluation evaluation = {0};
    weft_status status = WEFT_OK;
    self->state.eval_loss = NAN;
    if (self->session->engine->plan.evaluate.program == NULL) return WEFT_OK;
    status = weft_session_evaluate(self->session, &evaluation, WEFT_SPLIT_VALIDATION, err);
    if (status != WEFT_OK) return status;
    self->state.eval_loss = evaluation.loss;
    self->summary.evaluate_seconds += evaluation.seconds;
    count_evaluation(self, evaluation.loss);
    weft_progress_evaluation(self->progress, (int64_t)self->state.step, evaluation.loss, evaluation.perplexity);
    status = agree_on_record(self,
                             weft_similarity_note(&self->similarity, &evaluation.similarity, self->state.step, err),
                             err);
    if (status != WEFT_OK) return status;
    self->summary.similarity = evaluation.similarity;
    status = weft_journal_evaluation(&self->journal, self->state.step, &evaluation, err);
    return agree_on_record(self, status, err);
}

/* Updates the best loss with the step that is saved now or was resumed from. */
static void note_best(trainer *self) {
    /* the second comparison is false if best is NaN */
    if (isnan(self->state.eval_loss) || self->state.eval_loss >= self->state.best_loss) return;
    self->state.best_loss = self->state.eval_loss;
    self->state.best_step = self->state.step;
}

static bool due(int64_t every, uint64_t step) {
    return every > 0 && step % (uint64_t)every == 0;
}

static bool save_due(const trainer *self) {
    const bool last = self->state.step == (uint64_t)self->session->steps;
    return self->save_every > 0 && (last || due(self->save_every, self->state.step));
}

/* If evaluation is enabled, it runs at its interval, at each save (so that the best checkpoint is known exactly), at
 * the start and at the end. */
static bool evaluation_due(const trainer *self) {
    const uint64_t step = self->state.step;
    if (self->evaluate_every == 0) return false;
    return step == 0 || step == (uint64_t)self->session->steps || due(self->evaluate_every, step) || save_due(self);
}

/* Records the memory after the first step, which has touched all of a step's memory. */
static weft_status note_memory(trainer *self, weft_error *err) {
    const weft_session *session = self->session;
    weft_memory_snapshot *moments = NULL;
    weft_status status = WEFT_OK;
    self->notes.first_step = (int64_t)self->state.step;
    status = weft_memory_snapshots_collect(&moments, session, err);
    if (status == WEFT_OK) {
        self->notes.first = moments[session->engine->ranks.rank];
        if (self->options->verbose)
            weft_memory_snapshots_print(moments, session, self->notes.first_step, self->progress);
    }
    free(moments);
    return status;
}

/* Combines the statuses after a part of the work and its records, and distributes a requested stop to all ranks. */
static weft_status agree_at_end(trainer *self, weft_status status, weft_error *err) {
    if (status == WEFT_OK && weft_signals_stop()) status = WEFT_E_STOPPED;
    status = agree_on_record(self, status, err);
    if (status != WEFT_E_STOPPED) return status;
    self->stops = true;
    return WEFT_OK;
}

/* Warns about skipped steps. The search for a loss scale skips a few steps in a row, which is normal. */
static void report_skipped(const trainer *self, const weft_step_result *result) {
    const weft_session *session = self->session;
    const long long step = (long long)self->state.step;
    weft_progress_end(self->progress);
    if (!result->overflowed) {
        weft_log(session->run->host, WEFT_LOG_WARN, "step %lld has no target: it updates no weights", step);
        return;
    }
    weft_log(session->run->host, WEFT_LOG_INFO,
             "step %lld is skipped: gradients are not finite at loss scale %g, which falls to %g (%lld skipped so far)",
             step, result->scale, (double)session->engine->scale.scale, (long long)session->engine->scale.skipped);
}

/* Prints a value that an instruction of a step has computed: step, instruction, object, and its first numbers. Nine
 * digits represent an fp32 number exactly; seven are enough for people to compare. */
static void print_row(void *context, const weft_value_row *row) {
    const int64_t n = row->n < WEFT_VALUES_SHOWN ? row->n : WEFT_VALUES_SHOWN;
    char what[200];
    (void)context;
    (void)snprintf(what, sizeof what, "%s%s%s", row->name, row->part[0] == '\0' ? "" : ", ", row->part);
    (void)printf("step %llu  %-28s  %-28s", (unsigned long long)row->step, row->instruction, what);
    for (int64_t i = 0; i < n; i++) (void)printf("  %14.7g", row->numbers[i]);
    if (n < row->n) (void)printf("  ... of %lld", (long long)row->n);
    (void)putchar('\n');
}

static const weft_value_sink rows_to_stdout = {.report = print_row};

static weft_status one_step(trainer *self, weft_error *err) {
    const double begin = weft_clock_seconds();
    const int64_t step = (int64_t)self->state.step + 1;
    weft_stepper *stepper = self->session->stepper;
    weft_run_result *outcome = &self->summary.result;
    const bool prints_values = outcome->steps < self->options->values;
    weft_step_result result = {0};
    weft_progress_row row = {0};
    weft_status status = WEFT_OK;
    if (prints_values) weft_progress_end(self->progress);
    stepper->values = prints_values ? &rows_to_stdout : NULL;
    status = weft_stepper_train(stepper, &result, (uint64_t)step, weft_session_lr(self->session, step),
                                self->session->clip, err);
    if (status == WEFT_E_NUMERIC)
        status = agree(self, status, err); /* the failure is on all ranks, and one reports it */
    if (status != WEFT_OK) return status;
    if (!result.replayed)
        weft_overlap_add(&self->notes.overlap, stepper->trace, self->session->engine->plan.train.program);
    row.loss = result.n_targets > 0 ? result.loss_sum / (double)result.n_targets : 0.0;
    row.lr = result.lr;
    row.norm = result.overflowed ? NAN : result.norm;
    row.seconds = weft_clock_seconds() - begin;
    row.tokens = result.n_targets;
    self->state.step = (uint64_t)step;
    self->state.tokens += (uint64_t)result.n_targets;
    if (outcome->steps++ == 0) outcome->first_loss = row.loss;
    outcome->last_loss = row.loss;
    outcome->last_lr = row.lr;
    self->summary.tokens += result.n_targets;
    self->summary.data_seconds += result.data_seconds;
    self->summary.compute_seconds += row.seconds - result.data_seconds;
    if (result.skipped && is_rank_0(self)) report_skipped(self, &result);
    status = weft_output_check(self->output, err);
    if (status == WEFT_OK) status = weft_journal_step(&self->journal, (uint64_t)step, &result, row.seconds, err);
    status = agree_at_end(self, status, err);
    weft_progress_step(self->progress, step, &row);
    if (status == WEFT_OK && self->notes.first_step == 0) status = note_memory(self, err);
    if (status == WEFT_OK) status = advance_save(self, false, err);
    self->state.eval_loss = NAN;
    if (status == WEFT_OK && evaluation_due(self)) status = evaluate(self, err);
    if (status != WEFT_OK || !save_due(self)) return status;
    note_best(self);
    return save(self, self->stops || step == self->session->steps, err);
}

/* Handles a signal: saves the state, unless it is on disk already. */
static weft_status stop(trainer *self, weft_error *err) {
    weft_status status = advance_save(self, true, err);
    if (status == WEFT_OK && self->saved_step != self->state.step) {
        note_best(self);
        status = save(self, true, err);
    }
    if (status != WEFT_OK) return status;
    return weft_error_set(err, WEFT_E_STOPPED,
                          "stopped by a signal after step %llu, which is saved: --resume continues",
                          (unsigned long long)self->state.step);
}

/* Handles a failed record: saves the trained state, if that is possible. err keeps its message. */
static weft_status rescue(trainer *self, weft_status why, weft_error *err) {
    weft_error failure = WEFT_ERROR_INIT;
    const bool has_text = err != NULL && err->text[0] != '\0';
    weft_status status = WEFT_OK;
    note_best(self);
    (void)advance_save(self, true, NULL);
    status = self->saved_step == self->state.step ? WEFT_OK : save_in_place(self, &failure);
    if (!has_text) return why;
    if (status == WEFT_OK)
        weft_words_append(err->text, sizeof err->text, "; step %llu is saved: --resume continues from it",
                          (unsigned long long)self->state.step);
    else weft_words_append(err->text, sizeof err->text, "; and %s", failure.text);
    return why;
}

static weft_status run_loop(trainer *self, weft_error *err) {
    weft_status status = agree_at_end(self, WEFT_OK, err);
    /* The initial evaluation, or one that a signal interrupted before the checkpoint that this run resumed from. */
    if (status == WEFT_OK && evaluation_due(self) && isnan(self->state.eval_loss)) status = evaluate(self, err);
    else if (status == WEFT_OK && !isnan(self->state.eval_loss)) count_evaluation(self, self->state.eval_loss);
    if (status == WEFT_OK && self->state.step > 0) note_best(self);
    if (status == WEFT_E_STOPPED) return stop(self, err);
    while (status == WEFT_OK && self->state.step < (uint64_t)self->session->steps) {
        if (self->stops) return stop(self, err);
        status = one_step(self, err);
        if (status == WEFT_E_STOPPED) return stop(self, err);
    }
    return status == WEFT_OK ? advance_save(self, true, err) : status;
}

static weft_status loop(trainer *self, weft_error *err) {
    const weft_status status = run_loop(self, err);
    /* After a failure, a save in progress is completed, because its step was valid; not if ranks may be blocked
     * elsewhere. */
    if (status != WEFT_OK && status != WEFT_E_STOPPED && !self->unrecorded &&
        (weft_process_group_is_single(peers_of(self)) || status == WEFT_E_NUMERIC))
        (void)advance_save(self, true, NULL);
    return status != WEFT_OK && self->unrecorded ? rescue(self, status, err) : status;
}

static weft_status finish_run(trainer *self, weft_error *err) {
    char path[WEFT_PATH_BYTES], file[WEFT_PATH_BYTES];
    weft_ranks_report ranks = {0};
    double took = 0.0;
    const double begin = weft_clock_seconds();
    weft_status status = agree_on_record(self, weft_journal_phases(&self->journal, self->state.step, err), err);
    if (status == WEFT_OK) status = agree(self, weft_output_check(self->output, err), err);
    if (status == WEFT_OK)
        status = weft_model_save(self->session->engine, weft_output_path(self->output, path, "model"),
                                 &self->text_files, err);
    took = weft_clock_seconds() - begin;
    self->summary.checkpoint_seconds = self->save_seconds + took;
    if (status == WEFT_OK) status = record_save(self, &self->state, "model", took, 0.0, err);
    weft_progress_end(self->progress);
    if (status == WEFT_OK) status = weft_ranks_collect(&ranks, self->session, &self->notes, err);
    if (status == WEFT_OK && ranks.world > 1) {
        if (is_rank_0(self))
            status = weft_ranks_save(&ranks, weft_run_object(self->session, &self->summary.result),
                                     weft_output_path(self->output, file, "ranks.json"), err);
        status = agree(self, status, err);
    }
    if (status == WEFT_OK && !self->quiet) {
        self->summary.model_path = path;
        weft_train_summary_print(&self->summary, self->session, self->options->verbose, stdout);
        if (is_rank_0(self)) weft_ranks_print(&ranks, stdout);
    }
    weft_ranks_report_free(&ranks);
    return status;
}

static weft_status open_output(trainer *self, weft_error *err) {
    const weft_session *session = self->session;
    const weft_settings *settings = &session->run->settings;
    const weft_status status = weft_output_open(&self->output, settings->run.out, self->options->mode, is_rank_0(self),
                                                settings->model.path, session->text.directory, err);
    self->progress = weft_progress_create(session->steps, self->quiet);
    return agree(self, status, err);
}

/* Prints the plan and the warnings of a run that starts. */
static void print_start(const trainer *self) {
    const weft_session *session = self->session;
    const weft_host *host = session->run->host;
    const weft_coverage *coverage = &session->engine->plan.train.coverage;
    if (!self->options->any_room) {
        if (!self->quiet) weft_fit_print(&self->fit, 11, stdout);
        (void)fflush(stdout);
        weft_fit_warn(&self->fit, host);
    }
    if (self->evaluate_every != 0 && session->engine->plan.evaluate.program == NULL)
        weft_log(host, WEFT_LOG_WARN,
                 "[eval] every = %s, but [data] keeps no documents for validation: the run makes no evaluation",
                 session->run->settings.eval.every);
    weft_schedule_warn(session);
    weft_world_log_single_rank(session);
    if (!self->quiet) weft_world_log_threads(session);
    if (!self->quiet) weft_world_log_precision(session);
    if (!coverage->covered)
        weft_log(host, WEFT_LOG_WARN, "not covered by the contract of equal bits: %s", coverage->why);
}

static weft_status begin_run(trainer *self, weft_error *err) {
    weft_session *session = self->session;
    weft_memory_snapshot *planned = NULL;
    weft_status status = find_start(self, err);
    if (status == WEFT_OK) status = find_base(self, err);
    if (status == WEFT_OK) {
        status = weft_identities_collect(&self->identities, session->engine, session->data_info.fingerprint, err);
        status = agree(self, status, err);
    }
    /* before the header, and before memory is allocated */
    if (status == WEFT_OK && self->from[0] != '\0')
        status = weft_checkpoint_check(session->engine, self->from, &self->identities, self->options->inexact, err);
    if (status == WEFT_OK && self->state.step > (uint64_t)session->steps)
        status = weft_error_set(err, WEFT_E_USER, "[train] steps = %lld: %s is at step %llu. Fix: set more steps",
                                (long long)session->steps, self->from, (unsigned long long)self->state.step);
    if (status == WEFT_OK) status = weft_memory_snapshots_collect(&planned, session, err);
    if (status == WEFT_OK && !self->quiet) weft_train_header_print(session, planned, self->options->verbose, stdout);
    free(planned);
    if (status == WEFT_OK && is_rank_0(self)) print_start(self);
    return agree(self, status, err);
}

static weft_status run_steps(trainer *self, weft_error *err) {
    const weft_train_options *options = self->options;
    weft_session *session = self->session;
    const int world = (int)session->engine->ranks.world;
    weft_launches launches;
    weft_status status = WEFT_OK;
    self->quiet = options->quiet || !(is_rank_0(self) || weft_world_get()->speaks);
    self->evaluate_every = weft_interval_resolve(&session->run->settings.eval_every, session->steps);
    self->save_every = weft_interval_resolve(&session->run->settings.checkpoint_every, session->steps);
    if (options->values != 0 && world > 1) /* no rank has complete values */
        status = weft_error_set(err, WEFT_E_USER,
                                "--print-values follows one rank, and this run has %d. Fix: remove one of the two",
                                world);
    if (status == WEFT_OK) { /* each save writes these bytes, even if the tokenizer is replaced during the run */
        status = weft_text_files_list(&self->text_files, &session->text, is_rank_0(self),
                                      session->run->settings.model.path, err);
        status = agree(self, status, err);
    }
    if (status == WEFT_OK && !options->any_room) { /* before any memory is allocated */
        self->question.session = session;
        self->question.room = weft_available_memory_find(options->room, &session->engine->device_info);
        status = weft_fit_check_ranks(&self->fit, &self->question, err);
        if (status == WEFT_OK && is_rank_0(self) && !self->fit.fits) status = weft_fit_refuse(&self->fit, err);
        status = agree(self, status, err);
    }
    /* a dry run detects steps that the device rejects, before any file is written */
    if (status == WEFT_OK) status = agree(self, weft_launches_count(&launches, session->engine, err), err);
    if (status == WEFT_OK) status = open_output(self, err);
    if (status == WEFT_OK) status = begin_run(self, err);
    if (status == WEFT_OK) status = agree(self, weft_session_start(session, err), err);
    if (status == WEFT_OK) status = open_saving(self, err);
    if (status == WEFT_OK) status = start_weights(self, err);
    if (status == WEFT_OK) status = prepare_output(self, err);
    if (status == WEFT_OK) {
        if (!self->quiet)
            status = weft_tables_print(session, options->tables, (int64_t)self->state.step + 1, stdout, err);
        status = agree(self, status, err);
    }
    if (status == WEFT_OK) {
        weft_signals_install("step and saving");
        status = loop(self, err);
    }
    return status == WEFT_OK ? finish_run(self, err) : status;
}

weft_status weft_train(const char *path, const char *const *overrides, size_t n_overrides,
                       const weft_train_options *options, weft_error *err) {
    trainer self = {.options = options,
                    .question = {.path = path, .overrides = overrides, .n_overrides = n_overrides},
                    .saved_step = UINT64_MAX};
    weft_status status = WEFT_OK;
    self.state.eval_loss = self.state.best_loss = self.summary.similarity = NAN;
    self.summary.begin = weft_clock_seconds();
    status = weft_session_open(&self.session, path, overrides, n_overrides,
                               options->mode == WEFT_OUTPUT_RESUME ? WEFT_SESSION_RESUME : WEFT_SESSION_TRAIN, NULL,
                               err);
    if (status == WEFT_OK) status = run_steps(&self, err);
    if (self.session != NULL) weft_engine_abandon(self.session->engine);
    weft_async_checkpoint_destroy(self.async); /* cancels a save in progress, except on a single rank */
    weft_identities_clear(&self.identities);
    weft_text_files_clear(&self.text_files);
    weft_progress_destroy(self.progress);
    weft_journal_close(&self.journal);
    weft_similarity_close(&self.similarity);
    weft_output_close(self.output);
    weft_session_close(self.session);
    return status;
}
