/* host/run/stream_sync.c: see stream_sync.h. */
#include "run/stream_sync.h"

#include "plugin/enter.h"

#include <stdlib.h>

weft_status weft_stream_sync_open(weft_stream_sync *out, const weft_device_plugin *kernels, weft_device *device,
                                  weft_error *err) {
    const weft_stream_sync empty = {.kernels = kernels, .device = device};
    weft_status status = WEFT_OK;
    *out = empty;
    status = weft_device_transfer_find(&out->transfer, kernels, device, err);
    for (int queue = 1; queue < WEFT_QUEUES && status == WEFT_OK; queue++)
        WEFT_PLUGIN_CALL(status, kernels, stream_create, err, device, &out->streams[queue]);
    return status;
}

void weft_stream_sync_close(weft_stream_sync *self) {
    for (int queue = 1; queue < WEFT_QUEUES; queue++) {
        if (self->streams[queue] != NULL)
            WEFT_PLUGIN_TELL(self->kernels, stream_destroy, self->device, self->streams[queue]);
        self->streams[queue] = NULL;
    }
}

weft_status weft_stream_sync_fork(const weft_stream_sync *self, weft_stream **out, int32_t queue, weft_error *err) {
    weft_event *here = NULL;
    weft_status status = WEFT_OK;
    *out = self->streams[queue];
    if (queue == 0) return WEFT_OK;
    WEFT_PLUGIN_CALL(status, self->kernels, record_event, err, self->device, NULL, &here);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, self->kernels, wait, err, self->device, *out, here);
    return status;
}

weft_status weft_stream_sync_take(const weft_stream_sync *self, void **out, int64_t bytes, weft_error *err) {
    weft_status status = WEFT_OK;
    if (self->transfer == NULL) {
        *out = calloc(1, (size_t)bytes + 1);
        if (*out == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for what goes to the device");
        return WEFT_OK;
    }
    {
        const weft_doing before = weft_plugin_enter(self->kernels, "take");
        status = weft_plugin_leave(before, self->transfer->take(self->device, out, bytes, err), err);
    }
    if (status == WEFT_OK) memset(*out, 0, (size_t)bytes);
    return status;
}

void weft_stream_sync_give_back(const weft_stream_sync *self, void *memory) {
    if (self->transfer != NULL && memory != NULL) self->transfer->give_back(self->device, memory);
    else free(memory);
}

weft_status weft_stream_sync_send(const weft_stream_sync *self, weft_ref to, const void *from, int64_t bytes,
                                  weft_event **sent, weft_error *err) {
    weft_status status = WEFT_OK;
    weft_doing before;
    if (self->transfer == NULL) {
        WEFT_PLUGIN_CALL(status, self->kernels, write, err, self->device, NULL, to, from, bytes);
        return status;
    }
    before = weft_plugin_enter(self->kernels, "upload");
    status = weft_plugin_leave(before, self->transfer->upload(self->device, NULL, to, from, bytes, err), err);
    if (status == WEFT_OK && sent != NULL)
        WEFT_PLUGIN_CALL(status, self->kernels, record_event, err, self->device, NULL, sent);
    return status;
}

weft_status weft_stream_sync_bring(const weft_stream_sync *self, void *to, weft_ref from, int64_t bytes,
                                   weft_error *err) {
    weft_status status = WEFT_OK;
    weft_doing before;
    if (self->transfer == NULL) {
        WEFT_PLUGIN_CALL(status, self->kernels, read, err, self->device, NULL, to, from, bytes);
        return status;
    }
    before = weft_plugin_enter(self->kernels, "download");
    return weft_plugin_leave(before, self->transfer->download(self->device, NULL, to, from, bytes, err), err);
}

weft_status weft_stream_sync_finish(const weft_stream_sync *self, weft_error *err) {
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, self->kernels, synchronize, err, self->device, NULL);
    return status;
}

weft_status weft_stream_sync_fetch(const weft_stream_sync *self, void *to, weft_ref from, int64_t bytes,
                                   weft_error *err) {
    const weft_status status = weft_stream_sync_bring(self, to, from, bytes, err);
    return status == WEFT_OK ? weft_stream_sync_finish(self, err) : status;
}

weft_status weft_stream_sync_await(const weft_stream_sync *self, weft_event **event, weft_error *err) {
    weft_event *of = *event;
    weft_doing before;
    *event = NULL;
    if (of == NULL) return WEFT_OK;
    before = weft_plugin_enter(self->kernels, "await");
    return weft_plugin_leave(before, self->transfer->await(self->device, of, err), err);
}
