/* host/run/async_checkpoint.c: see async_checkpoint.h. */
#include "run/async_checkpoint.h"

#include "base/alloc.h"
#include "base/units.h"
#include "model/process_group.h"
#include "plugin/crash.h"
#include "plugin/enter.h"
#include "program/paths.h"
#include "run/save.h"
#include "run/stepper.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <weft/transfer.h>

/* The relay: the writer thread's process group, although only the main thread may use the communicator. A request of
 * the thread waits until the main threads of all ranks serve it, after each step. The threads of all ranks send the
 * same requests in the same order, as main threads would. A single rank has no requests: serving only polls the
 * thread. */

typedef struct weft_relay weft_relay;

/* The copy of one region. */
typedef struct part {
    int64_t at, bytes; /* of the snapshot; the region's first bytes */
    const char *copy;
    const char *live; /* the region itself, for bytes after the copy; NULL: not visible to the host */
} part;

struct weft_snapshot {
    weft_engine *engine;
    weft_stream_sync order; /* for its transfers */
    weft_slot_ref slot;     /* a device buffer, if the host sees the device's memory */
    char *memory;           /* the host's address of the memory */
    part parts[1 + WEFT_MAX_STATES];
};

/* ---- a device of host memory, for the regions of a copy ---- */

static void *view_of_part(weft_device *device, weft_ref ref) {
    const part *of = (const part *)(const void *)device;
    const char *at = ref.offset < of->bytes ? of->copy : of->live;
    return (void *)(uintptr_t)(at + ref.offset);
}

static weft_status nothing_is_queued(weft_device *device, weft_stream *stream, weft_error *err) {
    (void)device;
    (void)stream;
    (void)err;
    return WEFT_OK;
}

static const weft_device_plugin host_memory = {
    .struct_size = (uint32_t)sizeof host_memory,
    .host_view = view_of_part,
    .synchronize = nothing_is_queued,
};

/* A region of the copy, which a thread can read without the device. Other ranks' shards are read through `peers`. */
static weft_region copied_region(const weft_snapshot *self, int64_t index, const weft_process_group *peers) {
    weft_region region = index == 0 ? weft_engine_parameters(self->engine) : weft_engine_state(self->engine, index - 1);
    region.kernels = &host_memory;
    region.device = (weft_device *)(uintptr_t)&self->parts[index];
    region.ref = (weft_ref){NULL, 0};
    region.peers = peers;
    return region;
}

/* ---- its memory ---- */

static void lay_out_part(weft_snapshot *self, int index, int64_t *at, int64_t bytes) {
    const weft_engine *engine = self->engine;
    part *one = &self->parts[index];
    one->at = *at;
    one->bytes = bytes;
    one->copy = self->memory + *at;
    if (engine->plan.visible)
        one->live = weft_device_view(engine->kernels, engine->device, engine->fetchers[index].ref);
    *at += weft_buffer_part(bytes);
}

weft_status weft_snapshot_create(weft_snapshot **out, weft_engine *engine, weft_error *err) {
    const weft_plan *plan = &engine->plan;
    const int64_t bytes = plan->bytes.snapshot;
    int64_t at = 0;
    void *memory = NULL;
    weft_status status = WEFT_OK;
    weft_snapshot *self = weft_alloc(1, sizeof *self);
    self->engine = engine;
    self->order = (weft_stream_sync){.kernels = engine->kernels, .device = engine->device};
    if (plan->visible) {
        status = weft_account_alloc(&engine->account, &self->slot, bytes, WEFT_ACCOUNT_SNAPSHOT, err);
        if (status == WEFT_OK && bytes > 0) memory = weft_device_view(engine->kernels, engine->device, self->slot.ref);
    } else {
        status = weft_device_transfer_find(&self->order.transfer, engine->kernels, engine->device, err);
        if (status == WEFT_OK) status = weft_stream_sync_alloc(&self->order, &memory, bytes, err);
    }
    self->memory = memory;
    if (status != WEFT_OK) {
        weft_snapshot_destroy(self);
        return weft_error_prefix(err, "memory for what is saved beside training ([checkpoint] async): ");
    }
    lay_out_part(self, 0, &at, weft_save_place_parameters(plan));
    for (int i = 0; i < plan->n_states; i++) lay_out_part(self, 1 + i, &at, plan->holds[WEFT_HOLD_STATES]->bytes);
    *out = self;
    return WEFT_OK;
}

