/* host/run/ranks.c: see ranks.h. */
#include "run/ranks.h"

#include "base/alloc.h"
#include "base/units.h"
#include "launch/heartbeat.h"
#include "launch/watchdog.h"
#include "plugin/enter.h"

#include <stdlib.h>
#include <unistd.h>

const char *weft_traffic_name(int32_t kind) {
    static const char *const names[WEFT_N_TRAFFIC] = {"other",       "gather",        "gather sum", "reduce all",
                                                      "reduce node", "reduce across", "refresh",    "send",
                                                      "norm",        "losses"};
    return names[kind >= 0 && kind < WEFT_N_TRAFFIC ? kind : WEFT_TRAFFIC_OTHER];
}

int32_t weft_traffic_of(const weft_instruction *instruction) {
    switch (instruction->kind) {
    case WEFT_INSTRUCTION_GATHER: return instruction->what == WEFT_PAYLOAD_SUM ? WEFT_TRAFFIC_SUM : WEFT_TRAFFIC_GATHER;
    case WEFT_INSTRUCTION_REDUCE:
        return instruction->scope == WEFT_SCOPE_ALL      ? WEFT_TRAFFIC_REDUCE_ALL
               : instruction->scope == WEFT_SCOPE_NODE   ? WEFT_TRAFFIC_REDUCE_NODE
               : instruction->scope == WEFT_SCOPE_ACROSS ? WEFT_TRAFFIC_REDUCE_ACROSS
                                                         : WEFT_TRAFFIC_OTHER;
    case WEFT_INSTRUCTION_REFRESH: return WEFT_TRAFFIC_REFRESH;
    case WEFT_INSTRUCTION_SEND: return WEFT_TRAFFIC_SEND;
    default: return WEFT_TRAFFIC_OTHER;
    }
}

void weft_ranks_set(weft_ranks *self, const weft_rank_span *rank_span) {
    self->process_context = rank_span->process_context;
    self->plugin = rank_span->process_context->comm_plugin;
    self->comm = rank_span->process_context->comm;
    self->info = rank_span->process_context->comm_info;
    self->info.nodes = weft_process_context_nodes(rank_span->process_context, rank_span->base, rank_span->world);
    self->base = rank_span->base;
    self->rank = rank_span->rank;
    self->world = rank_span->world;
}

void weft_ranks_clear(weft_ranks *self) {
    if (self->sent != NULL) free(self->sent->to);
    free(self->sent);
    self->sent = NULL;
}

weft_status weft_ranks_create_group(weft_ranks *self, weft_error *err) {
    weft_status status = WEFT_OK;
    int32_t *ranks = NULL;
    if (self->world == 1 || self->sent != NULL) return WEFT_OK;
    self->sent = weft_alloc(1, sizeof *self->sent);
    self->sent->to = weft_alloc(self->world, sizeof *self->sent->to);
    if (self->world == self->process_context->comm_info.size) return WEFT_OK;
    ranks = weft_alloc(self->world, sizeof *ranks);
    for (int32_t rank = 0; rank < self->world; rank++) ranks[rank] = self->base + rank;
    status = weft_process_context_group_of(self->process_context, &self->everyone, ranks, self->world, err);
    free(ranks);
    return status;
}

weft_status weft_ranks_group(weft_ranks *self, const weft_cut *cut, weft_error *err) {
    weft_status status = WEFT_OK;
    int32_t *ranks = NULL;
    if (self->world == 1 || weft_ranks_group_of(self, cut, WEFT_SCOPE_ALL) != NULL || cut->replicas != self->world)
        return WEFT_OK;
    if (self->n_cuts == WEFT_MAX_CUTS)
        return weft_error_set(err, WEFT_E_UNSUPPORTED,
                              "the strategy cuts units over more than %d sizes of rank groups: this host makes no more",
                              (int)WEFT_MAX_CUTS);
    ranks = weft_alloc(self->world, sizeof *ranks);
    self->cuts[self->n_cuts].group = cut->group;
    for (int32_t scope = WEFT_SCOPE_ALL; scope <= WEFT_SCOPE_ACROSS && status == WEFT_OK; scope++) {
        for (int32_t rank = 0; rank < self->world; rank++)
            if (weft_scope_together(cut, scope, rank, self->rank))
                ranks[weft_scope_place(cut, scope, rank)] = self->base + rank;
        status = weft_process_context_group_of(self->process_context, &self->cuts[self->n_cuts].by_scope[scope], ranks,
                                               weft_scope_size(cut, scope), err);
    }
    if (status == WEFT_OK) self->n_cuts++;
    free(ranks);
    return status;
}

