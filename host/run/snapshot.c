/* host/run/snapshot.c: see snapshot.h. */
#include "run/snapshot.h"

#include "base/sizes.h"
#include "run/fetch.h"
#include "program/save_place.h"
#include "plugin/device_queries.h"
#include "plugin/enter.h"

#include <stdlib.h>
#include <weft/transfer.h>

/* The copy of one region. */
typedef struct part {
    int64_t at, bytes; /* of the snapshot; the region's first bytes */
    const char *copy;
    const char *live; /* the region itself, for what lies behind them; NULL: the host does not see it */
} part;

struct weft_snapshot {
    weft_engine *engine;
    const weft_device_transfer *transfer; /* NULL: there is none, or the host sees the device's memory */
    weft_slot_ref slot;                   /* the memory, where the host sees the device's ... */
    char *memory;                         /* ... and as the host has it in any case */
    part parts[1 + WEFT_MAX_STATES];
};

/* ---- as a device that only the host's memory is in ---- */

static void *view_of_part(weft_device *device, weft_ref ref) {
    const part *of = (const part *)(const void *)device;
    const char *at = ref.offset < of->bytes ? of->copy : of->live;
    return (void *)(uintptr_t)(at + ref.offset);
}

static weft_status nothing_is_queued(weft_device *device, weft_stream *stream, weft_error *err) {
    (void)device;
    (void)stream;
    (void)err;
    return WEFT_OK;
}

static const weft_device_plugin host_memory = {
    .struct_size = (uint32_t)sizeof host_memory,
    .host_view = view_of_part,
    .synchronize = nothing_is_queued,
};

static weft_region as_host_memory(const weft_snapshot *self, weft_region region, int index) {
    const weft_ref start = {0};
    region.kernels = &host_memory;
    region.device = (weft_device *)(uintptr_t)&self->parts[index];
    region.ref = start;
    return region;
}

weft_region weft_snapshot_parameters(const weft_snapshot *self) {
    return as_host_memory(self, weft_engine_parameters(self->engine), 0);
}

weft_region weft_snapshot_state(const weft_snapshot *self, int64_t state) {
    return as_host_memory(self, weft_engine_state(self->engine, state), 1 + (int)state);
}

/* ---- its memory ---- */

static weft_status take_pinned(weft_snapshot *self, int64_t bytes, weft_error *err) {
    const weft_engine *engine = self->engine;
    void *memory = NULL;
    weft_doing before;
    weft_status status = weft_device_transfer_find(&self->transfer, engine->kernels, engine->device, err);
    if (status != WEFT_OK) return status;
    if (self->transfer == NULL) {
        memory = malloc((size_t)bytes + 1);
        if (memory == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "the host has no %lld bytes", (long long)bytes);
    } else {
        before = weft_plugin_enter(engine->kernels, "take");
        status = weft_plugin_leave(before, self->transfer->take(engine->device, &memory, bytes, err), err);
    }
    self->memory = memory;
    return status;
}

static weft_status take_visible(weft_snapshot *self, int64_t bytes, weft_error *err) {
    weft_engine *engine = self->engine;
    const weft_status status = weft_account_take(&engine->account, &self->slot, bytes, WEFT_ACCOUNT_SNAPSHOT, err);
    if (status == WEFT_OK && bytes > 0)
        self->memory = weft_device_view(engine->kernels, engine->device, self->slot.ref);
    return status;
}

static void lay_out_part(weft_snapshot *self, int index, int64_t *at, int64_t bytes) {
    const weft_engine *engine = self->engine;
    part *one = &self->parts[index];
    one->at = *at;
    one->bytes = bytes;
    one->copy = self->memory + *at;
    if (engine->plan.visible)
        one->live = weft_device_view(engine->kernels, engine->device, engine->fetchers[index].ref);
    *at += weft_buffer_part(bytes);
}

weft_status weft_snapshot_create(weft_snapshot **out, weft_engine *engine, weft_error *err) {
    const weft_plan *plan = &engine->plan;
    const int64_t bytes = plan->bytes.snapshot;
    int64_t at = 0;
    weft_status status = WEFT_OK;
    weft_snapshot *self = calloc(1, sizeof *self);
    if (self == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for what is saved beside training");
    self->engine = engine;
    status = plan->visible ? take_visible(self, bytes, err) : take_pinned(self, bytes, err);
    if (status != WEFT_OK) {
        weft_snapshot_destroy(self);
        return weft_error_prefix(err, "memory for what is saved beside training ([checkpoint] beside): ");
    }
    lay_out_part(self, 0, &at, weft_save_place_parameters(plan));
    for (int i = 0; i < plan->n_states; i++) lay_out_part(self, 1 + i, &at, weft_save_place_state(plan));
    *out = self;
    return WEFT_OK;
}

void weft_snapshot_destroy(weft_snapshot *self) {
    if (self == NULL) return;
    weft_account_give(&self->engine->account, &self->slot, WEFT_ACCOUNT_SNAPSHOT);
    if (self->transfer != NULL) self->transfer->give_back(self->engine->device, self->memory);
    else if (!self->engine->plan.visible) free(self->memory);
    free(self);
}

/* ---- filling it ---- */

static weft_status copy_part(const weft_snapshot *self, int index, weft_error *err) {
    const weft_engine *engine = self->engine;
    const part *one = &self->parts[index];
    const weft_ref from = engine->fetchers[index].ref;
    weft_status status = WEFT_OK;
    weft_doing before;
    if (one->bytes == 0) return WEFT_OK;
    if (engine->plan.visible)
        WEFT_PLUGIN_CALL(status, engine->kernels, copy, err, engine->device, NULL, weft_ref_at(self->slot.ref, one->at),
                         from, one->bytes);
    else if (self->transfer == NULL)
        WEFT_PLUGIN_CALL(status, engine->kernels, read, err, engine->device, NULL, self->memory + one->at, from,
                         one->bytes);
    else {
        before = weft_plugin_enter(engine->kernels, "download");
        status = weft_plugin_leave(
            before, self->transfer->download(engine->device, NULL, self->memory + one->at, from, one->bytes, err), err);
    }
    return status;
}

weft_status weft_snapshot_fill(weft_snapshot *self, weft_error *err) {
    const weft_engine *engine = self->engine;
    weft_status status = WEFT_OK;
    for (int i = 0; i <= engine->plan.n_states && status == WEFT_OK; i++) status = copy_part(self, i, err);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, engine->kernels, synchronize, err, engine->device, NULL);
    return status == WEFT_OK ? WEFT_OK : weft_error_prefix(err, "copying what is saved beside training: ");
}
