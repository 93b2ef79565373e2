/* streams.c: streams and events. A weft_event is a CUDA event. Events that were waited for are reused, because creating
 * one costs more than recording it. */
#include "cuda.h"
#include "event_pool.h"

cudaStream_t cuda_stream_named(const weft_device *device, const weft_stream *s) {
    return s == NULL ? device->first.stream : s->stream;
}

void cuda_card_enter(const weft_device *device) {
    cuda_put_off(cudaSetDevice(device->index), "cudaSetDevice", NULL);
}

cudaStream_t cuda_stream(const weft_device *device, const weft_stream *s) {
    const cudaStream_t at = cuda_stream_named(device, s);
    cuda_card_enter(device);
    if (device->waiting.stream == at) cuda_settle_waiting(device);
    return at;
}

weft_status cuda_enter(const weft_device *device, const char *what, weft_error *err) {
    const weft_status status = cuda_judge(cudaSetDevice(device->index), what, err);
    if (status != WEFT_OK) return status;
    cuda_settle_waiting(device);
    return cuda_judge_call(cudaSuccess, "cudaSetDevice", what, err);
}

void cuda_enter_end(const weft_device *device) {
    cuda_end(device, cudaSetDevice(device->index));
    cuda_settle_waiting(device);
}

weft_status cuda_streams_open(weft_device *device, weft_error *err) {
    device->first.device = device;
    return cuda_judge(cudaStreamCreateWithFlags(&device->first.stream, cudaStreamNonBlocking), "making a stream", err);
}

void cuda_streams_close(weft_device *device) {
    if (device->first.stream != NULL || device->spare != NULL) cuda_enter_end(device);
    while (device->spare != NULL) {
        weft_event *m = device->spare;
        device->spare = m->next;
        cuda_end(device, cudaEventDestroy(m->event));
        device->host->release(device->host, m);
    }
    if (device->first.stream != NULL) cuda_end(device, cudaStreamDestroy(device->first.stream));
    device->first.stream = NULL;
}

weft_status cuda_stream_create(weft_device *device, weft_stream **out, weft_error *err) {
    weft_stream *s = device->host->alloc(device->host, sizeof *s, _Alignof(max_align_t));
    weft_status status = WEFT_OK;
    if (s == NULL) return weft_error_set(err, WEFT_E_MEMORY, "Device cuda has no memory left for a stream.");
    s->device = device;
    status = cuda_enter(device, "making a stream", err);
    if (status == WEFT_OK)
        status = cuda_judge(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking), "making a stream", err);
    if (status == WEFT_OK) *out = s;
    else device->host->release(device->host, s);
    return status;
}

void cuda_stream_destroy(weft_device *device, weft_stream *stream) {
    if (stream == NULL) return;
    cuda_enter_end(device);
    cuda_end(device, cudaStreamSynchronize(stream->stream));
    cuda_end(device, cudaStreamDestroy(stream->stream));
    device->host->release(device->host, stream);
}

weft_status cuda_synchronize(weft_device *device, weft_stream *stream, weft_error *err) {
    const weft_status status = cuda_not_recording(device, "synchronize", err);
    if (status != WEFT_OK) return status;
    return cuda_judge(cudaStreamSynchronize(cuda_stream(device, stream)), "synchronize", err);
}

/* ---- events ---- */

static weft_status take_event(weft_device *device, weft_event **out, weft_error *err) {
    weft_event *m = device->spare;
    weft_status status = WEFT_OK;
    if (m != NULL) {
        device->spare = m->next;
    } else {
        m = device->host->alloc(device->host, sizeof *m, _Alignof(max_align_t));
        if (m == NULL) return weft_error_set(err, WEFT_E_MEMORY, "Device cuda has no memory left for an event.");
        status = cuda_enter(device, "making an event", err);
        if (status == WEFT_OK)
            status = cuda_judge(cudaEventCreateWithFlags(&m->event, cudaEventDisableTiming), "making an event", err);
        if (status != WEFT_OK) device->host->release(device->host, m);
    }
    if (status == WEFT_OK) *out = m;
    return status;
}

void cuda_event_put_back(weft_device *device, weft_event *event) {
    event->next = device->spare;
    device->spare = event;
}

weft_status cuda_record_event(weft_device *device, weft_stream *stream, weft_event **out, weft_error *err) {
    const cudaStream_t at = cuda_stream(device, stream);
    weft_event *m = NULL;
    weft_status status = take_event(device, &m, err);
    if (status != WEFT_OK) return status;
    status = cuda_judge(cudaEventRecord(m->event, at), "record_event", err);
    if (status == WEFT_OK) *out = m;
    else cuda_event_put_back(device, m);
    return status;
}

weft_status cuda_wait(weft_device *device, weft_stream *stream, weft_event *event, weft_error *err) {
    const weft_status status =
        cuda_judge(cudaStreamWaitEvent(cuda_stream(device, stream), event->event, 0), "wait", err);
    cuda_event_put_back(device, event);
    return status;
}