weft_comm_group *weft_ranks_group_of(const weft_ranks *self, const weft_cut *cut, int32_t scope) {
    for (int32_t i = 0; i < self->n_cuts; i++)
        if (self->cuts[i].group == cut->group) return self->cuts[i].by_scope[scope];
    return NULL;
}

/* Each other rank of a collective exchange's group gets `bytes`. */
static void count_exchange(const weft_ranks *self, weft_exchange_fn *how, const weft_transfer *what) {
    const int64_t bytes = what->n * weft_dtype_bytes(what->dtype);
    const bool sends = how == self->plugin->send;
    weft_cut cut = {self->world, self->world, 1}; /* everyone */
    int32_t scope = WEFT_SCOPE_ALL;
    weft_traffic *sent = self->sent;
    if (sent == NULL || !self->counts || what->traffic == WEFT_TRAFFIC_OTHER || how == self->plugin->recv) return;
    for (int32_t i = 0; i < self->n_cuts; i++)
        for (int32_t s = WEFT_SCOPE_ALL; s <= WEFT_SCOPE_ACROSS; s++)
            if (self->cuts[i].by_scope[s] == what->group) {
                cut = (weft_cut){self->world, self->cuts[i].group, self->world / self->cuts[i].group};
                scope = s;
            }
    for (int32_t rank = 0; rank < self->world; rank++) {
        if (rank == self->rank || !(sends ? rank == what->peer : weft_scope_together(&cut, scope, rank, self->rank)))
            continue;
        sent->to[rank] += bytes;
        sent->sent[what->traffic] += bytes;
    }
}

weft_status weft_ranks_start(const weft_ranks *self, weft_comm_handle **out, weft_exchange_fn *how, const char *name,
                             const weft_transfer *what, weft_error *err) {
    const weft_exchange exchange = {.struct_size = (uint32_t)sizeof exchange,
                                    .group = what->group,
                                    .stream = what->stream,
                                    .to = what->to,
                                    .from = what->from,
                                    .n = what->n,
                                    .dtype = what->dtype,
                                    .peer = what->peer,
                                    .tag = what->tag,
                                    .lane = what->lane};
    const weft_call_record before = weft_plugin_enter(self->plugin, name);
    count_exchange(self, how, what);
    return weft_plugin_leave(before, how(self->comm, out, &exchange, err), err);
}

weft_status weft_ranks_join(const weft_ranks *self, weft_comm_handle **handle, weft_stream *stream, weft_error *err) {
    weft_status status = WEFT_OK;
    if (*handle == NULL) return WEFT_OK;
    weft_heartbeat_wait();
    if (WEFT_HAS(self->plugin, join) && self->plugin->join != NULL)
        WEFT_PLUGIN_CALL(status, self->plugin, join, err, self->comm, *handle, stream);
    else WEFT_PLUGIN_CALL(status, self->plugin, wait, err, self->comm, *handle);
    weft_heartbeat_go();
    *handle = NULL;
    return status;
}

weft_status weft_ranks_check(const weft_ranks *self, weft_error *err) {
    weft_status status = WEFT_OK;
    if (self->world == 1 || !WEFT_HAS(self->plugin, check) || self->plugin->check == NULL) return WEFT_OK;
    WEFT_PLUGIN_CALL(status, self->plugin, check, err, self->comm);
    return status;
}

weft_status weft_ranks_exchange(const weft_ranks *self, weft_exchange_fn *how, const char *name,
                                const weft_transfer *what, weft_error *err) {
    weft_comm_handle *handle = NULL;
    weft_status status = weft_ranks_start(self, &handle, how, name, what, err);
    return status == WEFT_OK ? weft_ranks_join(self, &handle, what->stream, err) : status;
}

