/* weft/capture.h: graph capture and replay of a step; an extension of device/1, queried as WEFT_DEVICE_CAPTURE.
 *
 * A step of a small model consists of hundreds of short kernels, and each launch costs the host more time than the
 * kernel costs the device. A device with this extension captures the work queued between `begin` and `end` without
 * running it, and replays all of it with one call.
 *
 *     begin(stream); ... work of a step, on this stream and on those that wait for it ... end(stream, &captured_graph)
 *     each step: replay(captured graph, stream)
 *
 * A captured graph contains kernels with their arguments, copies, fills, conversions, uploads and downloads
 * (weft/transfer.h), stream events and waits. A stream joins the capture when it waits for an event of a captured
 * stream. The first stream must wait for it again before `end`. The graph stores addresses, never contents: a replay
 * reads the current contents of buffers and host memory. Values that change from step to step are therefore in memory:
 * the target count, the optimizer's hp, the ids of a micro-batch, the positions filled in a KV cache. A graph is valid
 * until one of its buffers is released. The host captures one graph for each part of a step that it captures
 * separately, and for each list of micro-batch lengths.
 *
 * Between `begin` and `end` these calls fail with WEFT_E_HOST: alloc, release, take, give_back, read, write (the host
 * memory no longer exists at a replay), synchronize, reached, await. After a failed call the caller still calls `end`,
 * which then also fails and returns no graph; no captured work has run, and the device is in its state before `begin`.
 * A communicator can be captured if its collectives run in streams on their own (WEFT_PROGRESS_OWN). A communicator
 * that the caller drives cannot be captured.
 *
 * The host runs the first pass of each list of lengths without capture, because libraries initialize on their first
 * call. It captures the second pass (host/run/graph_capture.c; [run] replay in the configuration).
 *
 * CUDA implementation: cudaStreamBeginCapture in thread-local mode, cudaStreamEndCapture, cudaGraphInstantiate and
 * cudaGraphLaunch. The CPU device gains no time from capture and does not have the extension.
 */
#ifndef WEFT_CAPTURE_H
#define WEFT_CAPTURE_H

#include <weft/device.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_DEVICE_CAPTURE "weft.device.capture/1" /* the extension is a const weft_device_capture */

typedef struct weft_captured_graph weft_captured_graph; /* defined by the plugin */

typedef struct weft_device_capture {
    uint32_t struct_size;
    uint32_t flags;

    /* Begins a capture. All streams of the device are idle. [main] [required] */
    weft_status (*begin)(weft_device *device, weft_stream *stream, weft_error *err);
    /* Ends the capture and returns the graph. WEFT_E_UNSUPPORTED: some work cannot be captured, and the caller
     * continues without capture. [main] [required] */
    weft_status (*end)(weft_device *device, weft_stream *stream, weft_captured_graph **out, weft_error *err);
    /* Queues the complete graph in the stream, in captured order. [main] [hot] [required] */
    weft_status (*replay)(weft_device *device, weft_stream *stream, weft_captured_graph *captured_graph,
                          weft_error *err);
    /* Destroys a graph that is no longer queued; NULL is allowed. [main] [required] */
    void (*destroy)(weft_device *device, weft_captured_graph *captured_graph);
} weft_device_capture;

/* Returns the device's table after validation, or NULL if the device has none. [main] */
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
