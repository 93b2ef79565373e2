/* own_comm.c: a communicator with its own progress (WEFT_PROGRESS_OWN), like NCCL: an operation runs in the stream of
 * its call, without progress calls. It queues an MPI's operations on the late device, so that only the device's thread
 * calls MPI.
 *
 * An operation is started by a step of one stream of the communicator, which waits for the caller's stream. A step of
 * another stream completes it, and joins wait for that stream. The completing step blocks the thread until the
 * operation is done. It is therefore queued after every start before the join, because other ranks may need those
 * first. */
#define WEFT_NOTE_MORE WEFT_NOTE_LAUNCH(RANKS_LAUNCH) WEFT_NOTE_LAUNCHED(RANKS_LAUNCHED)

#include <mpi.h>
#include <stdlib.h>

#include "late.h"
#include "ranks/fault.h"
#include <weft/comm.h>

static weft_comm_plugin real, table;
static weft_device *device;
static const weft_device_plugin *kernels;
static const late_inside *inside;
static weft_stream *starts, *ends;
static int begun_here;

/* A handle. Captured operations are started and completed again by each replay, so it lives as long as the
 * communicator. */
struct weft_comm_handle {
    weft_comm_handle *next;
    weft_comm *comm;
    weft_exchange_fn *how;
    weft_exchange what;
    weft_comm_handle *under_way; /* of the MPI */
};
static weft_comm_handle *all;

static weft_status start_it(weft_device *late, void *payload, weft_error *err) {
    weft_comm_handle *x = *(weft_comm_handle **)payload;
    (void)late;
    return x->how(x->comm, &x->under_way, &x->what, err);
}

static weft_status end_it(weft_device *late, void *payload, weft_error *err) {
    weft_comm_handle *x = *(weft_comm_handle **)payload;
    (void)late;
    return real.wait(x->comm, x->under_way, err);
}

/* Lets `to` wait for the current end of `from`. */
static weft_status follow(weft_stream *to, weft_stream *from, weft_error *err) {
    weft_event *here = NULL;
    const weft_status status = kernels->record_event(device, from, &here, err);
    return status == WEFT_OK ? kernels->wait(device, to, here, err) : status;
}

static weft_status start(weft_comm *comm, weft_comm_handle **out, weft_exchange_fn *how, const weft_exchange *what,
                         weft_error *err) {
    weft_comm_handle *x = calloc(1, sizeof *x);
    weft_status status = WEFT_OK;
    if (x == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for an exchange");
    *x = (weft_comm_handle){all, comm, how, *what, NULL};
    x->what.stream = NULL;
    all = x;
    status = follow(starts, what->stream, err);
    *out = x;
    return status == WEFT_OK ? inside->queue(device, starts, start_it, &x, sizeof x, NULL, 0, err) : status;
}

#define EXCHANGE(name)                                                                                                 \
    static weft_status name(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what, weft_error *err) {     \
        return start(comm, out, real.name, what, err);                                                                 \
    }
EXCHANGE(all_gather)
EXCHANGE(all_to_all)
EXCHANGE(reduce_scatter)
EXCHANGE(all_reduce)
EXCHANGE(broadcast)
EXCHANGE(barrier)
EXCHANGE(send)
EXCHANGE(recv)

static weft_status finish(weft_comm_handle *x, weft_error *err) {
    const weft_status status = follow(ends, starts, err);
    return status == WEFT_OK ? inside->queue(device, ends, end_it, &x, sizeof x, NULL, 0, err) : status;
}

static weft_status join(weft_comm *comm, weft_comm_handle *handle, weft_stream *stream, weft_error *err) {
    const weft_status status = finish(handle, err);
    (void)comm;
    return status == WEFT_OK ? follow(stream, ends, err) : status;
}

static weft_status wait(weft_comm *comm, weft_comm_handle *handle, weft_error *err) {
    const weft_status status = finish(handle, err);
    (void)comm;
    return status == WEFT_OK ? kernels->synchronize(device, ends, err) : status;
}

static int32_t test(weft_comm *comm, weft_comm_handle *handle, weft_error *err) {
    return wait(comm, handle, err) == WEFT_OK ? 1 : -1;
}

/* ---- the world ---- */

static weft_status create(weft_comm **out, const weft_host *host, const void *config, const weft_comm_job *job,
                          weft_error *err) {
    int level = 0;
    (void)MPI_Initialized(&begun_here);
    begun_here = !begun_here;
    if (begun_here) (void)MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    return real.create(out, host, config, job, err);
}

static void destroy(weft_comm *comm) {
    if (ends != NULL) kernels->stream_destroy(device, ends);
    if (starts != NULL) kernels->stream_destroy(device, starts);
    while (all != NULL) {
        weft_comm_handle *next = all->next;
        free(all);
        all = next;
    }
    real.destroy(comm);
    if (begun_here) (void)MPI_Finalize();
}

static void info(const weft_comm *comm, weft_comm_info *out) {
    real.info(comm, out);
    out->progress = WEFT_PROGRESS_OWN;
}

static weft_status attach(weft_comm *comm, weft_device *to, const weft_device_plugin *by, weft_error *err) {
    device = to;
    kernels = by;
    inside = by->extension(to, LATE_INSIDE);
    if (inside == NULL) return weft_error_set(err, WEFT_E_UNSUPPORTED, "This communicator needs the late device.");
    if (by->stream_create(to, &starts, err) != WEFT_OK || by->stream_create(to, &ends, err) != WEFT_OK)
        return (weft_status)err->code;
    return real.attach(comm, inside->device(to), inside->kernels, err);
}

static weft_status group(weft_comm *comm, weft_comm_group **out, const int32_t *ranks, int32_t n, weft_error *err) {
    const weft_status status = kernels->synchronize(device, ends, err);
    return status == WEFT_OK ? real.group(comm, out, ranks, n, err) : status;
}

FAULT_NOTE(comm, FAULT_ID)
const weft_plugin_list *weft_plugin_entry(const weft_host *host, weft_error *err) {
    const weft_plugin *plugin = fault_copy(&real, sizeof real, host, err);
    if (plugin == NULL) return NULL;
    table = real;
    table.create = create, table.destroy = destroy, table.info = info, table.attach = attach, table.group = group;
    table.all_gather = all_gather, table.all_to_all = all_to_all, table.reduce_scatter = reduce_scatter;
    table.all_reduce = all_reduce, table.broadcast = broadcast, table.barrier = barrier;
    table.send = send, table.recv = recv;
    table.test = test, table.wait = wait, table.join = join, table.poke = NULL;
    return fault_list(plugin, FAULT_ID, &table);
}
