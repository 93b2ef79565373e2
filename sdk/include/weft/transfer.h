/* weft/transfer.h: bytes between host and device without waiting; an extension of device/1, asked for as
 * WEFT_DEVICE_TRANSFER.
 *
 * `write` and `read` of a device block the host as long as the host's memory is in use. A device with memory of its own
 * offers this beside them: host memory that it reads and writes by itself, and copies that are queued like kernels.
 *
 *     take(&leaf, bytes) ... fill leaf ... upload(stream, slot, leaf, bytes); mark(stream, &sent);
 *     ... kernels on the stream, the next leaf in another piece of memory ...
 *     await(sent); fill leaf again
 *
 * Until a mark behind an upload is reached, its `from` stays as it is; until one behind a download is reached, nobody
 * looks at its `to`. A device without the extension is served by `write` and `read`: the same program, in which the
 * host waits.
 *
 * How CUDA serves it: cudaHostAlloc, cudaMemcpyAsync, cudaEventQuery and cudaEventSynchronize on the event that is the
 * mark. Captured (weft/capture.h), an upload is a node that reads `from` anew at each replay.
 *
 * Later users this serves: groups that lie in host memory (an upload per group, two buffers in turn), communicators
 * that the host drives (staging: a download, the exchange once its mark is reached, an upload).
 */
#ifndef WEFT_TRANSFER_H
#define WEFT_TRANSFER_H

#include <weft/device.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_DEVICE_TRANSFER "weft.device.transfer/1" /* the extension is a const weft_device_transfer */

typedef struct weft_device_transfer {
    uint32_t struct_size;
    uint32_t flags;

    /* Host memory that never moves, aligned to 4 KiB or better; its content is undefined. Both may stop the device, so
     * what is taken is kept for the next step. [main] [required] */
    weft_status (*take)(weft_device *device, void **out, int64_t bytes, weft_error *err);
    void (*give_back)(weft_device *device, void *memory); /* NULL is fine; no queued copy names it any more */

    /* Queued; `from` and `to` lie in memory of `take`. [main] [hot] [required] */
    weft_status (*upload)(weft_device *device, weft_stream *s, weft_ref to, const void *from, int64_t bytes,
                          weft_error *err);
    weft_status (*download)(weft_device *device, weft_stream *s, void *to, weft_ref from, int64_t bytes,
                            weft_error *err);

    /* 1: the mark is reached; 0: not yet; < 0: what is queued before it has failed. The mark stays. [main] [hot]
     * [required] */
    int32_t (*reached)(weft_device *device, weft_mark *mark, weft_error *err);
    /* Returns when the mark is reached; it is freed either way. [main] [hot] [required] */
    weft_status (*await)(weft_device *device, weft_mark *mark, weft_error *err);
} weft_device_transfer;

/* The device's table, judged; NULL: it has none, and `read` and `write` are all there is. [main] */
static inline weft_status weft_device_transfer_find(const weft_device_transfer **out, const weft_device_plugin *kernels,
                                                    weft_device *device, weft_error *err) {
    const weft_device_transfer *table = NULL;
    if (kernels->extension != NULL)
        table = (const weft_device_transfer *)kernels->extension(device, WEFT_DEVICE_TRANSFER);
    if (table != NULL &&
        (!WEFT_WHOLE(table, weft_device_transfer) || table->take == NULL || table->give_back == NULL ||
         table->upload == NULL || table->download == NULL || table->reached == NULL || table->await == NULL))
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "the device's extension " WEFT_DEVICE_TRANSFER
                              " lacks required slots, or has %u bytes where "
                              "SDK 1.0 has %u",
                              (unsigned)table->struct_size, (unsigned)WEFT_SIZE_1_0(weft_device_transfer));
    *out = table;
    return WEFT_OK;
}

#ifdef __cplusplus
}
#endif
#endif
