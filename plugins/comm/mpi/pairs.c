/* pairs.c: see ranks.h. A reduce-scatter with direct messages between ranks. Each chunk is received into one of the
 * communicator's buffers and added to the sum, and the buffer is reused.
 *
 * Ranks cannot deadlock here. Messages to one rank never wait for messages to another. A buffer is assigned to a chunk
 * only after its sender has started, and such a sender continues in any case, so buffers become free again; a call that
 * other ranks have not started holds no buffer. Calls of one group, which all its ranks start in the same order, run
 * one after the other, because MPI distinguishes their messages only by order. */
#include "ranks.h"

/* Elements [at, at + n) of the row sent to or received from the rank `k + 1` further in the group. */
typedef struct piece {
    int64_t at, n;
    int32_t k;
    int bytes;
} piece;

static int64_t length_of(const ranks_pairs *p) {
    return RANKS_PIECE_BYTES / weft_dtype_bytes(p->dtype);
}

static int64_t pieces_of(const ranks_pairs *p) {
    return (p->n + length_of(p) - 1) / length_of(p);
}

static piece piece_at(const ranks_pairs *p, int64_t index, int32_t k) {
    const int64_t at = index * length_of(p), rest = p->n - at, n = rest < length_of(p) ? rest : length_of(p);
    return (piece){at, n, k, (int)(n * weft_dtype_bytes(p->dtype))};
}

/* Returns the rank `k + 1` further in the group, cyclically. No SEND or RECV uses this tag. */
static int peer(const ranks_pairs *p, int32_t k) {
    return (p->group->place + k + 1) % p->group->size;
}

static int tag(const ranks_pairs *p) {
    return p->group->comm->info.max_tag + 1;
}

static void note(weft_comm_handle *handle, int code) {
    if (handle->code == MPI_SUCCESS) handle->code = code;
}

/* True if the request has finished, with or without error. */
static int has_ended(weft_comm_handle *handle, MPI_Request *request) {
    int ended = 0;
    const int code = MPI_Test(request, &ended, MPI_STATUS_IGNORE);
    note(handle, code);
    return ended || code != MPI_SUCCESS;
}

static void send_on(weft_comm_handle *handle, int32_t k) {
    const ranks_pairs *p = &handle->pairs;
    const int64_t size = weft_dtype_bytes(p->dtype), pieces = pieces_of(p);
    ranks_way *way = &p->ways[k];
    while (way->ended < way->begun && has_ended(handle, &way->sent[way->ended % RANKS_AHEAD])) way->ended++;
    while (handle->code == MPI_SUCCESS && way->begun < pieces && way->begun - way->ended < RANKS_AHEAD) {
        const piece now = piece_at(p, way->begun, k);
        note(handle, MPI_Isend(p->from + (peer(p, k) * p->n + now.at) * size, now.bytes, MPI_BYTE, peer(p, k), tag(p),
                               p->group->mpi, &way->sent[way->begun % RANKS_AHEAD]));
        way->begun += handle->code == MPI_SUCCESS;
    }
}

/* Returns the chunk added at that turn. */
static piece piece_in_turn(const ranks_pairs *p, int64_t turn) {
    const int32_t rows = p->group->size - 1;
    return piece_at(p, turn / rows, (int32_t)(turn % rows));
}

static int is_heard(weft_comm_handle *handle, int32_t k) {
    const ranks_pairs *p = &handle->pairs;
    ranks_way *way = &p->ways[k];
    if (!way->is_heard) note(handle, MPI_Iprobe(peer(p, k), tag(p), p->group->mpi, &way->is_heard, MPI_STATUS_IGNORE));
    return way->is_heard;
}

static void ask(weft_comm_handle *handle) {
    ranks_pairs *p = &handle->pairs;
    weft_comm *comm = p->group->comm;
    const int64_t turns = pieces_of(p) * (p->group->size - 1);
    while (handle->code == MPI_SUCCESS && p->asked < turns && comm->n_free > 0) {
        const piece now = piece_in_turn(p, p->asked);
        const int64_t i = p->asked % RANKS_PLACES;
        if (!is_heard(handle, now.k)) return;
        p->places[i] = comm->free[comm->n_free - 1];
        note(handle,
             MPI_Irecv(p->places[i], now.bytes, MPI_BYTE, peer(p, now.k), tag(p), p->group->mpi, &p->requests[i]));
        if (handle->code != MPI_SUCCESS) return;
        comm->n_free--;
        p->asked++;
    }
}

