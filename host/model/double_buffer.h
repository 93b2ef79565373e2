/* host/model/double_buffer.h: double-buffered transfers between host and device: the host works on one buffer while the
 * other is transferred. On a device with weft/transfer.h the buffers are pinned memory with asynchronous transfers.
 * Elsewhere they are plain memory and transfers are synchronous.
 *
 *     to the device:  room(&piece), fill it, send; room(&other), fill it during the first transfer, send; ...
 *     to the host:    ask(first); ask(second), take(&piece) of the first, use it during the second transfer; ...
 *
 * Only one direction at a time. */
#ifndef WEFT_HOST_MODEL_DOUBLE_BUFFER_H
#define WEFT_HOST_MODEL_DOUBLE_BUFFER_H

#include <weft/transfer.h>

typedef struct weft_double_buffer {
    const weft_device_plugin *kernels;
    weft_device *device;
    const weft_device_transfer *transfer; /* NULL: plain memory */
    void *memory[2];
    weft_event *events[2]; /* recorded after the transfer; NULL: synchronous */
    int turn;              /* the next buffer for room, send and ask */
} weft_double_buffer;

/* Opens two buffers of `bytes` each. Closes them on a failure. */
weft_status weft_double_buffer_open(weft_double_buffer *out, const weft_device_plugin *kernels, weft_device *device,
                                    int64_t bytes, weft_error *err);
/* Waits for all transfers and frees the buffers. A zeroed struct is allowed. err receives a failed transfer and may be
 * NULL. */
weft_status weft_double_buffer_close(weft_double_buffer *self, weft_error *err);

/* Returns the next buffer to fill, after its previous transfer has ended. */
weft_status weft_double_buffer_bytes(weft_double_buffer *self, void **out, weft_error *err);
weft_status weft_double_buffer_send(weft_double_buffer *self, weft_ref to, int64_t bytes, weft_error *err);

/* Starts a transfer to the host. */
weft_status weft_double_buffer_fetch(weft_double_buffer *self, weft_ref from, int64_t bytes, weft_error *err);
/* Returns the buffer of the last `ask`, or the one before it: ago 0 or 1. */
weft_status weft_double_buffer_take(weft_double_buffer *self, int ago, const void **out, weft_error *err);

#endif
