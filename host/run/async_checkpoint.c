/* host/run/async_checkpoint.c: see async_checkpoint.h. */
#include "run/async_checkpoint.h"

#include "base/clock.h"
#include "run/relay.h"
#include "run/saving.h"
#include "plugin/crash.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

struct weft_async_checkpoint {
    weft_saving saving;
    weft_relay *relay;
    pthread_t thread;
    bool runs; /* the thread is to be joined */
    double begin, seconds;
    weft_status status; /* of the thread, as its sentence */
    weft_error err;
};

static void *write_copy(void *argument) {
    const weft_doing now = {.what = "saving a checkpoint beside training"};
    weft_async_checkpoint *self = argument;
    (void)weft_crash_doing(now);
    self->status = weft_saving_run(&self->saving, &self->err);
    self->seconds = weft_clock_seconds() - self->begin;
    weft_relay_end(self->relay);
    return NULL;
}

/* Signals are the main thread's, whose calls they interrupt. */
static weft_status start_thread(weft_async_checkpoint *self, weft_error *err) {
    sigset_t all, before;
    int code = 0;
    (void)sigfillset(&all);
    (void)sigdelset(&all, SIGSEGV);
    (void)sigdelset(&all, SIGBUS);
    (void)sigdelset(&all, SIGFPE);
    (void)sigdelset(&all, SIGILL);
    (void)sigdelset(&all, SIGABRT);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    code = pthread_create(&self->thread, NULL, write_copy, self);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    self->runs = code == 0;
    if (code == 0) return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM, "no thread to save beside training: %s", strerror(code));
}

/* The same save, read from the copy. */
static void read_from_copy(weft_saving *saving, const weft_snapshot *snapshot, const weft_process_group *peers) {
    saving->peers = peers;
    saving->parameters = weft_snapshot_parameters(snapshot);
    saving->parameters.peers = peers;
    for (int64_t i = 0; i < saving->engine->plan.n_states; i++) {
        saving->states[i] = weft_snapshot_state(snapshot, i);
        saving->states[i].peers = peers;
    }
}

static void release(weft_async_checkpoint *self) {
    weft_saving_close(&self->saving);
    weft_relay_destroy(self->relay);
    free(self);
}

/* On this rank: all but the thread. */
static weft_status prepare(weft_async_checkpoint *self, weft_snapshot *snapshot, const weft_engine *engine,
                           const char *directory, uint64_t step, const weft_text *text, weft_error *err) {
    char name[64];
    weft_status status = WEFT_OK;
    (void)snprintf(name, sizeof name, "step-%" PRIu64, step);
    status = weft_saving_open(&self->saving, engine, directory, name, text, err);
    if (status == WEFT_OK) status = weft_relay_create(&self->relay, &engine->peers, err);
    if (status == WEFT_OK) status = weft_snapshot_fill(snapshot, err);
    if (status == WEFT_OK) read_from_copy(&self->saving, snapshot, weft_relay_peers(self->relay));
    return status;
}

weft_status weft_async_checkpoint_begin(weft_async_checkpoint **out, weft_snapshot *snapshot, const weft_engine *engine,
                                        const char *directory, const weft_checkpoint_state *state,
                                        const weft_identities *identities, const weft_text *text,
                                        weft_async_checkpoint_first *first, void *context, weft_error *err) {
    const weft_error no_error = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    weft_async_checkpoint *self = calloc(1, sizeof *self);
    if (self == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "no memory for a save beside training");
    else status = prepare(self, snapshot, engine, directory, state->step, text, err);
    if (status == WEFT_OK) {
        weft_saving_note(&self->saving, state, identities);
        self->saving.before_manifest = first;
        self->saving.context = context;
        self->err = no_error;
        self->begin = weft_clock_seconds();
        status = start_thread(self, err);
    }
    status = weft_process_group_agree(&engine->peers, status, err);
    if (status == WEFT_OK) *out = self;
    else weft_async_checkpoint_close(self);
    return status;
}

static void join_thread(weft_async_checkpoint *self) {
    if (self->runs) (void)pthread_join(self->thread, NULL);
    self->runs = false;
}

weft_status weft_async_checkpoint_look(weft_async_checkpoint *self, bool waits, bool *ended, weft_error *err) {
    const weft_status status = weft_relay_serve(self->relay, waits, ended, err);
    if (status != WEFT_OK || !*ended) return status;
    join_thread(self);
    if (self->status != WEFT_OK && err != NULL) *err = self->err;
    return self->status;
}

void weft_async_checkpoint_close(weft_async_checkpoint *self) {
    if (self == NULL) return;
    if (self->runs) weft_relay_close(self->relay);
    join_thread(self);
    release(self);
}

const weft_checkpoint_state *weft_async_checkpoint_state(const weft_async_checkpoint *self) {
    return &self->saving.record.state;
}

double weft_async_checkpoint_seconds(const weft_async_checkpoint *self) {
    return self->seconds;
}