static void add(weft_comm_handle *handle) {
    ranks_pairs *p = &handle->pairs;
    weft_comm *comm = p->group->comm;
    const int64_t size = weft_dtype_bytes(p->dtype);
    while (p->added < p->asked && has_ended(handle, &p->requests[p->added % RANKS_PLACES])) {
        const piece now = piece_in_turn(p, p->added);
        char *place = p->places[p->added % RANKS_PLACES], *to = p->to + now.at * size;
        const char *own = p->from + (p->group->place * p->n + now.at) * size;
        if (handle->code == MPI_SUCCESS) ranks_add(to, now.k == 0 ? own : to, place, now.n, p->dtype);
        comm->free[comm->n_free++] = place;
        p->added++;
    }
}

/* True if nothing is in flight and nothing remains. */
static int is_done(const weft_comm_handle *handle) {
    const ranks_pairs *p = &handle->pairs;
    const int32_t rows = p->group->size - 1;
    const int64_t pieces = pieces_of(p);
    int32_t k;
    if (p->added < p->asked || (handle->code == MPI_SUCCESS && p->added < pieces * rows)) return 0;
    for (k = 0; k < rows; k++) {
        const ranks_way *way = &p->ways[k];
        if (way->ended < way->begun || (handle->code == MPI_SUCCESS && way->begun < pieces)) return 0;
    }
    return 1;
}

/* Progresses one call. Sends start with the previous rank, which adds this rank's row first, and so on backwards. */
static int advance(weft_comm_handle *handle) {
    int32_t k;
    for (k = handle->pairs.group->size - 2; k >= 0; k--) send_on(handle, k);
    add(handle);
    ask(handle);
    handle->pairs.is_done = is_done(handle);
    return handle->pairs.is_done;
}

void ranks_pairs_advance(weft_comm *comm) {
    weft_comm_group *group;
    for (group = comm->groups; group != NULL; group = group->next) {
        while (group->pairs != NULL && advance(group->pairs)) group->pairs = group->pairs->pairs.next;
    }
}

/* --- memory --- */

/* Allocates the buffers once per communicator. */
static int take_places(weft_comm *comm) {
    if (comm->places != NULL) return 1;
    comm->places = comm->host->alloc(comm->host, (size_t)(RANKS_PLACES * RANKS_PIECE_BYTES), 64);
    if (comm->places == NULL) return 0;
    for (comm->n_free = 0; comm->n_free < RANKS_PLACES; comm->n_free++) {
        comm->free[comm->n_free] = comm->places + comm->n_free * RANKS_PIECE_BYTES;
    }
    return 1;
}

/* A handle keeps its per-peer state for the next call. */
static int take_ways(const weft_comm *comm, ranks_pairs *p, int32_t rows) {
    if (p->room < rows) {
        comm->host->release(comm->host, p->ways);
        p->room = 0;
        p->ways = comm->host->alloc(comm->host, (size_t)rows * sizeof *p->ways, _Alignof(max_align_t));
        if (p->ways == NULL) return 0;
        p->room = rows;
    }
    memset(p->ways, 0, (size_t)rows * sizeof *p->ways);
    return 1;
}

weft_status ranks_pairs_start(weft_comm_handle *handle, weft_comm_group *group, char *to, const char *from, int64_t n,
                              int32_t dtype, weft_error *err) {
    weft_comm *comm = group->comm;
    ranks_pairs *p = &handle->pairs;
    weft_comm_handle **last = &group->pairs;
    if (!take_places(comm) || !take_ways(comm, p, group->size - 1)) {
        return weft_error_set(err, WEFT_E_MEMORY, "No memory for the chunks of %s.", handle->name);
    }
    p->group = group;
    p->next = NULL;
    p->to = to;
    p->from = from;
    p->n = n;
    p->dtype = dtype;
    p->is_done = 0;
    p->asked = p->added = 0;
    while (*last != NULL) last = &(*last)->pairs.next;
    *last = handle;
    ranks_pairs_advance(comm);
    return WEFT_OK;
}
