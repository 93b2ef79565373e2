/* exchange.c: see ranks.h. Every call takes the same steps. Its operands are validated and copied to host memory. Then
 * elements [at, at + count) of each row are passed to MPI, chunk by chunk, usually in a single chunk. */
#include "ranks.h"

typedef ranks_operands operands;

struct ranks_kind {
    const asked_kind *is;
    int (*start)(weft_comm_handle *handle, const operands *o, int64_t at, int count);
};

/* --- one chunk, passed to MPI --- */

/* `count` elements of a row as an MPI type, such that the same part of the next row is n elements further. */
typedef struct part {
    MPI_Datatype type;
    int count;
} part;

static int part_make(part *out, const operands *o, int count) {
    MPI_Datatype bytes = MPI_DATATYPE_NULL;
    const MPI_Aint row = (MPI_Aint)(o->asked.n * o->asked.size);
    int code;
    out->type = MPI_BYTE;
    out->count = count * (int)o->asked.size;
    if (count == o->asked.n) return MPI_SUCCESS;
    code = MPI_Type_contiguous(out->count, MPI_BYTE, &bytes);
    if (code == MPI_SUCCESS) code = MPI_Type_create_resized(bytes, 0, row, &out->type);
    if (code == MPI_SUCCESS) code = MPI_Type_commit(&out->type);
    out->count = 1;
    if (bytes != MPI_DATATYPE_NULL) (void)MPI_Type_free(&bytes);
    return code;
}

/* Frees the type; MPI keeps it until pending operations have finished. */
static void part_free(part *p) {
    if (p->type != MPI_BYTE) (void)MPI_Type_free(&p->type);
}

static int start_all_gather(weft_comm_handle *handle, const operands *o, int64_t at, int count) {
    MPI_Request *request = ranks_request(o->comm, handle);
    char *to = o->to + at * o->asked.size;
    part p;
    int code = request == NULL ? MPI_ERR_NO_MEM : part_make(&p, o, count);
    if (code != MPI_SUCCESS) return code;
    if (o->in_place) {
        code = MPI_Iallgather(MPI_IN_PLACE, 0, MPI_BYTE, to, p.count, p.type, o->group->mpi, request);
    } else {
        code = MPI_Iallgather(o->from + at * o->asked.size, count * (int)o->asked.size, MPI_BYTE, to, p.count, p.type,
                              o->group->mpi, request);
    }
    part_free(&p);
    return code;
}

static int start_all_to_all(weft_comm_handle *handle, const operands *o, int64_t at, int count) {
    MPI_Request *request = ranks_request(o->comm, handle);
    part p;
    int code = request == NULL ? MPI_ERR_NO_MEM : part_make(&p, o, count);
    if (code != MPI_SUCCESS) return code;
    code = MPI_Ialltoall(o->from + at * o->asked.size, p.count, p.type, o->to + at * o->asked.size, p.count, p.type,
                         o->group->mpi, request);
    part_free(&p);
    return code;
}

static MPI_Datatype sum_type(const operands *o) {
    return o->asked.dtype == WEFT_F32 ? MPI_FLOAT : MPI_UINT16_T;
}

static MPI_Op sum_op(const operands *o) {
    if (o->asked.dtype == WEFT_F32) return MPI_SUM;
    return o->asked.dtype == WEFT_F16 ? o->comm->add_f16 : o->comm->add_bf16;
}

/* In place only in a group of one. In larger groups an in-place call has a separate result buffer. */
static int start_reduce_scatter(weft_comm_handle *handle, const operands *o, int64_t at, int count) {
    MPI_Request *request = ranks_request(o->comm, handle);
    const void *from = o->in_place && o->group->size == 1 ? MPI_IN_PLACE : o->from + at * o->asked.size;
    if (request == NULL) return MPI_ERR_NO_MEM;
    return MPI_Ireduce_scatter_block(from, o->to + at * o->asked.size, count, sum_type(o), sum_op(o), o->group->mpi,
                                     request);
}

static int start_all_reduce(weft_comm_handle *handle, const operands *o, int64_t at, int count) {
    MPI_Request *request = ranks_request(o->comm, handle);
    char *to = o->to + at * o->asked.size;
    if (request == NULL) return MPI_ERR_NO_MEM;
    if (o->in_place) {
        return MPI_Iallreduce(MPI_IN_PLACE, to, count, sum_type(o), sum_op(o), o->group->mpi, request);
    }
    return MPI_Iallreduce(o->from + at * o->asked.size, to, count, sum_type(o), sum_op(o), o->group->mpi, request);
}