void weft_snapshot_destroy(weft_snapshot *self) {
    if (self == NULL) return;
    weft_account_free(&self->engine->account, &self->slot, WEFT_ACCOUNT_SNAPSHOT);
    if (!self->engine->plan.visible) weft_stream_sync_free(&self->order, self->memory);
    free(self);
}

/* Copies the current state, after all queued work, and waits for the copy. [main] */
static weft_status fill_snapshot(weft_snapshot *self, weft_error *err) {
    const weft_engine *engine = self->engine;
    weft_status status = WEFT_OK;
    for (int i = 0; i <= engine->plan.n_states && status == WEFT_OK; i++) {
        const part *one = &self->parts[i];
        const weft_ref from = engine->fetchers[i].ref;
        if (one->bytes == 0) continue;
        if (engine->plan.visible)
            WEFT_PLUGIN_CALL(status, engine->kernels, copy, err, engine->device, NULL,
                             weft_ref_at(self->slot.ref, one->at), from, one->bytes);
        else status = weft_stream_sync_download(&self->order, self->memory + one->at, from, one->bytes, err);
    }
    if (status == WEFT_OK) status = weft_stream_sync_finish(&self->order, err);
    return status == WEFT_OK ? WEFT_OK : weft_error_prefix(err, "copying what is saved beside training: ");
}

typedef enum request_kind {
    REQUEST_NONE = 0,
    REQUEST_GATHER = 1,
    REQUEST_SHARE = 2,
    REQUEST_SWAP = 3,
    REQUEST_END = 4 /* the thread sends no more requests */
} request_kind;

/* How long the main thread waits for the next request after one: requests often follow one another immediately. */
enum { NEXT_NANOSECONDS = 2000000 };

typedef struct relay_request {
    request_kind kind;
    int32_t *numbers, mine, from; /* as in weft_process_group */
    void *bytes;
    int64_t n;
    const weft_message_buffer *in, *out;
    weft_status status;
    weft_error *err;
} relay_request;

struct weft_relay {
    const weft_process_group *peers;
    weft_process_group own;
    int32_t *kinds; /* [world] request kinds of all ranks */
    pthread_mutex_t lock;
    pthread_cond_t is_requested, is_answered;
    bool closed; /* under the lock, as the request */
    relay_request request;
};

/* ---- the thread's side ---- */

static weft_status send_request(weft_relay *self, relay_request request) {
    weft_status status = WEFT_OK;
    (void)pthread_mutex_lock(&self->lock);
    self->request = request;
    (void)pthread_cond_signal(&self->is_requested);
    while (self->request.kind != REQUEST_NONE && !self->closed)
        (void)pthread_cond_wait(&self->is_answered, &self->lock);
    status = self->request.status;
    if (self->request.kind != REQUEST_NONE)
        status = weft_error_set(request.err, WEFT_E_PEER, "the run has ended while ranks were exchanging data");
    self->request.kind = REQUEST_NONE;
    (void)pthread_mutex_unlock(&self->lock);
    return status;
}

static weft_status request_gather(void *context, int32_t *out, int32_t mine, weft_error *err) {
    return send_request(context, (relay_request){.kind = REQUEST_GATHER, .numbers = out, .mine = mine, .err = err});
}

static weft_status request_share(void *context, void *bytes, int64_t n, int32_t from, weft_error *err) {
    return send_request(context,
                        (relay_request){.kind = REQUEST_SHARE, .bytes = bytes, .n = n, .from = from, .err = err});
}

static weft_status request_swap(void *context, const weft_message_buffer *in, const weft_message_buffer *out,
                                weft_error *err) {
    return send_request(context, (relay_request){.kind = REQUEST_SWAP, .in = in, .out = out, .err = err});
}

