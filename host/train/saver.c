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

weft_status weft_saver_open(weft_saver *self, weft_error *err) {
    weft_engine *engine = self->session->engine;
    const bool wanted = engine->plan.saves == WEFT_SAVES_BESIDE; /* by the memory of this rank's machine */
    bool all = false;
    weft_status status = WEFT_OK;
    if (!engine->plan.spec.saves) return WEFT_OK;
    status = weft_process_group_all_true(peers_of(self), &all, wanted, err);
    if (status == WEFT_OK && !all && wanted && weft_process_group_is_rank_0(peers_of(self)))
        weft_log(
            self->session->run->host, WEFT_LOG_WARN,
            "[checkpoint] async = auto: the machine of a rank lacks memory for the copies, so saves block training");
    if (status != WEFT_OK || !all) return status;
    return weft_process_group_agree(peers_of(self), weft_async_checkpoint_create(&self->async, engine, err), err);
}

void weft_saver_close(weft_saver *self) {
    if (self->session != NULL) weft_engine_abandon(self->session->engine);
    weft_async_checkpoint_destroy(self->async);
    self->async = NULL;
}

weft_status weft_saver_note(weft_saver *self, const weft_checkpoint_state *state, const char *what, double held,
                            double beside, weft_error *err) {
    const bool best = state->best_step == state->step && !isnan(state->best_loss);
    char fields[160];
    (void)snprintf(fields, sizeof fields, "\"what\": \"%s\", \"best\": %s, \"took\": %.6f, \"beside\": %.6f", what,
                   best ? "true" : "false", held, beside);
    return weft_saver_agree(
        self, weft_records_add(&self->journal->records, WEFT_RECORD_CHECKPOINTS, state->step, fields, err), err);
}

weft_status weft_saver_settle(weft_saver *self, const weft_checkpoint_state *state, weft_status status,
                              weft_error *err) {
    const weft_host *host = self->session->run->host;
    const weft_checkpoint_settings *keys = &self->session->run->settings.checkpoint;
    char directory[WEFT_PATH_BYTES];
    if (status == WEFT_OK && weft_process_group_is_rank_0(peers_of(self))) {
        status = weft_checkpoint_retain(weft_output_path(self->output, directory, "checkpoints"), state->step,
                                        keys->keep, keys->keep_best ? state->best_step : 0, host, err);
        if (status == WEFT_OK) status = weft_best_point(directory, state->best_step, host, err);
    }
    status = weft_process_group_agree(peers_of(self), status, err);
    if (status == WEFT_OK) self->saved_step = state->step;
    return status;
}

static weft_status save_in_place(weft_saver *self, const weft_checkpoint_state *state, weft_error *err) {
    char directory[WEFT_PATH_BYTES];
    const double begin = weft_clock_seconds();
    weft_status status = weft_process_group_agree(peers_of(self), weft_output_check(self->output, err), err);
    if (status == WEFT_OK)
        status = weft_checkpoint_save(self->session->engine, weft_output_path(self->output, directory, "checkpoints"),
                                      state, self->identities, self->session->text.files, err);
    status = weft_saver_settle(self, state, status, err);
    self->held = weft_clock_seconds() - begin;
    self->seconds += self->held;
    return status;
}

/* Runs in the save's thread on rank 0. */
static weft_status sync_records(void *context, weft_error *err) {
    weft_saver *self = context;
    const weft_status status = weft_records_sync(&self->journal->records, err);
    self->records_failed = status != WEFT_OK;
    return status == WEFT_OK ? weft_output_check(self->output, err) : status;
}

weft_status weft_saver_look(weft_saver *self, bool waits, weft_error *err) {
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
    if (result.ended) status = weft_saver_settle(self, &result.state, status, err);
    held = weft_clock_seconds() - begin;
    self->seconds += held;
    self->held += held;
    if (!result.ended || status != WEFT_OK) return status;
    if (self->verbose)
        weft_progress_line(self->progress, "step %llu is saved: %.3f s asynchronously, %.3f s of blocked training",
                           (unsigned long long)result.state.step, result.seconds, self->held);
    return weft_saver_note(self, &result.state, "checkpoint", self->held, result.seconds, err);
}

/* Saves a checkpoint. Work that a checkpoint contains is in the records, too. */
weft_status weft_saver_save(weft_saver *self, const weft_checkpoint_state *state, bool lasts, weft_error *err) {
    char directory[WEFT_PATH_BYTES];
    double begin = 0.0;
    weft_status status = weft_saver_look(self, true, err);
    if (status == WEFT_OK) status = weft_saver_agree(self, weft_journal_phases(self->journal, state->step, err), err);
    if (status != WEFT_OK) return status;
    if (self->async == NULL || lasts) {
        status = weft_saver_agree(self, weft_records_sync(&self->journal->records, err), err);
        if (status == WEFT_OK) status = save_in_place(self, state, err);
        return status == WEFT_OK ? weft_saver_note(self, state, "checkpoint", self->held, 0.0, err) : status;
    }
    begin = weft_clock_seconds();
    self->records_failed = false;
    status = weft_process_group_agree(peers_of(self), weft_output_check(self->output, err), err);
    if (status == WEFT_OK)
        status = weft_async_checkpoint_begin(self->async, weft_output_path(self->output, directory, "checkpoints"),
                                             state, self->identities, self->session->text.files, sync_records, self,
                                             err);
    self->held = weft_clock_seconds() - begin;
    self->seconds += self->held;
    return status;
}

weft_status weft_saver_rescue(weft_saver *self, const weft_checkpoint_state *state, weft_error *err) {
    (void)weft_saver_look(self, true, NULL);
    return self->saved_step == state->step ? WEFT_OK : save_in_place(self, state, err);
}