static int start_broadcast(weft_comm_handle *handle, const operands *o, int64_t at, int count) {
    MPI_Request *request = ranks_request(o->comm, handle);
    if (request == NULL) return MPI_ERR_NO_MEM;
    return MPI_Ibcast(o->to + at * o->asked.size, count * (int)o->asked.size, MPI_BYTE, o->asked.peer, o->group->mpi,
                      request);
}

static int start_send(weft_comm_handle *handle, const operands *o, int64_t at, int count) {
    MPI_Request *request = ranks_request(o->comm, handle);
    if (request == NULL) return MPI_ERR_NO_MEM;
    return MPI_Isend(o->from + at * o->asked.size, count * (int)o->asked.size, MPI_BYTE, o->asked.peer, o->asked.tag,
                     o->group->mpi, request);
}

static int start_recv(weft_comm_handle *handle, const operands *o, int64_t at, int count) {
    MPI_Request *request = ranks_request(o->comm, handle);
    if (request == NULL) return MPI_ERR_NO_MEM;
    handle->expected = o->asked.n * o->asked.size;
    return MPI_Irecv(o->to + at * o->asked.size, count * (int)o->asked.size, MPI_BYTE, o->asked.peer, o->asked.tag,
                     o->group->mpi, request);
}

static const ranks_kind all_gather = {&asked_all_gather, start_all_gather};
static const ranks_kind all_to_all = {&asked_all_to_all, start_all_to_all};
static const ranks_kind reduce_scatter = {&asked_reduce_scatter, start_reduce_scatter};
static const ranks_kind all_reduce = {&asked_all_reduce, start_all_reduce};
static const ranks_kind broadcast = {&asked_broadcast, start_broadcast};
static const ranks_kind send = {&asked_send, start_send};
static const ranks_kind recv = {&asked_recv, start_recv};

/* --- validation --- */

static weft_status judge(operands *o, const weft_exchange *what, const ranks_kind *kind, weft_error *err) {
    weft_status status = WEFT_OK;
    asked a = {.group_size = o->group->size, .place = o->group->place, .max_tag = o->comm->info.max_tag};
    if (o->comm->kernels == NULL)
        return weft_error_set(err, WEFT_E_HOST, "%s was started before `attach`.", kind->is->name);
    if (o->group->comm != o->comm) {
        return weft_error_set(err, WEFT_E_HOST, "%s was started in a group of another communicator.", kind->is->name);
    }
    status = asked_judge(&a, what, kind->is, err);
    o->asked = a;
    o->in_place = a.in_place;
    return status;
}

/* --- operands in host memory --- */

static weft_status take_block(ranks_block **out, const operands *o, int64_t bytes, const ranks_kind *kind,
                              weft_error *err) {
    const weft_status status = ranks_block_take(o->comm, out, bytes, err);
    if (status != WEFT_OK)
        (void)weft_error_prefix(err, "the host's memory for %lld bytes of %s: ", (long long)bytes, kind->is->name);
    return status;
}

/* Returns the host's own view of an operand, or new memory in *copy, owned by the handle. */
static weft_status view(operands *o, char **out, ranks_block **copy, weft_ref ref, int64_t bytes,
                        const ranks_kind *kind, weft_error *err) {
    const weft_device_plugin *kernels = o->comm->kernels;
    weft_status status = WEFT_OK;
    if (bytes == 0) return WEFT_OK;
    *out = kernels->host_view == NULL ? NULL : kernels->host_view(o->comm->device, ref);
    if (*out != NULL) return WEFT_OK;
    status = take_block(copy, o, bytes, kind, err);
    if (status == WEFT_OK) *out = (*copy)->memory;
    return status;
}

/* True if the sum is computed by pairs. Sums too large for one MPI call go by pairs too: MPI has no sum of rows with
 * gaps. */
static int goes_by_pairs(const operands *o, const ranks_kind *kind) {
    const int64_t row = o->asked.n * o->asked.size;
    if (!kind->is->is_sum || kind->is->from != ASKED_ALL || o->group->size == 1) return 0;
    return row >= RANKS_PAIRS_BYTES || row * o->group->size > RANKS_MOST_BYTES;
}

/* Fills o->to and o->from. A sum in place needs a copy too, like operands in device memory: MPI would use the first row
 * as the result, for every rank. */