/* The thread sends no more requests. [any-thread] */
static void end_requests(weft_relay *self) {
    (void)pthread_mutex_lock(&self->lock);
    self->request.kind = REQUEST_END;
    (void)pthread_cond_signal(&self->is_requested);
    (void)pthread_mutex_unlock(&self->lock);
}

/* ---- the main thread's side ---- */

typedef enum patience { AT_ONCE, SHORTLY, FOREVER } patience;

/* Returns the thread's request, after waiting for one. */
static request_kind await_request(weft_relay *self, patience waits) {
    struct timespec until;
    request_kind kind = REQUEST_NONE;
    int code = waits == AT_ONCE ? ETIMEDOUT : 0;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += NEXT_NANOSECONDS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    (void)pthread_mutex_lock(&self->lock);
    while (self->request.kind == REQUEST_NONE && code != ETIMEDOUT)
        code = waits == FOREVER ? pthread_cond_wait(&self->is_requested, &self->lock)
                                : pthread_cond_timedwait(&self->is_requested, &self->lock, &until);
    kind = self->request.kind;
    (void)pthread_mutex_unlock(&self->lock);
    return kind;
}

/* Serves the request while the thread waits; both get a failure. */
static weft_status answer(weft_relay *self, request_kind kind, weft_error *err) {
    const weft_process_group *peers = self->peers;
    const relay_request *r = &self->request;
    weft_error failure = WEFT_ERROR_INIT;
    const weft_status status = kind == REQUEST_GATHER  ? peers->gather(peers->context, r->numbers, r->mine, &failure)
                               : kind == REQUEST_SHARE ? peers->share(peers->context, r->bytes, r->n, r->from, &failure)
                                                       : peers->swap(peers->context, r->in, r->out, &failure);
    if (status != WEFT_OK && r->err != NULL) *r->err = failure;
    if (status != WEFT_OK && err != NULL) *err = failure;
    (void)pthread_mutex_lock(&self->lock);
    self->request.status = status;
    self->request.kind = REQUEST_NONE;
    (void)pthread_cond_signal(&self->is_answered);
    (void)pthread_mutex_unlock(&self->lock);
    return status;
}

/* Gets the request that all ranks' threads have sent; NONE: a thread has not sent one yet. */
static weft_status get_common_request(weft_relay *self, request_kind *kind, patience waits, weft_error *err) {
    weft_status status = WEFT_OK;
    bool same = true;
    *kind = await_request(self, waits);
    if (weft_process_group_is_single(self->peers)) return WEFT_OK;
    status = self->peers->gather(self->peers->context, self->kinds, (int32_t)*kind, err);
    if (status != WEFT_OK) return status;
    for (int32_t r = 0; r < self->peers->world; r++) {
        if (self->kinds[r] == REQUEST_NONE) *kind = REQUEST_NONE;
        same = same && self->kinds[r] == self->kinds[0];
    }
    if (same || *kind == REQUEST_NONE) return WEFT_OK;
    return weft_error_set(err, WEFT_E_HOST, "the ranks send different requests while they save beside training");
}

/* Serves the current requests of all ranks' threads; waits: until the threads have ended. *ended: they have, on all
 * ranks. A failure is the communicator's; close_relay follows. [collective] */
static weft_status serve_requests(weft_relay *self, bool waits, bool *ended, weft_error *err) {
    request_kind kind = REQUEST_NONE;
    weft_status status = get_common_request(self, &kind, waits ? FOREVER : AT_ONCE, err);
    *ended = false;
    while (status == WEFT_OK && kind != REQUEST_NONE && kind != REQUEST_END) {
        status = answer(self, kind, err);
        if (status == WEFT_OK) status = get_common_request(self, &kind, waits ? FOREVER : SHORTLY, err);
    }
    *ended = status == WEFT_OK && kind == REQUEST_END;
    return status;
}

/* All further requests of the thread fail. */
static void close_relay(weft_relay *self) {
    (void)pthread_mutex_lock(&self->lock);
    self->closed = true;
    (void)pthread_cond_signal(&self->is_answered);
    (void)pthread_mutex_unlock(&self->lock);
}

