/* plain_device.c: a device that reports no support for packed matmuls. */
#include "fault.h"

#include <weft/device.h>

static weft_device_plugin real, table;

static void info(const weft_device *device, weft_device_info *out) {
    real.info(device, out);
    if (WEFT_HAS(out, packed)) out->packed = 0;
}

FAULT_NOTE(device, FAULT_ID)
const weft_plugin_list *weft_plugin_entry(const weft_host *host, weft_error *err) {
    const weft_plugin *plugin = fault_copy(&real, sizeof real, host, err);
    if (plugin == NULL) return NULL;
    table = real;
    table.info = info;
    return fault_list(plugin, FAULT_ID, &table);
}
