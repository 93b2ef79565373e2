/* copies.c: copies to, from and within the device, pattern fills, and conversions between number types. */
#include "convert.h"
#include "cuda.h"

cudaError_t cuda_move(void *to, const void *from, int64_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    return cuda_dry_copy() ? cudaSuccess : cudaMemcpyAsync(to, from, (size_t)bytes, kind, stream);
}

cudaError_t cuda_clear(void *to, int64_t bytes, cudaStream_t stream) {
    return cuda_dry_copy() ? cudaSuccess : cudaMemsetAsync(to, 0, (size_t)bytes, stream);
}

weft_status cuda_write(weft_device *device, weft_stream *s, weft_ref to, const void *from, int64_t bytes,
                       weft_error *err) {
    operands c = operands_plain("write", err);
    void *at = operands_need(&c, to, "to", bytes, 1, 1);
    if (c.status == WEFT_OK) c.status = cuda_not_recording(device, "write", err);
    if (c.status != WEFT_OK || bytes == 0) return c.status;
    return cuda_staging_send(device, cuda_stream(device, s), at, from, bytes, err);
}

weft_status cuda_read(weft_device *device, weft_stream *s, void *to, weft_ref from, int64_t bytes, weft_error *err) {
    operands c = operands_plain("read", err);
    const void *at = operands_need(&c, from, "from", bytes, 1, 1);
    if (c.status == WEFT_OK) c.status = cuda_not_recording(device, "read", err);
    if (c.status != WEFT_OK) return c.status;
    if (bytes == 0) return cuda_judge(cudaStreamSynchronize(cuda_stream(device, s)), "read", err);
    return cuda_staging_bring(device, cuda_stream(device, s), to, at, bytes, err);
}

weft_status cuda_copy(weft_device *device, weft_stream *s, weft_ref to, weft_ref from, int64_t bytes, weft_error *err) {
    operands c = operands_plain("copy", err);
    char *dst = operands_need(&c, to, "to", bytes, 1, 1);
    const char *src = operands_need(&c, from, "from", bytes, 1, 1);
    cudaStream_t stream = NULL;
    if (c.status != WEFT_OK || dst == src || bytes == 0) return c.status;
    stream = cuda_stream(device, s);
    if (dst < src + bytes && src < dst + bytes) /* overlapping copies are undefined in CUDA */
        return cuda_judge(move_launch(stream, dst, src, bytes), "copy", err);
    if (device->waiting.is_there) /* of another stream */
        return cuda_judge(cuda_move(dst, src, bytes, cudaMemcpyDeviceToDevice, stream), "copy", err);
    c.status = cuda_judge_call(cudaSuccess, "cudaSetDevice", "copy", err); /* or a deferred failure */
    if (c.status != WEFT_OK) return c.status;
    device->waiting = (cuda_waiting){.is_there = true, .stream = stream, .call = {.y = dst, .a = src, .n = bytes}};
    return WEFT_OK;
}

weft_status cuda_fill(weft_device *device, weft_stream *s, weft_ref to, uint32_t pattern, int64_t words,
                      weft_error *err) {
    operands c = operands_plain("fill", err);
    uint32_t *at = operands_need(&c, to, "to", words, 1, 4);
    if (c.status != WEFT_OK || words == 0) return c.status;
    return cuda_judge(fill_launch(cuda_stream(device, s), at, pattern, words), "fill", err);
}

/* Returns the bytes per element of fp32, bf16 and fp16, 0 for another type. */
static int64_t plain_bytes(operands *c, const char *name, int32_t dtype) {
    if (dtype == WEFT_F32) return 4;
    if (dtype == WEFT_BF16 || dtype == WEFT_F16) return 2;
    if (c->status == WEFT_OK)
        c->status = weft_error_set(c->err, WEFT_E_UNSUPPORTED,
                                   "convert on device cuda: %s is %s; fp32, bf16 and fp16 can be converted.", name,
                                   weft_dtype_name(dtype));
    return 1;
}

weft_status cuda_convert(weft_device *device, weft_stream *s, weft_ref to, int32_t dtype_to, weft_ref from,
                         int32_t dtype_from, int64_t n, weft_error *err) {
    operands c = operands_plain("convert", err);
    void *dst = operands_need(&c, to, "to", n, 1, plain_bytes(&c, "to", dtype_to));
    const void *src = operands_need(&c, from, "from", n, 1, plain_bytes(&c, "from", dtype_from));
    if (c.status != WEFT_OK || n == 0) return c.status;
    if (dtype_to == dtype_from) return cuda_copy(device, s, to, from, n * (dtype_to == WEFT_F32 ? 4 : 2), err);
    return cuda_judge(convert_launch(cuda_stream(device, s), dst, dtype_to, src, dtype_from, n), "convert", err);
}