static weft_status bring(weft_comm_handle *handle, operands *o, const weft_exchange *what, const ranks_kind *kind,
                         weft_error *err) {
    const weft_device_plugin *kernels = o->comm->kernels;
    const int64_t to_bytes = asked_bytes(&o->asked, kind->is->to), from_bytes = asked_bytes(&o->asked, kind->is->from);
    const int root = kind->is->has_root && o->asked.peer == o->group->place;
    weft_status status = WEFT_OK;
    handle->stream = what->stream;
    handle->device_to = what->to;
    handle->to_bytes = to_bytes;
    if (kernels->host_view != NULL) status = kernels->synchronize(o->comm->device, what->stream, err);
    if (status == WEFT_OK) status = view(o, &o->to, &handle->to, what->to, to_bytes, kind, err);
    if (status == WEFT_OK) status = view(o, &o->from, &handle->from, what->from, from_bytes, kind, err);
    if (status == WEFT_OK && handle->from != NULL)
        status = ranks_fetch(handle, handle->from, what->from, from_bytes, err);
    if (status == WEFT_OK && handle->to != NULL && root)
        status = ranks_fetch(handle, handle->to, what->to, to_bytes, err);
    if (handle->from != NULL) o->in_place = 0; /* the copies are disjoint */
    if (status == WEFT_OK && o->in_place && kind->is->from == ASKED_ALL && o->group->size > 1 &&
        !goes_by_pairs(o, kind)) {
        handle->result = o->to;
        status = take_block(&handle->to, o, to_bytes, kind, err);
        if (status != WEFT_OK) return status;
        o->to = handle->to->memory;
    }
    return status;
}

/* --- entry points --- */

/* Returns the maximum elements of a row per chunk. */
static int64_t most(const operands *o, const ranks_kind *kind) {
    const int64_t rows = kind->is->from == ASKED_ALL || kind->is->to == ASKED_ALL ? o->group->size : 1;
    const int64_t count = RANKS_MOST_BYTES / (rows * o->asked.size);
    return count < 1 ? 1 : count;
}

static weft_status start_pieces(weft_comm_handle *handle, const operands *o, const ranks_kind *kind, weft_error *err) {
    const int64_t piece = most(o, kind);
    int64_t at;
    int code = MPI_SUCCESS;
    for (at = 0; at < o->asked.n && code == MPI_SUCCESS; at += piece) {
        code = kind->start(handle, o, at, (int)(o->asked.n - at < piece ? o->asked.n - at : piece));
    }
    return code == MPI_SUCCESS ? WEFT_OK : ranks_error(err, WEFT_E_PEER, code, kind->is->name);
}

weft_status ranks_begin(weft_comm_handle *handle, weft_error *err) {
    const operands *o = &handle->operands;
    handle->phase = RANKS_MOVING;
    if (goes_by_pairs(o, handle->kind))
        return ranks_pairs_start(handle, o->group, o->to, o->from, o->asked.n, o->asked.dtype, err);
    return start_pieces(handle, o, handle->kind, err);
}

static weft_status start(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what, const ranks_kind *kind,
                         weft_error *err) {
    operands o = {.comm = comm, .group = what->group == NULL ? comm->world : what->group};
    weft_comm_handle *handle = NULL;
    weft_status status = judge(&o, what, kind, err);
    if (status != WEFT_OK) return status;
    handle = ranks_handle_take(comm);
    if (handle == NULL) return weft_error_set(err, WEFT_E_MEMORY, "No memory for a handle of %s.", kind->is->name);
    handle->name = kind->is->name;
    handle->kind = kind;
    status = ranks_tell_late(comm, err);
    if (status == WEFT_OK) status = bring(handle, &o, what, kind, err);
    handle->operands = o;
    if (status != WEFT_OK) {
        ranks_handle_give_back(comm, handle);
        return status;
    }
    /* On failure the handle stays in flight: MPI may still use some of its chunks. */
    status = ranks_line_up(handle, err);
    if (status == WEFT_OK) *out = handle;
    return status;
}

#define CALL(name)                                                                                                     \
    weft_status ranks_##name(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what, weft_error *err) {    \
        return start(comm, out, what, &name, err);                                                                     \
    }
CALL(all_gather)
CALL(all_to_all)
CALL(reduce_scatter)
CALL(all_reduce)
CALL(broadcast)
CALL(send)
CALL(recv)

weft_status ranks_barrier(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what, weft_error *err) {
    const weft_comm_group *group = what->group == NULL ? comm->world : what->group;
    weft_comm_handle *handle = NULL;
    MPI_Request *request = NULL;
    int code;
    if (group->comm != comm) {
        return weft_error_set(err, WEFT_E_HOST, "barrier was started in a group of another communicator.");
    }
    handle = ranks_handle_take(comm);
    if (handle != NULL) request = ranks_request(comm, handle);
    if (request == NULL) return weft_error_set(err, WEFT_E_MEMORY, "No memory for a handle of barrier.");
    handle->name = "barrier";
    handle->phase = RANKS_MOVING;
    code = MPI_Ibarrier(group->mpi, request);
    if (code != MPI_SUCCESS) return ranks_error(err, WEFT_E_PEER, code, handle->name);
    *out = handle;
    return WEFT_OK;
}
