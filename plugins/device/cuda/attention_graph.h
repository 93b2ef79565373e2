/* attention_graph.h: attention as a cuDNN graph, and its execution plan. It needs no device, only cuDNN's description
 * of one, and is independent of the rest of the CUDA device. Without cuDNN 9 headers CUDA_HAS_CUDNN is undefined, and
 * all of this is left out. */
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
    int64_t has_window, has_cap; /* the values are operands of a run */
} attention_shape;

#define ATTENTION_PLAN_MOST 128 /* descriptors per plan */

typedef struct attention_plan {
    attention_shape shape;
    int64_t workspace;             /* bytes */
    cudnnBackendDescriptor_t plan; /* one of `all` */
    cudnnBackendDescriptor_t all[ATTENTION_PLAN_MOST];
    int n;
} attention_plan;

/* Operands of a run, in device memory aligned to 16 bytes; activations are bf16. scale: of scores, divided by the cap
 * if there is one. */
typedef struct attention_operands {
    const void *q, *k, *v;
    const int32_t *starts;
    void *o;
    float *lse;
    float scale, cap;
    int32_t window;
    void *workspace;
} attention_operands;

/* Makes the forward's plan for the handle's GPU, or, with handle NULL, for the GPU described by `json`. Fails with
 * WEFT_E_UNSUPPORTED and cuDNN's message if cuDNN rejects it, with WEFT_E_DEVICE and the call for any other error. A
 * configuration is skipped only if cuDNN reports it as unsupported, so equal GPUs select the same one. The caller
 * closes the plan in every case. Closing returns the first failure of cudnnBackendDestroyDescriptor, to be logged. */
weft_status attention_plan_open(attention_plan *out, const cudnn_calls *calls, cudnnHandle_t handle, const char *json,
                                const attention_shape *shape, weft_error *err);
cudnnStatus_t attention_plan_close(attention_plan *plan, const cudnn_calls *calls);
/* Queues a run in the handle's stream. ended: status of destroying the run's descriptors. */
weft_status attention_plan_run(cudnnStatus_t *ended, const attention_plan *plan, const cudnn_calls *calls,
                               cudnnHandle_t handle, const attention_operands *operands, weft_error *err);
#endif
#endif
