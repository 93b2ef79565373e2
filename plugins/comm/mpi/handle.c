/* handle.c: see ranks.h. A handle moves from the pool to the in-flight list and back, and keeps the memory of its
 * requests. */
#include "ranks.h"

#include <sched.h>

/* Returns the handle to the pool and releases its copies. */
static void put_by(weft_comm *comm, weft_comm_handle *handle) {
    ranks_block_give(comm, handle->to);
    ranks_block_give(comm, handle->from);
    handle->next = comm->pool;
    comm->pool = handle;
}

/* Keeps only the first error. */
static void note_late(weft_comm *comm, const weft_comm_handle *handle, const weft_error *why) {
    if (comm->late.code != WEFT_OK) return;
    comm->late = *why;
    (void)weft_error_prefix(&comm->late, "copying the result of %s to the device: ", handle->name);
}

/* Releases joined handles with completed results; all of them if `waits`, which blocks. */
static void let_leave(weft_comm *comm, int waits) {
    weft_comm_handle **at = &comm->leaving;
    while (*at != NULL) {
        weft_comm_handle *handle = *at;
        weft_error err = WEFT_ERROR_INIT;
        const int32_t reached = waits ? 1 : ranks_reached(comm, handle->event, &err);
        if (reached == 0) {
            at = &handle->next;
            continue;
        }
        if (ranks_await(handle, reached < 0 ? NULL : &err) != WEFT_OK || reached < 0) note_late(comm, handle, &err);
        *at = handle->next;
        put_by(comm, handle);
    }
}

bool ranks_let_leave(weft_comm *comm, int64_t bytes) {
    weft_comm_handle **at, **oldest = NULL, *handle = NULL;
    weft_error err = WEFT_ERROR_INIT;
    for (at = &comm->leaving; *at != NULL; at = &(*at)->next) {
        const weft_comm_handle *h = *at;
        if ((h->to != NULL && h->to->bytes == bytes) || (h->from != NULL && h->from->bytes == bytes)) oldest = at;
    }
    if (oldest == NULL) return false;
    handle = *oldest;
    if (ranks_await(handle, &err) != WEFT_OK) note_late(comm, handle, &err);
    *oldest = handle->next;
    put_by(comm, handle);
    return true;
}

weft_status ranks_tell_late(weft_comm *comm, weft_error *err) {
    const weft_error none = WEFT_ERROR_INIT;
    const weft_status status = (weft_status)comm->late.code;
    if (status != WEFT_OK) (void)weft_error_set(err, status, "%s", comm->late.text);
    comm->late = none;
    return status;
}

weft_comm_handle *ranks_handle_take(weft_comm *comm) {
    weft_comm_handle *handle = NULL;
    let_leave(comm, 0);
    handle = comm->pool;
    if (handle != NULL) {
        comm->pool = handle->next;
    } else {
        handle = comm->host->alloc(comm->host, sizeof *handle, _Alignof(max_align_t));
        if (handle == NULL) return NULL;
        memset(handle, 0, sizeof *handle);
    }
    handle->n_requests = 0;
    handle->n_done = 0;
    handle->code = MPI_SUCCESS;
    handle->expected = -1;
    handle->phase = RANKS_COMING;
    handle->operands.comm = comm;
    handle->fetches = 0;
    handle->later = NULL;
    handle->to = NULL;
    handle->from = NULL;
    handle->result = NULL;
    handle->event = NULL;
    handle->why.struct_size = (uint32_t)sizeof handle->why;
    handle->why.code = WEFT_OK;
    handle->why.text[0] = '\0';
    handle->pairs.group = NULL;
    handle->next = comm->under_way;
    comm->under_way = handle;
    return handle;
}

void ranks_handle_give_back(weft_comm *comm, weft_comm_handle *handle) {
    weft_comm_handle **at = &comm->under_way;
    while (*at != handle) at = &(*at)->next;
    *at = handle->next;
    put_by(comm, handle);
}

void ranks_handles_free(weft_comm *comm) {
    let_leave(comm, 1);
    if (comm->late.code != WEFT_OK) weft_log(comm->host, WEFT_LOG_ERROR, "%s", comm->late.text);
    while (comm->under_way != NULL) ranks_handle_give_back(comm, comm->under_way);
    while (comm->pool != NULL) {
        weft_comm_handle *handle = comm->pool;
        comm->pool = handle->next;
        comm->host->release(comm->host, handle->requests);
        comm->host->release(comm->host, handle->pairs.ways);
        comm->host->release(comm->host, handle);
    }
    ranks_blocks_free(comm);
    comm->host->release(comm->host, comm->places);
}

MPI_Request *ranks_request(weft_comm *comm, weft_comm_handle *handle) {
    if (handle->n_requests == handle->room) {
        const int32_t room = handle->room == 0 ? 4 : 2 * handle->room;
        MPI_Request *more = comm->host->alloc(comm->host, (size_t)room * sizeof *more, _Alignof(max_align_t));
        if (more == NULL) return NULL;
        if (handle->n_requests > 0) memcpy(more, handle->requests, (size_t)handle->n_requests * sizeof *more);
        comm->host->release(comm->host, handle->requests);
        handle->requests = more;
        handle->room = room;
    }
    handle->requests[handle->n_requests] = MPI_REQUEST_NULL;
    return &handle->requests[handle->n_requests++];
}

