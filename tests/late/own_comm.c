/* own_comm.c: a communicator that moves by itself (WEFT_PROGRESS_OWN), as NCCL does: an exchange takes its place in
 * the stream that it is given, and nobody drives it. It is an MPI behind the queues of the late device: an exchange
 * is a step of a stream of the communicator's own, which waits for the caller's, and which whoever joins waits for;
 * the device's thread does it when it gets there, and nobody else calls MPI meanwhile. An exchange holds that thread
 * until it is done, so a program whose RECV is queued before a SEND that the other side needs first hangs:
 * collective exchanges alone. */
#define WEFT_NOTE_MORE WEFT_NOTE_LAUNCH(RANKS_LAUNCH) WEFT_NOTE_LAUNCHED(RANKS_LAUNCHED)

#include <mpi.h>

#include "late.h"
#include "ranks/fault.h"
#include <weft/comm.h>

static weft_comm_plugin real, table;
static weft_device *device;
static const weft_device_plugin *kernels;
static const weft_device_transfer *transfer;
static const late_inside *inside;
static weft_stream *own;
static int begun_here;

typedef struct one_exchange {
    weft_comm *comm;
    weft_exchange_fn *how;
    weft_exchange what;
} one_exchange;

static weft_status do_exchange(weft_device *late, void *payload, weft_error *err) {
    const one_exchange *x = payload;
    weft_comm_handle *handle = NULL;
    weft_status status = x->how(x->comm, &handle, &x->what, err);
    (void)late;
    return status == WEFT_OK ? real.wait(x->comm, handle, err) : status;
}

/* A handle is the mark behind the exchange. */
static weft_status start(weft_comm *comm, weft_comm_handle **out, weft_exchange_fn *how, const weft_exchange *what,
                         weft_error *err) {
    one_exchange x = {comm, how, *what};
    weft_mark *before = NULL, *behind = NULL;
    weft_status status = kernels->mark(device, what->stream, &before, err);
    x.what.stream = NULL;
    if (status == WEFT_OK) status = kernels->wait(device, own, before, err);
    if (status == WEFT_OK) status = inside->queue(device, own, do_exchange, &x, sizeof x, NULL, 0, err);
    if (status == WEFT_OK) status = kernels->mark(device, own, &behind, err);
    *out = (weft_comm_handle *)behind;
    return status;
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

static weft_status wait(weft_comm *comm, weft_comm_handle *handle, weft_error *err) {
    (void)comm;
    return transfer->await(device, (weft_mark *)handle, err);
}

static int32_t test(weft_comm *comm, weft_comm_handle *handle, weft_error *err) {
    const int32_t reached = transfer->reached(device, (weft_mark *)handle, err);
    if (reached == 0) return 0;
    return wait(comm, handle, err) == WEFT_OK ? 1 : -1;
}

static weft_status join(weft_comm *comm, weft_comm_handle *handle, weft_stream *stream, weft_error *err) {
    (void)comm;
    return kernels->wait(device, stream, (weft_mark *)handle, err);
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
    if (own != NULL) kernels->stream_destroy(device, own);
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
    transfer = by->extension(to, WEFT_DEVICE_TRANSFER);
    if (inside == NULL || transfer == NULL)
        return weft_error_set(err, WEFT_E_UNSUPPORTED, "This communicator needs the late device.");
    if (by->stream_create(to, &own, err) != WEFT_OK) return (weft_status)err->code;
    return real.attach(comm, inside->device(to), inside->kernels, err);
}

static weft_status group(weft_comm *comm, weft_comm_group **out, const int32_t *ranks, int32_t n, weft_error *err) {
    const weft_status status = kernels->synchronize(device, own, err);
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
