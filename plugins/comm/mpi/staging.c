/* staging.c: see ranks.h. MPI accesses host memory. Operands in device memory pass through host copies:
 *
 *     fetch (queued in the call's stream) -> an event -> MPI, in the order in which calls were started -> deliver
 *     (queued in the same stream) -> an event, which join waits for
 *
 * The host therefore waits for the device only in `wait`. All ranks start MPI in the order in which calls were started,
 * because a call that waits for its operands delays the later ones. It waits only for work of this rank's own streams,
 * never for a call that is not started yet: ranks cannot deadlock. */
#include "ranks.h"

/* Returns the block size for an operand. There are few sizes, less than a quarter above the request, and a block serves
 * only its own size. The number of blocks therefore depends on the calls in flight at a time, which the program
 * determines, and not on timing. Steps after the first allocate none; pinning memory would stop the device. */
static int64_t piece_for(int64_t bytes) {
    int64_t unit = 4096;
    while (bytes > 8 * unit) unit *= 2;
    return (bytes + unit - 1) / unit * unit;
}

static ranks_block *free_block(weft_comm *comm, int64_t bytes) {
    ranks_block **at = &comm->blocks, *block = NULL;
    while (*at != NULL && (*at)->bytes != bytes) at = &(*at)->next;
    block = *at;
    if (block != NULL) *at = block->next;
    return block;
}

/* The device reports its own allocation error. */
static weft_status take_memory(weft_comm *comm, void **out, int64_t bytes, weft_error *err) {
    if (comm->transfer != NULL) return comm->transfer->take(comm->device, out, bytes, err);
    *out = comm->host->alloc(comm->host, (size_t)bytes, 64);
    return *out != NULL ? WEFT_OK : weft_error_set(err, WEFT_E_MEMORY, "the host has no free memory");
}

static weft_status make_block(weft_comm *comm, ranks_block **out, int64_t bytes, weft_error *err) {
    ranks_block *block = comm->host->alloc(comm->host, sizeof *block, _Alignof(max_align_t));
    void *memory = NULL;
    weft_status status = WEFT_OK;
    if (block == NULL) return weft_error_set(err, WEFT_E_MEMORY, "the host has no free memory");
    status = take_memory(comm, &memory, bytes, err);
    if (status != WEFT_OK) {
        comm->host->release(comm->host, block);
        return status;
    }
    block->memory = memory;
    block->bytes = bytes;
    *out = block;
    return WEFT_OK;
}

/* Waits for a block whose result is in flight to the device before allocating another. */
weft_status ranks_block_take(weft_comm *comm, ranks_block **out, int64_t bytes, weft_error *err) {
    const int64_t size = piece_for(bytes);
    ranks_block *block = free_block(comm, size);
    if (block == NULL && ranks_let_leave(comm, size)) block = free_block(comm, size);
    if (block == NULL) return make_block(comm, out, size, err);
    *out = block;
    return WEFT_OK;
}

void ranks_block_give(weft_comm *comm, ranks_block *block) {
    if (block == NULL) return;
    block->next = comm->blocks;
    comm->blocks = block;
}

void ranks_blocks_free(weft_comm *comm) {
    while (comm->blocks != NULL) {
        ranks_block *block = comm->blocks;
        comm->blocks = block->next;
        if (comm->transfer == NULL) comm->host->release(comm->host, block->memory);
        else comm->transfer->give_back(comm->device, block->memory);
        comm->host->release(comm->host, block);
    }
}

int32_t ranks_reached(const weft_comm *comm, weft_event *event, weft_error *err) {
    if (event == NULL || comm->transfer == NULL) return 1;
    return comm->transfer->reached(comm->device, event, err);
}

weft_status ranks_await(weft_comm_handle *handle, weft_error *err) {
    weft_comm *comm = handle->operands.comm;
    weft_event *event = handle->event;
    weft_status status = WEFT_OK;
    handle->event = NULL;
    if (event == NULL) return WEFT_OK;
    if (comm->transfer != NULL) return comm->transfer->await(comm->device, event, err);
    status = comm->kernels->wait(comm->device, handle->stream, event, err);
    return status == WEFT_OK ? comm->kernels->synchronize(comm->device, handle->stream, err) : status;
}

weft_status ranks_fetch(weft_comm_handle *handle, ranks_block *to, weft_ref from, int64_t bytes, weft_error *err) {
    weft_comm *comm = handle->operands.comm;
    if (comm->transfer == NULL) return comm->kernels->read(comm->device, handle->stream, to->memory, from, bytes, err);
    handle->fetches = 1;
    return comm->transfer->download(comm->device, handle->stream, to->memory, from, bytes, err);
}

weft_status ranks_line_up(weft_comm_handle *handle, weft_error *err) {
    weft_comm *comm = handle->operands.comm;
    weft_comm_handle **last = &comm->coming;
    weft_status status = WEFT_OK;
    if (handle->fetches) status = comm->kernels->record_event(comm->device, handle->stream, &handle->event, err);
    if (status != WEFT_OK) return status;
    if (handle->event == NULL && comm->coming == NULL) return ranks_begin(handle, err);
    while (*last != NULL) last = &(*last)->later;
    *last = handle;
    return WEFT_OK;
}

/* Records a failure before or during the start of MPI; the waiting caller gets it. */
static void note(weft_comm_handle *handle, const weft_error *why) {
    if (handle->why.code != WEFT_OK) return;
    handle->why = *why;
    (void)weft_error_prefix(&handle->why, "%s: ", handle->name);
}

/* Starts MPI if the operands have arrived without error. */
static weft_status begin_arrived(weft_comm_handle *handle, int32_t reached, weft_error *err) {
    weft_status status = ranks_await(handle, reached < 0 ? NULL : err);
    if (reached < 0) return WEFT_E_DEVICE;
    return status == WEFT_OK ? ranks_begin(handle, err) : status;
}

void ranks_begin_arrived(weft_comm *comm) {
    while (comm->coming != NULL) {
        weft_comm_handle *handle = comm->coming;
        weft_error err = WEFT_ERROR_INIT;
        const int32_t reached = ranks_reached(comm, handle->event, &err);
        if (reached == 0) return;
        comm->coming = handle->later;
        if (begin_arrived(handle, reached, &err) != WEFT_OK) {
            handle->phase = RANKS_ENDED;
            note(handle, &err);
        }
    }
}

/* Copies the result to the device. Without a transfer extension the host copy is free at once, though the result may
 * still be queued. */
static weft_status bring_back(weft_comm_handle *handle, weft_error *err) {
    weft_comm *comm = handle->operands.comm;
    const weft_device_plugin *kernels = comm->kernels;
    const char *from = handle->to->memory;
    const weft_status status =
        comm->transfer == NULL
            ? kernels->write(comm->device, handle->stream, handle->device_to, from, handle->to_bytes, err)
            : comm->transfer->upload(comm->device, handle->stream, handle->device_to, from, handle->to_bytes, err);
    return status == WEFT_OK ? kernels->record_event(comm->device, handle->stream, &handle->event, err) : status;
}

void ranks_deliver(weft_comm_handle *handle) {
    weft_error err = WEFT_ERROR_INIT;
    handle->phase = RANKS_ENDED;
    if (handle->code != MPI_SUCCESS || handle->expected > 0 || handle->to == NULL) return;
    if (handle->result != NULL) memcpy(handle->result, handle->to->memory, (size_t)handle->to_bytes);
    else if (bring_back(handle, &err) != WEFT_OK) note(handle, &err);
}
