/* weft/capture.h: a step recorded once and replayed; an extension of device/1, asked for as WEFT_DEVICE_CAPTURE.
 *
 * A step of a small model is hundreds of short kernels, and starting each one costs the host more than it costs the
 * device. A device that offers this records what is queued between `begin` and `end` without running it, and replays
 * all of it with one call.
 *
 *     begin(stream); ... events of a step, on this stream and on those that wait for it ... end(stream, &recording)
 *     each step: replay(recording, stream)
 *
 * What is recorded: kernels with their arguments, copies, fills, conversions, uploads and downloads (weft/transfer.h),
 * marks and waits. A stream joins the recording when it waits for a mark of a stream that is in it, and has been waited
 * for by the first stream before `end`. Recorded are addresses, never contents: a replay reads what the buffers and the
 * host's memory hold then. So all that changes from step to step lies in memory (the count of targets, the optimizer's
 * hp, the ids of a leaf, the places that a key-value state holds), a recording is valid as long as no buffer that it
 * names is released, and there is one for each part of a step that is recorded by itself and each list of its leaves'
 * lengths.
 *
 * Between `begin` and `end` these are WEFT_E_HOST: alloc, release, take, give_back, read, write (the host's memory is
 * gone at a replay), synchronize, reached, await. After a call that has failed the caller still calls `end`, which then
 * gives no recording and fails too; nothing of it has run, and the device is as it was before `begin`. A communicator
 * takes part if its exchanges take their places in streams by themselves (WEFT_PROGRESS_OWN); one that the caller
 * drives cannot be recorded.
 *
 * The host runs the first pass of each such list call by call, so that whatever a library sets up when it is
 * first called is there, and records the second one (host/run/recorder.h; [run] replay in its configuration).
 *
 * How CUDA serves it: cudaStreamBeginCapture with the mode for one thread, cudaStreamEndCapture and
 * cudaGraphInstantiate, cudaGraphLaunch. A device that has nothing to gain, as that of the processors, does without it.
 */
#ifndef WEFT_CAPTURE_H
#define WEFT_CAPTURE_H

#include <weft/device.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_DEVICE_CAPTURE "weft.device.capture/1" /* the extension is a const weft_device_capture */

typedef struct weft_recording weft_recording; /* the plugin's own */

typedef struct weft_device_capture {
    uint32_t struct_size;
    uint32_t flags;

    /* All streams of the device are at rest. [main] [required] */
    weft_status (*begin)(weft_device *device, weft_stream *stream, weft_error *err);
    /* WEFT_E_UNSUPPORTED: something in it cannot be recorded; the caller goes on without. [main] [required] */
    weft_status (*end)(weft_device *device, weft_stream *stream, weft_recording **out, weft_error *err);
    /* Queues all of it in the stream, in the order that was recorded. [main] [hot] [required] */
    weft_status (*replay)(weft_device *device, weft_stream *stream, weft_recording *recording, weft_error *err);
    /* NULL is fine; nothing of it is queued any more. [main] [required] */
    void (*destroy)(weft_device *device, weft_recording *recording);
} weft_device_capture;

/* The device's table, judged; NULL: it has none. [main] */
static inline weft_status weft_device_capture_find(const weft_device_capture **out, const weft_device_plugin *kernels,
                                                   weft_device *device, weft_error *err) {
    const weft_device_capture *table = NULL;
    if (kernels->extension != NULL)
        table = (const weft_device_capture *)kernels->extension(device, WEFT_DEVICE_CAPTURE);
    if (table != NULL && (!WEFT_WHOLE(table, weft_device_capture) || table->begin == NULL || table->end == NULL ||
                          table->replay == NULL || table->destroy == NULL))
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "the device's extension " WEFT_DEVICE_CAPTURE
                              " lacks required slots, or has %u bytes where "
                              "SDK 1.0 has %u",
                              (unsigned)table->struct_size, (unsigned)WEFT_SIZE_1_0(weft_device_capture));
    *out = table;
    return WEFT_OK;
}

#ifdef __cplusplus
}
#endif
#endif
