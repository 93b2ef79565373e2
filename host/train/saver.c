/* host/train/saver.c: see saver.h. */
#include "train/saver.h"

#include "base/units.h"

#include <math.h>

static const weft_process_group *peers_of(const weft_saver *self) {
    return &self->session->engine->peers;
}

weft_status weft_saver_agree(weft_saver *self, weft_status status, weft_error *err) {
    status = weft_process_group_agree(peers_of(self), status, err);
    self->unrecorded = self->unrecorded || status == WEFT_E_SYSTEM;
    return status;
}

/* ---- memory ---- */

/* Prints that saves are synchronous; each rank has decided by its own machine's memory. */
static void warn_of_blocking_saves(const weft_saver *self) {
    if (weft_process_group_is_rank_0(peers_of(self)))
        weft_log(self->session->run->host, WEFT_LOG_WARN,
                 "[checkpoint] async = auto: a rank's machine has no room for the copies, so training stands while a "
                 "checkpoint is written");
}

weft_status weft_saver_open(weft_saver *self, weft_error *err) {
    weft_engine *engine = self->session->engine;
    const bool wanted = engine->plan.saves == WEFT_SAVES_BESIDE;
    bool all = false;
    weft_status status = WEFT_OK;
    if (!engine->plan.spec.saves) return WEFT_OK;
    status = weft_process_group_all_true(peers_of(self), &all, wanted, err);
    if (status == WEFT_OK && !all && wanted) warn_of_blocking_saves(self);
    if (status != WEFT_OK || !all) return status;
    return weft_process_group_agree(peers_of(self), weft_snapshot_create(&self->snapshot, engine, err), err);
}

void weft_saver_close(weft_saver *self) {
    if (self->session != NULL) weft_engine_abandon(self->session->engine);
    weft_async_checkpoint_close(self->under_way);
    weft_snapshot_destroy(self->snapshot);
    self->under_way = NULL;
    self->snapshot = NULL;
}

/* ---- after a save ---- */

weft_status weft_saver_note(weft_saver *self, const weft_checkpoint_state *state, const char *what, double held,
                            double beside, weft_error *err) {
    const bool best = state->best_step == state->step && !isnan(state->best_loss);
    const weft_status status = weft_journal_save(self->journal, state->step, what, held, beside, best, err);
    return weft_saver_agree(self, status, err);
}

static weft_status find_directory(const weft_saver *self, char path[4096], weft_error *err) {
    return weft_output_path(self->output, path, 4096, "checkpoints", err);
}

/* Removes old checkpoints and sets `best` to one that is kept. */
static weft_status retain(const weft_saver *self, const weft_checkpoint_state *state, weft_error *err) {
    const weft_run *run = self->session->run;
    const weft_checkpoint_settings *keys = &run->settings.checkpoint;
    char directory[4096];
    weft_status status = find_directory(self, directory, err);
    if (status == WEFT_OK)
        status = weft_checkpoint_retain(directory, state->step, keys->keep, keys->keep_best ? state->best_step : 0,
                                        run->host, err);
    return status == WEFT_OK ? weft_best_point(directory, state->best_step, run->host, err) : status;
}

weft_status weft_saver_settle(weft_saver *self, const weft_checkpoint_state *state, weft_error *err) {
    const weft_status status = weft_process_group_is_rank_0(peers_of(self)) ? retain(self, state, err) : WEFT_OK;
    return weft_process_group_agree(peers_of(self), status, err);
}

static weft_status count_in(weft_saver *self, const weft_checkpoint_state *state, weft_status status, weft_error *err) {
    if (status == WEFT_OK && weft_process_group_is_rank_0(peers_of(self))) status = retain(self, state, err);
    status = weft_process_group_agree(peers_of(self), status, err);
    if (status == WEFT_OK) self->saved_step = state->step;
    return status;
}

/* ---- synchronous saves ---- */

static weft_status write_in_place(weft_saver *self, const weft_checkpoint_state *state, weft_error *err) {
    char directory[4096];
    const double begin = weft_clock_seconds();
    weft_status status = weft_process_group_agree(peers_of(self), weft_output_check(self->output, err), err);
    if (status == WEFT_OK) status = find_directory(self, directory, err);
    if (status == WEFT_OK)
        status =
            weft_checkpoint_save(self->session->engine, directory, state, self->identities, &self->session->text, err);
    status = count_in(self, state, status, err);
    self->seconds += weft_clock_seconds() - begin;
    return status;
}

