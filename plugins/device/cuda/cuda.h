/* cuda.h: declarations shared by the host code of the CUDA device (C11).
 *
 *     plugin.c      keys, create, info, the kernel table      driver.c     checks driver and GPU, picks a rank's GPU
 *     libraries.c   loads CUDA's libraries at run time        memory.c     buffers
 *     streams.c     streams, events, synchronization          copies.c     write, read, copy, fill, convert
 *     staging.c     pinned memory of `write` and `read`       transfer.c   pinned memory, asynchronous copies
 *     capture.c     a step as a CUDA graph                    failure.c    CUDA errors as messages
 *     product.c     matmuls by cuBLASLt                       algorithm.c  selects a cuBLASLt algorithm per shape
 *     measure.c     times algorithms, stores the fastest      choices.c    algorithms as text, identical on all ranks
 *     packed.c      matmuls with a packed operand
 *     update.c      an optimizer's body, compiled by NVRTC    modules.c    compiled code, cached by hash
 *     native.c      streams and operands as native CUDA handles
 *     dry_run.c     counts the CUDA work of a step            roofline.c   measures peak rates
 *     ranges.c      ranges for profilers (NVTX)
 *     add.c         an add, deferred so that it can be fused with the norm of its sum
 *     attention_cudnn.c, attention_graph.c   attention by cuDNN
 *     attention_hopper.cu, hopper.cuh        attention on compute capability 9.0
 *     NAME.c        the slots of operator NAME: looks up operands, then calls a launcher of kernels.h
 *     NAME.cu       its kernels and launchers (CUDA C++; launch.h)
 *
 * All work is queued; only read, synchronize, reached and await wait for the GPU. Every function that queues work or
 * creates a handle first calls cuda_stream or cuda_enter, which launches a pending add. One thread calls these
 * functions, as weft/device.h requires. Functions that any thread may call do not touch the pending add. A kernel's
 * result depends only on its operands and their shapes: the shape fixes the order of every sum, and no atomic adds a
 * float. */
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
#include <weft/ranges.h>
#include <weft/roofline.h>
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
      "fp32 matmuls round their operands to TF32 (10 bits of precision): several times faster, with different "        \
      "results.")                                                                                                      \
    K(I64, workspace, "32Mi", "[1Mi,1Gi]", "bytes", WEFT_SAME,                                                         \
      "Workspace of cuBLASLt for a matmul; the selection of its algorithm depends on the size.")                       \
    K(ENUM, attention, "auto", "auto,split,cudnn", "", WEFT_SAME,                                                      \
      "Attention in 16-bit types. auto: on GPUs of compute capability 9.0, heads of 64 and 128 elements use kernels "  \
      "that round probabilities and their gradients to 16 bits; split: as two 16-bit parts everywhere; cudnn: the "    \
      "forward in bf16 by cuDNN.")                                                                                     \
    K(BOOL, share, "no", "", "", 0, "Several ranks of a machine may share a card; no: each needs one of its own.")     \
    K(BOOL, nvtx, "no", "", "", 0, "NVTX ranges for profilers: one around each instruction of a step.")                \
    K(BOOL, measure, "no", "", "", 0,                                                                                  \
      "Time cuBLASLt's first 8 algorithms of each large matmul at start, use the fastest, and store it in `cache` "    \
      "for "                                                                                                           \
      "later runs: another algorithm has other bits. no: use the first one, which depends only on the shape.")         \
    K(PATH, cache, "auto", "auto | none", "", 0,                                                                       \
      "Directory for compiled optimizers and measured algorithms; auto: weft/cuda in the user's cache directory; "     \
      "none: compile in each run.")
WEFT_KEYS_STRUCT(cuda_config, CUDA_KEYS)
enum { ATTENTION_AUTO, ATTENTION_SPLIT, ATTENTION_CUDNN }; /* values of the key `attention` */

struct weft_stream {
    cudaStream_t stream;
    weft_device *device;
};

/* An add or a copy that was called but is not launched yet (add.c). */
typedef struct cuda_waiting {
    bool is_there;
    cudaStream_t stream;
    add_call call; /* b NULL: a copy of n bytes from a to y */
} cuda_waiting;

typedef struct cuda_staging cuda_staging;
typedef struct cuda_algorithms cuda_algorithms;
typedef struct cuda_modules cuda_modules;
typedef struct cuda_cudnn cuda_cudnn;