bool weft_ranks_need_connecting(const weft_ranks *self) {
    return self->world > 1 && self->comm != NULL && WEFT_HAS(self->plugin, connect) && self->plugin->connect != NULL;
}

static weft_status connect_channels(const weft_ranks *self, int32_t peer, const bool *lanes, bool sends,
                                    weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t lane = 0; lane < WEFT_COMM_LANES && status == WEFT_OK; lane++)
        if (lanes[lane])
            WEFT_PLUGIN_CALL(status, self->plugin, connect, err, self->comm, self->everyone, peer, lane, sends);
    if (status == WEFT_OK) return WEFT_OK;
    return weft_error_prefix(err, "connecting %s rank %d: ", sends ? "to" : "from", (int)peer);
}

weft_status weft_ranks_connect(const weft_ranks *self, const weft_p2p_channels *lanes, weft_error *err) {
    weft_status status = WEFT_OK;
    if (!weft_ranks_need_connecting(self)) return WEFT_OK;
    weft_heartbeat_wait();
    for (int32_t sender = 0; sender < self->world && status == WEFT_OK; sender++) {
        if (sender != self->rank) status = connect_channels(self, sender, lanes[sender].receives, false, err);
        for (int32_t to = 0; sender == self->rank && to < self->world && status == WEFT_OK; to++)
            status = connect_channels(self, to, lanes[to].sends, true, err);
    }
    weft_heartbeat_go();
    if (status != WEFT_OK) self->process_context->broken = true;
    return status;
}

/* ---- the control channel ---- */

enum { ALIGNMENT = 64 };

static weft_status write_bytes(const weft_control_channel *self, int64_t offset, const void *bytes, int64_t n,
                               weft_error *err) {
    const weft_ref to = {self->buffer, offset};
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, self->kernels, write, err, self->device, NULL, to, bytes, n);
    return status;
}

/* If the device waits for an exchange, this call waits for other ranks. */
static weft_status read_bytes(const weft_control_channel *self, void *bytes, int64_t offset, int64_t n,
                              weft_error *err) {
    const weft_ref from = {self->buffer, offset};
    weft_status status = WEFT_OK;
    weft_heartbeat_wait();
    WEFT_PLUGIN_CALL(status, self->kernels, read, err, self->device, NULL, bytes, from, n);
    weft_heartbeat_go();
    return status;
}

static weft_transfer make_transfer(const weft_control_channel *self, int64_t to, int64_t from, int64_t n,
                                   int32_t peer) {
    return (weft_transfer){.group = self->ranks->everyone,
                           .to = {self->buffer, to},
                           .from = {self->buffer, from},
                           .n = n,
                           .dtype = WEFT_U8,
                           .peer = peer};
}

static weft_status note_failure(weft_control_channel *self, weft_status status, weft_error *err) {
    self->broken = self->broken || status != WEFT_OK;
    if (status == WEFT_OK || status == WEFT_E_PEER) return status;
    return weft_error_prefix(err, "control channel between ranks: ");
}

/* After a failed exchange none is started: other ranks may wait in the failed one forever. */
static weft_status check_intact(const weft_control_channel *self, weft_error *err) {
    if (!self->broken && !self->ranks->process_context->broken) return WEFT_OK;
    return weft_error_set(err, WEFT_E_PEER, "an earlier exchange of this rank has failed: it sends no messages");
}

static weft_status gather_numbers(void *context, int32_t *out, int32_t mine, weft_error *err) {
    weft_control_channel *self = context;
    const int64_t n = (int64_t)sizeof mine;
    const weft_ranks *ranks = self->ranks;
    const weft_transfer transfer = make_transfer(self, ALIGNMENT, 0, n, 0);
    weft_status status = check_intact(self, err);
    if (status == WEFT_OK) status = write_bytes(self, 0, &mine, n, err);
    if (status == WEFT_OK) status = weft_ranks_exchange(ranks, ranks->plugin->all_gather, "all_gather", &transfer, err);
    if (status == WEFT_OK) status = read_bytes(self, out, ALIGNMENT, n * ranks->world, err);
    return note_failure(self, status, err);
}

