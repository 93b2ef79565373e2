/* capture.c: the extension weft/capture.h: captures a step as a CUDA graph. Calls that a graph cannot contain end the
 * capture with an error of this plugin, before CUDA reports one. */
#include "cuda.h"

struct weft_captured_graph {
    cudaGraphExec_t graph;
};

/* Ends a capture on the stream, if one is active, and discards it. */
static void give_up(const weft_device *device, cudaStream_t stream) {
    cudaGraph_t graph = NULL;
    (void)cudaStreamEndCapture(stream, &graph);
    (void)cudaGetLastError();
    if (graph != NULL) cuda_end(device, cudaGraphDestroy(graph));
}

weft_status cuda_not_recording(weft_device *device, const char *what, weft_error *err) {
    if (device->recording == NULL) return WEFT_OK;
    (void)cuda_launch_waiting(device); /* into the discarded capture; it must not run later */
    give_up(device, device->recording->stream);
    device->recording = NULL;
    return weft_error_set(err, WEFT_E_HOST, "%s on device cuda was called while a step was recorded.", what);
}

static weft_status begin(weft_device *device, weft_stream *stream, weft_error *err) {
    weft_stream *s = stream == NULL ? &device->first : stream;
    weft_status status = cuda_not_recording(device, "begin", err);
    if (status == WEFT_OK) status = cuda_enter(device, "beginning to record a step", err);
    if (status != WEFT_OK) return status;
    /* Thread-local mode: a checkpoint thread may use CUDA meanwhile. */
    status = cuda_judge(cudaStreamBeginCapture(s->stream, cudaStreamCaptureModeThreadLocal),
                        "beginning to record a step", err);
    if (status == WEFT_OK) device->recording = s;
    return status;
}

/* True for a call that CUDA rejects during capture, or work of a stream that the captured one does not wait for. */
static bool is_unrecordable(cudaError_t code) {
    return code >= cudaErrorStreamCaptureUnsupported && code <= cudaErrorStreamCaptureWrongThread;
}

static weft_status judge_end(cudaError_t code, weft_error *err) {
    const weft_status status = cuda_judge_call(code, "cudaStreamEndCapture", "recording a step", err);
    if (status != WEFT_OK && is_unrecordable(code) && err != NULL) err->code = WEFT_E_UNSUPPORTED;
    return is_unrecordable(code) ? WEFT_E_UNSUPPORTED : status;
}

static weft_status make_recording(weft_device *device, weft_captured_graph **out, cudaGraph_t graph, weft_error *err) {
    weft_captured_graph *r = device->host->alloc(device->host, sizeof *r, _Alignof(max_align_t));
    weft_status status = WEFT_OK;
    if (r == NULL) return weft_error_set(err, WEFT_E_MEMORY, "Device cuda has no memory left for a recording.");
    status = cuda_judge(cudaGraphInstantiate(&r->graph, graph, 0), "making a recorded step ready", err);
    if (status == WEFT_OK) *out = r;
    else device->host->release(device->host, r);
    return status;
}

static weft_status end(weft_device *device, weft_stream *stream, weft_captured_graph **out, weft_error *err) {
    weft_stream *s = stream == NULL ? &device->first : stream;
    const cudaStream_t at = cuda_stream_named(device, s);
    cudaGraph_t graph = NULL;
    weft_status status = WEFT_OK;
    cuda_card_enter(device);
    cuda_settle_waiting(device); /* a pending add of any stream belongs to the capture */
    if (device->recording != s)
        return weft_error_set(err, WEFT_E_HOST, "end on device cuda: that stream is not being captured.");
    device->recording = NULL;
    status = judge_end(cudaStreamEndCapture(at, &graph), err);
    if (status != WEFT_OK) give_up(device, at);
    if (status == WEFT_OK) status = make_recording(device, out, graph, err);
    if (graph != NULL) cuda_end(device, cudaGraphDestroy(graph));
    return status;
}

static weft_status replay(weft_device *device, weft_stream *stream, weft_captured_graph *recording, weft_error *err) {
    const weft_status status = cuda_not_recording(device, "replay", err);
    if (status != WEFT_OK) return status;
    return cuda_judge(cudaGraphLaunch(recording->graph, cuda_stream(device, stream)), "replaying a step", err);
}

static void destroy(weft_device *device, weft_captured_graph *recording) {
    if (recording == NULL) return;
    cuda_enter_end(device);
    cuda_end(device, cudaGraphExecDestroy(recording->graph));
    device->host->release(device->host, recording);
}

const weft_device_capture cuda_capture = {(uint32_t)sizeof(weft_device_capture), 0, begin, end, replay, destroy};
