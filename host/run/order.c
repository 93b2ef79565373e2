/* host/run/order.c: see order.h. */
#include "run/order.h"

#include "plugin/enter.h"

#include <stdlib.h>

weft_status weft_order_open(weft_order *out, const weft_device_plugin *kernels, weft_device *device, weft_error *err) {
    const weft_order empty = {.kernels = kernels, .device = device};
    weft_status status = WEFT_OK;
    *out = empty;
    status = weft_device_transfer_find(&out->transfer, kernels, device, err);
    for (int queue = 1; queue < WEFT_QUEUES && status == WEFT_OK; queue++)
        WEFT_PLUGIN_CALL(status, kernels, stream_create, err, device, &out->streams[queue]);
    return status;
}

void weft_order_close(weft_order *self) {
    for (int queue = 1; queue < WEFT_QUEUES; queue++) {
        if (self->streams[queue] != NULL)
            WEFT_PLUGIN_TELL(self->kernels, stream_destroy, self->device, self->streams[queue]);
        self->streams[queue] = NULL;
    }
}

weft_status weft_order_fork(const weft_order *self, weft_stream **out, int32_t queue, weft_error *err) {
    weft_mark *here = NULL;
    weft_status status = WEFT_OK;
    *out = self->streams[queue];
    if (queue == 0) return WEFT_OK;
    WEFT_PLUGIN_CALL(status, self->kernels, mark, err, self->device, NULL, &here);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, self->kernels, wait, err, self->device, *out, here);
    return status;
}

weft_status weft_order_take(const weft_order *self, void **out, int64_t bytes, weft_error *err) {
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

void weft_order_give_back(const weft_order *self, void *memory) {
    if (self->transfer != NULL && memory != NULL) self->transfer->give_back(self->device, memory);
    else free(memory);
}

weft_status weft_order_send(const weft_order *self, weft_ref to, const void *from, int64_t bytes, weft_mark **sent,
                            weft_error *err) {
    weft_status status = WEFT_OK;
    weft_doing before;
    if (self->transfer == NULL) {
        WEFT_PLUGIN_CALL(status, self->kernels, write, err, self->device, NULL, to, from, bytes);
        return status;
    }
    before = weft_plugin_enter(self->kernels, "upload");
    status = weft_plugin_leave(before, self->transfer->upload(self->device, NULL, to, from, bytes, err), err);
    if (status == WEFT_OK && sent != NULL) WEFT_PLUGIN_CALL(status, self->kernels, mark, err, self->device, NULL, sent);
    return status;
}

weft_status weft_order_bring(const weft_order *self, void *to, weft_ref from, int64_t bytes, weft_error *err) {
    weft_status status = WEFT_OK;
    weft_doing before;
    if (self->transfer == NULL) {
        WEFT_PLUGIN_CALL(status, self->kernels, read, err, self->device, NULL, to, from, bytes);
        return status;
    }
    before = weft_plugin_enter(self->kernels, "download");
    return weft_plugin_leave(before, self->transfer->download(self->device, NULL, to, from, bytes, err), err);
}

weft_status weft_order_finish(const weft_order *self, weft_error *err) {
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, self->kernels, synchronize, err, self->device, NULL);
    return status;
}

weft_status weft_order_fetch(const weft_order *self, void *to, weft_ref from, int64_t bytes, weft_error *err) {
    const weft_status status = weft_order_bring(self, to, from, bytes, err);
    return status == WEFT_OK ? weft_order_finish(self, err) : status;
}

weft_status weft_order_await(const weft_order *self, weft_mark **mark, weft_error *err) {
    weft_mark *of = *mark;
    weft_doing before;
    *mark = NULL;
    if (of == NULL) return WEFT_OK;
    before = weft_plugin_enter(self->kernels, "await");
    return weft_plugin_leave(before, self->transfer->await(self->device, of, err), err);
}
