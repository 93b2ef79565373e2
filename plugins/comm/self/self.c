/* self: a communicator for one rank. Every call is a local copy, done when the stream reaches it. */
#include <stdbool.h>
#include <weft/comm.h>

WEFT_NO_KEYS(self_config)

struct weft_comm_group {
    int32_t unused; /* the world is the only group */
};

/* A call in flight; its copy is queued on return. */
struct weft_comm_handle {
    weft_comm_handle *next; /* in comm->pool */
    weft_stream *stream;
    weft_event *event; /* after the copy; NULL: not needed */
};

struct weft_comm {
    const weft_host *host;
    weft_device *device;
    const weft_device_plugin *kernels;
    weft_comm_group world;
    weft_comm_handle *pool;
};

static weft_status self_create(weft_comm **out, const weft_host *host, const void *config, const weft_comm_job *job,
                               weft_error *err) {
    weft_comm *comm = NULL;
    (void)config;
    if (job->expected_size > 1) {
        return weft_error_set(err, WEFT_E_PEER,
                              "The communicator self is a world of one rank, and the run requests %d. Fix: set another "
                              "[comm] plugin, or start one rank.",
                              (int)job->expected_size);
    }
    comm = host->alloc(host, sizeof *comm, 8);
    if (comm == NULL) return weft_error_set(err, WEFT_E_MEMORY, "No memory for the communicator self.");
    memset(comm, 0, sizeof *comm);
    comm->host = host;
    *out = comm;
    return WEFT_OK;
}

static void self_destroy(weft_comm *comm) {
    if (comm == NULL) return;
    while (comm->pool != NULL) {
        weft_comm_handle *handle = comm->pool;
        comm->pool = handle->next;
        comm->host->release(comm->host, handle);
    }
    comm->host->release(comm->host, comm);
}

static void self_info(const weft_comm *comm, weft_comm_info *out) {
    (void)comm;
    out->rank = 0;
    out->size = 1;
    out->local_rank = 0;
    out->local_size = 1;
    out->node = 0;
    out->nodes = 1;
    out->progress = WEFT_PROGRESS_OWN;
    out->max_tag = INT32_MAX;
    (void)snprintf(out->backend, sizeof out->backend, "none");
}

static weft_status self_attach(weft_comm *comm, weft_device *device, const weft_device_plugin *kernels,
                               weft_error *err) {
    (void)err;
    comm->device = device;
    comm->kernels = kernels;
    return WEFT_OK;
}

static weft_status self_group(weft_comm *comm, weft_comm_group **out, const int32_t *ranks, int32_t n,
                              weft_error *err) {
    if (n != 1 || ranks[0] != 0) {
        return weft_error_set(err, WEFT_E_HOST, "The call requests a group of %d ranks in a world of rank 0 only.",
                              (int)n);
    }
    *out = &comm->world;
    return WEFT_OK;
}

/* Checks that the group is the world and that a device is attached. */
static weft_status check(weft_comm *comm, const weft_exchange *what, weft_error *err) {
    if (comm->kernels == NULL) return weft_error_set(err, WEFT_E_HOST, "An exchange was started before `attach`.");
    if (what->group != NULL && what->group != &comm->world) {
        return weft_error_set(err, WEFT_E_HOST, "An exchange was started in a group of another communicator.");
    }
    if (!WEFT_WHOLE(what, weft_exchange)) {
        return weft_error_set(err, WEFT_E_HOST, "An exchange was started with struct_size %u; at least %u is needed.",
                              (unsigned)what->struct_size, (unsigned)WEFT_SIZE_1_0(weft_exchange));
    }
    if (!weft_struct_known(what, sizeof *what)) {
        return weft_error_set(err, WEFT_E_UNSUPPORTED,
                              "An exchange sets fields beyond the %zu bytes that this communicator supports for it.",
                              sizeof *what);
    }
    return WEFT_OK;
}

static weft_status take_handle(weft_comm *comm, weft_comm_handle **out, weft_stream *stream, weft_error *err) {
    weft_comm_handle *handle = comm->pool;
    if (handle != NULL) comm->pool = handle->next;
    else handle = comm->host->alloc(comm->host, sizeof *handle, 8);
    if (handle == NULL) return weft_error_set(err, WEFT_E_MEMORY, "No memory for a handle of the communicator self.");
    handle->next = NULL;
    handle->stream = stream;
    handle->event = NULL;
    *out = handle;
    return WEFT_OK;
}

