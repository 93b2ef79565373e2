/* host/run/process_context.c: see process_context.h. */
#include "run/process_context.h"

#include "base/alloc.h"
#include "base/units.h"
#include "base/text.h"
#include "launch/find.h"
#include "launch/heartbeat.h"
#include "launch/rendezvous.h"
#include "launch/watchdog.h"
#include "launch/world.h"
#include "plugin/enter.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
#include <weft/native.h>

static bool has_met; /* this process has called create of its communicator */

struct weft_process_context_group {
    int32_t n, *ranks;
    weft_comm_group *made;
};

weft_status weft_device_measure(weft_device_info *out, const weft_device_plugin *kernels, weft_device *device,
                                weft_error *err) {
    weft_status status = WEFT_OK;
    out->struct_size = (uint32_t)sizeof *out;
    WEFT_PLUGIN_NOTIFY(kernels, info, device, out);
    WEFT_PLUGIN_CALL(status, kernels, synchronize, err, device, NULL);
    return status == WEFT_OK ? WEFT_OK : weft_error_prefix(err, "querying the device: ");
}

/* Planned ranks do not attach a communicator, so its note (WEFT_NOTE_NATIVE) names the device memory it requires. */
static weft_status check_planned(const weft_process_context *self, const weft_run *run, weft_error *err) {
    static const char key[] = "\nnative=";
    const weft_loaded *loaded = run->parts[WEFT_PART_COMM].loaded;
    const char *line = loaded == NULL || loaded->note == NULL ? NULL : strstr(loaded->note, key);
    const weft_device_native *native = NULL;
    weft_status status = WEFT_OK;
    char api[64];
    if (!weft_world_get()->is_planned || line == NULL) return WEFT_OK;
    line += sizeof key - 1;
    (void)snprintf(api, sizeof api, "%.*s", (int)strcspn(line, "\n"), line);
    native = weft_device_find(self->kernels, self->device, WEFT_DEVICE_NATIVE);
    if (native != NULL && WEFT_WHOLE(native, weft_device_native) && strcmp(native->api, api) == 0) return WEFT_OK;
    status = weft_error_set(
        err, WEFT_E_USER,
        "communicator %s moves the memory of %s devices, and this device (%s) is not one. Fix: set [device] "
        "plugin = %s, or [comm] plugin = %s",
        loaded->plugin->id, api, self->device_info.name, api,
        weft_world_get()->size > 1 ? WEFT_RANKS_FAMILY : weft_part_fallback(WEFT_PART_COMM));
    return weft_run_located(run, WEFT_PART_COMM, status, err);
}

static weft_status create_comm(weft_process_context *self, const weft_run *run, weft_error *err) {
    const weft_part *part = &run->parts[WEFT_PART_COMM];
    const weft_comm_job job = {(uint32_t)sizeof job, 0, weft_world_get()->size, 0};
    weft_plugin_call call;
    weft_status status = WEFT_OK;
    self->comm_plugin = weft_loaded_table(part->loaded, comm);
    weft_plugin_call_begin(&call, part->loaded, "create");
    has_met = true;
    if (job.expected_size > 1) weft_rendezvous_offer((int32_t)run->settings.run.patience);
    weft_heartbeat_wait();
    status = self->comm_plugin->create(&self->comm, run->host, part->config, &job, err);
    weft_heartbeat_go();
    return weft_run_located(run, WEFT_PART_COMM, weft_plugin_call_made(&call, status, self->comm, err), err);
}

static weft_status open_comm(weft_process_context *self, const weft_run *run, weft_error *err) {
    const weft_world *world = weft_world_get();
    weft_status status = WEFT_OK;
    self->comm_info.size = world->size;
    self->comm_info.nodes = world->is_planned ? weft_world_planned_nodes : 1;
    if (world->size % self->comm_info.nodes != 0)
        return weft_error_set(err, WEFT_E_USER,
                              "%d ranks cannot be split evenly over %d nodes. Allowed: divisors of %d",
                              (int)world->size, (int)self->comm_info.nodes, (int)world->size);
    if (world->is_planned || world->is_alone || run->parts[WEFT_PART_COMM].loaded == NULL) return WEFT_OK;
    weft_heartbeat_patience(run->settings.run.patience);
    weft_watchdog_output(run->settings.run.out);
    if (world->size > 1) status = weft_sidecar_start(run->parts[WEFT_PART_COMM].loaded->note, err);
    if (status == WEFT_OK) status = create_comm(self, run, err);
    if (status != WEFT_OK) return status;
    self->comm_info.struct_size = (uint32_t)sizeof self->comm_info;
    WEFT_PLUGIN_NOTIFY(self->comm_plugin, info, self->comm, &self->comm_info);
    return weft_world_confirm(&self->comm_info, err);
}

