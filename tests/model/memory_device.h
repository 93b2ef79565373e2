/* memory_device.h: a memory-only device, visible to the host or not. */
#ifndef WEFT_TEST_MEMORY_DEVICE_H
#define WEFT_TEST_MEMORY_DEVICE_H

#include <weft/device.h>

#include "fixture.h"

struct weft_device {
    int64_t written, read; /* bytes passed to write and read */
    int64_t most;          /* maximum of one call */
};

struct weft_buffer {
    unsigned char *bytes;
    int64_t n;
};

static inline unsigned char *memory_at(weft_ref ref, int64_t n) {
    ck_assert_int_ge(ref.offset, 0);
    ck_assert_int_le(ref.offset + n, ref.buffer->n);
    return ref.buffer->bytes + ref.offset;
}

static inline void *memory_host_view(weft_device *device, weft_ref ref) {
    return memory_at(ref, 0);
}

static inline weft_status memory_write(weft_device *device, weft_stream *s, weft_ref to, const void *from,
                                       int64_t bytes, weft_error *err) {
    device->written += bytes;
    if (bytes > device->most) device->most = bytes;
    memcpy(memory_at(to, bytes), from, (size_t)bytes);
    return WEFT_OK;
}

static inline weft_status memory_read(weft_device *device, weft_stream *s, void *to, weft_ref from, int64_t bytes,
                                      weft_error *err) {
    device->read += bytes;
    if (bytes > device->most) device->most = bytes;
    memcpy(to, memory_at(from, bytes), (size_t)bytes);
    return WEFT_OK;
}

static inline weft_status memory_fill(weft_device *device, weft_stream *s, weft_ref to, uint32_t pattern, int64_t words,
                                      weft_error *err) {
    unsigned char *at = memory_at(to, 4 * words);
    for (int64_t i = 0; i < words; i++) memcpy(at + 4 * i, &pattern, 4);
    return WEFT_OK;
}

static inline weft_status memory_synchronize(weft_device *device, weft_stream *s, weft_error *err) {
    return WEFT_OK;
}

/* visible: device memory is visible to the host. */
static inline weft_device_plugin memory_kernels(bool visible) {
    weft_device_plugin kernels;
    memset(&kernels, 0, sizeof kernels);
    kernels.struct_size = (uint32_t)sizeof kernels;
    kernels.host_view = visible ? memory_host_view : NULL;
    kernels.write = memory_write;
    kernels.read = memory_read;
    kernels.fill = memory_fill;
    kernels.synchronize = memory_synchronize;
    return kernels;
}

#endif
