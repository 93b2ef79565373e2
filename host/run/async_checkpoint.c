/* host/run/async_checkpoint.c: see async_checkpoint.h. */
#include "run/async_checkpoint.h"

#include "base/alloc.h"
#include "base/units.h"
#include "plugin/enter.h"
#include "program/budget.h"
#include "run/save.h"
#include "run/stepper.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

typedef enum request_kind {
    REQUEST_NONE = 0,
    REQUEST_GATHER = 1,
    REQUEST_SHARE = 2,
    REQUEST_SWAP = 3,
    REQUEST_END = 4 /* the thread sends no more requests */
} request_kind;

typedef struct relay_request {
    request_kind kind;
    int32_t *numbers, mine, from; /* as in weft_process_group */
    void *bytes;
    int64_t n;
    const weft_message_buffer *in, *out;
    weft_status status;
    weft_error *err;
} relay_request;

/* The copy of one region. */
typedef struct part {
    const char *copy;
    int64_t bytes;    /* of the copy: the region's first bytes */
    const char *live; /* the region itself, for bytes after the copy; NULL: not visible to the host */
} part;

struct weft_async_checkpoint {
    weft_engine *engine;
    weft_stream_sync order; /* for transfers into the copy */
    weft_slot_ref slot;     /* a device buffer, if the host sees the device's memory */
    char *memory;           /* the host's address of the copy */
    part parts[1 + WEFT_MAX_STATES];

    weft_process_group relay; /* the thread's process group */
    int32_t *kinds;           /* [world] request kinds of all ranks */
    pthread_mutex_t lock;     /* of the request and `closed` */
    pthread_cond_t is_requested, is_answered;
    bool closed; /* all further requests fail */
    relay_request request;

    weft_saving saving;
    pthread_t thread;
    bool runs; /* the thread is to be joined */
    double begin, seconds;
    weft_status status; /* of the thread, as its message */
    weft_error err;
};

/* ---- the copy: a device of host memory, for its regions ---- */

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

/* Part 0 is of the parameters, part 1 + i of state i. */
static int hold_of(int64_t index) {
    return index == 0 ? WEFT_HOLD_PARAMETERS : WEFT_HOLD_STATES + (int)index - 1;
}

/* A region of the copy, which the thread reads without the device. Other ranks' shards are read through the relay. */
static weft_region copied_region(const weft_async_checkpoint *self, int64_t index) {
    weft_region region = weft_engine_region(self->engine, hold_of(index));
    region.kernels = &host_memory;
    region.device = (weft_device *)(uintptr_t)&self->parts[index];
    region.ref = (weft_ref){NULL, 0};
    region.peers = &self->relay;
    return region;
}

static weft_status allocate_copy(weft_async_checkpoint *self, weft_error *err) {
    weft_engine *engine = self->engine;
    const weft_plan *plan = &engine->plan;
    void *memory = NULL;
    weft_status status = WEFT_OK;
    if (plan->visible) {
        status = weft_account_alloc(&engine->account, &self->slot, plan->bytes.snapshot, WEFT_ACCOUNT_SNAPSHOT, err);
        if (status == WEFT_OK && plan->bytes.snapshot > 0)
            memory = weft_device_view(engine->kernels, engine->device, self->slot.ref);
    } else {
        status = weft_stream_sync_alloc(&self->order, &memory, plan->bytes.snapshot, err);
    }
    if (status != WEFT_OK) return weft_error_prefix(err, "memory for asynchronous saves ([checkpoint] async): ");
    self->memory = memory;
    for (int64_t i = 0, at = 0; i <= plan->n_states; i++) {
        part *one = &self->parts[i];
        one->bytes = i == 0 ? weft_save_place_parameters(plan) : plan->holds[hold_of(i)]->bytes;
        one->copy = self->memory + at;
        if (plan->visible)
            one->live = weft_device_view(engine->kernels, engine->device, weft_engine_region(engine, hold_of(i)).ref);
        at += weft_buffer_part(one->bytes);
    }
    return WEFT_OK;
}

/* ---- the relay: the thread's process group
 *
 * Only the main thread may use the communicator. A request of the thread waits until the main threads of all ranks
 * serve it, after each step. The threads of all ranks send the same requests in the same order, as main threads would.
 * A single rank has no requests: serving only polls the thread. ---- */

