/* host/model/stream_sync.c: see stream_sync.h. */
#include "model/stream_sync.h"

#include "plugin/enter.h"

#include <stdlib.h>

weft_status weft_stream_sync_open(weft_stream_sync *out, const weft_device_plugin *kernels, weft_device *device,
                                  int queues, weft_error *err) {
    weft_status status = WEFT_OK;
    *out = (weft_stream_sync){.kernels = kernels, .device = device};
    status = weft_device_transfer_find(&out->transfer, kernels, device, err);
    for (int queue = 1; queue < queues && status == WEFT_OK; queue++)
        WEFT_PLUGIN_CALL(status, kernels, stream_create, err, device, &out->streams[queue]);
    return status;
}

void weft_stream_sync_close(weft_stream_sync *self) {
    for (int queue = 1; queue < WEFT_QUEUES; queue++) {
        if (self->streams[queue] != NULL)
            WEFT_PLUGIN_NOTIFY(self->kernels, stream_destroy, self->device, self->streams[queue]);
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

weft_status weft_stream_sync_alloc(const weft_stream_sync *self, void **out, int64_t bytes, weft_error *err) {
    weft_status status = WEFT_OK;
    if (self->transfer != NULL)
        WEFT_PLUGIN_CALL_OF(status, self->kernels, self->transfer, take, err, self->device, out, bytes);
    else if ((*out = malloc((size_t)bytes + 1)) == NULL)
        status = weft_error_set(err, WEFT_E_MEMORY, "the host has no %lld bytes for transfers", (long long)bytes);
    return status;
}

void weft_stream_sync_free(const weft_stream_sync *self, void *memory) {
    if (self->transfer != NULL && memory != NULL) self->transfer->give_back(self->device, memory);
    else free(memory);
}

static weft_status record_event(const weft_stream_sync *self, weft_event **sent, weft_status status, weft_error *err) {
    if (status == WEFT_OK && self->transfer != NULL && sent != NULL)
        WEFT_PLUGIN_CALL(status, self->kernels, record_event, err, self->device, NULL, sent);
    return status;
}

weft_status weft_stream_sync_upload(const weft_stream_sync *self, weft_ref to, const void *from, int64_t bytes,
                                    weft_event **sent, weft_error *err) {
    weft_status status = WEFT_OK;
    if (self->transfer == NULL)
        WEFT_PLUGIN_CALL(status, self->kernels, write, err, self->device, NULL, to, from, bytes);
    else WEFT_PLUGIN_CALL_OF(status, self->kernels, self->transfer, upload, err, self->device, NULL, to, from, bytes);
    return record_event(self, sent, status, err);
}

weft_status weft_stream_sync_download(const weft_stream_sync *self, void *to, weft_ref from, int64_t bytes,
                                      weft_event **sent, weft_error *err) {
    weft_status status = WEFT_OK;
    if (self->transfer == NULL) WEFT_PLUGIN_CALL(status, self->kernels, read, err, self->device, NULL, to, from, bytes);
    else WEFT_PLUGIN_CALL_OF(status, self->kernels, self->transfer, download, err, self->device, NULL, to, from, bytes);
    return record_event(self, sent, status, err);
}

weft_status weft_stream_sync_finish(const weft_stream_sync *self, weft_error *err) {
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, self->kernels, synchronize, err, self->device, NULL);
    return status;
}

weft_status weft_stream_sync_await(const weft_stream_sync *self, weft_event **event, weft_error *err) {
    weft_event *of = *event;
    weft_status status = WEFT_OK;
    *event = NULL;
    if (of != NULL) WEFT_PLUGIN_CALL_OF(status, self->kernels, self->transfer, await, err, self->device, of);
    return status;
}
