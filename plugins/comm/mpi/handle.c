/* handle.c: see ranks.h. A handle goes from the pool to what is under way and back, and keeps its requests' memory. */
#include "ranks.h"

#include <sched.h>

weft_comm_handle *ranks_handle_take(weft_comm *comm) {
    weft_comm_handle *handle = comm->pool;
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
    handle->to = NULL;
    handle->from = NULL;
    handle->result = NULL;
    handle->pairs.group = NULL;
    handle->next = comm->under_way;
    comm->under_way = handle;
    return handle;
}

void ranks_handle_give_back(weft_comm *comm, weft_comm_handle *handle) {
    weft_comm_handle **at = &comm->under_way;
    while (*at != handle) at = &(*at)->next;
    *at = handle->next;
    comm->host->release(comm->host, handle->to);
    comm->host->release(comm->host, handle->from);
    handle->next = comm->pool;
    comm->pool = handle;
}

void ranks_handles_free(weft_comm *comm) {
    while (comm->under_way != NULL) ranks_handle_give_back(comm, comm->under_way);
    while (comm->pool != NULL) {
        weft_comm_handle *handle = comm->pool;
        comm->pool = handle->next;
        comm->host->release(comm->host, handle->requests);
        comm->host->release(comm->host, handle->pairs.ways);
        comm->host->release(comm->host, handle);
    }
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

/* Asks MPI, which lets every exchange of this rank go on. True: all of this one has ended, well or not. */
static int advance(weft_comm_handle *handle) {
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

/* All requests have ended: brings the result where it belongs, and lets the handle go. */
static weft_status finish(weft_comm *comm, weft_comm_handle *handle, weft_error *err) {
    weft_status status = WEFT_OK;
    if (handle->code != MPI_SUCCESS) {
        status = ranks_error(err, WEFT_E_PEER, handle->code, handle->name);
    } else if (handle->expected > 0) {
        status = weft_error_set(err, WEFT_E_PEER,
                                "recv: the other side sent %lld bytes less than this rank waits for: the ranks' "
                                "programs differ.",
                                (long long)handle->expected);
    } else if (handle->to != NULL && handle->result != NULL) {
        memcpy(handle->result, handle->to, (size_t)handle->to_bytes);
    } else if (handle->to != NULL) {
        status =
            comm->kernels->write(comm->device, handle->stream, handle->device_to, handle->to, handle->to_bytes, err);
    }
    ranks_handle_give_back(comm, handle);
    return status;
}

int32_t ranks_test(weft_comm *comm, weft_comm_handle *handle, weft_error *err) {
    ranks_pairs_advance(comm);
    if (!advance(handle)) return 0;
    return finish(comm, handle, err) == WEFT_OK ? 1 : -1;
}

weft_status ranks_wait(weft_comm *comm, weft_comm_handle *handle, weft_error *err) {
    for (ranks_pairs_advance(comm); !advance(handle); ranks_pairs_advance(comm)) (void)sched_yield();
    return finish(comm, handle, err);
}

/* One question is enough: MPI moves all that it has to do when it is asked for anything that has not ended. */
void ranks_poke(weft_comm *comm) {
    weft_comm_handle *handle = comm->under_way;
    ranks_pairs_advance(comm);
    while (handle != NULL && advance(handle)) handle = handle->next;
}
