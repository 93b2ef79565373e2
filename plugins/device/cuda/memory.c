/* memory.c: device buffers. */
#include "cuda.h"

/* Fails with the missing and the available bytes. */
static weft_status tell_full(const weft_device *device, int64_t bytes, weft_error *err) {
    size_t left = 0, all = 0;
    cudaError_t code = cudaSuccess;
    (void)cudaGetLastError();
    code = cudaMemGetInfo(&left, &all);
    if (code != cudaSuccess) {
        (void)cudaGetLastError();
        return weft_error_set(err, WEFT_E_MEMORY,
                              "Card %d, %s, has no memory for a buffer of %lld bytes; cudaMemGetInfo, which reads the "
                              "free memory, answered %s (%s, %d).",
                              device->index, device->card.name, (long long)bytes, cudaGetErrorString(code),
                              cudaGetErrorName(code), (int)code);
    }
    return weft_error_set(err, WEFT_E_MEMORY,
                          "Card %d, %s, has no memory for a buffer of %lld bytes: %zu of its %zu bytes are free, and "
                          "%lld in %lld buffers belong to this rank.",
                          device->index, device->card.name, (long long)bytes, left, all, (long long)device->live_bytes,
                          (long long)device->live_buffers);
}

weft_status cuda_alloc(weft_device *device, weft_buffer **out, int64_t bytes, weft_error *err) {
    weft_buffer *b = NULL;
    void *base = NULL;
    cudaError_t code = cudaSuccess;
    weft_status status = cuda_not_recording(device, "alloc", err);
    if (status != WEFT_OK) return status;
    if (bytes < 0)
        return weft_error_set(err, WEFT_E_HOST, "The call requests a buffer of %lld bytes on device cuda.",
                              (long long)bytes);
    status = cuda_enter(device, "alloc", err);
    if (status != WEFT_OK) return status;
    b = device->host->alloc(device->host, sizeof *b, _Alignof(max_align_t));
    if (b == NULL) return weft_error_set(err, WEFT_E_MEMORY, "Device cuda has no memory for the note of a buffer.");
    if (cuda_is_dry()) base = cuda_dry_address(bytes);
    else code = cudaMalloc(&base, (size_t)size_max(bytes, 1));
    if (code != cudaSuccess) {
        device->host->release(device->host, b);
        return code == cudaErrorMemoryAllocation ? tell_full(device, bytes, err)
                                                 : cuda_judge_call(code, "cudaMalloc", "alloc", err);
    }
    b->base = base;
    b->size = bytes;
    b->mapped = cuda_is_dry() ? 0 : (size_t)size_max(bytes, 1);
    device->live_bytes += bytes;
    device->live_buffers++;
    *out = b;
    return WEFT_OK;
}

/* cudaFree waits for queued work. */
void cuda_release(weft_device *device, weft_buffer *buffer) {
    weft_error unheard = WEFT_ERROR_INIT;
    if (buffer == NULL) return;
    (void)cuda_not_recording(device, "release", &unheard);
    cuda_enter_end(device);
    if (buffer->mapped > 0) cuda_end(device, cudaFree(buffer->base));
    device->live_bytes -= buffer->size;
    device->live_buffers--;
    device->host->release(device->host, buffer);
}