struct weft_device {
    const weft_host *host;
    int32_t index;            /* CUDA device index */
    int32_t sharers;          /* ranks that use this GPU, including this one */
    struct weft_stream first; /* the default stream, for a stream argument of NULL */
    struct cudaDeviceProp card;
    cuda_libraries libraries;
    cublasLtHandle_t lt;
    bool tf32;                        /* the key tf32: fp32 matmuls may round their operands to TF32 */
    bool measures;                    /* the key measure */
    bool splits_attention;            /* the key attention: factors of two 16-bit parts */
    bool nvtx;                        /* the key nvtx: offers weft/ranges.h */
    int64_t workspace;                /* bytes that cuBLASLt may use per matmul */
    int64_t live_bytes, live_buffers; /* of buffers not yet released */
    int64_t held;                     /* other GPU memory in use, at the last measurement */
    weft_event *spare;                /* events that were waited for, to be reused */
    cuda_staging *staging;
    weft_stream *recording; /* the stream under graph capture; NULL: no capture */
    cuda_waiting waiting;
    cuda_algorithms *algorithms;
    cuda_modules *modules;
    cuda_cudnn *cudnn; /* NULL: own kernels compute all attention */
};

/* ---- driver.c ---- */

/* Fails if this machine cannot run the plugin: it needs a new enough driver, CUDA's libraries and a GPU. It calls
 * cudaGetDeviceCount; a process forked afterwards cannot use CUDA. */
weft_status cuda_works(const weft_host *host, weft_error *err);
/* Measures this rank's share of the GPU memory that is neither free nor in its buffers: the context, libraries and
 * other users. Returns the result of cudaMemGetInfo; a failure leaves *out unchanged. */
cudaError_t cuda_card_held(const weft_device *device, int64_t *out);
/* Checks the driver, picks the GPU of the rank with local index `index`, makes it current and fills device->index and
 * device->card. */
weft_status cuda_card_pick(weft_device *device, const cuda_config *keys, int32_t index, weft_error *err);

/* ---- streams.c ---- */

/* Returns the CUDA stream of `s` for work queued next. Makes its GPU current for this thread and launches an add that
 * is pending in this stream. The next checked call reports a failure of either. */
cudaStream_t cuda_stream(const weft_device *device, const weft_stream *s);
/* For functions that create a handle and must report a failure at once, and for functions that destroy one. Both launch
 * a pending add of any stream. */
weft_status cuda_enter(const weft_device *device, const char *what, weft_error *err);
void cuda_enter_end(const weft_device *device);
weft_status cuda_streams_open(weft_device *device, weft_error *err);
void cuda_streams_close(weft_device *device);
/* Returns the CUDA stream without queuing anything. */
cudaStream_t cuda_stream_named(const weft_device *device, const weft_stream *s);
/* Makes the GPU current and does nothing else. */
void cuda_card_enter(const weft_device *device);

/* ---- add.c ---- */

/* Launches the pending add, if there is one. */
cudaError_t cuda_launch_waiting(const weft_device *device);
/* Same, for a function without an error result: the next checked call reports a failure. */
void cuda_settle_waiting(const weft_device *device);

/* ---- staging.c ---- */

weft_status cuda_staging_open(weft_device *device, weft_error *err);
void cuda_staging_close(weft_device *device);
/* Queues a copy of host bytes. The caller may reuse them on return. */
weft_status cuda_staging_send(weft_device *device, cudaStream_t stream, void *to, const void *from, int64_t bytes,
                              weft_error *err);

/* Copies bytes to host memory after all earlier work of the stream. They are complete on return. */
weft_status cuda_staging_bring(weft_device *device, cudaStream_t stream, void *to, const void *from, int64_t bytes,
                               weft_error *err);

/* ---- capture.c ---- */

/* Fails with WEFT_E_HOST during a graph capture, and ends the capture: `what` cannot be captured. */
weft_status cuda_not_recording(weft_device *device, const char *what, weft_error *err);
extern const weft_device_capture cuda_capture;

/* ---- native.c ---- */

extern const weft_device_native cuda_native;

/* ---- transfer.c ---- */

extern const weft_device_transfer cuda_transfer;

/* ---- dry_run.c ---- */

extern const weft_device_dry_run cuda_dry_run;

/* ---- roofline.c, ranges.c ---- */

extern const weft_device_roofline cuda_roofline;
extern const weft_device_ranges cuda_ranges;

/* ---- copies.c ---- */

