/* weft/ops.h: the operators of a model's forward.
 *
 * A segment's forward calls operators on values. Each call records a node in a graph and returns the handle of its
 * result; nothing is computed at that time. The host records each segment once per micro-batch length and mode, derives
 * the backward, plans all buffers, and runs the graph as often as needed. A forward may therefore branch on shapes and
 * on its own configuration, but never on computed numbers.
 *
 *     weft_value h = ops->rms_norm(g, x, layer->norm, eps);
 *     weft_value y = ops->linear(g, h, layer->q_proj);
 *
 * Nodes are recorded in the order of the calls, which also determines the order of sums in the backward. C does not
 * define the evaluation order of arguments, so use a separate statement for each call: otherwise bits differ between
 * compilers.
 *
 * Errors are sticky. A wrong call marks the graph and returns an invalid value, operators on invalid values do nothing,
 * and the host reports the first error with the segment's name. A forward needs no checks of its own, not even for
 * NULL: every slot of the table can be called. A slot that the host does not support (`loss`, in SDK 1.0) is such an
 * error: the run stops before its first step with WEFT_E_UNSUPPORTED and a message.
 *
 * Weights are objects (weft/model.h), not pointers. The host decides the implementation of `linear` for a weight:
 * dense, packed 4-bit, or replaced by an adapter (weft/adapter.h). Adapters and quantization therefore need no model
 * code. */
#ifndef WEFT_OPS_H
#define WEFT_OPS_H

#include <weft/device.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_graph weft_graph;   /* the recorded graph of one segment; defined by the host */
typedef struct weft_weight weft_weight; /* a weight object; defined by the host */
typedef struct weft_table weft_table;   /* a fixed table with one row per position; defined by the host */

typedef struct weft_value {
    uint32_t id; /* 0: invalid */
} weft_value;

typedef enum weft_mode { WEFT_MODE_TRAIN = 0, WEFT_MODE_EVALUATE = 1, WEFT_MODE_GENERATE = 2 } weft_mode;

typedef struct weft_graph_info {
    uint32_t struct_size;
    uint32_t flags;
    int32_t mode;   /* weft_mode */
    int32_t rows;   /* B */
    int32_t length; /* T */
    int32_t dtype;  /* type of activations */
} weft_graph_info;

typedef struct weft_rope_args {
    uint32_t struct_size;
    uint32_t flags;
    int64_t heads, head_dim; /* x is (B, T, heads * head_dim) */
    int64_t rotary_dim;      /* number of rotated elements at the start of each head; 0: all */
} weft_rope_args;

typedef struct weft_attention_args {
    uint32_t struct_size;
    uint32_t flags;
    int64_t heads, kv_heads, head_dim; /* q: (B, T, heads * head_dim); k, v: (B, T, kv_heads * head_dim) */
    double scale;                      /* usually 1 / sqrt(head_dim) */
    int64_t window;                    /* number of positions that a query can see, including its own; 0: no limit */
    double cap;                        /* scores become cap tanh(score / cap); 0: no cap */
} weft_attention_args;

/* The row norms of a weight and their trained magnitude: the weights of weight_norm (Liu et al., arXiv 2402.09353). */
typedef struct weft_weight_norm_args {
    uint32_t struct_size;
    uint32_t flags;
    weft_weight *magnitude; /* a trained gain of `out` factors */
    weft_weight *weight;    /* W (out, in), in any storage type */
    weft_weight *down, *up; /* D (rank, in), U (out, rank); both NULL: only W */
    double factor;          /* of U D */
} weft_weight_norm_args;

/* logits = c(scale (x W^T + bias)), c(s) = cap tanh(s / cap), or s without a cap. The bias is the weight's, if it has
 * one. */
typedef struct weft_head_args {
    uint32_t struct_size;
    uint32_t flags;
    double scale; /* 0: no scaling */
    double cap;   /* 0: no cap */
} weft_head_args;

/* Normalization of a loss. Per target token: summed over tokens and divided once by their global number. Per step:
 * added unchanged to the reported mean loss, so it is multiplied by the number of targets before its backward. */
typedef enum weft_loss_kind { WEFT_LOSS_PER_TOKEN = 0, WEFT_LOSS_PER_STEP = 1 } weft_loss_kind;

