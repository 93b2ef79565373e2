/* watch.c: see world.h. NCCL reports asynchronous errors (a lost machine, a network failure) only when polled, and
 * kernels that wait for a peer continue waiting. A thread therefore polls, and aborts NCCL's communicators. The
 * device's streams then finish, and the host receives the error. */
#include "world.h"

#include <time.h>

enum { EVERY_MS = 100 };

static void set_failure(weft_comm *comm, ncclResult_t code, ncclComm_t of) {
    weft_error err = WEFT_ERROR_INIT;
    (void)nccl_judge(code, of, "an exchange with another rank", &err);
    (void)snprintf(comm->failure, sizeof comm->failure, "%.600s", err.text);
    weft_log(comm->host, WEFT_LOG_ERROR, "%s", comm->failure);
}

static bool has_failed(weft_comm *comm, ncclComm_t one) {
    ncclResult_t code = ncclSuccess;
    ncclResult_t answered;
    if (one == NULL) return false;
    answered = ncclCommGetAsyncError(one, &code);
    if (answered != ncclSuccess) code = answered;
    if (code == ncclSuccess || code == ncclInProgress) return false;
    set_failure(comm, code, one);
    return true;
}

static void abort_one(ncclComm_t *one) {
    if (*one != NULL) (void)ncclCommAbort(*one);
    *one = NULL;
}

/* Requires the lock. Queued work finishes without a result. */
static void abort_all(weft_comm *comm) {
    for (weft_comm_group *g = comm->groups; g != NULL; g = g->next) abort_one(&g->nccl);
    for (nccl_way *w = comm->ways; w != NULL; w = w->next) abort_one(&w->nccl);
}

/* Requires the lock. */
static void look_once(weft_comm *comm) {
    bool failed = false;
    for (const weft_comm_group *g = comm->groups; g != NULL && !failed; g = g->next) failed = has_failed(comm, g->nccl);
    for (const nccl_way *w = comm->ways; w != NULL && !failed; w = w->next) failed = has_failed(comm, w->nccl);
    if (failed) abort_all(comm);
}

static void *watch(void *context) {
    weft_comm *comm = context;
    struct timespec until;
    (void)pthread_mutex_lock(&comm->lock);
    while (!comm->ends) {
        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += EVERY_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        (void)pthread_cond_timedwait(&comm->ending, &comm->lock, &until);
        if (!comm->ends && comm->failure[0] == '\0') look_once(comm);
    }
    (void)pthread_mutex_unlock(&comm->lock);
    return NULL;
}

weft_status nccl_watch_start(weft_comm *comm, weft_error *err) {
    comm->watches = pthread_create(&comm->watcher, NULL, watch, comm) == 0;
    if (comm->watches) return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM, "No thread to watch over NCCL.");
}

void nccl_watch_end(weft_comm *comm) {
    if (!comm->watches) return;
    (void)pthread_mutex_lock(&comm->lock);
    comm->ends = true;
    (void)pthread_cond_signal(&comm->ending);
    (void)pthread_mutex_unlock(&comm->lock);
    (void)pthread_join(comm->watcher, NULL);
    comm->watches = false;
}

weft_status nccl_watch_hold(weft_comm *comm, weft_error *err) {
    weft_status status = WEFT_OK;
    (void)pthread_mutex_lock(&comm->lock);
    if (comm->failure[0] == '\0') return WEFT_OK;
    status = weft_error_set(err, WEFT_E_PEER, "%s", comm->failure);
    (void)pthread_mutex_unlock(&comm->lock);
    return status;
}

void nccl_watch_let_go(weft_comm *comm) {
    (void)pthread_mutex_unlock(&comm->lock);
}

weft_status nccl_watch_ask(weft_comm *comm, weft_error *err) {
    const weft_status status = nccl_watch_hold(comm, err);
    if (status == WEFT_OK) nccl_watch_let_go(comm);
    return status;
}

void nccl_abandon(weft_comm *comm) {
    (void)pthread_mutex_lock(&comm->lock);
    if (comm->failure[0] == '\0')
        (void)snprintf(comm->failure, sizeof comm->failure,
                       "this rank has failed earlier, and makes no further exchange");
    abort_all(comm);
    (void)pthread_mutex_unlock(&comm->lock);
}
