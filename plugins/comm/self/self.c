/* self: a world of one rank. Every exchange is a copy from itself, done as soon as the stream gets to it. */
#include <weft/comm.h>

WEFT_NO_KEYS(self_config)

struct weft_comm_group {
    int32_t unused; /* the world is the only group there is */
};

struct weft_comm_handle {
    int32_t unused; /* an exchange is in its stream when the call returns: there is nothing to remember */
};

struct weft_comm {
    const weft_host *host;
    weft_device *device;
    const weft_device_plugin *kernels;
    weft_comm_group world;
    weft_comm_handle done;
};

static weft_status self_create(weft_comm **out, const weft_host *host, const void *config, const weft_comm_job *job,
                               weft_error *err) {
    weft_comm *comm = NULL;
    (void)config;
    if (job->expected_size != 1) {
        return weft_error_set(err, WEFT_E_PEER,
                              "The communicator self is a world of one rank, and %d were asked for. Choose another "
                              "[comm] plugin, or start one rank.",
                              (int)job->expected_size);
    }
    comm = host->alloc(host, sizeof *comm, 8);
    if (comm == NULL) return weft_error_set(err, WEFT_E_MEMORY, "No memory for the communicator self.");
    memset(comm, 0, sizeof *comm);
    comm->host = host;
    comm->device = job->device;
    comm->kernels = job->kernels;
    *out = comm;
    return WEFT_OK;
}

static void self_destroy(weft_comm *comm) {
    if (comm != NULL) comm->host->release(comm->host, comm);
}

static void self_info(const weft_comm *comm, weft_comm_info *out) {
    (void)comm;
    out->rank = 0;
    out->size = 1;
    out->local_rank = 0;
    out->local_size = 1;
    out->progress = WEFT_PROGRESS_OWN;
    (void)snprintf(out->backend, sizeof out->backend, "none");
}

static weft_status self_group(weft_comm *comm, weft_comm_group **out, const int32_t *ranks, int32_t n,
                              weft_error *err) {
    if (n != 1 || ranks[0] != 0) {
        return weft_error_set(err, WEFT_E_HOST, "A group of %d ranks was asked of a world that holds rank 0 alone.",
                              (int)n);
    }
    *out = &comm->world;
    return WEFT_OK;
}

/* all-gather and all-to-all are the same with one rank: to (n) gets from (n). */
static weft_status self_exchange(weft_comm *comm, weft_comm_handle **out, weft_comm_group *group, weft_stream *stream,
                                 weft_ref to, weft_ref from, int64_t n, int32_t dtype, weft_error *err) {
    const int64_t bytes = n * weft_dtype_bytes(dtype);
    weft_status status = WEFT_OK;
    (void)group;
    if (n < 0 || weft_dtype_bytes(dtype) == 0) {
        return weft_error_set(err, WEFT_E_HOST, "An exchange of %lld elements of type %d has no meaning.", (long long)n,
                              (int)dtype);
    }
    if (bytes > 0 && (to.buffer != from.buffer || to.offset != from.offset)) {
        status = comm->kernels->copy(comm->device, stream, to, from, bytes, err);
    }
    if (status == WEFT_OK) *out = &comm->done;
    return status;
}

static int32_t self_test(weft_comm *comm, weft_comm_handle *handle, weft_error *err) {
    (void)comm;
    (void)handle;
    (void)err;
    return 1;
}

static weft_status self_wait(weft_comm *comm, weft_comm_handle *handle, weft_error *err) {
    (void)comm;
    (void)handle;
    (void)err;
    return WEFT_OK;
}

static const weft_comm_plugin self_table = {(uint32_t)sizeof(weft_comm_plugin),
                                            0,
                                            self_create,
                                            self_destroy,
                                            self_info,
                                            self_group,
                                            self_exchange,
                                            self_exchange,
                                            self_test,
                                            self_wait,
                                            NULL};

WEFT_PLUGIN(comm, 0, "self", "0.1.0", "A world of one rank.", self_config, NULL, self_table)
