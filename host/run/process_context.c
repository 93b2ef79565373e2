/* host/run/process_context.c: see process_context.h. */
#include "run/process_context.h"

#include "base/units.h"
#include "base/words.h"
#include "launch/find.h"
#include "launch/slow_call.h"
#include "launch/heartbeat.h"
#include "launch/rendezvous.h"
#include "launch/sidecar.h"
#include "launch/watchdog.h"
#include "launch/world.h"
#include "plugin/call.h"
#include "plugin/device_queries.h"
#include "plugin/enter.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
#include <weft/native.h>

static bool has_met; /* the ranks of this process's launcher, or is about to */

struct weft_process_context_group {
    int32_t n, *ranks;
    weft_comm_group *made;
};

weft_status weft_device_measure(weft_device_info *out, const weft_device_plugin *kernels, weft_device *device,
                                weft_error *err) {
    weft_status status = WEFT_OK;
    out->struct_size = (uint32_t)sizeof *out;
    WEFT_PLUGIN_TELL(kernels, info, device, out);
    WEFT_PLUGIN_CALL(status, kernels, synchronize, err, device, NULL);
    return status == WEFT_OK ? WEFT_OK
                             : weft_error_prefix(err, "asking the device what it is and what is left of it: ");
}

static weft_status open_device(weft_process_context *self, const weft_run *run, weft_error *err) {
    const weft_part *part = &run->parts[WEFT_PART_DEVICE];
    weft_plugin_call call;
    weft_status status = WEFT_OK;
    self->kernels = weft_loaded_table(part->loaded, device);
    weft_plugin_call_begin(&call, part->loaded, "create");
    status = self->kernels->create(&self->device, run->host, part->config, self->comm_info.local_rank, err);
    status = weft_run_located(run, WEFT_PART_DEVICE, weft_plugin_call_made(&call, status, self->device, err), err);
    if (status != WEFT_OK) return status;
    return weft_device_measure(&self->device_info, self->kernels, self->device, err);
}

/* Into api: whose memory alone the communicator moves (WEFT_NOTE_NATIVE); false: any device's. */
static bool find_native_api(char api[64], const char *note) {
    static const char key[] = "\nnative=";
    const char *line = note == NULL ? NULL : strstr(note, key);
    if (line == NULL) return false;
    line += sizeof key - 1;
    (void)snprintf(api, 64, "%.*s", (int)strcspn(line, "\n"), line);
    return true;
}

