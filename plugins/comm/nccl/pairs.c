/* pairs.c: see world.h. */
#include "world.h"

/* The sender creates the NCCL id, and the receiver reads it. */
static weft_status meet(ncclUniqueId *id, weft_comm *comm, const nccl_way *way, weft_error *err) {
    const int32_t from = way->sends ? comm->info.rank : way->peer, to = way->sends ? way->peer : comm->info.rank;
    const weft_host_exchange *exchange =
        (const weft_host_exchange *)comm->host->extension(comm->host, WEFT_HOST_EXCHANGE);
    char key[60];
    weft_status status = WEFT_OK;
    (void)snprintf(key, sizeof key, "nccl.%d.to.%d.lane.%d", (int)from, (int)to, (int)way->lane);
    if (exchange == NULL)
        return weft_error_set(err, WEFT_E_HOST, "The host has no exchange to connect two ranks of NCCL.");
    if (!way->sends) {
        status = exchange->get(comm->host, key, id, sizeof *id, err);
        return status == WEFT_OK ? WEFT_OK : weft_error_prefix(err, "NCCL, the channel from rank %d: ", (int)from);
    }
    status = nccl_judge(ncclGetUniqueId(id), NULL, "a name for two ranks", err);
    return status == WEFT_OK ? exchange->put(comm->host, key, id, sizeof *id, err) : status;
}

static weft_status make_way(nccl_way *way, weft_comm *comm, weft_error *err) {
    ncclUniqueId id;
    weft_status status = meet(&id, comm, way, err);
    if (status == WEFT_OK)
        status = nccl_judge(ncclCommInitRank(&way->nccl, 2, id, way->sends ? 0 : 1), NULL,
                            way->sends ? "the channel to a rank" : "the channel from a rank", err);
    if (status == WEFT_OK) status = comm->kernels->stream_create(comm->device, &way->stream, err);
    return status;
}

nccl_way *nccl_way_find(const weft_comm *comm, int32_t peer, int32_t lane, bool sends) {
    nccl_way *way = comm->ways;
    while (way != NULL && (way->peer != peer || way->lane != lane || way->sends != sends)) way = way->next;
    return way;
}

weft_status nccl_connect(weft_comm *comm, weft_comm_group *group, int32_t peer, int32_t lane, int32_t sends,
                         weft_error *err) {
    const weft_comm_group *among = group == NULL ? comm->world : group;
    nccl_way *way = NULL;
    weft_status status = WEFT_OK;
    if (among == NULL || peer < 0 || peer >= among->size || peer == among->place || lane < 0 || lane >= WEFT_COMM_LANES)
        return weft_error_set(err, WEFT_E_HOST, "rank %d and lane %d select no lane of another rank.", (int)peer,
                              (int)lane);
    if (nccl_way_find(comm, among->ranks[peer], lane, sends != 0) != NULL) return WEFT_OK;
    way = comm->host->alloc(comm->host, sizeof *way, _Alignof(max_align_t));
    if (way == NULL) return weft_error_set(err, WEFT_E_MEMORY, "No memory for a channel to rank %d.", (int)peer);
    memset(way, 0, sizeof *way);
    way->peer = among->ranks[peer];
    way->lane = lane;
    way->sends = sends != 0;
    status = make_way(way, comm, err);
    (void)pthread_mutex_lock(&comm->lock);
    way->next = comm->ways;
    comm->ways = way;
    (void)pthread_mutex_unlock(&comm->lock);
    return status;
}

void nccl_ways_free(weft_comm *comm) {
    while (comm->ways != NULL) {
        nccl_way *way = comm->ways;
        comm->ways = way->next;
        nccl_end(comm, way->nccl);
        if (way->stream != NULL) comm->kernels->stream_destroy(comm->device, way->stream);
        comm->host->release(comm->host, way);
    }
}
