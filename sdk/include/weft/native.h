/* weft/native.h: native stream handles and pointers of a device; an extension of device/1, queried as
 * WEFT_DEVICE_NATIVE.
 *
 * It serves plugins that call the vendor's libraries in the device's streams: a communicator (NCCL reads and writes
 * device pointers), or a custom operator with its own kernel. The host does not use it.
 *
 *     const weft_device_native *native = kernels->extension(device, WEFT_DEVICE_NATIVE);
 *     if (native == NULL || strcmp(native->api, "cuda") != 0) ... an error that names the device
 *     ncclAllGather(native->address(device, from, bytes), ..., (cudaStream_t)native->stream(device, what->stream));
 *
 * Such work runs in the order of its stream and is captured (weft/capture.h) like the device's own kernels. Query the
 * stream again in each call, before queuing work in it: a device may delay its last launch until it knows the next one.
 * A pointer is valid as long as its buffer, and is never a host pointer.
 *
 * Intended users: RCCL ("hip"), oneCCL ("level-zero").
 */
#ifndef WEFT_NATIVE_H
#define WEFT_NATIVE_H

#include <weft/device.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_DEVICE_NATIVE "weft.device.native/1" /* the extension is a const weft_device_native */

typedef struct weft_device_native {
    uint32_t struct_size;
    uint32_t flags;
    const char *api; /* "cuda": cudaStream_t, device pointers; valid for the lifetime of the plugin */

    /* Returns the library's handle of a stream; NULL is the device's default stream. [main] [hot] [required] */
    void *(*stream)(const weft_device *device, const weft_stream *stream);
    /* Returns the device address of `bytes` bytes from ref on, or NULL if they exceed the buffer. [any-thread] [hot]
     * [required] */
    void *(*address)(const weft_device *device, weft_ref ref, int64_t bytes);
    /* Returns the library's index of the device in this process. [any-thread] [required] */
    int32_t (*index)(const weft_device *device);
} weft_device_native;

#ifdef __cplusplus
}
#endif
#endif
