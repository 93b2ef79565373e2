/* events.cpp: an event is a point in a stream or, recorded in a captured stream, a set of nodes of that capture. Its
 * time is the emulated one, which matmuls (lt.cpp) and copies advance. */
#include <algorithm>

#include "emulator.h"

using namespace weft_emulator;

struct CUevent_st {
    Point point;
    bool recorded = false, timed = true;
    int asked = 0;
    std::shared_ptr<double> seconds = std::make_shared<double>(0.0); /* time of its completion */
    std::shared_ptr<Capture> capture;                                /* that contains it */
    std::vector<size_t> tips;
};

namespace {

std::vector<std::unique_ptr<CUevent_st>> events;

bool exists(cudaEvent_t event) {
    return std::any_of(events.begin(), events.end(), [event](const auto &e) { return e.get() == event; });
}

cudaError_t create(cudaEvent_t *out, unsigned int flags) {
    const cudaError_t code = device_ready();
    if (code != cudaSuccess) return code;
    if (out == nullptr || flags > (cudaEventBlockingSync | cudaEventDisableTiming)) return cudaErrorInvalidValue;
    events.push_back(std::make_unique<CUevent_st>());
    events.back()->timed = (flags & cudaEventDisableTiming) == 0;
    *out = events.back().get();
    return cudaSuccess;
}

bool captured(const CUevent_st &event) {
    return event.capture != nullptr;
}

cudaError_t may_ask(cudaEvent_t event, const char *function) {
    if (!exists(event)) return cudaErrorInvalidResourceHandle;
    if (captured(*event)) {
        event->capture->broken = true;
        return cudaErrorCapturedEvent;
    }
    return capture_allows(function);
}

/* Makes the stream continue after those nodes; it joins their capture. */
cudaError_t join(const StreamRef &stream, const CUevent_st &event) {
    if (event.capture->origin == nullptr) return cudaErrorInvalidValue; /* that capture has ended */
    if (stream->capture == nullptr) {
        stream->capture = event.capture;
        event.capture->members.push_back(stream);
        stream->tips.clear();
    } else if (stream->capture != event.capture) {
        stream->capture->broken = event.capture->broken = true;
        return cudaErrorStreamCaptureMerge;
    }
    for (size_t tip : event.tips)
        if (std::find(stream->tips.begin(), stream->tips.end(), tip) == stream->tips.end()) stream->tips.push_back(tip);
    return cudaSuccess;
}

} // namespace

EXPORT cudaError_t cudaEventCreate(cudaEvent_t *out) {
    CALL("cudaEventCreate");
    return answer(create(out, cudaEventDefault));
}

EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned int flags) {
    CALL("cudaEventCreateWithFlags");
    return answer(create(out, flags));
}

EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event) {
    CALL("cudaEventDestroy");
    const auto it = std::find_if(events.begin(), events.end(), [event](const auto &e) { return e.get() == event; });
    if (it == events.end()) return answer(cudaErrorInvalidResourceHandle);
    events.erase(it);
    return cudaSuccess;
}

EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    CALL("cudaEventRecord");
    const StreamRef s = stream_of(stream);
    if (!exists(event) || s == nullptr) return answer(cudaErrorInvalidResourceHandle);
    if (s->capture != nullptr) {
        if (s->capture->broken) return answer(cudaErrorStreamCaptureInvalidated);
        event->capture = s->capture;
        event->tips = s->tips;
        return cudaSuccess;
    }
    event->seconds = std::make_shared<double>(0.0);
    const cudaError_t code =
        queue(stream, "cudaEventRecord", once([when = event->seconds] { *when = emulated_seconds(); }));
    if (code != cudaSuccess) return answer(code);
    event->capture = nullptr;
    event->recorded = true;
    event->asked = 0;
    event->point = end_of(s);
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
    CALL("cudaStreamWaitEvent");
    const StreamRef s = stream_of(stream);
    if (!exists(event) || s == nullptr) return answer(cudaErrorInvalidResourceHandle);
    if (captured(*event)) return answer(join(s, *event));
    if (s->capture != nullptr)
        return answer(event->recorded ? capture_breaks(s, cudaErrorStreamCaptureIsolation) : cudaSuccess);
    queue_wait(s, event->point);
    return cudaSuccess;
}

EXPORT cudaError_t cudaEventQuery(cudaEvent_t event) {
    CALL("cudaEventQuery");
    const cudaError_t code = may_ask(event, "cudaEventQuery");
    if (code != cudaSuccess) return answer(code);
    return asked_for(event->point, event->asked) ? cudaSuccess : cudaErrorNotReady;
}

EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    CALL("cudaEventSynchronize");
    cudaError_t code = may_ask(event, "cudaEventSynchronize");
    if (code == cudaSuccess) code = run_until(event->point);
    return answer(code);
}

EXPORT cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to) {
    CALL("cudaEventElapsedTime");
    if (!exists(from) || !exists(to) || !from->timed || !to->timed || !from->recorded || !to->recorded)
        return answer(cudaErrorInvalidResourceHandle);
    if (!from->point.reached() || !to->point.reached()) return answer(cudaErrorNotReady);
    *milliseconds = static_cast<float>((*to->seconds - *from->seconds) * 1e3);
    return cudaSuccess;
}
