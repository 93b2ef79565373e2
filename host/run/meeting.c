/* host/run/meeting.c: see meeting.h. */
#include "run/meeting.h"

#include "base/alloc.h"
#include "launch/sidecar.h"
#include "run/coherence.h"

#include <stdlib.h>
#include <unistd.h>

/* The lowest rank of each machine shares the memory of the heartbeats: the others map it through its descriptor. Rank 0
 * sends the address of its watchdog to those of other machines. */
weft_status weft_watchdogs_start(const weft_process_group *peers, const weft_comm_info *info, weft_error *err) {
    const bool several = info->nodes > 1, follows = several && info->node > 0;
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
    if (several && peers->rank == 0) status = weft_sidecar_listen(&chief, err);
    status = weft_process_group_agree(peers, status, err);
    if (status == WEFT_OK && several) status = weft_process_group_broadcast(peers, &chief, (int64_t)sizeof chief, err);
    if (status == WEFT_OK && several && chief.n_hosts == 0)
        status = weft_error_set(err, WEFT_E_SYSTEM,
                                "the machine of rank 0 has no IPv4 address for the watchdogs of the other machines");
    if (status == WEFT_OK && info->local_rank == 0)
        status = weft_sidecar_watch(path, info->local_size, info->size, follows ? &chief : NULL, err);
    weft_sidecar_dismiss();
    status = weft_process_group_agree(peers, status, err);
    if (status == WEFT_OK) (void)weft_heartbeat_link(path);
    return status;
}

weft_status weft_meeting_open(weft_meeting *out, const char *path, const char *const *overrides, size_t n_overrides,
                              weft_error *err) {
    weft_process_context *context = NULL;
    weft_rank_span all;
    weft_status status = weft_run_open(&out->run, path, overrides, n_overrides, WEFT_NEEDS_ALL, err);
    if (status == WEFT_OK) status = weft_process_context_open(&out->process_context, out->run, err);
    if (status != WEFT_OK) return status;
    context = out->process_context;
    all = weft_process_context_rank_span(context);
    weft_ranks_set(&out->ranks, &all);
    status = weft_control_channel_open(&out->channel, &out->peers, &out->ranks, err);
    if (status == WEFT_OK && context->comm != NULL)
        status = weft_watchdogs_start(&out->peers, &context->comm_info, err);
    out->failed = status != WEFT_OK;
    if (status == WEFT_OK) status = weft_coherence_run(&out->peers, out->run, &context->device_info, status, err);
    if (status != WEFT_OK) return status;
    /* rank 0 gathers rows: its channels are opened before the available memory is measured */
    status = weft_control_channel_connect(&out->channel, err);
    if (status == WEFT_OK && out->ranks.world > 1) {
        status = weft_device_measure(&context->device_info, context->kernels, context->device, err);
        status = weft_process_group_agree(&out->peers, status, err);
    }
    out->failed = status != WEFT_OK;
    return status;
}

void weft_meeting_close(weft_meeting *self) {
    weft_control_channel_close(&self->channel, &self->peers);
    weft_process_context_close(self->process_context, self->failed || self->channel.broken);
    weft_run_close(self->run);
    memset(self, 0, sizeof *self);
}

weft_status weft_meeting_share(weft_meeting *self, void *all, const void *mine, int64_t bytes, weft_error *err) {
    const weft_status status = weft_process_context_share(self->process_context, all, mine, bytes, err);
    self->failed = self->failed || status != WEFT_OK;
    return status;
}