/* Nobody attaches a communicator of ranks that are only planned, so its note says what it would refuse. */
static weft_status judge_planned(const weft_process_context *self, const weft_run *run, weft_error *err) {
    const weft_loaded *loaded = run->parts[WEFT_PART_COMM].loaded;
    const weft_device_native *native = NULL;
    weft_status status = WEFT_OK;
    char api[64];
    if (!weft_world_get()->is_planned || loaded == NULL || !find_native_api(api, loaded->note)) return WEFT_OK;
    native = weft_device_find(self->kernels, self->device, WEFT_DEVICE_NATIVE);
    if (native != NULL && WEFT_WHOLE(native, weft_device_native) && strcmp(native->api, api) == 0) return WEFT_OK;
    status =
        weft_error_set(err, WEFT_E_USER,
                       "communicator %s moves the memory of %s devices, and this device (%s) is none: set [device] "
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
    self->comm_info.nodes = world->is_planned ? weft_world_planned_nodes() : 1;
    if (world->size % self->comm_info.nodes != 0)
        return weft_error_set(err, WEFT_E_USER,
                              "%d ranks cannot lie on %d nodes, as many on each: choose a divisor of %d",
                              (int)world->size, (int)self->comm_info.nodes, (int)world->size);
    if (world->is_planned || world->is_alone || run->parts[WEFT_PART_COMM].loaded == NULL) return WEFT_OK;
    weft_heartbeat_patience(run->settings.run.patience);
    weft_watchdog_output(run->settings.run.out);
    if (world->size > 1) status = weft_sidecar_start(run->parts[WEFT_PART_COMM].loaded->note, err);
    if (status == WEFT_OK) status = create_comm(self, run, err);
    if (status != WEFT_OK) return status;
    self->comm_info.struct_size = (uint32_t)sizeof self->comm_info;
    WEFT_PLUGIN_TELL(self->comm_plugin, info, self->comm, &self->comm_info);
    return weft_world_confirm(&self->comm_info, err);
}

static weft_status attach_comm(weft_process_context *self, weft_error *err) {
    weft_status status = WEFT_OK;
    self->nodes = calloc((size_t)self->comm_info.size, sizeof *self->nodes);
    if (self->nodes == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for a list of %d ranks", (int)self->comm_info.size);
    for (int32_t rank = 0; rank < self->comm_info.size; rank++) /* alone, or only planned for */
        self->nodes[rank] = rank / (self->comm_info.size / self->comm_info.nodes);
    if (self->comm == NULL) return WEFT_OK;
    WEFT_PLUGIN_CALL(status, self->comm_plugin, attach, err, self->comm, self->device, self->kernels);
    if (status != WEFT_OK) return status;
    status = weft_process_context_share(self, self->nodes, &self->comm_info.node, (int64_t)sizeof *self->nodes, err);
    if (status != WEFT_OK) return status;
    /* Again: now all ranks are there, and the communicator has taken what it needs. */
    return weft_device_measure(&self->device_info, self->kernels, self->device, err);
}

weft_status weft_process_context_open(weft_process_context **out, const weft_run *run, weft_error *err) {
    weft_status status = WEFT_OK;
    weft_process_context *self = calloc(1, sizeof *self);
    if (self == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the device and the ranks");
    weft_slow_warning_call_begin(run->settings.plugins.call_seconds);
    status = open_comm(self, run, err);
    if (status == WEFT_OK) status = open_device(self, run, err);
    if (status == WEFT_OK) status = judge_planned(self, run, err);
    if (status == WEFT_OK) status = attach_comm(self, err);
    if (status == WEFT_OK) *out = self;
    /* a communicator's end is collective, and the others may not be there */
    else weft_process_context_close(self, true);
    return status;
}

enum { MOST_SECONDS = 60 };

/* What it opens stays open: MPI is at work in it. */
void weft_process_context_meet_failed(const char *path, const char *const *overrides, size_t n_overrides) {
    weft_run *run = NULL;
    weft_process_context *self = NULL;
    weft_status status = WEFT_OK;
    if (has_met || getenv(WEFT_STARTED) != NULL) return;
    status = weft_run_open_comm(&run, path, overrides, n_overrides, NULL);
    if (status != WEFT_OK && access(path, R_OK) != 0) status = weft_run_open_comm(&run, NULL, NULL, 0, NULL);
    if (status == WEFT_OK) self = calloc(1, sizeof *self);
    if (self == NULL) return;
    (void)signal(SIGALRM, SIG_DFL);
    (void)alarm(MOST_SECONDS); /* others may have ended without a communicator */
    (void)create_comm(self, run, NULL);
}

void weft_process_context_abandon(weft_process_context *self) {
    if (self == NULL || self->comm == NULL || self->comm_info.size == 1 || self->abandoned ||
        !WEFT_HAS(self->comm_plugin, abandon) || self->comm_plugin->abandon == NULL)
        return;
    WEFT_PLUGIN_TELL(self->comm_plugin, abandon, self->comm);
    self->abandoned = true;
}

void weft_process_context_close(weft_process_context *self, bool failed) {
    if (self == NULL) return;
    failed = failed || self->broken;
    if (failed) weft_process_context_abandon(self);
    weft_heartbeat_wait();
    if (self->comm != NULL && (!failed || self->abandoned || self->comm_info.size == 1))
        WEFT_PLUGIN_TELL(self->comm_plugin, destroy, self->comm);
    weft_rendezvous_end(failed);
    weft_heartbeat_go();
    if (self->device != NULL) WEFT_PLUGIN_TELL(self->kernels, destroy, self->device);
    for (int32_t i = 0; i < self->n_groups; i++) free(self->groups[i].ranks);
    free(self->groups);
    free(self->nodes);
    free(self);
    weft_slow_warning_call_end();
}

int32_t weft_process_context_rank(const weft_process_context *self) {
    return self->comm_info.rank;
}

int32_t weft_process_context_size(const weft_process_context *self) {
    return self->comm_info.size;
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
    const weft_rank_span rank_span = {self, 0, self->comm_info.rank, self->comm_info.size};
    return rank_span;
}

static weft_status make_group(weft_process_context *self, weft_comm_group **out, const int32_t *ranks, int32_t n,
                              weft_error *err) {
    weft_process_context_group *grown = realloc(self->groups, ((size_t)self->n_groups + 1) * sizeof *grown);
    weft_process_context_group *group = NULL;
    weft_status status = WEFT_OK;
    if (grown != NULL) self->groups = grown;
    if (grown == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for another group of ranks");
    group = &grown[self->n_groups];
    group->n = n;
    group->ranks = malloc((size_t)n * sizeof *group->ranks);
    if (group->ranks == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a group of %d ranks", (int)n);
    memcpy(group->ranks, ranks, (size_t)n * sizeof *ranks);
    self->n_groups++;
    weft_heartbeat_wait();
    WEFT_PLUGIN_CALL(status, self->comm_plugin, group, err, self->comm, &group->made, ranks, n);
    weft_heartbeat_go();
    if (status != WEFT_OK) (void)weft_error_prefix(err, "a group of %d ranks, rank %d first: ", (int)n, (int)ranks[0]);
    self->broken = self->broken || status != WEFT_OK;
    *out = group->made;
    return status;
}

/* Whether a group is there already is the same for all its ranks: they made it together. */
weft_status weft_process_context_group_of(weft_process_context *self, weft_comm_group **out, const int32_t *ranks,
                                          int32_t n, weft_error *err) {
    for (int32_t i = 0; i < self->n_groups; i++) {
        const weft_process_context_group *group = &self->groups[i];
        if (group->n != n || memcmp(group->ranks, ranks, (size_t)n * sizeof *ranks) != 0) continue;
        *out = group->made;
        return WEFT_OK;
    }
    return make_group(self, out, ranks, n, err);
}

static weft_status exchange_rows(weft_process_context *self, weft_buffer *buffer, void *all, const void *mine,
                                 int64_t bytes, weft_error *err) {
    const weft_ref to = {buffer, 0}, from = {buffer, bytes * self->comm_info.rank};
    const weft_exchange what = {
        .struct_size = (uint32_t)sizeof what, .to = to, .from = from, .n = bytes, .dtype = WEFT_U8};
    weft_comm_handle *handle = NULL;
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, self->kernels, write, err, self->device, NULL, from, mine, bytes);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, self->comm_plugin, all_gather, err, self->comm, &handle, &what);
    weft_heartbeat_wait();
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, self->comm_plugin, wait, err, self->comm, handle);
    weft_heartbeat_go();
    if (status == WEFT_OK)
        WEFT_PLUGIN_CALL(status, self->kernels, read, err, self->device, NULL, all, to, bytes * self->comm_info.size);
    return status;
}

/* It is little, and the first that a rank takes: where there is no room for it, there is none for a plan. */
static weft_status take_rows(const weft_process_context *self, weft_buffer **out, int64_t bytes, weft_error *err) {
    weft_device_info info = {.struct_size = (uint32_t)sizeof info};
    char held[WEFT_UNIT_SIZE], memory[WEFT_UNIT_SIZE];
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, self->kernels, alloc, err, self->device, out, bytes);
    if (status != WEFT_E_MEMORY || err == NULL) return status;
    WEFT_PLUGIN_TELL(self->kernels, info, self->device, &info);
    if (info.held > 0)
        weft_words_append(err->text, sizeof err->text,
                          " Nothing was planned yet: %s of the %s that this rank may have are the device's context and "
                          "libraries, the communicator's among them. It needs a device with more memory, or with fewer "
                          "programs on it",
                          weft_unit_bytes(held, info.held), weft_unit_bytes(memory, info.memory));
    return status;
}

weft_status weft_process_context_share(weft_process_context *self, void *all, const void *mine, int64_t bytes,
                                       weft_error *err) {
    weft_buffer *buffer = NULL;
    weft_status status = WEFT_OK;
    if (self->comm_info.size == 1) {
        memcpy(all, mine, (size_t)bytes);
        return WEFT_OK;
    }
    status = take_rows(self, &buffer, bytes * self->comm_info.size, err);
    if (status == WEFT_OK) status = exchange_rows(self, buffer, all, mine, bytes, err);
    if (buffer != NULL) WEFT_PLUGIN_TELL(self->kernels, release, self->device, buffer);
    return status == WEFT_OK ? WEFT_OK
                             : weft_error_prefix(err, "ranks telling one another %lld bytes: ", (long long)bytes);
}
