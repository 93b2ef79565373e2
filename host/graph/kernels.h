/* host/graph/kernels.h: table of the device's kernels, so that a pass can refer to a kernel as data. */
#ifndef WEFT_HOST_GRAPH_KERNELS_H
#define WEFT_HOST_GRAPH_KERNELS_H

#include "graph/graph.h"

/* The device calls of a pass over a graph, for timing and cost reports. */

enum { WEFT_CALL_PRODUCTS = 3 };

/* C (m,n) = op(A) op(B) with inner dimension k. */
typedef struct weft_product_shape {
    int64_t m, n, k;
    bool transpose_a, transpose_b;
} weft_product_shape;

typedef struct weft_call weft_call; /* record.h */

/* Receives the duration of each call. With a sink in the binding, the host synchronizes after each call, so that the
 * duration is correct on asynchronous devices. Without a sink no time is measured. [main] */
struct weft_call_sink {
    void *context;
    void (*ran)(void *context, const weft_graph *graph, const weft_call *call, double seconds);
};

typedef struct weft_copy_args {
    weft_ref to, from;
    int64_t bytes;
} weft_copy_args;

typedef struct weft_zero_args {
    weft_ref to;
    int64_t words; /* 32-bit words */
} weft_zero_args;

/* Arguments of a plugin's custom operator. Replay fills in the refs and passes them as arrays. */
typedef struct weft_custom_args {
    const weft_custom_op *op;
    const void *args;
    weft_ref inputs[8];
    weft_ref output, d_output;
    weft_ref d_inputs[8];
    int32_t accumulate[8];
    int32_t dtype;
} weft_custom_args;

/* The arguments of each kernel, under its name. */
#define WEFT_KERNEL_ARGS(name, type) type name;
typedef union weft_kernel_args {
    WEFT_DEVICE_KERNELS(WEFT_KERNEL_ARGS)
    weft_copy_args copy;
    weft_zero_args zero;
    weft_custom_args custom;
} weft_kernel_args;

/* The kernels of a device, and four calls that are not kernels. */
#define WEFT_KERNEL_SLOT(name, type) WEFT_SLOT_##name,
typedef enum weft_kernel_slot {
    WEFT_DEVICE_KERNELS(WEFT_KERNEL_SLOT) WEFT_SLOT_copy,
    WEFT_SLOT_zero,
    WEFT_SLOT_custom,
    WEFT_SLOT_custom_backward
} weft_kernel_slot;

/* Context of a kernel call besides its arguments. */
typedef struct weft_kernel_run {
    const weft_device_plugin *kernels;
    weft_device *device;
    weft_stream *stream;
} weft_kernel_run;

typedef struct weft_kernel {
    const char *name; /* of the slot that runs: "attention_backward" */
    weft_kernel_slot slot;
    bool no_dx, no_dw; /* of a variant: it does not compute the gradient of its input, of its weight */
} weft_kernel;

/* Queues the kernel. Fails with WEFT_E_UNSUPPORTED if the device lacks it. [main] */
weft_status weft_kernel_invoke(const weft_kernel *kernel, const weft_kernel_run *run, weft_kernel_args *args,
                               weft_error *err);
/* Returns the bytes of workspace that the kernel requires, or 0. *field: offset of its ref in the arguments. */
int64_t weft_kernel_workspace(const weft_kernel *kernel, const weft_kernel_run *run, const weft_kernel_args *args,
                              size_t *field);

/* Writes the shapes of the matmuls that the matrix library runs and returns their number. */
int32_t weft_kernel_products(const weft_kernel *kernel, const weft_kernel_args *args,
                             weft_product_shape out[WEFT_CALL_PRODUCTS]);
/* Returns the FLOPs of a call; 0 if its cost is memory traffic. */
double weft_kernel_operations(const weft_kernel *kernel, const weft_kernel_args *args);
/* Returns the bytes of a call that reads only parts of an operand: the looked-up rows of a table; 0: all operands. */
double weft_kernel_traffic(const weft_kernel *kernel, const weft_kernel_args *args);

#define WEFT_KERNEL_DECLARE(name, type) extern const weft_kernel weft_kernel_##name;
WEFT_DEVICE_KERNELS(WEFT_KERNEL_DECLARE)
/* Variants of a kernel with other purposes, and calls that are not kernels. */
extern const weft_kernel weft_kernel_matmul_dx, weft_kernel_matmul_dw, weft_kernel_sum_matrix, weft_kernel_head_loss_dx,
    weft_kernel_head_loss_dw, weft_kernel_head_loss_dbias, weft_kernel_copy, weft_kernel_zero, weft_kernel_custom,
    weft_kernel_custom_backward;

#endif
