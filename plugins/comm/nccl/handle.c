/* handle.c: see world.h. A handle is a device event after the work that NCCL queued. */
#include "world.h"

#include <time.h>

weft_comm_handle *nccl_handle_take(weft_comm *comm) {
    weft_comm_handle *handle = comm->pool;
    if (handle != NULL) {
        comm->pool = handle->next;
        return handle;
    }
    handle = comm->host->alloc(comm->host, sizeof *handle, _Alignof(max_align_t));
    if (handle == NULL) return NULL;
    memset(handle, 0, sizeof *handle);
    handle->older = comm->handles;
    comm->handles = handle;
    return handle;
}

void nccl_handle_give_back(weft_comm *comm, weft_comm_handle *handle) {
    handle->event = NULL;
    handle->next = comm->pool;
    comm->pool = handle;
}

void nccl_handles_free(weft_comm *comm) {
    while (comm->handles != NULL) {
        weft_comm_handle *handle = comm->handles;
        comm->handles = handle->older;
        if (handle->event != NULL) (void)comm->transfer->await(comm->device, handle->event, NULL);
        comm->host->release(comm->host, handle);
    }
    comm->pool = NULL;
}

/* Finishes a completed handle and releases its event. Aborted work also completes, without a result. */
static weft_status end_handle(weft_comm *comm, weft_comm_handle *handle, weft_error *err) {
    const weft_status status = comm->transfer->await(comm->device, handle->event, err);
    nccl_handle_give_back(comm, handle);
    return status == WEFT_OK ? nccl_watch_ask(comm, err) : status;
}

int32_t nccl_test(weft_comm *comm, weft_comm_handle *handle, weft_error *err) {
    const int32_t reached = comm->transfer->reached(comm->device, handle->event, err);
    if (reached == 0) return nccl_watch_ask(comm, err) == WEFT_OK ? 0 : -1;
    if (reached < 0) {
        (void)end_handle(comm, handle, NULL);
        return -1;
    }
    return end_handle(comm, handle, err) == WEFT_OK ? 1 : -1;
}

/* Polls the event and NCCL's asynchronous errors in turn, because a call with a lost rank never finishes by itself. */
weft_status nccl_wait(weft_comm *comm, weft_comm_handle *handle, weft_error *err) {
    const struct timespec pause = {0, 20000};
    int32_t reached = 0;
    while ((reached = comm->transfer->reached(comm->device, handle->event, err)) == 0) {
        if (nccl_watch_ask(comm, err) != WEFT_OK) return WEFT_E_PEER; /* the handle's event may never be reached */
        (void)nanosleep(&pause, NULL);
    }
    if (reached < 0) {
        (void)comm->transfer->await(comm->device, handle->event, NULL);
        nccl_handle_give_back(comm, handle);
        return WEFT_E_DEVICE;
    }
    return end_handle(comm, handle, err);
}

weft_status nccl_join(weft_comm *comm, weft_comm_handle *handle, weft_stream *stream, weft_error *err) {
    const weft_status status = comm->kernels->wait(comm->device, stream, handle->event, err);
    nccl_handle_give_back(comm, handle);
    return status;
}
