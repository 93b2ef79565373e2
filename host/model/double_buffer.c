/* host/model/double_buffer.c: see double_buffer.h. */
#include "model/double_buffer.h"

#include "plugin/enter.h"

#include <stdlib.h>

static weft_status take_piece(const weft_double_buffer *self, void **out, int64_t bytes, weft_error *err) {
    weft_doing before;
    if (self->transfer == NULL) {
        *out = malloc((size_t)bytes + 1);
        return *out != NULL ? WEFT_OK : weft_error_set(err, WEFT_E_MEMORY, "no memory for a piece of the weights");
    }
    before = weft_plugin_enter(self->kernels, "take");
    return weft_plugin_leave(before, self->transfer->take(self->device, out, bytes, err), err);
}

weft_status weft_double_buffer_open(weft_double_buffer *out, const weft_device_plugin *kernels, weft_device *device,
                                    int64_t bytes, weft_error *err) {
    const weft_double_buffer empty = {.kernels = kernels, .device = device};
    weft_status status = WEFT_OK;
    *out = empty;
    status = weft_device_transfer_find(&out->transfer, kernels, device, err);
    for (int i = 0; i < 2 && status == WEFT_OK; i++) status = take_piece(out, &out->memory[i], bytes, err);
    if (status != WEFT_OK) (void)weft_double_buffer_close(out, NULL);
    return status;
}

/* Waits for the buffer's transfer. */
static weft_status await_piece(weft_double_buffer *self, int i, weft_error *err) {
    weft_event *event = self->events[i];
    weft_doing before;
    self->events[i] = NULL;
    if (event == NULL) return WEFT_OK;
    before = weft_plugin_enter(self->kernels, "await");
    return weft_plugin_leave(before, self->transfer->await(self->device, event, err), err);
}

weft_status weft_double_buffer_close(weft_double_buffer *self, weft_error *err) {
    const weft_double_buffer empty = {0};
    weft_status status = WEFT_OK;
    for (int i = 0; i < 2; i++) {
        const weft_status one = await_piece(self, i, status == WEFT_OK ? err : NULL);
        if (status == WEFT_OK) status = one;
        if (self->transfer == NULL) free(self->memory[i]);
        else if (self->memory[i] != NULL) self->transfer->give_back(self->device, self->memory[i]);
    }
    *self = empty;
    return status;
}

weft_status weft_double_buffer_bytes(weft_double_buffer *self, void **out, weft_error *err) {
    const weft_status status = await_piece(self, self->turn, err);
    *out = self->memory[self->turn];
    return status;
}

/* Records the stream event of the current buffer's transfer and switches to the other buffer. */
static weft_status set_out(weft_double_buffer *self, weft_error *err) {
    weft_status status = WEFT_OK;
    if (self->transfer != NULL)
        WEFT_PLUGIN_CALL(status, self->kernels, record_event, err, self->device, NULL, &self->events[self->turn]);
    self->turn = 1 - self->turn;
    return status;
}

weft_status weft_double_buffer_send(weft_double_buffer *self, weft_ref to, int64_t bytes, weft_error *err) {
    const void *from = self->memory[self->turn];
    weft_status status = WEFT_OK;
    if (self->transfer == NULL)
        WEFT_PLUGIN_CALL(status, self->kernels, write, err, self->device, NULL, to, from, bytes);
    else {
        const weft_doing before = weft_plugin_enter(self->kernels, "upload");
        status = weft_plugin_leave(before, self->transfer->upload(self->device, NULL, to, from, bytes, err), err);
    }
    return status == WEFT_OK ? set_out(self, err) : status;
}

weft_status weft_double_buffer_fetch(weft_double_buffer *self, weft_ref from, int64_t bytes, weft_error *err) {
    void *to = self->memory[self->turn];
    weft_status status = await_piece(self, self->turn, err);
    if (status != WEFT_OK) return status;
    if (self->transfer == NULL) WEFT_PLUGIN_CALL(status, self->kernels, read, err, self->device, NULL, to, from, bytes);
    else {
        const weft_doing before = weft_plugin_enter(self->kernels, "download");
        status = weft_plugin_leave(before, self->transfer->download(self->device, NULL, to, from, bytes, err), err);
    }
    return status == WEFT_OK ? set_out(self, err) : status;
}

weft_status weft_double_buffer_take(weft_double_buffer *self, int ago, const void **out, weft_error *err) {
    const int i = ago == 0 ? 1 - self->turn : self->turn;
    *out = self->memory[i];
    return await_piece(self, i, err);
}
