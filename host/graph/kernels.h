/* host/graph/kernels.h: the device's kernels as rows of one table, so that a pass can hold any of them as data. */
#ifndef WEFT_HOST_GRAPH_KERNELS_H
#define WEFT_HOST_GRAPH_KERNELS_H

#include "graph/calls.h"

typedef struct weft_copy_args {
    weft_ref to, from;
    int64_t bytes;
} weft_copy_args;

typedef struct weft_zero_args {
    weft_ref to;
    int64_t words; /* of 32 bits */
} weft_zero_args;

/* A plugin's operator; refs are patched here and handed over as arrays. */
typedef struct weft_custom_args {
    const weft_custom_op *op;
    const void *args;
    weft_ref inputs[8];
    weft_ref output, d_output;
    weft_ref d_inputs[8];
    int32_t accumulate[8];
    int32_t dtype;
} weft_custom_args;

typedef union weft_kernel_args {
    weft_matmul matmul;
    weft_sum_rows sum_rows;
    weft_norm norm;
    weft_rope rope;
    weft_attention attention;
    weft_activation activation;
    weft_embedding embedding;
    weft_head head;
    weft_scale scale;
    weft_add add;
    weft_multiply multiply;
    weft_dropout dropout;
    weft_row_norms row_norms;
    weft_prefix prefix;
    weft_copy_args copy;
    weft_zero_args zero;
    weft_custom_args custom;
} weft_kernel_args;

/* What a call needs to know beside its arguments. */
typedef struct weft_kernel_run {
    const weft_device_plugin *kernels;
    weft_device *device;
    weft_stream *stream;
} weft_kernel_run;

typedef struct weft_kernel {
    const char *name; /* "attention backward" */
    const char *part; /* which part of its operator's work in a pass it is: "input gradient"; NULL: all of it */
    bool glue;        /* it moves or adds up what operators made, and is counted under its own name */
    weft_status (*invoke)(const weft_kernel_run *run, weft_kernel_args *args, weft_error *err);
    int64_t (*workspace)(const weft_kernel_run *run, const weft_kernel_args *args); /* NULL: never any */
    size_t workspace_field;
    /* The products that the matrix library makes; how many. NULL: none. */
    int32_t (*products)(const weft_kernel_args *args, weft_product_shape out[WEFT_CALL_PRODUCTS]);
    double (*flops)(const weft_kernel_args *args);   /* other operations: attention's own. NULL: none */
    double (*traffic)(const weft_kernel_args *args); /* bytes, of a call without operations; NULL: the operands' sum */
} weft_kernel;

/* Operations of a call; 0: what counts is memory traffic. */
double weft_kernel_operations(const weft_kernel *kernel, const weft_kernel_args *args);

/* The head's backward makes both gradients, or one of them, or that of a bias alone. */
extern const weft_kernel weft_kernel_matmul, weft_kernel_matmul_dx, weft_kernel_matmul_dw, weft_kernel_sum_rows,
    weft_kernel_norm, weft_kernel_norm_backward, weft_kernel_rope, weft_kernel_attention,
    weft_kernel_attention_backward, weft_kernel_activation, weft_kernel_activation_backward, weft_kernel_embedding,
    weft_kernel_embedding_backward, weft_kernel_head_loss, weft_kernel_head_loss_grad, weft_kernel_head_loss_dx,
    weft_kernel_head_loss_dw, weft_kernel_head_loss_dbias, weft_kernel_scale, weft_kernel_add, weft_kernel_multiply,
    weft_kernel_multiply_backward, weft_kernel_dropout, weft_kernel_row_norms, weft_kernel_prefix,
    weft_kernel_prefix_backward, weft_kernel_sum_matrix, weft_kernel_copy, weft_kernel_zero, weft_kernel_custom,
    weft_kernel_custom_backward;

#endif