static weft_status send_request(weft_async_checkpoint *self, relay_request request) {
    weft_status status = WEFT_OK;
    (void)pthread_mutex_lock(&self->lock);
    self->request = request;
    (void)pthread_cond_signal(&self->is_requested);
    while (self->request.kind != REQUEST_NONE && request.kind != REQUEST_END && !self->closed)
        (void)pthread_cond_wait(&self->is_answered, &self->lock);
    status = self->request.status;
    if (self->request.kind != REQUEST_NONE && request.kind != REQUEST_END)
        status = weft_error_set(request.err, WEFT_E_PEER, "the run has ended while ranks were exchanging data");
    if (request.kind != REQUEST_END) self->request.kind = REQUEST_NONE;
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

/* How long the main thread waits for a request, in nanoseconds: requests often follow one another immediately. */
enum { AT_ONCE = 0, SHORTLY = 2000000, FOREVER = -1 };

static request_kind await_request(weft_async_checkpoint *self, int64_t nanoseconds) {
    struct timespec until;
    request_kind kind = REQUEST_NONE;
    int code = 0;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (until.tv_nsec + nanoseconds) / 1000000000;
    until.tv_nsec = (until.tv_nsec + nanoseconds) % 1000000000;
    (void)pthread_mutex_lock(&self->lock);
    while (self->request.kind == REQUEST_NONE && code != ETIMEDOUT)
        code = nanoseconds == FOREVER
                   ? pthread_cond_wait(&self->is_requested, &self->lock)
                   : pthread_cond_clockwait(&self->is_requested, &self->lock, CLOCK_MONOTONIC, &until);
    kind = self->request.kind;
    (void)pthread_mutex_unlock(&self->lock);
    return kind;
}

/* Serves the request while the thread waits; both get a failure. */
static weft_status answer(weft_async_checkpoint *self, request_kind kind, weft_error *err) {
    const weft_process_group *peers = &self->engine->peers;
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
static weft_status get_common_request(weft_async_checkpoint *self, request_kind *kind, int64_t nanoseconds,
                                      weft_error *err) {
    const weft_process_group *peers = &self->engine->peers;
    weft_status status = WEFT_OK;
    bool same = true;
    *kind = await_request(self, nanoseconds);
    if (weft_process_group_is_single(peers)) return WEFT_OK;
    status = peers->gather(peers->context, self->kinds, (int32_t)*kind, err);
    for (int32_t r = 0; r < peers->world && status == WEFT_OK; r++) {
        if (self->kinds[r] == REQUEST_NONE) *kind = REQUEST_NONE;
        same = same && self->kinds[r] == self->kinds[0];
    }
    if (status != WEFT_OK || same || *kind == REQUEST_NONE) return status;
    return weft_error_set(err, WEFT_E_HOST, "the ranks send different requests during an asynchronous save");
}

/* ---- the checkpoint ---- */

weft_status weft_async_checkpoint_create(weft_async_checkpoint **out, weft_engine *engine, weft_error *err) {
    const weft_process_group *peers = &engine->peers;
    const int32_t world = weft_process_group_is_single(peers) ? 1 : peers->world;
    weft_async_checkpoint *self = weft_alloc(1, sizeof *self);
    weft_status status = WEFT_OK;
    self->engine = engine;
    self->relay = (weft_process_group){.world = world,
                                       .rank = world == 1 ? 0 : peers->rank,
                                       .context = self,
                                       .codes = weft_alloc(world, sizeof *self->relay.codes),
                                       .gather = request_gather,
                                       .share = request_share,
                                       .swap = request_swap};
    self->kinds = weft_alloc(world, sizeof *self->kinds);
    (void)pthread_mutex_init(&self->lock, NULL);
    (void)pthread_cond_init(&self->is_requested, NULL);
    (void)pthread_cond_init(&self->is_answered, NULL);
    status = weft_stream_sync_open(&self->order, engine->kernels, engine->device, 1, err);
    if (status == WEFT_OK) status = allocate_copy(self, err);
    if (status == WEFT_OK) *out = self;
    else weft_async_checkpoint_destroy(self);
    return status;
}

static void *write_copy(void *argument) {
    const weft_call_record now = {.what = "saving a checkpoint during training"};
    weft_async_checkpoint *self = argument;
    (void)weft_crash_set_call(now);
    self->status = weft_saving_run(&self->saving, &self->err);
    self->seconds = weft_clock_seconds() - self->begin;
    (void)send_request(self, (relay_request){.kind = REQUEST_END});
    return NULL;
}

static void join_thread(weft_async_checkpoint *self) {
    if (self->runs) (void)pthread_join(self->thread, NULL);
    self->runs = false;
}

static void abort_save(weft_async_checkpoint *self) {
    (void)pthread_mutex_lock(&self->lock);
    self->closed = true;
    (void)pthread_cond_signal(&self->is_answered);
    (void)pthread_mutex_unlock(&self->lock);
    join_thread(self);
}

weft_status weft_async_checkpoint_begin(weft_async_checkpoint *self, const char *directory,
                                        const weft_checkpoint_state *state, const weft_identities *identities,
                                        const weft_text_files *files, weft_async_checkpoint_first *first, void *context,
                                        weft_error *err) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    const weft_engine *engine = self->engine;
    weft_saving *saving = &self->saving;
    sigset_t blocked, before;
    int code = 0;
    char name[64];
    weft_status status = WEFT_OK;
    (void)snprintf(name, sizeof name, "step-%" PRIu64, state->step);
    status = weft_saving_open(saving, engine, directory, name, files, err);
    for (int64_t i = 0; i <= engine->plan.n_states && status == WEFT_OK; i++) {
        const part *one = &self->parts[i];
        const weft_ref from = weft_engine_region(engine, hold_of(i)).ref,
                       to = weft_ref_at(self->slot.ref, one->copy - self->memory);
        if (one->bytes == 0) continue;
        if (engine->plan.visible)
            WEFT_PLUGIN_CALL(status, engine->kernels, copy, err, engine->device, NULL, to, from, one->bytes);
        else
            status = weft_stream_sync_download(&self->order, (char *)(uintptr_t)one->copy, from, one->bytes, NULL, err);
    }
    if (status == WEFT_OK) status = weft_stream_sync_finish(&self->order, err);
    if (status == WEFT_OK) {
        weft_saving_note(saving, state, identities);
        saving->peers = &self->relay;
        saving->parameters = copied_region(self, 0);
        for (int64_t i = 0; i < engine->plan.n_states; i++) saving->states[i] = copied_region(self, 1 + i);
        saving->before_manifest = first;
        saving->context = context;
        self->request.kind = REQUEST_NONE;
        self->closed = false;
        self->err = (weft_error)WEFT_ERROR_INIT;
        self->begin = weft_clock_seconds();
        (void)sigfillset(&blocked); /* signals must interrupt the main thread's calls */
        for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) (void)sigdelset(&blocked, faults[i]);
        (void)pthread_sigmask(SIG_SETMASK, &blocked, &before);
        code = pthread_create(&self->thread, NULL, write_copy, self);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        self->runs = code == 0;
        if (code != 0)
            status = weft_error_set(err, WEFT_E_SYSTEM, "no thread for an asynchronous save: %s", strerror(code));
    }
    status = weft_process_group_agree(&engine->peers, status, err);
    if (status != WEFT_OK) abort_save(self);
    return status;
}

