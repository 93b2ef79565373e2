/* host/tools/check/device_bench.c: see device_bench.h. */
#include "tools/check/device_bench.h"

#include "plugin/enter.h"
#include "tools/check/rule.h"

weft_status weft_bench_open(weft_bench *self, const weft_device_plugin *kernels, const weft_host *host,
                            const void *config, weft_error *err) {
    weft_status status;
    memset(self, 0, sizeof *self);
    self->kernels = kernels;
    WEFT_PLUGIN_CALL(status, kernels, create, err, &self->device, host, config, 0);
    return status == WEFT_OK && self->device == NULL ? WEFT_BROKEN(err, "create makes nothing and says WEFT_OK")
                                                     : status;
}

void weft_bench_release(weft_bench *self) {
    while (self->n > 0) self->kernels->release(self->device, self->buffers[--self->n]);
}

void weft_bench_close(weft_bench *self) {
    if (self->device == NULL) return;
    weft_bench_release(self);
    WEFT_PLUGIN_TELL(self->kernels, destroy, self->device);
    self->device = NULL;
}

weft_status weft_bench_take(weft_bench *self, weft_ref *out, int64_t bytes, weft_error *err) {
    weft_buffer *buffer = NULL;
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, self->kernels, alloc, err, self->device, &buffer, bytes + 2 * WEFT_BENCH_MARGIN);
    if (status != WEFT_OK) return status;
    self->buffers[self->n++] = buffer;
    *out = (weft_ref){buffer, WEFT_BENCH_MARGIN};
    return WEFT_OK;
}
