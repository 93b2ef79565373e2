/* host/run/stream_sync.h: the streams of a program's queues, and what one waits for of another.
 *
 * Queue 0 is the device's first stream: all that computes. An instruction of another queue begins with a fork, by which
 * its queue sees all that queue 0 holds so far, and ends with a join of what it has started (weft_ranks_join), by which
 * queue 0 sees it. Nothing else orders a step; the host waits at two places: before it fills memory again from which an
 * upload may still read, and at the end of a pass for the losses.
 *
 * What goes to the device and comes back lies in memory that both share, where the device has such (weft/transfer.h);
 * without, it is written and read, and the host waits there. */
#ifndef WEFT_HOST_RUN_STREAM_SYNC_H
#define WEFT_HOST_RUN_STREAM_SYNC_H

#include <weft/device.h>
#include <weft/transfer.h>

enum { WEFT_QUEUES = 4 };

typedef struct weft_stream_sync {
    const weft_device_plugin *kernels;
    weft_device *device;
    const weft_device_transfer *transfer; /* NULL: the device offers none */
    weft_stream *streams[WEFT_QUEUES];    /* [0] NULL: the device's first */
} weft_stream_sync;

weft_status weft_stream_sync_open(weft_stream_sync *out, const weft_device_plugin *kernels, weft_device *device,
                                  weft_error *err);
void weft_stream_sync_close(weft_stream_sync *self); /* zeroed is fine */

/* The stream of an instruction's queue, which sees all that queue 0 holds so far. */
weft_status weft_stream_sync_fork(const weft_stream_sync *self, weft_stream **out, int32_t queue, weft_error *err);

/* Memory for what goes over, of zeros. Outside of steps. */
weft_status weft_stream_sync_take(const weft_stream_sync *self, void **out, int64_t bytes, weft_error *err);
void weft_stream_sync_give_back(const weft_stream_sync *self, void *memory); /* NULL is fine */

/* In queue 0. `from` lies in such memory, and stays as it is until `sent` has been awaited; sent NULL: until the pass
 * has ended. *sent may come out NULL: it has gone already. */
weft_status weft_stream_sync_send(const weft_stream_sync *self, weft_ref to, const void *from, int64_t bytes,
                                  weft_event **sent, weft_error *err);
/* In queue 0. `to` lies in such memory; it is there once the queue has been finished. */
weft_status weft_stream_sync_bring(const weft_stream_sync *self, void *to, weft_ref from, int64_t bytes,
                                   weft_error *err);
/* The host waits for all that queue 0 holds. */
weft_status weft_stream_sync_finish(const weft_stream_sync *self, weft_error *err);
/* Both. */
weft_status weft_stream_sync_fetch(const weft_stream_sync *self, void *to, weft_ref from, int64_t bytes,
                                   weft_error *err);
/* The host waits; *event is NULL then. NULL is reached. */
weft_status weft_stream_sync_await(const weft_stream_sync *self, weft_event **event, weft_error *err);

#endif
