/* native.c: native CUDA handles of streams and operands, for a communicator that works on the device
 * (weft/native.h). */
#include "cuda.h"

/* Callers fetch the stream again before each operation, so that a pending add is launched first. */
static void *find_stream(const weft_device *device, const weft_stream *stream) {
    return (void *)cuda_stream(device, stream);
}

static void *find_address(const weft_device *device, weft_ref ref, int64_t bytes) {
    operands c = operands_plain("an exchange", NULL);
    (void)device;
    return operands_need(&c, ref, "of an exchange", 1, bytes, 1);
}

static int32_t tell_index(const weft_device *device) {
    return device->index;
}

const weft_device_native cuda_native = {
    .struct_size = (uint32_t)sizeof(weft_device_native),
    .api = "cuda",
    .stream = find_stream,
    .address = find_address,
    .index = tell_index,
};
