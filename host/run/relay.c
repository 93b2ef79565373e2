/* host/run/relay.c: see relay.h. */
#include "run/relay.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

/* What the thread asks for. */
typedef enum ask { ASKS_NOTHING = 0, ASKS_GATHER = 1, ASKS_SHARE = 2, ASKS_SWAP = 3, ASKS_NO_MORE = 4 } ask;

/* How long a look waits for what the thread may ask for next, once it was served: ranks meet several times in a row
 * with little in between. */
enum { NEXT_NANOSECONDS = 2000000 };

struct weft_relay {
    const weft_process_group *peers;
    weft_process_group own;
    int32_t *asked; /* [world] room for what all ask for */
    pthread_mutex_t lock;
    pthread_cond_t asks, is_answered;
    bool closed; /* under the lock, as what follows */
    ask what;
    struct {
        int32_t *numbers, mine, from; /* as in weft_process_group */
        void *bytes;
        int64_t n;
        const weft_message_buffer *in, *out;
        weft_status status;
        weft_error *err;
    } request;
};

/* ---- the thread's side ---- */

static weft_status refuse_closed(weft_error *err) {
    return weft_error_set(err, WEFT_E_PEER, "the run has ended while ranks were to speak with each other");
}

/* The request is there, under the lock. */
static weft_status await_answer(weft_relay *self, ask what, weft_error *err) {
    self->request.err = err;
    self->what = what;
    (void)pthread_cond_signal(&self->asks);
    while (self->what != ASKS_NOTHING && !self->closed) (void)pthread_cond_wait(&self->is_answered, &self->lock);
    if (self->what == ASKS_NOTHING) return self->request.status;
    self->what = ASKS_NOTHING;
    return refuse_closed(err);
}

static weft_status ask_gather(void *context, int32_t *out, int32_t mine, weft_error *err) {
    weft_relay *self = context;
    weft_status status = WEFT_OK;
    (void)pthread_mutex_lock(&self->lock);
    self->request.numbers = out;
    self->request.mine = mine;
    status = await_answer(self, ASKS_GATHER, err);
    (void)pthread_mutex_unlock(&self->lock);
    return status;
}

static weft_status ask_share(void *context, void *bytes, int64_t n, int32_t from, weft_error *err) {
    weft_relay *self = context;
    weft_status status = WEFT_OK;
    (void)pthread_mutex_lock(&self->lock);
    self->request.bytes = bytes;
    self->request.n = n;
    self->request.from = from;
    status = await_answer(self, ASKS_SHARE, err);
    (void)pthread_mutex_unlock(&self->lock);
    return status;
}

static weft_status ask_swap(void *context, const weft_message_buffer *in, const weft_message_buffer *out,
                            weft_error *err) {
    weft_relay *self = context;
    weft_status status = WEFT_OK;
    (void)pthread_mutex_lock(&self->lock);
    self->request.in = in;
    self->request.out = out;
    status = await_answer(self, ASKS_SWAP, err);
    (void)pthread_mutex_unlock(&self->lock);
    return status;
}

void weft_relay_end(weft_relay *self) {
    (void)pthread_mutex_lock(&self->lock);
    self->what = ASKS_NO_MORE;
    (void)pthread_cond_signal(&self->asks);
    (void)pthread_mutex_unlock(&self->lock);
}

/* ---- the main thread's side ---- */

static ask look(weft_relay *self) {
    ask what = ASKS_NOTHING;
    (void)pthread_mutex_lock(&self->lock);
    what = self->what;
    (void)pthread_mutex_unlock(&self->lock);
    return what;
}

/* Until it asks for something, or for the short while in which it may. */
static ask await_request(weft_relay *self, bool forever) {
    struct timespec until;
    ask what = ASKS_NOTHING;
    int code = 0;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += NEXT_NANOSECONDS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    (void)pthread_mutex_lock(&self->lock);
    while (self->what == ASKS_NOTHING && code != ETIMEDOUT)
        code = forever ? pthread_cond_wait(&self->asks, &self->lock)
                       : pthread_cond_timedwait(&self->asks, &self->lock, &until);
    what = self->what;
    (void)pthread_mutex_unlock(&self->lock);
    return what;
}

