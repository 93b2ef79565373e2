/* attention_graph.h: attention as a graph of cuDNN's, and the plan that cuDNN makes of it. It needs no device but
 * cuDNN's description of one; the rest of the device is not known here. A build without headers of cuDNN 9 has no
 * CUDA_HAS_CUDNN, and nothing of this. */
#ifndef WEFT_DEVICE_CUDA_ATTENTION_GRAPH_H
#define WEFT_DEVICE_CUDA_ATTENTION_GRAPH_H

#include <stdint.h>

#include <weft/base.h>

#ifdef CUDA_HAS_CUDNN
#include <cudnn_graph.h>

#define CUDNN_CALLS(F)                                                                                                 \
    F(cudnnGetVersion)                                                                                                 \
    F(cudnnGetErrorString)                                                                                             \
    F(cudnnGetLastErrorString)                                                                                         \
    F(cudnnCreate)                                                                                                     \
    F(cudnnDestroy)                                                                                                    \
    F(cudnnSetStream)                                                                                                  \
    F(cudnnBackendCreateDescriptor)                                                                                    \
    F(cudnnBackendDestroyDescriptor)                                                                                   \
    F(cudnnBackendSetAttribute)                                                                                        \
    F(cudnnBackendGetAttribute)                                                                                        \
    F(cudnnBackendFinalize)                                                                                            \
    F(cudnnBackendExecute)

#define CUDNN_CALL_FIELD_(name) __typeof__(&name) name;
typedef struct cudnn_calls {
    CUDNN_CALLS(CUDNN_CALL_FIELD_)
} cudnn_calls;

typedef struct attention_shape {
    int64_t batch, length, heads, kv_heads, head_dim;
    int64_t has_window, has_cap; /* how far and how high is told to a run */
} attention_shape;

#define ATTENTION_PLAN_MOST 128 /* descriptors of a plan's graph */

typedef struct attention_plan {
    attention_shape shape;
    int64_t workspace;             /* bytes */
    cudnnBackendDescriptor_t plan; /* one of `all` */
    cudnnBackendDescriptor_t all[ATTENTION_PLAN_MOST];
    int n;
} attention_plan;

/* Operands of a run, in device memory at multiples of 16 bytes: activations are bf16. scale: of scores; with a cap over
 * it. */
typedef struct attention_operands {
    const void *q, *k, *v;
    const int32_t *starts;
    void *o;
    float *lse;
    float scale, cap;
    int32_t window;
    void *workspace;
} attention_operands;

/* The forward's plan for that card, or, with handle NULL, for one that cuDNN's JSON describes. What cuDNN does not take
 * is WEFT_E_UNSUPPORTED with its own words, any other answer WEFT_E_DEVICE with the call that gave it: a way is passed
 * over only where cuDNN says that there is none, so equal cards take the same. To be closed in any case, which answers
 * the first of cudnnBackendDestroyDescriptor's answers that was no success, for the log. */
weft_status attention_plan_open(attention_plan *out, const cudnn_calls *calls, cudnnHandle_t handle, const char *json,
                                const attention_shape *shape, weft_error *err);
cudnnStatus_t attention_plan_close(attention_plan *plan, const cudnn_calls *calls);
/* Queues it in the handle's stream. ended: of closing what describes the run. */
weft_status attention_plan_run(cudnnStatus_t *ended, const attention_plan *plan, const cudnn_calls *calls,
                               cudnnHandle_t handle, const attention_operands *operands, weft_error *err);
#endif
#endif