static weft_status share_bytes(void *context, void *bytes, int64_t n, int32_t from, weft_error *err) {
    weft_control_channel *self = context;
    const weft_ranks *ranks = self->ranks;
    weft_status status = check_intact(self, err);
    for (int64_t at = 0; at < n && status == WEFT_OK; at += self->bytes) {
        char *chunk = (char *)bytes + at;
        const int64_t m = weft_smaller(n - at, self->bytes);
        const weft_transfer transfer = make_transfer(self, 0, 0, m, from);
        if (ranks->rank == from) status = write_bytes(self, 0, chunk, m, err);
        if (status == WEFT_OK)
            status = weft_ranks_exchange(ranks, ranks->plugin->broadcast, "broadcast", &transfer, err);
        if (status == WEFT_OK) status = read_bytes(self, chunk, 0, m, err);
    }
    return note_failure(self, status, err);
}

/* ---- all-to-all ----
 *
 * All messages of all ranks have one order: by sender, by receiver, by position in their buffer, which both sides chunk
 * in the same way. Each rank processes its messages in that order, as many at once as the buffer holds, and completes
 * these before it starts more. So all complete, however much the communicator buffers. */

static weft_status complete_messages(weft_control_channel *self, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < self->n_messages && status == WEFT_OK; i++) {
        weft_control_message *message = &self->messages[i];
        status = weft_ranks_join(self->ranks, &message->handle, NULL, err);
        if (status == WEFT_OK && message->to != NULL)
            status = read_bytes(self, message->to, message->offset, message->n, err);
    }
    self->n_messages = 0;
    self->filled = 0;
    return status;
}

/* Sends or receives a buffer in chunks of a quarter of the channel's: several are in flight at once. */
static weft_status start_buffer(weft_control_channel *self, int32_t peer, bool sends, const weft_message_buffer *buffer,
                                weft_error *err) {
    const weft_ranks *ranks = self->ranks;
    const int64_t chunk = self->bytes / 4;
    weft_status status = WEFT_OK;
    for (int64_t at = 0; at < buffer->n && status == WEFT_OK; at += chunk) {
        const int64_t n = weft_smaller(buffer->n - at, chunk);
        char *bytes = (char *)buffer->bytes + at;
        weft_control_message *message = NULL;
        weft_transfer transfer;
        if (self->n_messages == 2 * ranks->world || self->filled + n > self->bytes)
            status = complete_messages(self, err);
        message = &self->messages[self->n_messages++];
        *message = (weft_control_message){.offset = self->filled, .n = n, .to = sends ? NULL : bytes};
        self->filled += weft_cache_lines(n);
        transfer = make_transfer(self, message->offset, message->offset, n, peer);
        if (status == WEFT_OK && sends) status = write_bytes(self, message->offset, bytes, n, err);
        if (status == WEFT_OK)
            status = weft_ranks_start(ranks, &message->handle, sends ? ranks->plugin->send : ranks->plugin->recv,
                                      sends ? "send" : "recv", &transfer, err);
    }
    return status;
}

/* ---- all-to-all without channels ----
 *
 * A communicator that has to be connected first may allocate device memory for each channel, so there are only those to
 * rank 0, which are opened before the available memory is measured. Messages to other ranks are broadcast, sender by
 * sender: the sizes, then the bytes. They are small: boundary pages of a file that two ranks write. */

static int64_t sum_sizes(const int32_t *sizes, int32_t n) {
    int64_t sum = 0;
    for (int32_t r = 0; r < n; r++) sum += sizes[r];
    return sum;
}

