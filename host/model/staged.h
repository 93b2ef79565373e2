/* host/model/staged.h: two pieces of memory between host and device, in turn: while one is on its way, the host works
 * on the other one. On a device that offers weft/transfer.h they are memory that it reads and writes by itself;
 * elsewhere plain memory, and the host waits.
 *
 *     to the device:  room(&piece), fill it, send; room(&other), fill that while the first one goes, send; ...
 *     to the host:    ask(first); ask(second), take(&piece) of the first, use it while the second comes; ...
 *
 * Not both at a time. */
#ifndef WEFT_HOST_MODEL_STAGED_H
#define WEFT_HOST_MODEL_STAGED_H

#include <weft/transfer.h>

typedef struct weft_staged {
    const weft_device_plugin *kernels;
    weft_device *device;
    const weft_device_transfer *transfer; /* NULL: plain memory */
    void *memory[2];
    weft_mark *marks[2]; /* when it has gone or come; NULL: now */
    int turn;            /* which is next for room, send and ask */
} weft_staged;

/* Of so many bytes each. On a failure it is closed. */
weft_status weft_staged_open(weft_staged *out, const weft_device_plugin *kernels, weft_device *device, int64_t bytes,
                             weft_error *err);
/* Nothing of it is on its way any more; a zeroed one is fine. A failure on the way is err's, which may be NULL. */
weft_status weft_staged_close(weft_staged *self, weft_error *err);

/* The piece that is next to be filled: what it held has gone. */
weft_status weft_staged_room(weft_staged *self, void **out, weft_error *err);
weft_status weft_staged_send(weft_staged *self, weft_ref to, int64_t bytes, weft_error *err);

/* Begins to bring bytes. */
weft_status weft_staged_ask(weft_staged *self, weft_ref from, int64_t bytes, weft_error *err);
/* What was asked for `ago` asks before the last one, 0 or 1. */
weft_status weft_staged_take(weft_staged *self, int ago, const void **out, weft_error *err);

#endif
