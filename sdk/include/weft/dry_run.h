/* weft/dry_run.h: counts the launches and copies of a step without running it; an extension of device/1, queried as
 * WEFT_DEVICE_DRY_RUN.
 *
 * A kernel launch costs the host some microseconds, independent of the kernel, so the number of launches determines the
 * speed of small models. During a dry run, a device with this extension executes its normal code but counts work
 * instead of queuing it. `weft plan` can therefore print the launches per step before memory is allocated, and the
 * count always matches the run.
 *
 *     begin(device); ... alloc, the work of a step, release ... counts(device, &at); end(device);
 *
 * Between `begin` and `end`, in the calling thread: `alloc` returns buffers without memory, which must be released
 * before `end`. Operands are validated against the sizes of these buffers. No work is queued, `read` does not change
 * its `to`, and instructions complete immediately. No value in device memory changes. Runtime compilation may happen,
 * so that a compile error is reported before training starts.
 *
 * CUDA implementation: every launch uses one macro, every copy one function, and so on.
 */
#ifndef WEFT_DRY_RUN_H
#define WEFT_DRY_RUN_H

#include <weft/device.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_DEVICE_DRY_RUN "weft.device.dry_run/1" /* the extension is a const weft_device_dry_run */

typedef struct weft_dry_counts {
    uint32_t struct_size;
    uint32_t flags;
    int64_t kernels;  /* launches of the device's own kernels */
    int64_t products; /* calls of library functions that compute, which may launch several kernels each */
    int64_t copies;   /* copies and fills without a kernel: uploads, downloads, copies within the device */
} weft_dry_counts;

typedef struct weft_device_dry_run {
    uint32_t struct_size;
    uint32_t flags;

    /* Begins a dry run. No capture (weft/capture.h) and no other dry run is active. [main] [required] */
    weft_status (*begin)(weft_device *device, weft_error *err);
    /* Returns the counts since begin. [main] [required] */
    void (*counts)(const weft_device *device, weft_dry_counts *out);
    void (*end)(weft_device *device); /* [main] [required] */
} weft_device_dry_run;

/* Returns the device's table after validation, or NULL if the device has none. [main] */
static inline weft_status weft_device_dry_run_find(const weft_device_dry_run **out, const weft_device_plugin *kernels,
                                                   weft_device *device, weft_error *err) {
    const weft_device_dry_run *table = NULL;
    if (kernels->extension != NULL)
        table = (const weft_device_dry_run *)kernels->extension(device, WEFT_DEVICE_DRY_RUN);
    if (table != NULL && (!WEFT_WHOLE(table, weft_device_dry_run) || table->begin == NULL || table->counts == NULL ||
                          table->end == NULL))
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "the device's extension " WEFT_DEVICE_DRY_RUN
                              " lacks required slots, or has %u bytes where "
                              "SDK 1.0 has %u",
                              (unsigned)table->struct_size, (unsigned)WEFT_SIZE_1_0(weft_device_dry_run));
    *out = table;
    return WEFT_OK;
}

#ifdef __cplusplus
}
#endif
#endif