/* cudaMemcpyAsync and cudaMemsetAsync, counted in a dry run. */
cudaError_t cuda_move(void *to, const void *from, int64_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cuda_clear(void *to, int64_t bytes, cudaStream_t stream);

/* ---- failure.c ---- */

/* Returns WEFT_OK, or an error with the failed call, the kernel and CUDA's message. `call` must be the call expression
 * itself, because its name appears in the message. For a result in a variable, pass the name to cuda_judge_call. */
#define cuda_judge(call, what, err) cuda_judge_call((call), #call, (what), (err))
weft_status cuda_judge_call(cudaError_t code, const char *call, const char *what, weft_error *err);
/* Same for cuBLASLt. */
#define cuda_judge_lt(device, call, what, err) cuda_judge_lt_call((device), (call), #call, (what), (err))
weft_status cuda_judge_lt_call(const weft_device *device, cublasStatus_t code, const char *call, const char *what,
                               weft_error *err);
/* Same for the driver API. */
#define cuda_judge_driver(device, call, what, err) cuda_judge_driver_call((device), (call), #call, (what), (err))
weft_status cuda_judge_driver_call(const weft_device *device, CUresult code, const char *call, const char *what,
                                   weft_error *err);
/* For a function without an error result: the thread's next checked call reports the failure. `what` NULL: the report
 * uses that call's `what`. */
void cuda_put_off(cudaError_t code, const char *call, const char *what);
/* For release calls: logs a failure. */
#define cuda_end(device, call) cuda_end_call((device), (call), #call)
void cuda_end_call(const weft_device *device, cudaError_t code, const char *call);
/* Same for other libraries with integer status codes. */
#define cuda_end_other(device, call) cuda_end_other_call((device), (int)(call), #call)
void cuda_end_other_call(const weft_device *device, int code, const char *call);
/* Logs a deferred failure that no call has reported. */
void cuda_end_unheard(const weft_device *device);

/* ---- helpers ---- */

/* Alignment of the parts of a divided workspace. Aligning adds at most one such line. */
#define CUDA_LINE 256 /* bytes */
static inline char *cuda_line_up(void *at) {
    return (char *)(((uintptr_t)at + CUDA_LINE - 1) / CUDA_LINE * CUDA_LINE);
}

/* ---- product.c ---- */

/* C = op(A) op(B) on device pointers, as in weft_matmul; called by matmul and the head. A is as wide as B. `workspace`
 * has cuda_product_workspace bytes, a number that does not depend on operand addresses. */
typedef struct cuda_product {
    const void *a, *b;
    void *c;
    const float *bias; /* (N), with has_bias; never with accumulate */
    int64_t m, n, k, lda, ldb, ldc;
    int32_t dtype_a, dtype_b, dtype_c; /* weft_dtype */
    int32_t transpose_a, transpose_b, accumulate;
    int32_t has_bias;
    int32_t a_is_part; /* `a` may start inside the rows of a wider matrix, such as the last positions of a batch */
    void *workspace;
} cuda_product;
/* Reads only shapes, not operand pointers. Registers the matmul so that one algorithm is selected for all ranks
 * (weft/choices.h). */
int64_t cuda_product_workspace(const weft_device *device, const cuda_product *p);
weft_status cuda_product_run(weft_device *device, cudaStream_t stream, const cuda_product *p, weft_error *err);

/* ---- choices.c ---- */

extern const weft_device_choices cuda_choices;

/* ---- packed.c ---- */

/* Same with a packed b; ignores p->b. */
int64_t cuda_packed_workspace(const weft_device *device, const cuda_product *p);
weft_status cuda_packed_multiply(weft_device *device, cudaStream_t stream, const cuda_product *p, const void *packed,
                                 weft_error *err);

/* ---- update.c, modules.c ---- */

weft_status cuda_modules_open(weft_device *device, const cuda_config *keys, weft_error *err);
void cuda_modules_close(weft_device *device);

/* ---- attention.c ---- */

/* True if attention may use the kernels of compute capability 9.0, which round factors (the key attention). */
bool cuda_rounds_attention(const weft_device *device);

/* ---- kernel table, by file ---- */

#define CUDA_KERNEL(name, args_type)                                                                                   \
    weft_status cuda_##name(weft_device *device, weft_stream *s, const args_type *args, weft_error *err)
#define CUDA_DECLARE(name, args_type) CUDA_KERNEL(name, args_type);
#define CUDA_WORKSPACE(name, args_type)                                                                                \
    int64_t cuda_##name##_workspace(const weft_device *device, const args_type *args);
WEFT_DEVICE_KERNELS(CUDA_DECLARE)
WEFT_DEVICE_WORKSPACES(CUDA_WORKSPACE)

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
