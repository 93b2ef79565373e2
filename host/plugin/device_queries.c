/* host/plugin/device_queries.c: see device_queries.h. */
#include "plugin/device_queries.h"

#include "plugin/enter.h"

void *weft_device_view(const weft_device_plugin *kernels, weft_device *device, weft_ref ref) {
    void *view = NULL;
    if (kernels->host_view != NULL) WEFT_PLUGIN_ASK(view, kernels, host_view, device, ref);
    return view;
}

const void *weft_device_find(const weft_device_plugin *kernels, const weft_device *device, const char *id) {
    const void *table = NULL;
    if (kernels->extension != NULL) WEFT_PLUGIN_ASK(table, kernels, extension, device, id);
    return table;
}
