/* cuda.h: what the rooms of the CUDA device share; host code alone (C11).
 *
 *     plugin.c      keys, create, info, the kernel table      driver.c     is there a driver and a card, and which
 *     libraries.c   CUDA's libraries, found when needed       memory.c     buffers
 *     streams.c     streams, events, waiting                   copies.c     write, read, copy, fill, convert
 *     staging.c     pinned memory of `write` and `read`       transfer.c   pinned memory, copies that nobody waits for
 *     capture.c     a step as a graph                         failure.c    what a call answered, as a sentence
 *     product.c     products by cuBLASLt                      algorithm.c  which of its ways a product takes
 *     packed.c      products with a packed operand            choices.c    these ways as texts, alike on all ranks
 *     update.c      an optimizer's body, compiled by NVRTC    modules.c    compiled code, kept under a hash
 *     native.c      streams and operands under CUDA's own names
 *     dry_run.c     what a step would ask of CUDA, counted
 *     add.c         an add, which waits for a norm of its sum
 *     attention_cudnn.c, attention_graph.c   attention by cuDNN
 *     NAME.c        the slots of operator NAME: operands are looked up, then a launcher of kernels.h is called
 *     NAME.cu       its kernels and launchers (CUDA C++; launch.h)
 *
 * Everything is queued; nothing but read, synchronize, reached and await waits for the card. All that is queued or made
 * goes through cuda_stream or cuda_enter first, which launch an add that waits; it is asked for by one thread alone, as
 * weft/device.h has it, and what any thread may ask for touches nothing that waits. A kernel's result depends
 * on its operands and their shapes alone: sums have an order that the shape fixes, and no atomic adds a float.
 */
#ifndef WEFT_DEVICE_CUDA_H
#define WEFT_DEVICE_CUDA_H

#include <stdbool.h>
#include <stdlib.h>

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <weft/capture.h>
#include <weft/choices.h>
#include <weft/device.h>
#include <weft/dry_run.h>
#include <weft/native.h>
#include <weft/transfer.h>

#include "../common/matrices.h"
#include "../common/operands.h"
#include "add.h"
#include "cell_bytes.h"
#include "dry_run.h"
#include "kernels.h"
#include "libraries.h"

#define CUDA_KEYS(K)                                                                                                   \
    K(BOOL, tf32, "no", "", "", WEFT_SAME,                                                                             \
      "fp32 products round their operands to TF32 (10 bits of precision): several times faster, and other numbers.")   \
    K(I64, workspace, "32Mi", "[1Mi,1Gi]", "bytes", WEFT_SAME,                                                         \
      "What cuBLASLt may use within a product; which of its ways it takes depends on it.")                             \
    K(ENUM, attention, "auto", "auto,own,cudnn", "", WEFT_SAME,                                                        \
      "Who makes attention: own kernels, or cuDNN the forward of bf16 rows without a cache (it rounds probabilities "  \
      "to bf16); auto: own.")                                                                                          \
    K(BOOL, share, "no", "", "", 0, "Several ranks of a machine may share a card; no: each needs one of its own.")     \
    K(PATH, cache, "auto", "auto | none", "", 0,                                                                       \
      "Directory in which compiled optimizers are kept; auto: weft/cuda in the user's cache directory; none: they "    \
      "are compiled anew in each run.")
WEFT_KEYS_STRUCT(cuda_config, CUDA_KEYS)
enum { ATTENTION_BY_AUTO, ATTENTION_BY_OWN, ATTENTION_BY_CUDNN }; /* values of the key `attention` */

struct weft_stream {
    cudaStream_t stream;
    weft_device *device;
};

/* An add that has been asked for and is not launched yet (add.c). */
typedef struct cuda_waiting {
    bool is_there;
    cudaStream_t stream;
    add_call call;
} cuda_waiting;

typedef struct cuda_staging cuda_staging;
typedef struct cuda_algorithms cuda_algorithms;
typedef struct cuda_modules cuda_modules;
typedef struct cuda_cudnn cuda_cudnn;

struct weft_device {
    const weft_host *host;
    int32_t index;            /* the card, as CUDA numbers it */
    int32_t sharers;          /* ranks that have it, this one too */
    struct weft_stream first; /* what NULL stands for */
    struct cudaDeviceProp card;
    cuda_libraries libraries;
    cublasLtHandle_t lt;
    bool tf32;                        /* fp32 products may round their operands so; by a key alone */
    int64_t workspace;                /* of a product, for cuBLASLt */
    int64_t live_bytes, live_buffers; /* of buffers that were not released */
    int64_t held;                     /* of the card, apart from these, when it was measured last */
    weft_event *spare;                /* events that were waited for, to be used again */
    cuda_staging *staging;
    weft_stream *recording; /* the stream whose work is being recorded; NULL: none */
    cuda_waiting waiting;
    cuda_algorithms *algorithms;
    cuda_modules *modules;
    cuda_cudnn *cudnn; /* NULL: attention is made by own kernels alone */
};