static weft_status serve_request(const weft_relay *self, ask what, weft_error *err) {
    const weft_process_group *peers = self->peers;
    if (what == ASKS_GATHER) return peers->gather(peers->context, self->request.numbers, self->request.mine, err);
    if (what == ASKS_SHARE)
        return peers->share(peers->context, self->request.bytes, self->request.n, self->request.from, err);
    return peers->swap(peers->context, self->request.in, self->request.out, err);
}

/* The thread waits, so the request is the main thread's meanwhile. Both hear of a failure. */
static weft_status answer(weft_relay *self, ask what, weft_error *err) {
    weft_error failure = WEFT_ERROR_INIT;
    const weft_status status = serve_request(self, what, &failure);
    if (status != WEFT_OK && self->request.err != NULL) *self->request.err = failure;
    if (status != WEFT_OK && err != NULL) *err = failure;
    (void)pthread_mutex_lock(&self->lock);
    self->request.status = status;
    self->what = ASKS_NOTHING;
    (void)pthread_cond_signal(&self->is_answered);
    (void)pthread_mutex_unlock(&self->lock);
    return status;
}

/* What the threads of all ranks ask for; NOTHING: one of them asks for nothing yet. */
static weft_status meet(weft_relay *self, ask *what, weft_error *err) {
    const ask mine = *what;
    weft_status status = WEFT_OK;
    bool alike = true;
    if (weft_process_group_is_single(self->peers)) return WEFT_OK;
    status = self->peers->gather(self->peers->context, self->asked, (int32_t)mine, err);
    if (status != WEFT_OK) return status;
    for (int32_t r = 0; r < self->peers->world; r++) {
        if (self->asked[r] == ASKS_NOTHING) *what = ASKS_NOTHING;
        alike = alike && self->asked[r] == self->asked[0];
    }
    if (alike || *what == ASKS_NOTHING) return WEFT_OK;
    return weft_error_set(err, WEFT_E_HOST, "the ranks ask for different things while they save beside training");
}

weft_status weft_relay_serve(weft_relay *self, bool waits, bool *ended, weft_error *err) {
    ask what = waits ? await_request(self, true) : look(self);
    weft_status status = meet(self, &what, err);
    *ended = false;
    while (status == WEFT_OK && what != ASKS_NOTHING && what != ASKS_NO_MORE) {
        status = answer(self, what, err);
        if (status != WEFT_OK) return status;
        what = await_request(self, waits);
        status = meet(self, &what, err);
    }
    *ended = status == WEFT_OK && what == ASKS_NO_MORE;
    return status;
}

void weft_relay_close(weft_relay *self) {
    (void)pthread_mutex_lock(&self->lock);
    self->closed = true;
    (void)pthread_cond_signal(&self->is_answered);
    (void)pthread_mutex_unlock(&self->lock);
}

/* ---- the whole ---- */

weft_status weft_relay_create(weft_relay **out, const weft_process_group *peers, weft_error *err) {
    const weft_process_group alone = {.world = 1};
    const weft_process_group asking = {.gather = ask_gather, .share = ask_share, .swap = ask_swap};
    const int32_t world = weft_process_group_is_single(peers) ? 1 : peers->world;
    pthread_condattr_t steady;
    weft_relay *self = calloc(1, sizeof *self);
    if (self != NULL) {
        self->peers = peers;
        self->own = world == 1 ? alone : asking;
        self->own.world = world;
        self->own.rank = world == 1 ? 0 : peers->rank;
        self->own.context = self;
        self->own.codes = calloc((size_t)world, sizeof *self->own.codes);
        self->asked = calloc((size_t)world, sizeof *self->asked);
    }
    if (self == NULL || self->own.codes == NULL || self->asked == NULL) {
        if (self != NULL) free(self->own.codes);
        if (self != NULL) free(self->asked);
        free(self);
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for what %d ranks ask for", (int)world);
    }
    (void)pthread_condattr_init(&steady);
    (void)pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&self->lock, NULL);
    (void)pthread_cond_init(&self->asks, &steady);
    (void)pthread_cond_init(&self->is_answered, NULL);
    (void)pthread_condattr_destroy(&steady);
    *out = self;
    return WEFT_OK;
}

void weft_relay_destroy(weft_relay *self) {
    if (self == NULL) return;
    (void)pthread_mutex_destroy(&self->lock);
    (void)pthread_cond_destroy(&self->asks);
    (void)pthread_cond_destroy(&self->is_answered);
    free(self->own.codes);
    free(self->asked);
    free(self);
}

const weft_process_group *weft_relay_peers(const weft_relay *self) {
    return &self->own;
}