static weft_status broadcast_from(weft_control_channel *self, const weft_message_buffer *in,
                                  const weft_message_buffer *out, int32_t sender, weft_error *err) {
    const weft_ranks *ranks = self->ranks;
    const int32_t world = ranks->world, rank = ranks->rank;
    int32_t *sizes = self->sizes;
    char *bytes = NULL, *end = NULL;
    weft_status status = WEFT_OK;
    for (int32_t r = 0; sender == rank && r < world; r++) {
        if (out[r].n > INT32_MAX)
            return weft_error_set(err, WEFT_E_HOST, "rank %d sends rank %d more than 2 GiB at once", (int)rank, (int)r);
        sizes[r] = r == 0 || r == rank ? 0 : (int32_t)out[r].n;
    }
    status = share_bytes(self, sizes, world * (int64_t)sizeof *sizes, sender, err);
    if (status != WEFT_OK) return status;
    bytes = end = malloc((size_t)sum_sizes(sizes, world) + 1);
    if (bytes == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the messages of rank %d", (int)sender);
    for (int32_t r = 0; sender == rank && r < world; r++) {
        if (sizes[r] > 0) memcpy(end, out[r].bytes, (size_t)sizes[r]);
        end += sizes[r];
    }
    status = share_bytes(self, bytes, sum_sizes(sizes, world), sender, err);
    if (status == WEFT_OK && sender != rank && rank != 0) {
        if (sizes[rank] != in[sender].n)
            status = weft_error_set(err, WEFT_E_HOST, "rank %d has %lld bytes for rank %d, which expects %lld",
                                    (int)sender, (long long)sizes[rank], (int)rank, (long long)in[sender].n);
        else if (sizes[rank] > 0) memcpy(in[sender].bytes, bytes + sum_sizes(sizes, rank), (size_t)sizes[rank]);
    }
    free(bytes);
    return status;
}

static weft_status swap_messages(void *context, const weft_message_buffer *in, const weft_message_buffer *out,
                                 weft_error *err) {
    weft_control_channel *self = context;
    const weft_ranks *ranks = self->ranks;
    const bool to_first = weft_ranks_need_connecting(ranks); /* channels only to rank 0 */
    const int32_t world = ranks->world, receivers = to_first ? 1 : world;
    int32_t some = 0;
    weft_status status = check_intact(self, err);
    for (int32_t sender = 0; sender < world && status == WEFT_OK; sender++) {
        if (sender != ranks->rank && ranks->rank < receivers)
            status = start_buffer(self, sender, false, &in[sender], err);
        for (int32_t to = 0; sender == ranks->rank && to < receivers && status == WEFT_OK; to++)
            status = start_buffer(self, to, true, &out[to], err);
    }
    if (status == WEFT_OK) status = complete_messages(self, err);
    if (status == WEFT_OK && to_first) {
        for (int32_t r = 1; r < world; r++) some |= r != ranks->rank && out[r].n > 0;
        status = gather_numbers(self, self->senders, some, err);
        for (int32_t sender = 0; sender < world && status == WEFT_OK; sender++)
            if (self->senders[sender] != 0) status = broadcast_from(self, in, out, sender, err);
    }
    return note_failure(self, status, err);
}

weft_status weft_share_array(const weft_process_group *peers, void **out, int64_t *n, const void *mine, size_t size,
                             int32_t from, weft_error *err) {
    const weft_status status = peers->share(peers->context, n, (int64_t)sizeof *n, from, err);
    if (status != WEFT_OK) return status;
    *out = weft_alloc(*n, size);
    if (peers->rank == from && *n > 0) memcpy(*out, mine, (size_t)*n * size);
    return *n > 0 ? peers->share(peers->context, *out, *n * (int64_t)size, from, err) : WEFT_OK;
}

weft_status weft_control_channel_connect(const weft_control_channel *self, weft_error *err) {
    const weft_ranks *ranks = self->ranks;
    weft_p2p_channels *lanes = weft_alloc(ranks->world, sizeof *lanes);
    weft_status status = WEFT_OK;
    lanes[0].sends[0] = ranks->rank != 0;
    for (int32_t r = 1; r < ranks->world; r++) lanes[r].receives[0] = ranks->rank == 0;
    status = weft_ranks_connect(ranks, lanes, err);
    free(lanes);
    return status;
}

weft_status weft_control_channel_open(weft_control_channel *self, weft_process_group *out, const weft_ranks *ranks,
                                      weft_error *err) {
    const int64_t bytes = weft_process_group_scratch(ranks->world);
    weft_status status = WEFT_OK;
    *out = (weft_process_group){.rank = ranks->rank,
                                .world = ranks->comm == NULL ? 1 : ranks->world, /* a planned rank is single */
                                .codes = weft_alloc(ranks->world, sizeof *out->codes),
                                .context = self,
                                .gather = gather_numbers,
                                .share = share_bytes,
                                .swap = swap_messages};
    *self = (weft_control_channel){.ranks = ranks,
                                   .kernels = ranks->process_context->kernels,
                                   .device = ranks->process_context->device,
                                   .messages = weft_alloc(2 * ranks->world, sizeof *self->messages),
                                   .senders = weft_alloc(ranks->world, sizeof *self->senders),
                                   .sizes = weft_alloc(ranks->world, sizeof *self->sizes)};
    if (ranks->comm == NULL || ranks->world == 1) return WEFT_OK;
    WEFT_PLUGIN_CALL(status, self->kernels, alloc, err, self->device, &self->buffer, bytes);
    if (status == WEFT_OK) self->bytes = bytes;
    return status;
}

void weft_control_channel_close(weft_control_channel *self, weft_process_group *peers) {
    const bool broken = self->broken;
    if (self->buffer != NULL) WEFT_PLUGIN_NOTIFY(self->kernels, release, self->device, self->buffer);
    free(self->messages);
    free(self->senders);
    free(self->sizes);
    *self = (weft_control_channel){.broken = broken};
    free(peers->codes);
    peers->codes = NULL;
}

/* The lowest rank of each machine shares the memory of the heartbeats: the others map it through its descriptor. Rank 0
 * sends the address of its watchdog to those of other machines. */
weft_status weft_watchdogs_start(const weft_process_group *peers, const weft_comm_info *info, weft_error *err) {
    const bool several = info->nodes > 1;
    int32_t *nodes = NULL, *pids = NULL, *files = NULL, file = -1, lowest = 0;
    weft_heartbeat *own = NULL, *records = NULL;
    weft_node_watchdog_address chief = {0};
    char path[64] = "";
    bool all = false;
    weft_status status = WEFT_OK;
    if (peers->world != info->size) weft_sidecar_dismiss(); /* an engine of some ranks */
    else if (info->size > 1) status = weft_process_group_all_true(peers, &all, weft_sidecar_waits(), err);
    if (!all || status != WEFT_OK) return status;
    if (info->local_rank == 0) own = weft_heartbeat_create(&file, info->local_size);
    nodes = weft_alloc(3 * peers->world, sizeof *nodes);
    pids = nodes + peers->world;
    files = pids + peers->world;
    status = peers->gather(peers->context, nodes, info->node, err);
    if (status == WEFT_OK) status = peers->gather(peers->context, pids, (int32_t)getpid(), err);
    if (status == WEFT_OK) status = peers->gather(peers->context, files, file, err);
    if (status == WEFT_OK) {
        while (nodes[lowest] != info->node) lowest++;
        if (files[lowest] >= 0) {
            weft_heartbeat_path(path, sizeof path, pids[lowest], files[lowest]);
            records = own != NULL ? own : weft_heartbeat_map(path, info->local_size);
        }
        if (records != NULL) weft_heartbeat_move(&records[info->local_rank]);
        status = weft_process_group_all_true(peers, &all, records != NULL, err);
    }
    free(nodes);
    if (status != WEFT_OK) return status;
    if (!all)
        return weft_error_set(
            err, WEFT_E_SYSTEM,
            "the ranks of one machine cannot share memory for heartbeats through %s. Fix: run them in "
            "one process namespace",
            path[0] != '\0' ? path : "memfd_create");
    if (peers->rank == 0) status = weft_sidecar_watch(path, info->local_size, info->size, &chief, err);
    status = weft_process_group_agree(peers, status, err);
    if (status == WEFT_OK && several) status = weft_process_group_broadcast(peers, &chief, (int64_t)sizeof chief, err);
    if (status == WEFT_OK && several && chief.n_hosts == 0)
        status = weft_error_set(err, WEFT_E_SYSTEM,
                                "the machine of rank 0 has no IPv4 address for the watchdogs of the other machines");
    if (status == WEFT_OK && info->local_rank == 0 && peers->rank != 0)
        status = weft_sidecar_watch(path, info->local_size, info->size, &chief, err);
    weft_sidecar_dismiss();
    status = weft_process_group_agree(peers, status, err);
    if (status == WEFT_OK) (void)weft_heartbeat_link(path);
    return status;
}
