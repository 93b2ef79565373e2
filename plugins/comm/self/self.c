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
    if (job->expected_size > 1) {
        return weft_error_set(err, WEFT_E_PEER,
                              "The communicator self is a world of one rank, and %d were asked for. Choose another "
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
    if (comm != NULL) comm->host->release(comm->host, comm);
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
        return weft_error_set(err, WEFT_E_HOST, "A group of %d ranks was asked of a world that holds rank 0 alone.",
                              (int)n);
    }
    *out = &comm->world;
    return WEFT_OK;
}

/* The group is the world, and there is a device. */
static weft_status check(weft_comm *comm, const weft_exchange *what, weft_error *err) {
    if (comm->kernels == NULL) return weft_error_set(err, WEFT_E_HOST, "An exchange was started before `attach`.");
    if (what->group != NULL && what->group != &comm->world) {
        return weft_error_set(err, WEFT_E_HOST, "An exchange was started in a group of another communicator.");
    }
    return WEFT_OK;
}

/* Gathered, sent to all or summed, the rows of one rank are what it has: to (n) gets from (n). */
static weft_status self_exchange(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what, weft_error *err) {
    const int64_t bytes = what->n * weft_dtype_bytes(what->dtype);
    weft_status status = check(comm, what, err);
    if (status == WEFT_OK && (what->n < 0 || weft_dtype_bytes(what->dtype) == 0)) {
        status = weft_error_set(err, WEFT_E_HOST, "An exchange of %lld elements of type %d has no meaning.",
                                (long long)what->n, (int)what->dtype);
    }
    if (status == WEFT_OK && bytes > 0 &&
        (what->to.buffer != what->from.buffer || what->to.offset != what->from.offset)) {
        status = comm->kernels->copy(comm->device, what->stream, what->to, what->from, bytes, err);
    }
    if (status == WEFT_OK) *out = &comm->done;
    return status;
}

static weft_status self_sum(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what, weft_error *err) {
    if (what->dtype != WEFT_F32 && what->dtype != WEFT_BF16) {
        return weft_error_set(err, WEFT_E_HOST, "Sums are of fp32 or bf16, and one of %s was asked for.",
                              weft_dtype_name(what->dtype));
    }
    return self_exchange(comm, out, what, err);
}

/* The one rank has what the root has. */
static weft_status self_broadcast(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what, weft_error *err) {
    weft_exchange there = *what;
    there.from = what->to;
    if (what->peer != 0) {
        return weft_error_set(err, WEFT_E_HOST, "Place %d was named as root in a group of 1.", (int)what->peer);
    }
    return self_exchange(comm, out, &there, err);
}

static weft_status self_barrier(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what, weft_error *err) {
    const weft_status status = check(comm, what, err);
    if (status == WEFT_OK) *out = &comm->done;
    return status;
}

static weft_status self_pair(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what, weft_error *err) {
    (void)comm;
    (void)out;
    return weft_error_set(err, WEFT_E_HOST, "Place %d was named as the other side in a group of 1, which has none.",
                          (int)what->peer);
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
                                            NULL,
                                            NULL};

WEFT_PLUGIN(comm, 1, "self", "0.1.0", "A world of one rank.", self_config, NULL, self_table)