weft_status weft_process_context_open(weft_process_context **out, const weft_run *run, weft_error *err) {
    const weft_part *part = &run->parts[WEFT_PART_DEVICE];
    weft_plugin_call call;
    weft_process_context *self = weft_alloc(1, sizeof *self);
    weft_status status = WEFT_OK;
    weft_slow_call_begin(run->settings.plugins.call_seconds);
    status = open_comm(self, run, err);
    if (status == WEFT_OK) {
        self->kernels = weft_loaded_table(part->loaded, device);
        weft_plugin_call_begin(&call, part->loaded, "create");
        status = self->kernels->create(&self->device, run->host, part->config, self->comm_info.local_rank, err);
        status = weft_run_located(run, WEFT_PART_DEVICE, weft_plugin_call_made(&call, status, self->device, err), err);
    }
    if (status == WEFT_OK) status = weft_device_measure(&self->device_info, self->kernels, self->device, err);
    if (status == WEFT_OK) status = check_planned(self, run, err);
    if (status == WEFT_OK) {
        self->nodes = weft_alloc(self->comm_info.size, sizeof *self->nodes);
        for (int32_t rank = 0; rank < self->comm_info.size; rank++) /* of a single rank, or planned */
            self->nodes[rank] = rank / (self->comm_info.size / self->comm_info.nodes);
    }
    if (status == WEFT_OK && self->comm != NULL) {
        WEFT_PLUGIN_CALL(status, self->comm_plugin, attach, err, self->comm, self->device, self->kernels);
        if (status == WEFT_OK)
            status =
                weft_process_context_share(self, self->nodes, &self->comm_info.node, (int64_t)sizeof *self->nodes, err);
        if (status == WEFT_OK) /* again, now that the communicator has allocated its memory on all ranks */
            status = weft_device_measure(&self->device_info, self->kernels, self->device, err);
    }
    if (status == WEFT_OK) *out = self;
    else weft_process_context_close(self, true); /* destroy of a communicator is collective: other ranks may be gone */
    return status;
}

/* The communicator stays open: MPI uses it until the process ends. */
void weft_process_context_meet_failed(const char *path, const char *const *overrides, size_t n_overrides) {
    weft_run *run = NULL;
    weft_process_context *self = NULL;
    weft_status status = WEFT_OK;
    if (has_met || getenv(WEFT_STARTED) != NULL) return;
    status = weft_run_open_comm(&run, path, overrides, n_overrides, NULL);
    if (status != WEFT_OK && access(path, R_OK) != 0) status = weft_run_open_comm(&run, NULL, NULL, 0, NULL);
    if (status != WEFT_OK) return;
    self = weft_alloc(1, sizeof *self);
    (void)signal(SIGALRM, SIG_DFL);
    (void)alarm(60); /* the others may be gone */
    (void)create_comm(self, run, NULL);
}

void weft_process_context_abandon(weft_process_context *self) {
    if (self == NULL || self->comm == NULL || self->comm_info.size == 1 || self->abandoned ||
        !WEFT_HAS(self->comm_plugin, abandon) || self->comm_plugin->abandon == NULL)
        return;
    WEFT_PLUGIN_NOTIFY(self->comm_plugin, abandon, self->comm);
    self->abandoned = true;
}

void weft_process_context_close(weft_process_context *self, bool failed) {
    if (self == NULL) return;
    failed = failed || self->broken;
    if (failed) weft_process_context_abandon(self);
    weft_heartbeat_wait();
    if (self->comm != NULL && (!failed || self->abandoned || self->comm_info.size == 1))
        WEFT_PLUGIN_NOTIFY(self->comm_plugin, destroy, self->comm);
    weft_rendezvous_end(failed);
    weft_heartbeat_go();
    if (self->device != NULL) WEFT_PLUGIN_NOTIFY(self->kernels, destroy, self->device);
    for (int32_t i = 0; i < self->n_groups; i++) free(self->groups[i].ranks);
    free(self->groups);
    free(self->nodes);
    free(self);
    weft_slow_call_end();
}

