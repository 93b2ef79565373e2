/* exchange.c: see world.h. */
#include "world.h"

/* A call in NCCL's terms: copies are bytes, sums have a type. */
typedef struct call {
    const weft_exchange *what;
    const asked_kind *kind;
    weft_comm_group *group;
    asked asked;
    char *to, *from; /* in device memory */
    size_t row;      /* bytes of n elements */
    cudaStream_t stream;
} call;

static ncclDataType_t type_of_sum(const call *c) {
    if (c->asked.dtype == WEFT_F32) return ncclFloat32;
    return c->asked.dtype == WEFT_F16 ? ncclFloat16 : ncclBfloat16;
}

static ncclResult_t run_all_gather(const call *c) {
    return ncclAllGather(c->from, c->to, c->row, ncclInt8, c->group->nccl, c->stream);
}

/* This rank's own row also goes through NCCL, as a copy. */
static ncclResult_t run_all_to_all(const call *c) {
    ncclResult_t code = ncclGroupStart(), ended;
    if (code != ncclSuccess) return code;
    for (int32_t r = 0; r < c->asked.group_size && code == ncclSuccess; r++) {
        code = ncclSend(c->from + (size_t)r * c->row, c->row, ncclInt8, r, c->group->nccl, c->stream);
        if (code == ncclSuccess)
            code = ncclRecv(c->to + (size_t)r * c->row, c->row, ncclInt8, r, c->group->nccl, c->stream);
    }
    ended = ncclGroupEnd();
    return code != ncclSuccess ? code : ended;
}

static ncclResult_t run_reduce_scatter(const call *c) {
    return ncclReduceScatter(c->from, c->to, (size_t)c->asked.n, type_of_sum(c), ncclSum, c->group->nccl, c->stream);
}

static ncclResult_t run_all_reduce(const call *c) {
    return ncclAllReduce(c->from, c->to, (size_t)c->asked.n, type_of_sum(c), ncclSum, c->group->nccl, c->stream);
}

static ncclResult_t run_broadcast(const call *c) {
    return ncclBroadcast(c->to, c->to, c->row, ncclInt8, c->asked.peer, c->group->nccl, c->stream);
}

static weft_status look_up(char **out, const call *c, const weft_comm *comm, weft_ref ref, int rows, weft_error *err) {
    const int64_t bytes = asked_bytes(&c->asked, rows);
    *out = bytes == 0 ? NULL : (char *)comm->native->address(comm->device, ref, bytes);
    if (bytes == 0 || *out != NULL) return WEFT_OK;
    return weft_error_set(err, WEFT_E_HOST, "%s needs %lld bytes from offset %lld of an operand on, which has fewer.",
                          c->kind->name, (long long)bytes, (long long)ref.offset);
}

/* Validates everything before any NCCL call. */
static weft_status prepare(call *c, weft_comm *comm, const weft_exchange *what, const asked_kind *kind,
                           weft_error *err) {
    weft_status status = WEFT_OK;
    if (comm->kernels == NULL) return weft_error_set(err, WEFT_E_HOST, "%s was started before `attach`.", kind->name);
    *c = (call){.what = what, .kind = kind, .group = what->group == NULL ? comm->world : what->group};
    if (c->group->comm != comm)
        return weft_error_set(err, WEFT_E_HOST, "%s was started in a group of another communicator.", kind->name);
    c->asked.group_size = c->group->size;
    c->asked.place = c->group->place;
    c->asked.max_tag = comm->info.max_tag;
    status = asked_judge(&c->asked, what, kind, err);
    if (status == WEFT_OK) status = look_up(&c->to, c, comm, what->to, kind->to, err);
    if (status == WEFT_OK) status = look_up(&c->from, c, comm, what->from, kind->from, err);
    c->row = (size_t)(c->asked.n * c->asked.size);
    return status;
}

/* Records the handle's event in the call's stream. */
static weft_status leave_handle(weft_comm_handle **out, weft_comm *comm, const char *name, weft_stream *stream,
                                weft_error *err) {
    weft_comm_handle *handle = nccl_handle_take(comm);
    weft_status status = WEFT_OK;
    if (handle == NULL) return weft_error_set(err, WEFT_E_MEMORY, "No memory for a handle of %s.", name);
    handle->name = name;
    status = comm->kernels->record_event(comm->device, stream, &handle->event, err);
    if (status == WEFT_OK) *out = handle;
    else nccl_handle_give_back(comm, handle);
    return status;
}

