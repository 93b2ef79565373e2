/* host/model/stream_sync.h: streams of a device and transfers between it and the host.
 *
 * Queue 0 is the device's first stream, which does all computation. An instruction of another queue begins with a
 * fork: its stream waits for everything queued in queue 0 so far. It ends with a join of its exchanges
 * (weft_ranks_join), after which queue 0 sees their results. The host waits only before it refills memory that an
 * upload may still read, and for the losses at the end of a pass.
 *
 * Transfers use memory that host and device share, if the device has it (weft/transfer.h). Otherwise they are
 * synchronous writes and reads. */
#ifndef WEFT_HOST_MODEL_STREAM_SYNC_H
#define WEFT_HOST_MODEL_STREAM_SYNC_H

#include <weft/transfer.h>

enum { WEFT_QUEUES = 4 };

typedef struct weft_stream_sync {
    const weft_device_plugin *kernels;
    weft_device *device;
    const weft_device_transfer *transfer; /* NULL: the device has no shared memory */
    weft_stream *streams[WEFT_QUEUES];    /* [0] NULL: the device's first */
} weft_stream_sync;

/* queues: 1 for transfers only, or WEFT_QUEUES. */
weft_status weft_stream_sync_open(weft_stream_sync *out, const weft_device_plugin *kernels, weft_device *device,
                                  int queues, weft_error *err);
void weft_stream_sync_close(weft_stream_sync *self); /* zeroed is fine */
/* Returns the stream of an instruction's queue, after a fork. */
weft_status weft_stream_sync_fork(const weft_stream_sync *self, weft_stream **out, int32_t queue, weft_error *err);
/* Allocates memory for transfers; not during a step. */
weft_status weft_stream_sync_alloc(const weft_stream_sync *self, void **out, int64_t bytes, weft_error *err);
void weft_stream_sync_free(const weft_stream_sync *self, void *memory); /* NULL is fine */
/* Queues an upload in queue 0. `from` is transfer memory, unchanged until the event `sent` is reached; sent NULL: until
 * the pass has ended. *sent NULL: the copy is complete. */
weft_status weft_stream_sync_upload(const weft_stream_sync *self, weft_ref to, const void *from, int64_t bytes,
                                    weft_event **sent, weft_error *err);
/* Queues a download into transfer memory in queue 0; it is complete when the event is reached, or, with sent NULL,
 * after weft_stream_sync_finish. */
weft_status weft_stream_sync_download(const weft_stream_sync *self, void *to, weft_ref from, int64_t bytes,
                                      weft_event **sent, weft_error *err);
/* The host waits for everything in queue 0. */
weft_status weft_stream_sync_finish(const weft_stream_sync *self, weft_error *err);
/* The host waits for the event and sets it to NULL; NULL is reached. */
weft_status weft_stream_sync_await(const weft_stream_sync *self, weft_event **event, weft_error *err);

#endif
