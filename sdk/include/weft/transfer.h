/* weft/transfer.h: asynchronous copies between host and device; an extension of device/1, queried as
 * WEFT_DEVICE_TRANSFER.
 *
 * `write` and `read` of a device block the host while its memory is in use. A device with separate memory offers this
 * extension in addition: pinned host memory, and copies that are queued like kernels.
 *
 *     take(&micro_batch, bytes) ... fill micro-batch ... upload(stream, slot, micro-batch, bytes); event(stream,
 *     &sent);
 *     ... kernels on the stream, the next micro-batch in another buffer ...
 *     await(sent); fill micro-batch again
 *
 * An event recorded after a copy marks its end. Until it completes, the caller must not change an upload's
 * `from` or read a download's `to`. For a device without the extension the host uses `write` and `read`: the same
 * program, but blocking.
 *
 * CUDA implementation: cudaHostAlloc, cudaMemcpyAsync, and cudaEventQuery and cudaEventSynchronize on its CUDA
 * event. In a captured graph (weft/capture.h), an upload is a node that reads `from` again at each replay.
 *
 * Intended users: parameter groups in host memory (one upload per group, double-buffered), communicators that the host
 * drives (staging: a download, the exchange after its event, an upload).
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

    /* Allocates pinned host memory, aligned to at least 4 KiB, with undefined content. take and give_back may block the
     * device, so memory is kept for the next step. [main] [required] */
    weft_status (*take)(weft_device *device, void **out, int64_t bytes, weft_error *err);
    void (*give_back)(weft_device *device, void *memory); /* NULL is allowed; no queued copy may use it */

    /* Queues a copy; host memory must be from `take`. [main] [hot] [required] */
    weft_status (*upload)(weft_device *device, weft_stream *s, weft_ref to, const void *from, int64_t bytes,
                          weft_error *err);
    weft_status (*download)(weft_device *device, weft_stream *s, void *to, weft_ref from, int64_t bytes,
                            weft_error *err);

    /* Returns 1: the event has completed; 0: not yet; < 0: earlier work failed. Does not free the event.
     * [main] [hot] [required] */
    int32_t (*reached)(weft_device *device, weft_event *event, weft_error *err);
    /* Blocks until the event completes; always frees it. [main] [hot] [required] */
    weft_status (*await)(weft_device *device, weft_event *event, weft_error *err);
} weft_device_transfer;

/* Returns the device's table after validation, or NULL if it has none; only `read` and `write` are then available.
 * [main] */
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
