/* host/train/ranks.c: see ranks.h. */
#include "train/ranks.h"

#include "launch/world.h"
#include "plugin/call.h"
#include "plugin/enter.h"

#include <stdlib.h>

static weft_status group_create(weft_ranks *self, weft_comm_group **out, const int32_t *ranks, int32_t n,
                                weft_error *err) {
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, self->plugin, group, err, self->comm, out, ranks, n);
    return status;
}

static weft_status create(weft_ranks *self, const weft_run *run, weft_error *err) {
    const weft_part *part = &run->parts[WEFT_PART_COMM];
    const weft_comm_job job = {(uint32_t)sizeof job, 0, weft_world_get()->size, 0};
    weft_plugin_call call;
    weft_status status = WEFT_OK;
    self->plugin = weft_loaded_table(part->loaded, comm);
    weft_plugin_call_begin(&call, part->loaded, "create");
    status = self->plugin->create(&self->comm, run->host, part->config, &job, err);
    return weft_run_located(run, WEFT_PART_COMM, weft_plugin_call_end(&call, status, err), err);
}

weft_status weft_ranks_open(weft_ranks *self, const weft_run *run, weft_error *err) {
    const weft_world *world = weft_world_get();
    weft_status status = WEFT_OK;
    self->world = world->size;
    self->info.nodes = 1;
    if (world->is_planned || run->parts[WEFT_PART_COMM].loaded == NULL) return WEFT_OK;
    status = create(self, run, err);
    if (status != WEFT_OK) return status;
    self->info.struct_size = (uint32_t)sizeof self->info;
    WEFT_PLUGIN_TELL(self->plugin, info, self->comm, &self->info);
    self->rank = self->info.rank;
    self->world = self->info.size;
    return weft_world_confirm(&self->info, err);
}

weft_status weft_ranks_attach(weft_ranks *self, weft_device *device, const weft_device_plugin *kernels,
                              weft_error *err) {
    weft_status status = WEFT_OK;
    if (self->comm != NULL) WEFT_PLUGIN_CALL(status, self->plugin, attach, err, self->comm, device, kernels);
    return status;
}

void weft_ranks_close(weft_ranks *self, bool failed) {
    if (self->comm != NULL && !failed) WEFT_PLUGIN_TELL(self->plugin, destroy, self->comm);
    self->comm = NULL;
}

/* Ranks of a scope's group of this rank, by their places. */
static int32_t members(const weft_ranks *self, int32_t *out, const weft_cut *cut, int32_t scope) {
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
        const int32_t n = members(self, ranks, cut, scope);
        status = group_create(self, &self->cuts[self->n_cuts].by_scope[scope], ranks, n, err);
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

weft_status weft_ranks_start(const weft_ranks *self, weft_comm_handle **out, weft_exchange_fn *how, const char *name,
                             const weft_transfer *what, weft_error *err) {
    const weft_exchange exchange = {.struct_size = (uint32_t)sizeof exchange,
                                    .group = what->group,
                                    .to = what->to,
                                    .from = what->from,
                                    .n = what->n,
                                    .dtype = what->dtype,
                                    .peer = what->peer,
                                    .tag = what->tag};
    const weft_doing before = weft_plugin_enter(self->plugin, name);
    return weft_plugin_leave(before, how(self->comm, out, &exchange, err), err);
}

weft_status weft_ranks_wait(const weft_ranks *self, weft_comm_handle **handle, weft_error *err) {
    weft_status status = WEFT_OK;
    if (*handle == NULL) return WEFT_OK;
    WEFT_PLUGIN_CALL(status, self->plugin, wait, err, self->comm, *handle);
    *handle = NULL;
    return status;
}

void weft_ranks_poke(const weft_ranks *self) {
    if (self->comm != NULL && self->plugin->poke != NULL) WEFT_PLUGIN_TELL(self->plugin, poke, self->comm);
}

weft_status weft_ranks_exchange(const weft_ranks *self, weft_exchange_fn *how, const char *name,
                                const weft_transfer *what, weft_error *err) {
    weft_comm_handle *handle = NULL;
    weft_status status = weft_ranks_start(self, &handle, how, name, what, err);
    return status == WEFT_OK ? weft_ranks_wait(self, &handle, err) : status;
}
