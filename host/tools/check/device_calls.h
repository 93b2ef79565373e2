/* host/tools/check/device_calls.h: kernel calls with odd shapes, valid for every device.
 *
 * A call consists of a struct of arguments and the operands' contents, which depend only on the call's number. A
 * forward and its backward form one call, because the backward reads the forward's results. */
#ifndef WEFT_HOST_TOOLS_CHECK_DEVICE_CALLS_H
#define WEFT_HOST_TOOLS_CHECK_DEVICE_CALLS_H

#include "graph/kernels.h"

#include <weft/host.h>
#include <weft/optimizer.h>

enum { WEFT_CALL_OPERANDS = 20 };

typedef struct weft_call_operand {
    size_t field; /* offset of its weft_ref in the arguments */
    const char *name;
    int64_t n; /* elements of the dtype */
    int32_t dtype;
    bool is_result;
    void *data; /* content before the call; owned; NULL: undefined */
} weft_call_operand;

/* An update region, padded to the stride of a newer ABI. */
enum { WEFT_CALL_REGIONS = 2 };
typedef struct weft_call_region {
    weft_update_region region;
    char later[48];
} weft_call_region;

typedef struct weft_call_update {
    weft_update args;
    weft_call_region regions[WEFT_CALL_REGIONS];
} weft_call_update;

/* Must not move, because the arguments of an update point into it. */
typedef struct weft_device_call {
    const char *name; /* "attention" */
    union {
        weft_kernel_args kernel;
        weft_call_update update;
    } args;
    const weft_kernel *kernels[2]; /* kernels to run with these arguments, in order; NULL: unused */
    weft_call_operand operands[WEFT_CALL_OPERANDS];
    int n;
    int32_t dtype;
    bool exact; /* the interface specifies the bits, not only the formula */
} weft_device_call;

enum { WEFT_CALL_SHAPES = 3 }; /* calls per kernel, consecutive, the smallest first */

/* Draws call `number` in fp32, bf16 or fp16; false after the last one. Freed with weft_device_call_free. */
bool weft_device_call_draw(weft_device_call *out, int32_t number, int32_t dtype);
void weft_device_call_free(weft_device_call *call);

/* ---- test bench: a device, its allocations, and the tests that every device must pass ---- */

/* A test returns WEFT_OK, or an error that describes the wrong result. */

enum { WEFT_BENCH_BUFFERS = WEFT_CALL_OPERANDS + 2 };

typedef struct weft_bench {
    const weft_device_plugin *kernels;
    weft_device *device;
    weft_buffer *buffers[WEFT_BENCH_BUFFERS];
    int n;
} weft_bench;

/* Opens the device; config must be filled. Close it also after a failure. [main] */
weft_status weft_bench_open(weft_bench *self, const weft_device_plugin *kernels, const weft_host *host,
                            const void *config, weft_error *err);
void weft_bench_close(weft_bench *self);
weft_device_info weft_bench_info(const weft_bench *self);

/* Allocates bytes after a margin, so that operands do not start at a buffer's start. _release frees them all. [main] */
enum { WEFT_BENCH_MARGIN = 128 };
weft_status weft_bench_take(weft_bench *self, weft_ref *out, int64_t bytes, weft_error *err);
void weft_bench_release(weft_bench *self);

/* Tests write, copy and fill of any size, and the host's view of device memory. _some: few sizes, first stream. */
weft_status weft_bench_moves_some(weft_bench *self, weft_error *err);
weft_status weft_bench_moves(weft_bench *self, weft_error *err);
/* Tests transfers between two streams that are ordered only by stream events. */
weft_status weft_bench_orders(weft_bench *self, weft_error *err);
/* Compares conversions between types to the host's conversions. */
weft_status weft_bench_converts(weft_bench *self, weft_error *err);
/* Tests the optional tables (weft/transfer.h, capture.h, dry_run.h, team.h, native.h, roofline.h); *n: their number. */
weft_status weft_bench_tables(weft_bench *self, int *n, weft_error *err);

#endif
