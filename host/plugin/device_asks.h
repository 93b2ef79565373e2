/* host/plugin/device_asks.h: the slots of a device that answer with a pointer, guarded as enter.h guards the others. */
#ifndef WEFT_HOST_PLUGIN_DEVICE_ASKS_H
#define WEFT_HOST_PLUGIN_DEVICE_ASKS_H

#include <weft/device.h>

/* The buffer as the host sees it; NULL: it does not. [main] */
void *weft_device_view(const weft_device_plugin *kernels, weft_device *device, weft_ref ref);

/* What the device has of that name; NULL: nothing. [any-thread] */
const void *weft_device_find(const weft_device_plugin *kernels, const weft_device *device, const char *id);

#endif
