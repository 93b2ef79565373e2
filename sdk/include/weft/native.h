/* weft/native.h: a device's own names for what the host calls streams and refs; an extension of device/1, asked for as
 * WEFT_DEVICE_NATIVE.
 *
 * For plugins that call the vendor's libraries beside the device, in the device's own streams: a communicator (NCCL
 * reads and writes device pointers), a custom operator that brings a kernel of its own. The host does not use it.
 *
 *     const weft_device_native *native = kernels->extension(device, WEFT_DEVICE_NATIVE);
 *     if (native == NULL || strcmp(native->api, "cuda") != 0) ... a sentence that names the device
 *     ncclAllGather(native->address(device, from, bytes), ..., (cudaStream_t)native->stream(device, what->stream));
 *
 * What is queued there runs in the order of that stream, and takes part in a recording (weft/capture.h) as the device's
 * own kernels do. The stream is asked for anew in each call, before something is queued in it: a device may launch what
 * it was given last only when it knows what comes next. A pointer is valid as long as its buffer; it is none of the
 * host's.
 *
 * Later users this serves: RCCL ("hip"), oneCCL ("level-zero").
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
    const char *api; /* "cuda": cudaStream_t, device pointers; it lives as long as the plugin */

    /* The library's handle of a stream; NULL stands for the device's first, whose own handle this gives. [main] [hot]
     * [required] */
    void *(*stream)(const weft_device *device, const weft_stream *stream);
    /* Where `bytes` from ref on lie in the device's memory; NULL: they do not all lie in the buffer. [any-thread] [hot]
     * [required] */
    void *(*address)(const weft_device *device, weft_ref ref, int64_t bytes);
    /* The device as the library numbers it in this process. [any-thread] [required] */
    int32_t (*index)(const weft_device *device);
} weft_device_native;

#ifdef __cplusplus
}
#endif
#endif
