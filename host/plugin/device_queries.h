/* host/plugin/device_queries.h: guarded calls of the device slots that return a pointer, like enter.h for the
 * others. */
#ifndef WEFT_HOST_PLUGIN_DEVICE_QUERIES_H
#define WEFT_HOST_PLUGIN_DEVICE_QUERIES_H

#include <weft/device.h>

/* Returns the host's view of the buffer; NULL: the host cannot access it. [main] */
void *weft_device_view(const weft_device_plugin *kernels, weft_device *device, weft_ref ref);

/* Returns the device's extension of that name; NULL: missing. [any-thread] */
const void *weft_device_find(const weft_device_plugin *kernels, const weft_device *device, const char *id);

#endif