/* A call of a plugin's own operator, with n_inputs input values and one output; shapes in elements. forward and
 * backward receive buffers in the order of the inputs. backward writes the gradient of each input whose ref is not
 * empty, or adds it if accumulate[i]. `keeps_inputs` and `keeps_output` state the tensors that backward reads. All
 * numbers have the graph's dtype, passed in the call. The host rejects the operator in a graph whose dtype it does not
 * declare. */
typedef struct weft_custom_call {
    uint32_t struct_size;
    uint32_t flags;
    weft_device *device;
    const weft_device_plugin *kernels;
    weft_stream *stream;
    const void *args;
    const weft_ref *inputs;
    weft_ref output;
    weft_ref d_output;         /* backward only */
    const weft_ref *d_inputs;  /* backward only */
    const int32_t *accumulate; /* backward only */
    int32_t dtype;             /* weft_dtype of inputs (except ids and similar), output and gradients */
    int32_t reserved;
} weft_custom_call;

/* Flag of a custom operator that only queues calls of `kernels` in `stream`. A step with it may then be captured and
 * replayed (weft/capture.h). Without the flag, the operator is called in each step. */
#define WEFT_CUSTOM_QUEUES 1u

typedef struct weft_custom_op {
    uint32_t struct_size;
    uint32_t flags; /* WEFT_CUSTOM_QUEUES, or 0 */
    const char *name;
    int32_t keeps_inputs, keeps_output;
    weft_status (*forward)(const weft_custom_call *call, weft_error *err);  /* [main] [hot] [required] */
    weft_status (*backward)(const weft_custom_call *call, weft_error *err); /* [main] [hot] [required] */
    uint32_t dtypes; /* supported types: 1u << WEFT_F32 | 1u << WEFT_BF16 | 1u << WEFT_F16; 0: only fp32 */
    uint32_t reserved;
} weft_custom_op;

