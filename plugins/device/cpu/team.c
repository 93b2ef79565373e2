/* team.c: the extension WEFT_DEVICE_TEAM: runs kernels with fewer threads and the same results. */
#include "cpu.h"

static weft_status resize(weft_device *device, int32_t threads, weft_error *err) {
    if (threads < 1 || threads > device->all_threads)
        return weft_error_set(err, WEFT_E_HOST, "Device cpu supports 1 to %d threads, and the call requests %d.",
                              device->all_threads, (int)threads);
    device->threads = threads;
    return WEFT_OK;
}

const weft_device_team cpu_team = {.struct_size = (uint32_t)sizeof(weft_device_team), .resize = resize};