/* ---- driver.c ---- */

/* Whether this machine can run the plugin at all: a driver that is new enough, CUDA's libraries, and a card. It
 * asks CUDA how many there are, behind which a child that this process forks can ask no more. */
weft_status cuda_works(const weft_host *host, weft_error *err);
/* Bytes of this rank's part of the card that are neither free nor in its buffers: the context, libraries, and whatever
 * else is there. It answers what cudaMemGetInfo does; *out stays as it is where that fails. */
cudaError_t cuda_card_held(const weft_device *device, int64_t *out);
/* With a driver that is new enough picks the card of the rank of that index, makes it the current one and fills
 * device->index and device->card. */
weft_status cuda_card_pick(weft_device *device, const cuda_config *keys, int32_t index, weft_error *err);

/* ---- streams.c ---- */

/* CUDA's stream of one of ours, for what is queued in it next: its card is made the current one of this thread, an add
 * that waits in this stream is launched, and where either fails, what is judged next tells it. */
cudaStream_t cuda_stream(const weft_device *device, const weft_stream *s);
/* Where something is made, whose failure would be lost if it were told only then, and where something is ended: an add
 * is launched whichever stream it waits in. */
weft_status cuda_enter(const weft_device *device, const char *what, weft_error *err);
void cuda_enter_end(const weft_device *device);
weft_status cuda_streams_open(weft_device *device, weft_error *err);
void cuda_streams_close(weft_device *device);
/* The same stream, and nothing is queued. */
cudaStream_t cuda_stream_named(const weft_device *device, const weft_stream *s);
/* The card alone is made the current one. */
void cuda_card_enter(const weft_device *device);

/* ---- add.c ---- */

/* Launches the add that waits, if one does. */
cudaError_t cuda_launch_waiting(const weft_device *device);
/* The same for a function that judges nothing: what is judged next tells where it failed. */
void cuda_settle_waiting(const weft_device *device);

/* ---- staging.c ---- */

weft_status cuda_staging_open(weft_device *device, weft_error *err);
void cuda_staging_close(weft_device *device);
/* Queues a copy of the host's bytes, which are free again when it returns. */
weft_status cuda_staging_send(weft_device *device, cudaStream_t stream, void *to, const void *from, int64_t bytes,
                              weft_error *err);

/* Brings bytes to the host's memory, with all that the stream held before: they are there when it returns. */
weft_status cuda_staging_bring(weft_device *device, cudaStream_t stream, void *to, const void *from, int64_t bytes,
                               weft_error *err);

/* ---- capture.c ---- */

/* WEFT_E_HOST while a step is recorded, which that ends: what is asked for cannot be part of it. */
weft_status cuda_not_recording(weft_device *device, const char *what, weft_error *err);
extern const weft_device_capture cuda_capture;

/* ---- native.c ---- */

extern const weft_device_native cuda_native;

/* ---- transfer.c ---- */

extern const weft_device_transfer cuda_transfer;

/* ---- dry_run.c ---- */

extern const weft_device_dry_run cuda_dry_run;

/* ---- copies.c ---- */

