/* host/run/ranks.c: see ranks.h. */
#include "run/ranks.h"

#include "base/alloc.h"
#include "launch/heartbeat.h"
#include "plugin/enter.h"

#include <stdlib.h>

void weft_traffic_add(weft_traffic *to, const weft_traffic *more, int32_t world) {
    for (int kind = 0; kind < WEFT_N_TRAFFIC; kind++) to->sent[kind] += more->sent[kind];
    for (int32_t rank = 0; rank < world; rank++) to->to[rank] += more->to[rank];
    for (int cut = 0; cut < WEFT_MAX_CUTS; cut++)
        for (int scope = 0; scope <= WEFT_SCOPE_ACROSS; scope++) to->each[cut][scope] += more->each[cut][scope];
    to->everyone += more->everyone;
    to->steps += more->steps;
}

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
    if (self->world == weft_process_context_size(self->process_context)) return WEFT_OK;
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

static weft_cut cut_of_size(const weft_ranks *self, int32_t index) {
    const int32_t size = self->cuts[index].group;
    return (weft_cut){self->world, size, self->world / size};
}

/* Each other rank of a collective exchange's group gets `bytes`. */
static void count_exchange(const weft_ranks *self, weft_exchange_fn *how, const weft_transfer *what) {
    const int64_t bytes = what->n * weft_dtype_bytes(what->dtype);
    weft_traffic *sent = self->sent;
    if (sent == NULL || !self->counts || what->traffic == WEFT_TRAFFIC_OTHER || how == self->plugin->recv) return;
    if (how == self->plugin->send) {
        sent->to[what->peer] += bytes;
        sent->sent[what->traffic] += bytes;
        return;
    }
    for (int32_t i = 0; i < self->n_cuts; i++)
        for (int32_t scope = WEFT_SCOPE_ALL; scope <= WEFT_SCOPE_ACROSS; scope++) {
            const weft_cut cut = cut_of_size(self, i);
            if (self->cuts[i].by_scope[scope] != what->group) continue;
            sent->each[i][scope] += bytes;
            sent->sent[what->traffic] += bytes * (weft_scope_size(&cut, scope) - 1);
            return;
        }
    sent->everyone += bytes;
    sent->sent[what->traffic] += bytes * (self->world - 1);
}

int64_t weft_ranks_sent_to(const weft_ranks *self, int32_t rank) {
    int64_t bytes = 0;
    if (self->sent == NULL || rank == self->rank) return 0;
    bytes = self->sent->to[rank] + self->sent->everyone;
    for (int32_t i = 0; i < self->n_cuts; i++)
        for (int32_t scope = WEFT_SCOPE_ALL; scope <= WEFT_SCOPE_ACROSS; scope++) {
            const weft_cut cut = cut_of_size(self, i);
            if (weft_scope_together(&cut, scope, rank, self->rank)) bytes += self->sent->each[i][scope];
        }
    return bytes;
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
