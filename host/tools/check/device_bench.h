/* host/tools/check/device_bench.h: a device on its own, what was taken of it, and what any device has to do: each
 * trial gives WEFT_OK or a sentence that says what the device did. */
#ifndef WEFT_HOST_TOOLS_CHECK_DEVICE_BENCH_H
#define WEFT_HOST_TOOLS_CHECK_DEVICE_BENCH_H

#include "tools/check/device_calls.h"

#include <weft/host.h>

enum { WEFT_BENCH_BUFFERS = WEFT_CALL_OPERANDS + 2 };

typedef struct weft_bench {
    const weft_device_plugin *kernels;
    weft_device *device;
    weft_buffer *buffers[WEFT_BENCH_BUFFERS];
    int n;
} weft_bench;

/* config: filled. To be closed, also after a failure. [main] */
weft_status weft_bench_open(weft_bench *self, const weft_device_plugin *kernels, const weft_host *host,
                            const void *config, weft_error *err);
void weft_bench_close(weft_bench *self);

/* Some bytes with a margin before them, so that operands do not begin where buffers do; released all at once. [main] */
enum { WEFT_BENCH_MARGIN = 128 };
weft_status weft_bench_take(weft_bench *self, weft_ref *out, int64_t bytes, weft_error *err);
void weft_bench_release(weft_bench *self);

/* What the device moves: by write, copy and fill, of none, some and many bytes, and in the host's own view of it.
 * _some: few of them, and in the device's first stream alone. */
weft_status weft_bench_moves_some(weft_bench *self, weft_error *err);
weft_status weft_bench_moves(weft_bench *self, weft_error *err);
/* What it moves between two streams that wait for each other by events alone. */
weft_status weft_bench_orders(weft_bench *self, weft_error *err);
/* What it makes of all numbers of a type in another one, beside what the host makes of them. */
weft_status weft_bench_converts(weft_bench *self, weft_error *err);
/* What its optional tables are there for (weft/transfer.h, capture.h, dry_run.h, team.h, native.h, roofline.h); *n: how
 * many it has. */
weft_status weft_bench_tables(weft_bench *self, int *n, weft_error *err);

#endif