/* cudaMemcpyAsync and cudaMemsetAsync, which a dry run counts. */
cudaError_t cuda_move(void *to, const void *from, int64_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cuda_clear(void *to, int64_t bytes, cudaStream_t stream);

/* ---- failure.c ---- */

/* OK, or the sentence: which call of which kernel failed, and CUDA's own word for it. `call` stands as it is made,
 * since its name is part of the sentence; where its answer comes in a variable, cuda_judge_call is given the name. */
#define cuda_judge(call, what, err) cuda_judge_call((call), #call, (what), (err))
weft_status cuda_judge_call(cudaError_t code, const char *call, const char *what, weft_error *err);
/* The same for cuBLASLt. */
#define cuda_judge_lt(device, call, what, err) cuda_judge_lt_call((device), (call), #call, (what), (err))
weft_status cuda_judge_lt_call(const weft_device *device, cublasStatus_t code, const char *call, const char *what,
                               weft_error *err);
/* The same for the driver's own interface. */
#define cuda_judge_driver(device, call, what, err) cuda_judge_driver_call((device), (call), #call, (what), (err))
weft_status cuda_judge_driver_call(const weft_device *device, CUresult code, const char *call, const char *what,
                                   weft_error *err);
/* For a function that can tell nobody: the next call that this thread judges tells it. what: NULL: of that one. */
void cuda_put_off(cudaError_t code, const char *call, const char *what);
/* Of something that is given back, which nobody needs any more: a failure is logged. */
#define cuda_end(device, call) cuda_end_call((device), (call), #call)
void cuda_end_call(const weft_device *device, cudaError_t code, const char *call);
/* The same for other libraries, whose answers are numbers. */
#define cuda_end_other(device, call) cuda_end_other_call((device), (int)(call), #call)
void cuda_end_other_call(const weft_device *device, int code, const char *call);
/* What was put off and no call has told. */
void cuda_end_unheard(const weft_device *device);

/* ---- small things ---- */

/* What workspaces that are cut begin on; what is added for that to be possible is one line. */
#define CUDA_LINE 256 /* bytes */
static inline char *cuda_line_up(void *at) {
    return (char *)(((uintptr_t)at + CUDA_LINE - 1) / CUDA_LINE * CUDA_LINE);
}

/* ---- product.c ---- */

/* C = op(A) op(B) of device pointers, as weft_matmul describes it: what matmul and the head call. A is as wide as B.
 * workspace: cuda_product_workspace bytes, which do not depend on where operands lie. */
typedef struct cuda_product {
    const void *a, *b;
    void *c;
    const float *bias; /* (N), with has_bias; not together with accumulate */
    int64_t m, n, k, lda, ldb, ldc;
    int32_t dtype_a, dtype_b, dtype_c; /* weft_dtype */
    int32_t transpose_a, transpose_b, accumulate;
    int32_t has_bias;
    int32_t a_is_part; /* a may begin within the rows of a wider matrix, as the last places of a batch do */
    void *workspace;
} cuda_product;
/* Operands are not looked at. Notes that the product will be made: the way that it takes is chosen for all ranks
 * (weft/choices.h). */
int64_t cuda_product_workspace(const weft_device *device, const cuda_product *p);
weft_status cuda_product_run(weft_device *device, cudaStream_t stream, const cuda_product *p, weft_error *err);

/* ---- choices.c ---- */

extern const weft_device_choices cuda_choices;

/* ---- packed.c ---- */

/* The same with a b that is packed; p->b is not looked at. */
int64_t cuda_packed_workspace(const weft_device *device, const cuda_product *p);
weft_status cuda_packed_multiply(weft_device *device, cudaStream_t stream, const cuda_product *p, const void *packed,
                                 weft_error *err);

/* ---- update.c, modules.c ---- */

weft_status cuda_modules_open(weft_device *device, const cuda_config *keys, weft_error *err);
void cuda_modules_close(weft_device *device);

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
CUDA_KERNEL(multiply, weft_multiply);
CUDA_KERNEL(multiply_backward, weft_multiply);
CUDA_KERNEL(dropout, weft_dropout);
CUDA_KERNEL(row_norms, weft_row_norms);
CUDA_KERNEL(prefix, weft_prefix);
CUDA_KERNEL(prefix_backward, weft_prefix);
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
int64_t cuda_multiply_backward_workspace(const weft_device *device, const weft_multiply *args);
int64_t cuda_row_norms_workspace(const weft_device *device, const weft_row_norms *args);
int64_t cuda_prefix_workspace(const weft_device *device, const weft_prefix *args);
int64_t cuda_prefix_backward_workspace(const weft_device *device, const weft_prefix *args);

weft_status cuda_alloc(weft_device *device, weft_buffer **out, int64_t bytes, weft_error *err);
void cuda_release(weft_device *device, weft_buffer *buffer);
weft_status cuda_stream_create(weft_device *device, weft_stream **out, weft_error *err);
void cuda_stream_destroy(weft_device *device, weft_stream *stream);
weft_status cuda_synchronize(weft_device *device, weft_stream *stream, weft_error *err);
weft_status cuda_record_event(weft_device *device, weft_stream *stream, weft_event **out, weft_error *err);
weft_status cuda_wait(weft_device *device, weft_stream *stream, weft_event *event, weft_error *err);
weft_status cuda_write(weft_device *device, weft_stream *s, weft_ref to, const void *from, int64_t bytes,
                       weft_error *err);
weft_status cuda_read(weft_device *device, weft_stream *s, void *to, weft_ref from, int64_t bytes, weft_error *err);
weft_status cuda_copy(weft_device *device, weft_stream *s, weft_ref to, weft_ref from, int64_t bytes, weft_error *err);
weft_status cuda_fill(weft_device *device, weft_stream *s, weft_ref to, uint32_t pattern, int64_t words,
                      weft_error *err);
weft_status cuda_convert(weft_device *device, weft_stream *s, weft_ref to, int32_t dtype_to, weft_ref from,
                         int32_t dtype_from, int64_t n, weft_error *err);

#endif
