/* transfer.c: the extension weft/transfer.h: pinned memory and asynchronous copies. */
#include "event_pool.h"

static weft_status take(weft_device *device, void **out, int64_t bytes, weft_error *err) {
    void *memory = NULL;
    cudaError_t code = cudaSuccess;
    weft_status status = cuda_not_recording(device, "take", err);
    if (status != WEFT_OK) return status;
    if (bytes < 0)
        return weft_error_set(err, WEFT_E_HOST, "The call requests %lld bytes of host memory from device cuda.",
                              (long long)bytes);
    status = cuda_enter(device, "taking memory of the host", err);
    if (status != WEFT_OK) return status;
    code = cudaHostAlloc(&memory, (size_t)size_max(bytes, 1), cudaHostAllocDefault);
    if (code == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return weft_error_set(err, WEFT_E_MEMORY,
                              "The system has no %lld bytes of page-locked memory, which copies to the GPU need.",
                              (long long)bytes);
    }
    status = cuda_judge_call(code, "cudaHostAlloc", "taking memory of the host", err);
    if (status == WEFT_OK) *out = memory;
    return status;
}

static void give_back(weft_device *device, void *memory) {
    weft_error unheard = WEFT_ERROR_INIT;
    if (memory == NULL) return;
    (void)cuda_not_recording(device, "give_back", &unheard);
    cuda_enter_end(device);
    cuda_end(device, cudaFreeHost(memory));
}

static weft_status upload(weft_device *device, weft_stream *s, weft_ref to, const void *from, int64_t bytes,
                          weft_error *err) {
    operands c = operands_plain("upload", err);
    void *at = operands_need(&c, to, "to", bytes, 1, 1);
    if (c.status != WEFT_OK || bytes == 0) return c.status;
    return cuda_judge(cuda_move(at, from, bytes, cudaMemcpyHostToDevice, cuda_stream(device, s)), "upload", err);
}

static weft_status download(weft_device *device, weft_stream *s, void *to, weft_ref from, int64_t bytes,
                            weft_error *err) {
    operands c = operands_plain("download", err);
    const void *at = operands_need(&c, from, "from", bytes, 1, 1);
    if (c.status != WEFT_OK || bytes == 0) return c.status;
    return cuda_judge(cuda_move(to, at, bytes, cudaMemcpyDeviceToHost, cuda_stream(device, s)), "download", err);
}

static int32_t reached(weft_device *device, weft_event *event, weft_error *err) {
    weft_status status = cuda_not_recording(device, "reached", err);
    cudaError_t code = cudaSuccess;
    if (status != WEFT_OK) return -1;
    cuda_card_enter(device);
    code = cudaEventQuery(event->event);
    if (code == cudaErrorNotReady) {
        (void)cudaGetLastError(); /* otherwise the next launch would report this error */
        return 0;
    }
    status = cuda_judge_call(code, "cudaEventQuery", "reached", err);
    return status == WEFT_OK ? 1 : -1;
}

static weft_status await_event(weft_device *device, weft_event *event, weft_error *err) {
    weft_status status = cuda_not_recording(device, "await", err);
    cuda_card_enter(device);
    if (status == WEFT_OK) status = cuda_judge(cudaEventSynchronize(event->event), "await", err);
    cuda_event_put_back(device, event);
    return status;
}

const weft_device_transfer cuda_transfer = {
    (uint32_t)sizeof(weft_device_transfer), 0, take, give_back, upload, download, reached, await_event};
