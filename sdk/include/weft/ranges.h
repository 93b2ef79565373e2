/* weft/ranges.h: named ranges for a profiler's timeline; an extension of device/1, queried as WEFT_DEVICE_RANGES.
 *
 * A profiler of the vendor shows kernels without the instruction of the step program that queued them. With this
 * extension the host opens a range before each instruction of a pass and closes it afterwards. A device that is not to
 * be profiled returns no table, and the host then does nothing.
 *
 * CUDA implementation: NVTX ranges of the calling thread, with [device] nvtx = yes.
 */
#ifndef WEFT_RANGES_H
#define WEFT_RANGES_H

#include <weft/device.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_DEVICE_RANGES "weft.device.ranges/1" /* the extension is a const weft_device_ranges */

typedef struct weft_device_ranges {
    uint32_t struct_size;
    uint32_t flags;

    /* Opens a range. The name is valid during the call. [main] [hot] [required] */
    void (*begin)(weft_device *device, const char *name);
    /* Closes the range that was opened last. [main] [hot] [required] */
    void (*end)(weft_device *device);
} weft_device_ranges;

/* Returns the device's table after validation, or NULL if the device has none. [main] */
static inline weft_status weft_device_ranges_find(const weft_device_ranges **out, const weft_device_plugin *kernels,
                                                  weft_device *device, weft_error *err) {
    const weft_device_ranges *table = NULL;
    if (kernels->extension != NULL) table = (const weft_device_ranges *)kernels->extension(device, WEFT_DEVICE_RANGES);
    if (table != NULL && (!WEFT_WHOLE(table, weft_device_ranges) || table->begin == NULL || table->end == NULL))
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "the device's extension " WEFT_DEVICE_RANGES
                              " lacks required slots, or has %u bytes where "
                              "SDK 1.0 has %u",
                              (unsigned)table->struct_size, (unsigned)WEFT_SIZE_1_0(weft_device_ranges));
    *out = table;
    return WEFT_OK;
}

#ifdef __cplusplus
}
#endif
#endif
