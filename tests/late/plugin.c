/* plugin.c: see late.h. It has the CPU device's id and replaces it if its directory is searched first, in any test. */
#include <stdlib.h>
#include <weft/roofline.h>

#include "late.h"
#include "ranks/fault.h"

weft_device_plugin late_real, late_table;

static int mode_of(uint64_t seed) {
    static const char *const names[LATE_MODES] = {"last", "ahead", "behind", "any", "soon"};
    const char *mode = getenv("WEFT_LATE_MODE");
    for (int i = 0; mode != NULL && i < LATE_MODES; i++)
        if (strcmp(mode, names[i]) == 0) return i;
    return (int)(seed % LATE_MODES);
}

/* Appends the device index requested by a rank to the file WEFT_LATE_INDEX. */
static void note_index(int32_t index) {
    const char *path = getenv("WEFT_LATE_INDEX");
    FILE *file = path == NULL ? NULL : fopen(path, "a");
    if (file == NULL) return;
    (void)fprintf(file, "%d\n", (int)index);
    (void)fclose(file);
}

static weft_status create(weft_device **out, const weft_host *host, const void *config, int32_t index,
                          weft_error *err) {
    const char *seed = getenv("WEFT_LATE_SEED");
    weft_device *device = calloc(1, sizeof *device);
    weft_status status = WEFT_OK;
    if (device == NULL) return weft_error_set(err, WEFT_E_MEMORY, "The late device has no memory for itself.");
    device->host = host;
    device->draws = seed == NULL ? 1 : strtoull(seed, NULL, 10);
    device->mode = mode_of(device->draws);
    note_index(index);
    device->failure = (weft_error)WEFT_ERROR_INIT;
    status = late_real.create(&device->real, host, config, index, err);
    if (status == WEFT_OK) status = late_start(device, err);
    if (status == WEFT_OK) *out = device;
    else free(device);
    return status;
}

/* Appends the number of replayed passes to the file WEFT_LATE_REPLAYS. */
static void note_replays(const weft_device *device) {
    const char *path = getenv("WEFT_LATE_REPLAYS");
    FILE *file = path == NULL ? NULL : fopen(path, "a");
    if (file == NULL) return;
    (void)fprintf(file, "%lld\n", (long long)device->replays);
    (void)fclose(file);
}

static void destroy(weft_device *device) {
    late_stop(device);
    late_write_sites();
    note_replays(device);
    late_real.destroy(device->real);
    free(device);
}

static void info(const weft_device *device, weft_device_info *out) {
    late_real.info(device->real, out);
}

static weft_status check_rest(weft_device *device, weft_error *err) {
    bool busy = false;
    (void)pthread_mutex_lock(&device->lock);
    busy = device->kernels > 0;
    (void)pthread_mutex_unlock(&device->lock);
    if (!busy) return WEFT_OK;
    return weft_error_set(err, WEFT_E_HOST, "Memory of the late device is taken while a step runs.");
}

/* Fills memory with NaN, in fp32 and in bf16. Memory is only allocated between steps: at the end of each the host waits
 * for the losses, and so for all kernels. */
static weft_status alloc(weft_device *device, weft_buffer **out, int64_t bytes, weft_error *err) {
    weft_status status = late_check_runs(device, "alloc", err);
    if (status == WEFT_OK) status = check_rest(device, err);
    if (status == WEFT_OK) status = late_real.alloc(device->real, out, bytes, err);
    if (status == WEFT_OK)
        status = late_real.fill(device->real, NULL, (weft_ref){*out, 0}, 0xffffffffu, bytes / 4, err);
    return status;
}

static void release(weft_device *device, weft_buffer *buffer) {
    if (buffer == NULL) return;
    (void)late_drain_all(device, NULL);
    late_real.release(device->real, buffer);
}

/* ---- machine peaks ---- */

static const weft_device_roofline *real_roofline(const weft_device *device) {
    return late_real.extension(device->real, WEFT_DEVICE_ROOFLINE);
}

static weft_status roofline_peak(weft_device *device, double *out, int32_t dtype, weft_error *err) {
    return real_roofline(device)->peak(device->real, out, dtype, err);
}

static weft_status roofline_product(weft_device *device, double *out, const weft_roofline_product *product,
                                    weft_error *err) {
    return real_roofline(device)->product(device->real, out, product, err);
}

static weft_status roofline_bandwidth(weft_device *device, double *out, weft_error *err) {
    return real_roofline(device)->bandwidth(device->real, out, err);
}

static weft_device *inner_device(weft_device *device) {
    return device->real;
}

static const void *extension(const weft_device *device, const char *id) {
    static const weft_device_roofline roofline = {(uint32_t)sizeof roofline, 0, roofline_peak, roofline_product,
                                                  roofline_bandwidth};
    static const late_inside inside = {late_queue, inner_device, &late_real};
    (void)device;
    if (strcmp(id, LATE_INSIDE) == 0) return &inside;
    if (strcmp(id, WEFT_DEVICE_TRANSFER) == 0) return getenv("WEFT_LATE_BLOCKS") == NULL ? &late_transfer : NULL;
    if (strcmp(id, WEFT_DEVICE_CAPTURE) == 0) return getenv("WEFT_LATE_FORGETS") == NULL ? &late_capture : NULL;
    return strcmp(id, WEFT_DEVICE_ROOFLINE) == 0 ? &roofline : NULL;
}

FAULT_NOTE(device, "cpu")
const weft_plugin_list *weft_plugin_entry(const weft_host *host, weft_error *err) {
    const weft_plugin *plugin = fault_copy(&late_real, sizeof late_real, host, err);
    if (plugin == NULL) return NULL;
    late_table = late_real;
    late_table.create = create;
    late_table.destroy = destroy;
    late_table.info = info;
    late_table.alloc = alloc;
    late_table.release = release;
    late_table.host_view = NULL;
    late_table.stream_create = late_stream_create;
    late_table.stream_destroy = late_stream_destroy;
    late_table.synchronize = late_synchronize;
    late_table.record_event = late_record_event;
    late_table.wait = late_wait;
    late_table.write = late_write;
    late_table.read = late_read;
    late_table.extension = extension;
    late_fill_kernels();
    return fault_list(plugin, "cpu", &late_table);
}
