/* crowd_device.c: the CPU device on a machine where threads get into each other's way, or where they help: matrix
 * products take a millisecond more by several threads, with CROWD=one by one. */
#include "fault.h"

#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>
#include <weft/device.h>

static weft_device_plugin real, table;

static weft_status matmul(weft_device *device, weft_stream *s, const weft_matmul *args, weft_error *err) {
    const char *slow = getenv("CROWD");
    const bool one_is_slow = slow != NULL && strcmp(slow, "one") == 0;
    weft_device_info info = {.struct_size = (uint32_t)sizeof info};
    real.info(device, &info);
    if ((info.threads == 1) == one_is_slow) (void)usleep(1000);
    return real.matmul(device, s, args, err);
}

FAULT_NOTE(device, "crowd")
const weft_plugin_list *weft_plugin_entry(const weft_host *host, weft_error *err) {
    const weft_plugin *plugin = fault_copy(&real, sizeof real, host, err);
    if (plugin == NULL) return NULL;
    table = real;
    table.matmul = matmul;
    return fault_list(plugin, "crowd", &table);
}
