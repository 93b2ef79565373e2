/* crowd_device.c: the CPU device on a simulated machine where several threads are slower, or faster. Matmuls take a
 * millisecond longer with several threads, or, with CROWD=one, with one thread. With CROWD=bf16 or fp32, matmuls of 256
 * and more rows take a quarter of a second longer in that dtype, which exceeds any noise. At its end it prints its
 * number of threads. */
#include "fault.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <weft/device.h>

static weft_device_plugin real, table;

static int32_t threads_of(const weft_device *device) {
    weft_device_info info = {.struct_size = (uint32_t)sizeof info};
    real.info(device, &info);
    return info.threads;
}

static void destroy(weft_device *device) {
    (void)fprintf(stderr, "crowd: %d threads\n", (int)threads_of(device));
    real.destroy(device);
}

static weft_status matmul(weft_device *device, weft_stream *s, const weft_matmul *args, weft_error *err) {
    const char *slow = getenv("CROWD");
    const bool one_is_slow = slow != NULL && strcmp(slow, "one") == 0;
    const int32_t type = slow == NULL                ? -1
                         : strcmp(slow, "bf16") == 0 ? WEFT_BF16
                         : strcmp(slow, "fp32") == 0 ? WEFT_F32
                                                     : -1;
    if (type >= 0) (void)usleep(args->dtype_a == type && args->m >= 256 ? 250000 : 0);
    else if ((threads_of(device) == 1) == one_is_slow) (void)usleep(1000);
    return real.matmul(device, s, args, err);
}

FAULT_NOTE(device, "crowd")
const weft_plugin_list *weft_plugin_entry(const weft_host *host, weft_error *err) {
    const weft_plugin *plugin = fault_copy(&real, sizeof real, host, err);
    if (plugin == NULL) return NULL;
    table = real;
    table.matmul = matmul;
    table.destroy = destroy;
    return fault_list(plugin, "crowd", &table);
}