/* Tests MPI, which also lets all other calls of this rank progress. True: MPI's part of this one has finished, with or
 * without error. */
static int has_moved(weft_comm_handle *handle) {
    if (handle->pairs.group != NULL) return handle->pairs.is_done;
    while (handle->n_done < handle->n_requests) {
        MPI_Status status;
        int ended = 0, bytes = 0;
        const int code = MPI_Test(&handle->requests[handle->n_done], &ended, &status);
        if (code != MPI_SUCCESS && handle->code == MPI_SUCCESS) handle->code = code;
        if (code == MPI_SUCCESS && !ended) return 0;
        if (code == MPI_SUCCESS && handle->expected >= 0) {
            (void)MPI_Get_count(&status, MPI_BYTE, &bytes);
            handle->expected -= bytes;
        }
        handle->n_done++;
    }
    return 1;
}

/* True: no more progress calls are needed; the result may still be in flight to the device. */
static int advance(weft_comm_handle *handle) {
    if (handle->phase == RANKS_MOVING && has_moved(handle)) ranks_deliver(handle);
    return handle->phase == RANKS_ENDED;
}

/* Progresses the calls that other ranks wait for, too. */
static void advance_all(weft_comm *comm) {
    if (comm->coming != NULL) ranks_begin_arrived(comm);
    ranks_pairs_advance(comm);
}

static weft_status outcome(const weft_comm_handle *handle, weft_error *err) {
    if (handle->why.code != WEFT_OK) return weft_error_set(err, (weft_status)handle->why.code, "%s", handle->why.text);
    if (handle->code != MPI_SUCCESS) return ranks_error(err, WEFT_E_PEER, handle->code, handle->name);
    if (handle->expected > 0) {
        return weft_error_set(
            err, WEFT_E_PEER,
            "recv: the peer sent %lld bytes less than this rank waits for: the ranks' programs differ.",
            (long long)handle->expected);
    }
    return WEFT_OK;
}

/* Waits for the device and releases the handle; MPI has finished. */
static weft_status finish(weft_comm *comm, weft_comm_handle *handle, weft_error *err) {
    weft_status status = outcome(handle, err);
    const weft_status came = ranks_await(handle, status == WEFT_OK ? err : NULL);
    if (status == WEFT_OK && came != WEFT_OK) (void)weft_error_prefix(err, "%s: ", handle->name);
    if (status == WEFT_OK) status = came;
    ranks_handle_give_back(comm, handle);
    return status == WEFT_OK ? ranks_tell_late(comm, err) : status;
}

int32_t ranks_test(weft_comm *comm, weft_comm_handle *handle, weft_error *err) {
    int32_t reached = 0;
    advance_all(comm);
    if (!advance(handle)) return 0;
    reached = ranks_reached(comm, handle->event, err);
    if (reached == 0) return 0;
    if (reached > 0) return finish(comm, handle, err) == WEFT_OK ? 1 : -1;
    (void)weft_error_prefix(err, "%s: ", handle->name);
    (void)finish(comm, handle, NULL);
    return -1;
}

static void drive(weft_comm *comm, weft_comm_handle *handle) {
    for (advance_all(comm); !advance(handle); advance_all(comm)) (void)sched_yield();
}

weft_status ranks_wait(weft_comm *comm, weft_comm_handle *handle, weft_error *err) {
    drive(comm, handle);
    return finish(comm, handle, err);
}

/* Makes the stream wait for the result, unless it is queued in that stream itself. The host copy stays until the result
 * is delivered. */
static weft_status let_go(weft_comm *comm, weft_comm_handle *handle, weft_stream *stream, weft_error *err) {
    weft_comm_handle **at = &comm->under_way;
    weft_event *event = NULL;
    weft_status status = WEFT_OK;
    if (stream != handle->stream) status = comm->kernels->record_event(comm->device, handle->stream, &event, err);
    if (event != NULL) status = comm->kernels->wait(comm->device, stream, event, err);
    while (*at != handle) at = &(*at)->next;
    *at = handle->next;
    handle->next = comm->leaving;
    comm->leaving = handle;
    return status;
}

weft_status ranks_join(weft_comm *comm, weft_comm_handle *handle, weft_stream *stream, weft_error *err) {
    drive(comm, handle);
    if (handle->event == NULL || outcome(handle, NULL) != WEFT_OK) return finish(comm, handle, err);
    return let_go(comm, handle, stream, err);
}

/* One test is enough: MPI progresses everything when any unfinished request is tested. */
void ranks_poke(weft_comm *comm) {
    weft_comm_handle *handle = comm->under_way;
    advance_all(comm);
    while (handle != NULL && (handle->phase == RANKS_COMING || advance(handle))) handle = handle->next;
}