static weft_status save_in_place(weft_saver *self, const weft_checkpoint_state *state, weft_error *err) {
    const double before = self->seconds;
    weft_status status = weft_saver_agree(self, weft_journal_sync(self->journal, err), err);
    if (status == WEFT_OK) status = write_in_place(self, state, err);
    return status == WEFT_OK ? weft_saver_note(self, state, "checkpoint", self->seconds - before, 0.0, err) : status;
}

/* ---- asynchronous saves ---- */

/* Runs in the save's thread on rank 0. */
static weft_status sync_records(void *context, weft_error *err) {
    weft_saver *self = context;
    const weft_status status = weft_journal_sync(self->journal, err);
    self->records_failed = status != WEFT_OK;
    return status == WEFT_OK ? weft_output_check(self->output, err) : status;
}

static weft_status begin_async(weft_saver *self, const weft_checkpoint_state *state, weft_error *err) {
    char directory[4096];
    const double begin = weft_clock_seconds();
    weft_status status = weft_process_group_agree(peers_of(self), weft_output_check(self->output, err), err);
    if (status == WEFT_OK) status = find_directory(self, directory, err);
    self->records_failed = false;
    if (status == WEFT_OK)
        status = weft_async_checkpoint_begin(&self->under_way, self->snapshot, self->session->engine, directory, state,
                                             self->identities, &self->session->text, sync_records, self, err);
    self->held = weft_clock_seconds() - begin;
    self->seconds += self->held;
    return status;
}

/* Distributes the cause after a failure on all ranks: only rank 0 knows if records failed. */
static weft_status share_record_failure(weft_saver *self, weft_status failed, weft_error *err) {
    bool records = self->records_failed;
    const weft_status status = weft_process_group_broadcast(peers_of(self), &records, (int64_t)sizeof records, err);
    self->unrecorded = self->unrecorded || (status == WEFT_OK && records);
    return failed;
}

/* Completes a save after its thread and those of the other ranks have ended. */
static weft_status end_async(weft_saver *self, weft_status status, double begin, weft_error *err) {
    const weft_checkpoint_state state = *weft_async_checkpoint_state(self->under_way);
    const double beside = weft_async_checkpoint_seconds(self->under_way);
    double held = 0.0;
    weft_async_checkpoint_close(self->under_way);
    self->under_way = NULL;
    if (status != WEFT_OK) return share_record_failure(self, status, err);
    status = count_in(self, &state, status, err);
    held = weft_clock_seconds() - begin;
    self->seconds += held;
    self->held += held;
    if (status == WEFT_OK && self->verbose)
        weft_progress_line(self->progress, "step %llu is saved: %.3f s beside training, which stood for %.3f s",
                           (unsigned long long)state.step, beside, self->held);
    return status == WEFT_OK ? weft_saver_note(self, &state, "checkpoint", self->held, beside, err) : status;
}

weft_status weft_saver_look(weft_saver *self, bool waits, weft_error *err) {
    const double begin = weft_clock_seconds();
    double held = 0.0;
    bool ended = false;
    weft_status status = WEFT_OK;
    if (self->under_way == NULL) return WEFT_OK;
    status = weft_async_checkpoint_look(self->under_way, waits, &ended, err);
    if (ended) return end_async(self, status, begin, err);
    held = weft_clock_seconds() - begin;
    self->seconds += held;
    self->held += held;
    return status;
}

/* ---- all saves ---- */

/* Saves a checkpoint. Work that a checkpoint contains is in the records, too. */
weft_status weft_saver_save(weft_saver *self, const weft_checkpoint_state *state, bool lasts, weft_error *err) {
    weft_status status = weft_saver_look(self, true, err);
    if (status == WEFT_OK) status = weft_saver_agree(self, weft_journal_phases(self->journal, state->step, err), err);
    if (status != WEFT_OK) return status;
    return self->snapshot == NULL || lasts ? save_in_place(self, state, err) : begin_async(self, state, err);
}

weft_status weft_saver_rescue(weft_saver *self, const weft_checkpoint_state *state, weft_error *err) {
    if (self->under_way != NULL) (void)weft_saver_look(self, true, NULL);
    return self->saved_step == state->step ? WEFT_OK : write_in_place(self, state, err);
}