/* peers: of the main thread, which outlive the relay; NULL: a single rank. */
static weft_relay *create_relay(const weft_process_group *peers) {
    const int32_t world = weft_process_group_is_single(peers) ? 1 : peers->world;
    pthread_condattr_t steady;
    weft_relay *self = weft_alloc(1, sizeof *self);
    self->peers = peers;
    self->own = (weft_process_group){.world = world,
                                     .rank = world == 1 ? 0 : peers->rank,
                                     .context = self,
                                     .codes = weft_alloc(world, sizeof *self->own.codes),
                                     .gather = request_gather,
                                     .share = request_share,
                                     .swap = request_swap};
    self->kinds = weft_alloc(world, sizeof *self->kinds);
    (void)pthread_condattr_init(&steady);
    (void)pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&self->lock, NULL);
    (void)pthread_cond_init(&self->is_requested, &steady);
    (void)pthread_cond_init(&self->is_answered, NULL);
    (void)pthread_condattr_destroy(&steady);
    return self;
}

static void destroy_relay(weft_relay *self) {
    if (self == NULL) return;
    (void)pthread_mutex_destroy(&self->lock);
    (void)pthread_cond_destroy(&self->is_requested);
    (void)pthread_cond_destroy(&self->is_answered);
    free(self->own.codes);
    free(self->kinds);
    free(self);
}

/* ---- the checkpoint ---- */

struct weft_async_checkpoint {
    weft_saving saving;
    weft_relay *relay;
    pthread_t thread;
    bool runs; /* the thread is to be joined */
    double begin, seconds;
    weft_status status; /* of the thread, as its message */
    weft_error err;
};

static void *write_copy(void *argument) {
    const weft_call_record now = {.what = "saving a checkpoint beside training"};
    weft_async_checkpoint *self = argument;
    (void)weft_crash_set_call(now);
    self->status = weft_saving_run(&self->saving, &self->err);
    self->seconds = weft_clock_seconds() - self->begin;
    end_requests(self->relay);
    return NULL;
}

/* Signals must interrupt the main thread's calls. */
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

weft_status weft_async_checkpoint_begin(weft_async_checkpoint **out, weft_snapshot *snapshot, const weft_engine *engine,
                                        const char *directory, const weft_checkpoint_state *state,
                                        const weft_identities *identities, const weft_text *text,
                                        weft_async_checkpoint_first *first, void *context, weft_error *err) {
    weft_async_checkpoint *self = weft_alloc(1, sizeof *self);
    weft_saving *saving = &self->saving;
    char name[64];
    weft_status status = WEFT_OK;
    (void)snprintf(name, sizeof name, "step-%" PRIu64, state->step);
    self->relay = create_relay(&engine->peers);
    status = weft_saving_open(saving, engine, directory, name, text, err);
    if (status == WEFT_OK) status = fill_snapshot(snapshot, err);
    if (status == WEFT_OK) {
        weft_saving_note(saving, state, identities);
        saving->peers = &self->relay->own;
        saving->parameters = copied_region(snapshot, 0, saving->peers);
        for (int64_t i = 0; i < engine->plan.n_states; i++)
            saving->states[i] = copied_region(snapshot, 1 + i, saving->peers);
        saving->before_manifest = first;
        saving->context = context;
        self->err = (weft_error)WEFT_ERROR_INIT;
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
    const weft_status status = serve_requests(self->relay, waits, ended, err);
    if (status != WEFT_OK || !*ended) return status;
    join_thread(self);
    if (self->status != WEFT_OK && err != NULL) *err = self->err;
    return self->status;
}

void weft_async_checkpoint_close(weft_async_checkpoint *self) {
    if (self == NULL) return;
    if (self->runs) close_relay(self->relay);
    join_thread(self);
    weft_saving_close(&self->saving);
    destroy_relay(self->relay);
    free(self);
}

const weft_checkpoint_state *weft_async_checkpoint_state(const weft_async_checkpoint *self) {
    return &self->saving.record.state;
}

double weft_async_checkpoint_seconds(const weft_async_checkpoint *self) {
    return self->seconds;
}