static void give_handle(weft_comm *comm, weft_comm_handle *handle) {
    handle->next = comm->pool;
    comm->pool = handle;
}

/* Copies in the stream and records an event after it. */
static weft_status copy_in_stream(weft_comm *comm, weft_comm_handle *handle, const weft_exchange *what, int64_t bytes,
                                  weft_error *err) {
    const weft_device_plugin *kernels = comm->kernels;
    weft_status status = kernels->copy(comm->device, what->stream, what->to, what->from, bytes, err);
    if (status == WEFT_OK) status = kernels->record_event(comm->device, what->stream, &handle->event, err);
    return status;
}

/* For one rank, gather, all-to-all and reduce are a copy: to (n) receives from (n). */
static weft_status self_exchange(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what, weft_error *err) {
    const int64_t bytes = what->n * weft_dtype_bytes(what->dtype);
    const bool moves = what->to.buffer != what->from.buffer || what->to.offset != what->from.offset;
    weft_comm_handle *handle = NULL;
    weft_status status = check(comm, what, err);
    if (status == WEFT_OK && (what->n < 0 || weft_dtype_bytes(what->dtype) == 0)) {
        status = weft_error_set(err, WEFT_E_HOST, "An exchange of %lld elements of type %d is not valid.",
                                (long long)what->n, (int)what->dtype);
    }
    if (status == WEFT_OK) status = take_handle(comm, &handle, what->stream, err);
    if (status != WEFT_OK) return status;
    if (moves && bytes > 0) status = copy_in_stream(comm, handle, what, bytes, err);
    if (status == WEFT_OK) *out = handle;
    else give_handle(comm, handle);
    return status;
}

static weft_status self_sum(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what, weft_error *err) {
    if (what->dtype != WEFT_F32 && what->dtype != WEFT_BF16 && what->dtype != WEFT_F16) {
        return weft_error_set(err, WEFT_E_HOST, "Sums support fp32, bf16 or fp16, and the call requests %s.",
                              weft_dtype_name(what->dtype));
    }
    return self_exchange(comm, out, what, err);
}

/* The single rank has the root's data. */
static weft_status self_broadcast(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what, weft_error *err) {
    weft_exchange there;
    const weft_status status = check(comm, what, err);
    if (status != WEFT_OK) return status;
    if (what->peer != 0) {
        return weft_error_set(err, WEFT_E_HOST, "The call has root %d in a group of 1.", (int)what->peer);
    }
    (void)weft_struct_take(&there, sizeof there, what);
    there.from = what->to;
    return self_exchange(comm, out, &there, err);
}

static weft_status self_barrier(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what, weft_error *err) {
    const weft_status status = check(comm, what, err);
    return status == WEFT_OK ? take_handle(comm, out, what->stream, err) : status;
}

static weft_status self_pair(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what, weft_error *err) {
    (void)comm;
    (void)out;
    return weft_error_set(err, WEFT_E_HOST, "The call has peer %d in a group of 1, which has no peer.",
                          (int)what->peer);
}

/* Makes the stream wait for the copy and releases the handle. */
static weft_status self_join(weft_comm *comm, weft_comm_handle *handle, weft_stream *stream, weft_error *err) {
    weft_event *event = handle->event;
    give_handle(comm, handle);
    return event == NULL ? WEFT_OK : comm->kernels->wait(comm->device, stream, event, err);
}

static weft_status self_wait(weft_comm *comm, weft_comm_handle *handle, weft_error *err) {
    weft_stream *stream = handle->stream;
    const weft_status status = self_join(comm, handle, stream, err);
    return status == WEFT_OK && comm->kernels != NULL ? comm->kernels->synchronize(comm->device, stream, err) : status;
}

static int32_t self_test(weft_comm *comm, weft_comm_handle *handle, weft_error *err) {
    return self_wait(comm, handle, err) == WEFT_OK ? 1 : -1;
}

static const weft_comm_plugin self_table = {(uint32_t)sizeof(weft_comm_plugin),
                                            0,
                                            self_create,
                                            self_destroy,
                                            self_info,
                                            self_attach,
                                            self_group,
                                            self_exchange,
                                            self_exchange,
                                            self_sum,
                                            self_sum,
                                            self_broadcast,
                                            self_barrier,
                                            self_pair,
                                            self_pair,
                                            self_test,
                                            self_wait,
                                            self_join,
                                            NULL,
                                            NULL,
                                            NULL,
                                            NULL,
                                            NULL};

WEFT_PLUGIN(comm, 1, "self", "0.1.0", "A world of one rank.", self_config, NULL, self_table)