/* B: sequences of the micro-batch, T: its length, D: width. All [main]; callable only inside `forward`. */
typedef struct weft_ops {
    uint32_t struct_size;
    uint32_t flags;

    void (*info)(const weft_graph *g, weft_graph_info *out); /* [required] */
    int64_t (*width)(const weft_graph *g, weft_value value); /* elements per position (last dimension) [required] */

    /* Inputs of the micro-batch, int32 (B,T): ids, positions from 0 in each document, start position of each
     * document. */
    weft_value (*ids)(weft_graph *g);       /* [required] */
    weft_value (*positions)(weft_graph *g); /* [required] */
    weft_value (*starts)(weft_graph *g);    /* [required] */

    /* Looks up rows of a table, -> (B,T,D), by ids, or by positions for learned position embeddings (GPT-2).
     * [required] */
    weft_value (*embedding)(weft_graph *g, weft_value ids, weft_weight *table);
    /* (B,T,in) -> (B,T,out), including the weight's bias if it has one [required] */
    weft_value (*linear)(weft_graph *g, weft_value x, weft_weight *weight);
    /* A gain of x's width normalizes the full row (also across heads, OLMo 2). A narrower gain, whose width divides
     * x's, normalizes each such section of x separately (each head, Qwen3). [required] */
    weft_value (*rms_norm)(weft_graph *g, weft_value x, weft_weight *gain, double eps);
    /* LayerNorm: the weight is a gain with a bias; sections of x as above. [required] */
    weft_value (*layer_norm)(weft_graph *g, weft_value x, weft_weight *weight, double eps);
    weft_value (*rope)(weft_graph *g, weft_value x, weft_value positions, weft_table *table,
                       const weft_rope_args *args); /* [required] */
    /* Causal attention within each document. In generation the host manages the KV cache. [required] */
    weft_value (*attention)(weft_graph *g, weft_value q, weft_value k, weft_value v, weft_value starts,
                            const weft_attention_args *args);
    /* f(x), and f(gate) * up; form: weft_activation_form. swiglu uses WEFT_SILU for the gate. [required] */
    weft_value (*activation)(weft_graph *g, weft_value x, int32_t form);
    weft_value (*gated)(weft_graph *g, weft_value gate, weft_value up, int32_t form);
    weft_value (*swiglu)(weft_graph *g, weft_value gate, weft_value up);
    /* factor * x, computed in fp32 and rounded once. A model that rounds the factor first, as Gemma does with sqrt(D)
     * of its embeddings, passes weft_rounded(factor, info.dtype). [required] */
    weft_value (*scale)(weft_graph *g, weft_value x, double factor);
    weft_value (*add)(weft_graph *g, weft_value a, weft_value b); /* [required] */

    /* The output of a language model. Training and evaluation: the loss against the micro-batch's targets and weights.
     * Generation: the logits of the last position. Called once per model, as the last call of its segment. args NULL:
     * plain logits. [required] */
    void (*lm_head)(weft_graph *g, weft_value x, weft_weight *weight, const weft_head_args *args);

    /* Additional losses: value has one element per position (PER_TOKEN) or one in total (PER_STEP). Reserved: in SDK
     * 1.0 every call marks the graph as unsupported. [required] */
    void (*loss)(weft_graph *g, weft_value value, int32_t kind);
    /* Names a value, such as the last hidden state, for evaluation. Reserved: in SDK 1.0 the host checks the call, and
     * no command reads the value. [required] */
    void (*output)(weft_graph *g, weft_value value, const char *name);
    /* args: n bytes, copied. width: elements of the result per position. [required] */
    weft_value (*custom)(weft_graph *g, const weft_custom_op *op, const weft_value *inputs, int32_t n_inputs,
                         int64_t width, const void *args, size_t n);

    /* Operators for adapters. */
    /* Multiplies by the factors of a gain: one per element of x, or, with a narrower gain, one per equal section of x:
     * one factor per head, or a single gate. [required] */
    weft_value (*multiply)(weft_graph *g, weft_value x, weft_weight *factors);
    /* In training, sets elements to zero with probability p in [0, 1), and others to x / (1 - p); otherwise returns x.
     * The mask depends only on [run] seed, the sequence's index in the training stream, this call's index in the model,
     * and the element: never on ranks, micro-batches or strategy. [required] */
    weft_value (*dropout)(weft_graph *g, weft_value x, double p);
    /* x times magnitude / ||W + factor U D||, per row of the matrix; the norms are constants in the backward. x is the
     * output of `linear` with that weight plus the added terms; the weight's bias is not scaled. No dense copy of the
     * matrix is made. [required] */
    weft_value (*weight_norm)(weft_graph *g, weft_value x, const weft_weight_norm_args *args);
    /* Returns a matrix (out, in) as a value of `out` positions, independent of the micro-batch: rows of a trained
     * prefix. `linear`, `scale`, `add`, `activation`, norms and `multiply` accept such values; operands have equal
     * numbers of positions, and so does the result. [required] */
    weft_value (*matrix)(weft_graph *g, weft_weight *weight);
    /* Attention over the keys of a prefix, (P, kv_heads * head_dim) from `matrix`, which every query sees, and over the
     * other keys, in one softmax. q is rotated by rope as if P unrotated positions preceded each document, which is the
     * counting of past keys. No window, no cap. [required] */
    weft_value (*attention_with_prefix)(weft_graph *g, weft_value q, weft_value k, weft_value v, weft_value starts,
                                        weft_value prefix_k, weft_value prefix_v, const weft_attention_args *args);
    /* Attention over the prefix only, without additional positions. [required] */
    weft_value (*prefix_attention)(weft_graph *g, weft_value q, weft_value prefix_k, weft_value prefix_v,
                                   const weft_attention_args *args);
} weft_ops;

/* Rounds a finite x to fp16: eleven bits, or steps of 2^-24 if those are larger. Adding a power of two whose last bit
 * is the step makes the adder round. */
static inline float weft_rounded_f16(float x) {
    const float size = x < 0 ? -x : x;
    uint32_t bits = 0;
    float step = 0, near = 0;
    memcpy(&bits, &size, sizeof bits);
    if (bits == 0) return x;
    bits = (bits & 0x7f800000u) < 113u << 23 ? 126u << 23 : (bits & 0x7f800000u) + (13u << 23);
    memcpy(&step, &bits, sizeof step);
    near = size + step;
    near = size >= 65520.0f ? size * 3e38f : near - step; /* overflows to infinity */
    return x < 0 ? -near : near;
}

/* Returns the number of this type (fp32, bf16 or fp16) nearest to x, ties to even. */
static inline double weft_rounded(double x, int32_t dtype) {
    float value = (float)x;
    uint32_t bits = 0;
    if (dtype == WEFT_F16 && value - value == 0.0f) return (double)weft_rounded_f16(value);
    if (dtype != WEFT_BF16 || !(value - value == 0.0f)) return (double)value;
    memcpy(&bits, &value, sizeof bits);
    bits = (bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

#ifdef __cplusplus
}
#endif
#endif
