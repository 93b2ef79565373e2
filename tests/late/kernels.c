/* kernels.c: see late.h. Arguments are structs of the same headers, copied completely at the call. */
#include "late.h"

#include <stdlib.h>
#include <time.h>

/* Delays the selected kernel. */
static void late_linger(const char *kernel) {
    const struct timespec time = {0, LATE_SLOW_MS * 1000000};
    const char *slow = getenv("WEFT_LATE_SLOW");
    if (slow != NULL && strcmp(slow, kernel) == 0) (void)nanosleep(&time, NULL);
}

#define KERNEL(name, type)                                                                                             \
    static weft_status run_##name(weft_device *device, void *payload, weft_error *err) {                               \
        late_linger(#name);                                                                                            \
        const weft_status status = late_real.name(device->real, NULL, payload, err);                                   \
        late_count(device, -1);                                                                                        \
        return status;                                                                                                 \
    }                                                                                                                  \
    static weft_status queue_##name(weft_device *device, weft_stream *s, const type *args, weft_error *err) {          \
        return late_queue_kernel(device, s, run_##name, args, sizeof *args, err);                                      \
    }
WEFT_DEVICE_KERNELS(KERNEL)

/* The payload: the arguments, followed by their regions. */
static weft_status run_regions(weft_device *device, void *payload, weft_error *err) {
    weft_update *args = payload;
    args->regions = (const weft_update_region *)(const void *)(args + 1);
    return run_update(device, args, err);
}

static weft_status queue_regions(weft_device *device, weft_stream *s, const weft_update *args, weft_error *err) {
    const size_t regions = (size_t)args->n_regions * args->region_stride;
    char *all = malloc(sizeof *args + regions);
    weft_status status = WEFT_OK;
    if (all == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for an update");
    memcpy(all, args, sizeof *args);
    if (regions > 0) memcpy(all + sizeof *args, args->regions, regions);
    status = late_queue_kernel(device, s, run_regions, all, sizeof *args + regions, err);
    free(all);
    return status;
}

#define WORKSPACE(name, type)                                                                                          \
    static int64_t name##_workspace(const weft_device *device, const type *args) {                                     \
        return late_real.name##_workspace(device->real, args);                                                         \
    }
WEFT_DEVICE_WORKSPACES(WORKSPACE)

typedef struct moving {
    weft_ref to, from;
    int64_t n;
    int32_t dtype_to, dtype_from;
    uint32_t pattern, reserved;
} moving;

static weft_status run_copy(weft_device *device, void *payload, weft_error *err) {
    const moving *m = payload;
    late_linger("copy");
    return late_real.copy(device->real, NULL, m->to, m->from, m->n, err);
}

static weft_status copy(weft_device *device, weft_stream *s, weft_ref to, weft_ref from, int64_t bytes,
                        weft_error *err) {
    const moving m = {.to = to, .from = from, .n = bytes};
    return late_queue(device, s, run_copy, &m, sizeof m, NULL, 0, err);
}

static weft_status run_fill(weft_device *device, void *payload, weft_error *err) {
    const moving *m = payload;
    return late_real.fill(device->real, NULL, m->to, m->pattern, m->n, err);
}

static weft_status fill(weft_device *device, weft_stream *s, weft_ref to, uint32_t pattern, int64_t words,
                        weft_error *err) {
    const moving m = {.to = to, .n = words, .pattern = pattern};
    return late_queue(device, s, run_fill, &m, sizeof m, NULL, 0, err);
}

static weft_status run_convert(weft_device *device, void *payload, weft_error *err) {
    const moving *m = payload;
    return late_real.convert(device->real, NULL, m->to, m->dtype_to, m->from, m->dtype_from, m->n, err);
}

static weft_status convert(weft_device *device, weft_stream *s, weft_ref to, int32_t dtype_to, weft_ref from,
                           int32_t dtype_from, int64_t n, weft_error *err) {
    const moving m = {.to = to, .from = from, .n = n, .dtype_to = dtype_to, .dtype_from = dtype_from};
    return late_queue(device, s, run_convert, &m, sizeof m, NULL, 0, err);
}

#define QUEUED(name, type) late_table.name = queue_##name;
#define SIZED(name, type)  late_table.name##_workspace = name##_workspace;

void late_fill_kernels(void) {
    late_table.copy = copy;
    late_table.fill = fill;
    late_table.convert = convert;
    WEFT_DEVICE_KERNELS(QUEUED)
    WEFT_DEVICE_WORKSPACES(SIZED)
    late_table.update = queue_regions;
}
