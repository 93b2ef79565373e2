/* cuda.h: what the rooms of the CUDA device share; host code alone (C11).
 *
 *     plugin.c      keys, create, info, the kernel table      driver.c     is there a driver and a card, and which
 *     memory.c      buffers                                   streams.c    streams, marks, waiting
 *     copies.c      write, read, copy, fill                   transfer.c   pinned memory, copies that nobody waits for
 *     capture.c     a step as a graph                         failure.c    what a call answered, as a sentence
 *     product.c     products by cuBLASLt                      algorithm.c  which of its ways a product takes
 *     update.c      an optimizer's body, compiled by NVRTC    modules.c    compiled code, kept under a hash
 *     NAME.c        the slots of operator NAME: operands are looked up, then a launcher of kernels.h is called
 *     NAME.cu       its kernels and launchers (CUDA C++; launch.h)
 *
 * Everything is queued; nothing but read, synchronize, reached and await waits for the card. A kernel's result depends
 * on its operands and their shapes alone: sums have an order that the shape fixes, and no atomic adds a float.
 */
#ifndef WEFT_DEVICE_CUDA_H
#define WEFT_DEVICE_CUDA_H

#include <stdbool.h>
#include <stdlib.h>

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <weft/device.h>

#include "../common/operands.h"
#include "kernels.h"

struct weft_stream {
    cudaStream_t stream;
    weft_device *device;
};

struct weft_device {
    const weft_host *host;
    int32_t index;            /* the card, as CUDA numbers it */
    struct weft_stream first; /* what NULL stands for */
    struct cudaDeviceProp card;
    cublasLtHandle_t lt;
    bool tf32; /* fp32 products may round their operands so; by a key alone */
};

/* ---- streams.c ---- */

/* CUDA's stream of one of ours. */
cudaStream_t cuda_stream(const weft_device *device, const weft_stream *s);

/* ---- failure.c ---- */

/* OK, or the sentence: which call of which kernel failed, and CUDA's own word for it. */
weft_status cuda_judge(cudaError_t code, const char *what, weft_error *err);

/* ---- product.c ---- */

/* C = op(A) op(B) of device pointers, as weft_matmul describes it, without a bias: what matmul and the head call.
 * workspace: cuda_product_workspace bytes. */
typedef struct cuda_product {
    const void *a, *b;
    void *c;
    const float *bias; /* (N), or NULL */
    int64_t m, n, k, lda, ldb, ldc;
    int32_t dtype_a, dtype_b, dtype_c; /* weft_dtype */
    int32_t transpose_a, transpose_b, accumulate;
    void *workspace;
} cuda_product;
int64_t cuda_product_workspace(const weft_device *device, const cuda_product *p);
weft_status cuda_multiply(weft_device *device, cudaStream_t stream, const cuda_product *p, weft_error *err);

/* ---- the table's slots, by file ---- */

#define CUDA_KERNEL(name, args_type)                                                                                   \
    weft_status cuda_##name(weft_device *device, weft_stream *s, const args_type *args, weft_error *err)
CUDA_KERNEL(matmul, weft_matmul);
CUDA_KERNEL(sum_rows, weft_sum_rows);
CUDA_KERNEL(norm, weft_norm);
CUDA_KERNEL(norm_backward, weft_norm);
CUDA_KERNEL(rope, weft_rope);
CUDA_KERNEL(attention, weft_attention);
CUDA_KERNEL(attention_backward, weft_attention);
CUDA_KERNEL(activation, weft_activation);
CUDA_KERNEL(activation_backward, weft_activation);
CUDA_KERNEL(embedding, weft_embedding);
CUDA_KERNEL(embedding_backward, weft_embedding);
CUDA_KERNEL(head_loss, weft_head);
CUDA_KERNEL(head_loss_grad, weft_head);
CUDA_KERNEL(scale, weft_scale);
CUDA_KERNEL(add, weft_add);
CUDA_KERNEL(square_sum, weft_square_sum);
CUDA_KERNEL(clip, weft_clip);
CUDA_KERNEL(update, weft_update);

int64_t cuda_matmul_workspace(const weft_device *device, const weft_matmul *args);
int64_t cuda_sum_rows_workspace(const weft_device *device, const weft_sum_rows *args);
int64_t cuda_norm_backward_workspace(const weft_device *device, const weft_norm *args);
int64_t cuda_attention_workspace(const weft_device *device, const weft_attention *args);
int64_t cuda_attention_backward_workspace(const weft_device *device, const weft_attention *args);
int64_t cuda_embedding_backward_workspace(const weft_device *device, const weft_embedding *args);
int64_t cuda_head_loss_workspace(const weft_device *device, const weft_head *args);
int64_t cuda_head_loss_grad_workspace(const weft_device *device, const weft_head *args);
int64_t cuda_square_sum_workspace(const weft_device *device, const weft_square_sum *args);

#endif
