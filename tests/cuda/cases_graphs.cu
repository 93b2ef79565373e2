/* cuda/cases_graphs.cu: see cases.h. */
#include "launches.h"

namespace {

constexpr int N = 100;
const std::vector<float> ones(N, 1.0f);

int all_are(const float *at, float wanted) {
    for (float got : host_copy(at, N)) MUST(got == wanted);
    return 0;
}

struct recording {
    float *x, *y;
    cudaStream_t a, b;
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
};

recording begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
    recording r = {device_array(N, ones), device_array(N, ones), new_stream(), new_stream(),
                   new_event(),           new_event(),           nullptr,      nullptr};
    if (cudaStreamBeginCapture(r.a, mode) != cudaSuccess) std::abort();
    return r;
}

int end_and_replay(recording &r, int times) {
    FINE(cudaStreamEndCapture(r.a, &r.graph));
    FINE(cudaGraphInstantiate(&r.exec, r.graph, 0));
    FINE(cudaGraphDestroy(r.graph));
    for (int i = 0; i < times; i++) FINE(cudaGraphLaunch(r.exec, r.a));
    FINE(cudaStreamSynchronize(r.a));
    FINE(cudaGraphExecDestroy(r.exec));
    return 0;
}

/* y = x + 1 in the second stream, x = y + 1 in the first, which must wait for it. */
int two_streams(bool fork, bool join) {
    recording r = begin();
    FINE(add_to(r.x, r.x, N, 1.0f, r.a));
    FINE(cudaEventRecord(r.fork, r.a));
    FINE(cudaStreamWaitEvent(r.b, r.fork, 0));
    if (!fork) FINE(add_to(r.x, r.x, N, 10.0f, r.a)); /* after the fork: unordered with the following work */
    FINE(add_to(r.y, r.x, N, 1.0f, r.b));
    FINE(cudaEventRecord(r.join, r.b));
    if (join) FINE(cudaStreamWaitEvent(r.a, r.join, 0));
    FINE(add_to(r.x, r.y, N, 1.0f, r.a));
    MUST(end_and_replay(r, 3) == 0);
    return all_are(r.x, 10.0f);
}

} // namespace

int case_graph(void) {
    recording r = begin();
    FINE(add_to(r.x, r.x, N, 1.0f, r.a));
    FINE(cudaMemcpyAsync(r.y, r.x, N * sizeof(float), cudaMemcpyDeviceToDevice, r.a));
    FINE(add_to(r.x, r.y, N, 1.0f, r.a));
    MUST(end_and_replay(r, 3) == 0);
    MUST(emulator_launches("plus") == 6);
    return all_are(r.x, 7.0f);
}
int case_graph_of_two_streams(void) {
    return two_streams(true, true);
}
int case_graph_fork_left_out(void) {
    return two_streams(false, true);
}
int case_graph_not_joined(void) {
    return two_streams(true, false);
}
int case_graph_allocates(void) {
    recording r = begin();
    void *at = nullptr;
    FINE(add_to(r.x, r.x, N, 1.0f, r.a));
    MUST(cudaMalloc(&at, 100) == cudaErrorStreamCaptureUnsupported);
    MUST(cudaStreamEndCapture(r.a, &r.graph) == cudaErrorStreamCaptureInvalidated);
    FINE(cudaMalloc(&at, 100));
    return all_are(r.x, 1.0f);
}
int case_graph_waits(void) {
    recording r = begin();
    FINE(cudaEventRecord(r.fork, r.a));
    MUST(cudaEventSynchronize(r.fork) == cudaErrorCapturedEvent);
    MUST(cudaStreamEndCapture(r.a, &r.graph) == cudaErrorStreamCaptureInvalidated);
    FINE(cudaStreamBeginCapture(r.a, cudaStreamCaptureModeThreadLocal));
    MUST(cudaStreamSynchronize(r.a) == cudaErrorStreamCaptureUnsupported);
    MUST(cudaStreamEndCapture(r.a, &r.graph) == cudaErrorStreamCaptureInvalidated);
    return 0;
}
int case_graph_pageable(void) {
    recording r = begin();
    std::vector<float> host(N);
    MUST(cudaMemcpyAsync(host.data(), r.x, N * sizeof(float), cudaMemcpyDeviceToHost, r.a) ==
         cudaErrorStreamCaptureUnsupported);
    MUST(cudaStreamEndCapture(r.a, &r.graph) == cudaErrorStreamCaptureInvalidated);
    return 0;
}
int case_graph_foreign_event(void) {
    recording r = begin();
    FINE(cudaEventRecord(r.fork, r.b));
    MUST(cudaStreamWaitEvent(r.a, r.fork, 0) == cudaErrorStreamCaptureIsolation);
    MUST(cudaStreamEndCapture(r.a, &r.graph) == cudaErrorStreamCaptureInvalidated);
    return 0;
}