int32_t weft_process_context_nodes(const weft_process_context *self, int32_t base, int32_t n) {
    int32_t nodes = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t before = 0;
        while (before < i && self->nodes[base + before] != self->nodes[base + i]) before++;
        nodes += before == i;
    }
    return nodes;
}

weft_rank_span weft_process_context_rank_span(weft_process_context *self) {
    return (weft_rank_span){self, 0, self->comm_info.rank, self->comm_info.size};
}

/* All ranks of a group create it together, so it exists on all of them or on none. */
weft_status weft_process_context_group_of(weft_process_context *self, weft_comm_group **out, const int32_t *ranks,
                                          int32_t n, weft_error *err) {
    weft_process_context_group *group = NULL;
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < self->n_groups; i++) {
        group = &self->groups[i];
        *out = group->made;
        if (group->n == n && memcmp(group->ranks, ranks, (size_t)n * sizeof *ranks) == 0) return WEFT_OK;
    }
    self->groups = weft_realloc(self->groups, self->n_groups + 1, sizeof *self->groups);
    group = &self->groups[self->n_groups++];
    *group = (weft_process_context_group){.n = n, .ranks = weft_alloc(n, sizeof *ranks)};
    memcpy(group->ranks, ranks, (size_t)n * sizeof *ranks);
    weft_heartbeat_wait();
    WEFT_PLUGIN_CALL(status, self->comm_plugin, group, err, self->comm, &group->made, ranks, n);
    weft_heartbeat_go();
    if (status != WEFT_OK) (void)weft_error_prefix(err, "a group of %d ranks, rank %d first: ", (int)n, (int)ranks[0]);
    self->broken = self->broken || status != WEFT_OK;
    *out = group->made;
    return status;
}

weft_status weft_process_context_all_gather(weft_process_context *self, const weft_rank_span *span,
                                            weft_comm_group *group, void *all, const void *mine, int64_t bytes,
                                            weft_error *err) {
    const int64_t total = bytes * span->world;
    weft_exchange exchange = {.struct_size = (uint32_t)sizeof exchange, .group = group, .n = bytes, .dtype = WEFT_U8};
    weft_device_info info = {.struct_size = (uint32_t)sizeof info};
    weft_comm_handle *handle = NULL;
    char held[WEFT_UNIT_SIZE], memory[WEFT_UNIT_SIZE];
    weft_status status = WEFT_OK;
    if (span->world == 1) {
        memcpy(all, mine, (size_t)bytes);
        return WEFT_OK;
    }
    WEFT_PLUGIN_CALL(status, self->kernels, alloc, err, self->device, &exchange.to.buffer, total);
    if (status == WEFT_E_MEMORY) WEFT_PLUGIN_NOTIFY(self->kernels, info, self->device, &info);
    if (status == WEFT_E_MEMORY && err != NULL && info.held > 0 && group == NULL) /* this rank's first allocation */
        weft_words_append(err->text, sizeof err->text,
                          " Before any planned memory, the device's context and libraries, including the "
                          "communicator's, use %s of this rank's %s. Fix: use a device with more free memory",
                          weft_unit_bytes(held, info.held), weft_unit_bytes(memory, info.memory));
    exchange.from = (weft_ref){exchange.to.buffer, bytes * span->rank};
    if (status == WEFT_OK)
        WEFT_PLUGIN_CALL(status, self->kernels, write, err, self->device, NULL, exchange.from, mine, bytes);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, self->comm_plugin, all_gather, err, self->comm, &handle, &exchange);
    weft_heartbeat_wait();
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, self->comm_plugin, wait, err, self->comm, handle);
    weft_heartbeat_go();
    if (status == WEFT_OK)
        WEFT_PLUGIN_CALL(status, self->kernels, read, err, self->device, NULL, all, exchange.to, total);
    if (exchange.to.buffer != NULL) WEFT_PLUGIN_NOTIFY(self->kernels, release, self->device, exchange.to.buffer);
    return status == WEFT_OK ? WEFT_OK
                             : weft_error_prefix(err, "exchanging %lld bytes between ranks: ", (long long)bytes);
}

weft_status weft_process_context_share(weft_process_context *self, void *all, const void *mine, int64_t bytes,
                                       weft_error *err) {
    const weft_rank_span span = weft_process_context_rank_span(self);
    return weft_process_context_all_gather(self, &span, NULL, all, mine, bytes, err);
}
