/* cuda/cases_streams.cu: see cases.h. */
#include "launches.h"

namespace {

constexpr int N = 100;
const std::vector<float> ones(N, 1.0f);

int all_are(const float *at, float wanted) {
    for (float got : host_copy(at, N)) MUST(got == wanted);
    return 0;
}

/* One stream writes y, another reads it. */
int two_streams(bool wait) {
    float *x = device_array(N, ones), *y = device_array(N, ones), *z = device_array(N, ones);
    const cudaStream_t a = new_stream(), b = new_stream();
    const cudaEvent_t written = new_event();
    FINE(add_to(y, x, N, 1.0f, a));
    FINE(cudaEventRecord(written, a));
    if (wait) FINE(cudaStreamWaitEvent(b, written, 0));
    FINE(add_to(z, y, N, 1.0f, b));
    FINE(cudaStreamSynchronize(b));
    return all_are(z, 3.0f);
}

/* The source of a copy is overwritten, after the stream has finished or at once. */
int source_is_reused(float *source, bool wait) {
    float *x = device_array<float>(N);
    const cudaStream_t s = new_stream();
    for (int i = 0; i < N; i++) source[i] = 1.0f;
    FINE(cudaMemcpyAsync(x, source, N * sizeof(float), cudaMemcpyHostToDevice, s));
    if (wait) FINE(cudaStreamSynchronize(s));
    for (int i = 0; i < N; i++) source[i] = 2.0f;
    FINE(cudaStreamSynchronize(s));
    return all_are(x, 1.0f);
}

} // namespace

int case_order(void) {
    float *x = device_array(N, ones);
    const cudaStream_t s = new_stream();
    for (int i = 0; i < 20; i++) FINE(add_to(x, x, N, 1.0f, s));
    FINE(cudaMemsetAsync(x, 0, sizeof(float), s));
    FINE(cudaStreamSynchronize(s));
    const std::vector<float> got = host_copy(x, N);
    for (int i = 0; i < N; i++) MUST(got[static_cast<size_t>(i)] == (i == 0 ? 0.0f : 21.0f));
    return 0;
}
int case_event(void) {
    return two_streams(true);
}
int case_event_left_out(void) {
    return two_streams(false);
}
int case_host_does_not_wait(void) {
    float *x = device_array(N, ones);
    float *host = nullptr;
    const cudaStream_t s = new_stream();
    FINE(cudaMallocHost(reinterpret_cast<void **>(&host), N * sizeof(float)));
    FINE(cudaMemcpyAsync(host, x, N * sizeof(float), cudaMemcpyDeviceToHost, s));
    MUST(host[3] == 1.0f);
    return 0;
}
int case_read_early(void) {
    float *x = device_array(N, ones);
    std::vector<float> host(N, 1.0f);
    const cudaStream_t s = new_stream();
    FINE(cudaMemcpyAsync(host.data(), x, N * sizeof(float), cudaMemcpyDeviceToHost, s));
    MUST(host[3] == 1.0f);
    return 0;
}
int case_source_reused(void) {
    std::vector<float> host(N);
    return source_is_reused(host.data(), true) != 0 || source_is_reused(host.data(), false) != 0;
}
int case_pinned_reused(void) {
    float *host = nullptr;
    FINE(cudaMallocHost(reinterpret_cast<void **>(&host), N * sizeof(float)));
    return source_is_reused(host, true) != 0 || source_is_reused(host, false) != 0;
}
/* The legacy default stream and a blocking stream wait for each other. */
int case_first_stream(void) {
    float *x = device_array(N, ones), *y = device_array<float>(N);
    cudaStream_t s = nullptr;
    FINE(cudaStreamCreate(&s));
    FINE(add_to(y, x, N, 1.0f, s));
    FINE(add_to(y, y, N, 1.0f, nullptr));
    FINE(add_to(y, y, N, 1.0f, s));
    FINE(cudaStreamSynchronize(s));
    return all_are(y, 4.0f);
}
/* The legacy default stream and a non-blocking one do not. */
int case_not_blocking(void) {
    float *x = device_array(N, ones), *y = device_array(N, ones);
    FINE(add_to(y, x, N, 1.0f, new_stream()));
    return all_are(y, 2.0f);
}
/* cudaMemcpy of pageable memory returns after staging: another stream does not see the copy. */
int case_copy_is_staged(void) {
    float *x = device_array(N, std::vector<float>(N, 0.0f)), *y = device_array<float>(N);
    const cudaStream_t s = new_stream();
    FINE(cudaMemcpy(x, ones.data(), N * sizeof(float), cudaMemcpyHostToDevice));
    FINE(add_to(y, x, N, 0.0f, s));
    FINE(cudaStreamSynchronize(s));
    return all_are(y, 1.0f);
}
int case_query(void) {
    float *x = device_array(N, ones);
    const cudaStream_t s = new_stream();
    const cudaEvent_t e = new_event();
    int asked = 0;
    for (int i = 0; i < 5; i++) FINE(add_to(x, x, N, 1.0f, s));
    FINE(cudaEventRecord(e, s));
    while (cudaEventQuery(e) == cudaErrorNotReady) asked++;
    MUST(asked > 5 && asked < 1000);
    FINE(cudaStreamQuery(s));
    FINE(cudaEventSynchronize(e));
    return all_are(x, 6.0f);
}
int case_destroyed(void) {
    float *x = device_array(N, ones);
    const cudaStream_t s = new_stream();
    FINE(add_to(x, x, N, 1.0f, s));
    FINE(cudaStreamDestroy(s));
    MUST(cudaStreamSynchronize(s) == cudaErrorInvalidResourceHandle);
    FINE(cudaDeviceSynchronize());
    return all_are(x, 2.0f);
}
