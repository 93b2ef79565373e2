/* weft/dry_run.h: what a step asks of a device, counted without running it; an extension of device/1, asked for as
 * WEFT_DEVICE_DRY_RUN.
 *
 * Starting a kernel costs the host some microseconds, whatever the kernel does, so how many a step starts decides the
 * speed of small models. A device that offers this answers its calls as it always does, with the same code, but counts
 * what it would have queued instead of queuing it. So `weft plan` says how many launches a step takes before any memory
 * is taken, and cannot say something else than the run does.
 *
 *     begin(device); ... alloc, the events of a step, release ... counts(device, &at); end(device);
 *
 * Between `begin` and `end`, of the calling thread: `alloc` gives buffers without memory, which are released before
 * `end`; operands are judged as ever, against the sizes of these buffers; nothing is queued, `read` leaves its `to` as
 * it is, marks are reached at once. No number that the device holds changes; what it compiles for a call may be
 * compiled then, so that a mistake in it is told before anything is trained.
 *
 * How CUDA serves it: each launch goes through one macro, each copy through one function, and so on.
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
    int64_t products; /* calls of a library that computes, which may start more than one kernel each */
    int64_t copies;   /* copies and fills that are no kernels: uploads, downloads, copies within the device */
} weft_dry_counts;

typedef struct weft_device_dry_run {
    uint32_t struct_size;
    uint32_t flags;

    /* Nothing is recorded (weft/capture.h), and no dry run is under way. [main] [required] */
    weft_status (*begin)(weft_device *device, weft_error *err);
    /* Since begin. [main] [required] */
    void (*counts)(const weft_device *device, weft_dry_counts *out);
    void (*end)(weft_device *device); /* [main] [required] */
} weft_device_dry_run;

/* The device's table, judged; NULL: it has none. [main] */
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