static weft_status start(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what, const asked_kind *kind,
                         ncclResult_t (*run)(const call *c), weft_error *err) {
    call c;
    weft_status status = prepare(&c, comm, what, kind, err);
    if (status != WEFT_OK) return status;
    c.stream = (cudaStream_t)comm->native->stream(comm->device, what->stream);
    status = nccl_watch_hold(comm, err);
    if (status != WEFT_OK) return status;
    if (c.row > 0) status = nccl_judge(run(&c), c.group->nccl, kind->name, err);
    nccl_watch_let_go(comm);
    return status == WEFT_OK ? leave_handle(out, comm, kind->name, what->stream, err) : status;
}

weft_status nccl_all_gather(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what, weft_error *err) {
    return start(comm, out, what, &asked_all_gather, run_all_gather, err);
}
weft_status nccl_all_to_all(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what, weft_error *err) {
    return start(comm, out, what, &asked_all_to_all, run_all_to_all, err);
}
weft_status nccl_reduce_scatter(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what, weft_error *err) {
    return start(comm, out, what, &asked_reduce_scatter, run_reduce_scatter, err);
}
weft_status nccl_all_reduce(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what, weft_error *err) {
    return start(comm, out, what, &asked_all_reduce, run_all_reduce, err);
}
weft_status nccl_broadcast(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what, weft_error *err) {
    return start(comm, out, what, &asked_broadcast, run_broadcast, err);
}

/* Allocates on first use: a training step has no barrier, and its memory plan counts every byte. */
static weft_status take_nothing(weft_comm *comm, weft_stream *stream, weft_error *err) {
    enum { BYTES = 256 };
    weft_ref all = {NULL, 0};
    weft_status status = WEFT_OK;
    if (comm->nothing != NULL) return WEFT_OK;
    status = comm->kernels->alloc(comm->device, &comm->nothing, BYTES, err);
    all.buffer = comm->nothing;
    return status == WEFT_OK ? comm->kernels->fill(comm->device, stream, all, 0, BYTES / 4, err) : status;
}

/* All ranks reduce a dummy value, which finishes after all have joined. */
weft_status nccl_barrier(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what, weft_error *err) {
    const weft_status status = take_nothing(comm, what->stream, err);
    const weft_exchange nothing = {.struct_size = (uint32_t)sizeof nothing,
                                   .group = what->group,
                                   .stream = what->stream,
                                   .to = {comm->nothing, 0},
                                   .from = {comm->nothing, 0},
                                   .n = 1,
                                   .dtype = WEFT_F32};
    static const asked_kind barrier = {"barrier", ASKED_ONE, ASKED_ONE, 1, 0, 0};
    if (status != WEFT_OK) return status;
    return start(comm, out, &nothing, &barrier, run_all_reduce, err);
}

static ncclResult_t run_pair(const call *c, const nccl_way *way, cudaStream_t stream) {
    if (c->row == 0) return ncclSuccess;
    return way->sends ? ncclSend(c->from, c->row, ncclInt8, 1, way->nccl, stream)
                      : ncclRecv(c->to, c->row, ncclInt8, 0, way->nccl, stream);
}

/* Makes the direction's own stream wait for the operand's stream. */
static weft_status follow(weft_comm *comm, weft_stream *stream, weft_stream *before, weft_error *err) {
    weft_event *event = NULL;
    const weft_status status = comm->kernels->record_event(comm->device, before, &event, err);
    return status == WEFT_OK ? comm->kernels->wait(comm->device, stream, event, err) : status;
}

static weft_status start_pair(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what,
                              const asked_kind *kind, weft_error *err) {
    const bool sends = kind == &asked_send;
    cudaStream_t stream = NULL;
    nccl_way *way = NULL;
    call c;
    weft_status status = prepare(&c, comm, what, kind, err);
    if (status != WEFT_OK) return status;
    way = nccl_way_find(comm, c.group->ranks[c.asked.peer], what->lane, sends);
    if (way == NULL || way->stream == NULL)
        return weft_error_set(err, WEFT_E_HOST, "%s of lane %d with rank %d was started before `connect`.", kind->name,
                              (int)what->lane, (int)c.group->ranks[c.asked.peer]);
    status = follow(comm, way->stream, what->stream, err);
    if (status != WEFT_OK) return status;
    stream = (cudaStream_t)comm->native->stream(comm->device, way->stream);
    status = nccl_watch_hold(comm, err);
    if (status != WEFT_OK) return status;
    status = nccl_judge(run_pair(&c, way, stream), way->nccl, kind->name, err);
    nccl_watch_let_go(comm);
    return status == WEFT_OK ? leave_handle(out, comm, kind->name, way->stream, err) : status;
}

weft_status nccl_send(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what, weft_error *err) {
    return start_pair(comm, out, what, &asked_send, err);
}
weft_status nccl_recv(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what, weft_error *err) {
    return start_pair(comm, out, what, &asked_recv, err);
}