weft_status weft_async_checkpoint_look(weft_async_checkpoint *self, bool waits, weft_async_result *out,
                                       weft_error *err) {
    request_kind kind = REQUEST_NONE;
    weft_status status = WEFT_OK;
    out->ended = false;
    if (!self->runs) return WEFT_OK;
    status = get_common_request(self, &kind, waits ? FOREVER : AT_ONCE, err);
    while (status == WEFT_OK && kind != REQUEST_NONE && kind != REQUEST_END) {
        status = answer(self, kind, err);
        if (status == WEFT_OK) status = get_common_request(self, &kind, waits ? FOREVER : SHORTLY, err);
    }
    if (status != WEFT_OK || kind == REQUEST_NONE) return status;
    *out = (weft_async_result){true, self->saving.record.state, 0.0};
    join_thread(self);
    out->seconds = self->seconds;
    if (self->status != WEFT_OK && err != NULL) *err = self->err;
    return self->status;
}

void weft_async_checkpoint_destroy(weft_async_checkpoint *self) {
    if (self == NULL) return;
    abort_save(self);
    (void)pthread_mutex_destroy(&self->lock);
    (void)pthread_cond_destroy(&self->is_requested);
    (void)pthread_cond_destroy(&self->is_answered);
    weft_account_free(&self->engine->account, &self->slot, WEFT_ACCOUNT_SNAPSHOT);
    if (!self->engine->plan.visible) weft_stream_sync_free(&self->order, self->memory);
    free(self->relay.codes);
    free(self->kinds);
    free(self);
}
