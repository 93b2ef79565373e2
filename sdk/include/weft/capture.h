/* weft/capture.h: a step recorded once and replayed; an extension of device/1, asked for as WEFT_DEVICE_CAPTURE.
 *
 * A step of a small model is hundreds of short kernels, and starting each one costs the host more than it costs the
 * device. A device that offers this records what is queued between `begin` and `end` without running it, and replays
 * all of it with one call.
 *
 *     begin(stream); ... the events of a step, on this stream and on those that wait for it ... end(stream, &recording)
 *     each step: replay(recording, stream)
 *
 * What is recorded: kernels with their arguments, copies, fills, conversions, uploads and downloads (weft/transfer.h),
 * marks and waits. A stream joins the recording when it waits for a mark of a stream that is in it, and has been waited
 * for by the first stream before `end`. Recorded are addresses, never contents: a replay reads what the buffers and the
 * host's memory hold then. So all that changes from step to step lies in memory (the count of targets, the optimizer's
 * hp, the ids of a leaf, the places that a key-value state holds), a recording is valid as long as no buffer that it
 * names is released, and there is one for each list of leaf lengths.
 *
 * Between `begin` and `end` these are WEFT_E_HOST, and end the recording: alloc, release, take, give_back, read, write
 * (the host's memory is gone at a replay), synchronize, reached, await. A communicator takes part if its exchanges take
 * their places in streams by themselves (WEFT_PROGRESS_OWN); one that the caller drives cannot be recorded.
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
    void (*destroy)(weft_device *device, weft_recording *recording); /* NULL is fine. [main] [required] */
} weft_device_capture;

#ifdef __cplusplus
}
#endif
#endif
