/* host/run/ranks.c: see ranks.h. */
#include "run/ranks.h"

#include "launch/heartbeat.h"
#include "plugin/enter.h"

#include <stdlib.h>

void weft_ranks_take(weft_ranks *self, const weft_rank_span *rank_span) {
    self->process_context = rank_span->process_context;
    self->plugin = rank_span->process_context->comm_plugin;
    self->comm = rank_span->process_context->comm;
    self->info = rank_span->process_context->comm_info;
    self->info.nodes = weft_process_context_nodes(rank_span->process_context, rank_span->base, rank_span->world);
    self->base = rank_span->base;
    self->rank = rank_span->rank;
    self->world = rank_span->world;
}

static weft_status make_counts(weft_ranks *self, weft_error *err) {
    self->sent = calloc(1, sizeof *self->sent);
    if (self->sent != NULL) self->sent->to = calloc((size_t)self->world, sizeof *self->sent->to);
    if (self->sent != NULL && self->sent->to != NULL) return WEFT_OK;
    return weft_error_set(err, WEFT_E_MEMORY, "no memory to count what goes to %d ranks", (int)self->world);
}

void weft_ranks_leave(weft_ranks *self) {
    if (self->sent != NULL) free(self->sent->to);
    free(self->sent);
    self->sent = NULL;
}

weft_status weft_ranks_meet(weft_ranks *self, weft_error *err) {
    weft_status status = WEFT_OK;
    int32_t *ranks = NULL;
    if (self->world == 1 || self->sent != NULL) return WEFT_OK;
    status = make_counts(self, err);
    if (status != WEFT_OK || self->world == weft_process_context_size(self->process_context)) return status;
    ranks = malloc((size_t)self->world * sizeof *ranks);
    if (ranks == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the group of %d ranks", self->world);
    for (int32_t rank = 0; rank < self->world; rank++) ranks[rank] = self->base + rank;
    status = weft_process_context_group_of(self->process_context, &self->everyone, ranks, self->world, err);
    free(ranks);
    return status;
}

/* Ranks of a scope's group of this rank, by their places. */
static int32_t list_members(const weft_ranks *self, int32_t *out, const weft_cut *cut, int32_t scope) {
    const int32_t n = weft_scope_size(cut, scope);
    for (int32_t rank = 0; rank < self->world; rank++)
        if (weft_scope_together(cut, scope, rank, self->rank))
            out[weft_scope_place(cut, scope, rank)] = self->base + rank;
    return n;
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
    ranks = malloc((size_t)self->world * sizeof *ranks);
    if (ranks == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the groups of %d ranks", self->world);
    self->cuts[self->n_cuts].group = cut->group;
    for (int32_t scope = WEFT_SCOPE_ALL; scope <= WEFT_SCOPE_ACROSS && status == WEFT_OK; scope++) {
        const int32_t n = list_members(self, ranks, cut, scope);
        status = weft_process_context_group_of(self->process_context, &self->cuts[self->n_cuts].by_scope[scope], ranks,
                                               n, err);
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
    const weft_cut cut = {self->world, size, self->world / size};
    return cut;
}

/* Every collective exchange of a step gives each other rank of its group `bytes`. */
static void count_for_group(const weft_ranks *self, const weft_transfer *what, int64_t bytes) {
    weft_traffic *sent = self->sent;
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

static void count_exchange(const weft_ranks *self, weft_exchange_fn *how, const weft_transfer *what) {
    const int64_t bytes = what->n * weft_dtype_bytes(what->dtype);
    if (self->sent == NULL || !self->counts || what->traffic == WEFT_TRAFFIC_OTHER || how == self->plugin->recv) return;
    if (how != self->plugin->send) {
        count_for_group(self, what, bytes);
        return;
    }
    self->sent->to[what->peer] += bytes;
    self->sent->sent[what->traffic] += bytes;
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
    const weft_doing before = weft_plugin_enter(self->plugin, name);
    count_exchange(self, how, what);
    return weft_plugin_leave(before, how(self->comm, out, &exchange, err), err);
}

weft_status weft_ranks_wait(const weft_ranks *self, weft_comm_handle **handle, weft_error *err) {
    weft_status status = WEFT_OK;
    if (*handle == NULL) return WEFT_OK;
    weft_heartbeat_wait();
    WEFT_PLUGIN_CALL(status, self->plugin, wait, err, self->comm, *handle);
    weft_heartbeat_go();
    *handle = NULL;
    return status;
}

weft_status weft_ranks_join(const weft_ranks *self, weft_comm_handle **handle, weft_stream *stream, weft_error *err) {
    weft_status status = WEFT_OK;
    if (*handle == NULL) return WEFT_OK;
    if (!WEFT_HAS(self->plugin, join) || self->plugin->join == NULL) return weft_ranks_wait(self, handle, err);
    weft_heartbeat_wait();
    WEFT_PLUGIN_CALL(status, self->plugin, join, err, self->comm, *handle, stream);
    weft_heartbeat_go();
    *handle = NULL;
    return status;
}

void weft_ranks_poke(const weft_ranks *self) {
    if (self->comm != NULL && self->plugin->poke != NULL) WEFT_PLUGIN_TELL(self->plugin, poke, self->comm);
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
