/* weft/ops.h: the operators that a model's forward is written in.
 *
 * A segment's forward calls operators on values; each call records a node in a graph and returns the handle of its
 * result. Nothing is computed at that moment: the host records each segment once per leaf length and mode, derives the
 * backward, plans every buffer, and runs the record as often as it needs. So a forward may branch on shapes and on its
 * own configuration, never on numbers.
 *
 *     weft_value h = ops->rms_norm(g, x, layer->norm, eps);
 *     weft_value y = ops->linear(g, h, layer->q_proj);
 *
 * Nodes are recorded in the order of the calls, and the order of sums in the backward follows it. C leaves open which
 * of two calls in one argument list comes first, so give each its own statement: bits would differ between compilers.
 *
 * Errors are sticky: an operator that is used wrongly marks the graph and returns an invalid value, operators on
 * invalid values do nothing, and the host reports the first mistake with the segment's name. A forward needs no checks
 * of its own, not even for NULL: every slot of the table can be called. What a host does not serve (`loss`, in SDK 1.0)
 * is such a mistake: the run stops before its first step with a sentence and WEFT_E_UNSUPPORTED.
 *
 * Weights are objects (weft/model.h), not pointers: what `linear` does with one (dense, packed 4-bit, or what an
 * adapter makes of it, weft/adapter.h) is the host's affair, so adapters and quantisation need nothing of the model. */
#ifndef WEFT_OPS_H
#define WEFT_OPS_H

#include <weft/device.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_graph weft_graph;   /* the record of one segment; the host's */
typedef struct weft_weight weft_weight; /* a weight object; the host's */
typedef struct weft_table weft_table;   /* a fixed table, one row per position; the host's */

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
    int32_t dtype;  /* of activations */
} weft_graph_info;

typedef struct weft_rope_args {
    uint32_t struct_size;
    uint32_t flags;
    int64_t heads, head_dim; /* x is (B, T, heads * head_dim) */
    int64_t rotary_dim;      /* elements of each head that are rotated, its first ones; 0: all */
} weft_rope_args;

typedef struct weft_attention_args {
    uint32_t struct_size;
    uint32_t flags;
    int64_t heads, kv_heads, head_dim; /* q: (B, T, heads * head_dim); k, v: (B, T, kv_heads * head_dim) */
    double scale;                      /* usually 1 / sqrt(head_dim) */
    int64_t window;                    /* places that a query sees at most, itself among them; 0: all before it */
    double cap;                        /* scores become cap tanh(score / cap); 0: they stay */
} weft_attention_args;

/* A parameter's row norms and what they are of: weight_norm's weights (Liu et al., arXiv 2402.09353). */
typedef struct weft_weight_norm_args {
    uint32_t struct_size;
    uint32_t flags;
    weft_weight *magnitude; /* a gain of `out` factors, trained */
    weft_weight *weight;    /* W (out, in), however it is stored */
    weft_weight *down, *up; /* D (rank, in), U (out, rank); both NULL: W alone */
    double factor;          /* of U D */
} weft_weight_norm_args;

/* logits = c(scale (x W^T + bias)), c(s) = cap tanh(s / cap), or s without a cap; the bias is the weight's, if any. */
typedef struct weft_head_args {
    uint32_t struct_size;
    uint32_t flags;
    double scale; /* 0: none */
    double cap;   /* 0: none */
} weft_head_args;

/* How a loss counts: per target token (summed over tokens, scaled once by one over their global number), or per step
 * (its value is added to the reported mean loss as it is: multiplied by the number of targets before its backward). */
typedef enum weft_loss_kind { WEFT_LOSS_PER_TOKEN = 0, WEFT_LOSS_PER_STEP = 1 } weft_loss_kind;

/* A plugin's own operator. It has n_inputs values in, one out; shapes in elements. forward and backward receive
 * buffers in the order of the inputs; backward writes (or adds, where accumulate[i]) the gradient of each input
 * whose ref is not none. `keeps_inputs`, `keeps_output`: what backward reads. Numbers are of the graph's dtype, which
 * the call tells and the operator must state that it takes: the host refuses it in a graph of another one. */
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
    int32_t dtype;             /* weft_dtype of all numbers: inputs but ids and the like, output, gradients */
    int32_t reserved;
} weft_custom_call;

/* Flag of a custom operator: all that it does is to queue calls of `kernels` in `stream`, so a step that holds it may
 * be recorded and replayed (weft/capture.h). Without it, it is called in each step. */
#define WEFT_CUSTOM_QUEUES 1u

typedef struct weft_custom_op {
    uint32_t struct_size;
    uint32_t flags; /* WEFT_CUSTOM_QUEUES, or 0 */
    const char *name;
    int32_t keeps_inputs, keeps_output;
    weft_status (*forward)(const weft_custom_call *call, weft_error *err);  /* [main] [hot] [required] */
    weft_status (*backward)(const weft_custom_call *call, weft_error *err); /* [main] [hot] [required] */
    uint32_t dtypes; /* that it takes: 1u << WEFT_F32 | 1u << WEFT_BF16 | 1u << WEFT_F16; 0: fp32 alone */
    uint32_t reserved;
} weft_custom_op;

/* B: rows of the leaf, T: its length, D: width. All [main]; callable inside `forward` only. */
typedef struct weft_ops {
    uint32_t struct_size;
    uint32_t flags;

    void (*info)(const weft_graph *g, weft_graph_info *out); /* [required] */
    int64_t (*width)(const weft_graph *g, weft_value value); /* elements per place (last dimension) [required] */

    /* Parts of the leaf, int32 (B,T): ids, positions from 0 in each document, places where each document starts. */
    weft_value (*ids)(weft_graph *g);       /* [required] */
    weft_value (*positions)(weft_graph *g); /* [required] */
    weft_value (*starts)(weft_graph *g);    /* [required] */

    /* Rows of a table, -> (B,T,D); by ids, or by positions where places are learned (GPT-2). [required] */
    weft_value (*embedding)(weft_graph *g, weft_value ids, weft_weight *table);
    /* (B,T,in) -> (B,T,out), with the weight's bias if it has one [required] */
    weft_value (*linear)(weft_graph *g, weft_value x, weft_weight *weight);
    /* A gain as wide as x norms the row (also of all heads, OLMo 2); a narrower one, which must fit a whole number of
     * times, each part of x by itself (each head, Qwen3). [required] */
    weft_value (*rms_norm)(weft_graph *g, weft_value x, weft_weight *gain, double eps);
    /* LayerNorm: the weight is a gain that has a bias; parts of x as above. [required] */
    weft_value (*layer_norm)(weft_graph *g, weft_value x, weft_weight *weight, double eps);
    weft_value (*rope)(weft_graph *g, weft_value x, weft_value positions, weft_table *table,
                       const weft_rope_args *args); /* [required] */
    /* Causal, inside each document. In generation the host keeps earlier keys and values itself. [required] */
    weft_value (*attention)(weft_graph *g, weft_value q, weft_value k, weft_value v, weft_value starts,
                            const weft_attention_args *args);
    /* f(x), and f(gate) * up; form: weft_activation_form. swiglu is gated by WEFT_SILU. [required] */
    weft_value (*activation)(weft_graph *g, weft_value x, int32_t form);
    weft_value (*gated)(weft_graph *g, weft_value gate, weft_value up, int32_t form);
    weft_value (*swiglu)(weft_graph *g, weft_value gate, weft_value up);
    /* factor * x, in fp32 and rounded once; where a model rounds the factor first, as Gemma does with sqrt(D) of its
     * embeddings, that is weft_rounded(factor, info.dtype). [required] */
    weft_value (*scale)(weft_graph *g, weft_value x, double factor);
    weft_value (*add)(weft_graph *g, weft_value a, weft_value b); /* [required] */

    /* The end of a language model: in training and evaluation the loss against the leaf's targets and weights; in
     * generation the logits of the last place. Once per model, last in its segment. args NULL: plain logits.
     * [required] */
    void (*lm_head)(weft_graph *g, weft_value x, weft_weight *weight, const weft_head_args *args);

    /* Further losses: value has one element per place (PER_TOKEN) or one in all (PER_STEP). The signature is fixed, the
     * service is not there yet: in SDK 1.0 every call marks the graph as unsupported. [required] */
    void (*loss)(weft_graph *g, weft_value value, int32_t kind);
    /* Names a value, such as the last hidden state, that is kept to the end of its segment in evaluation. In SDK 1.0 it
     * is the host's own code that can ask for it; no command prints one. Does nothing in other modes. [required] */
    void (*output)(weft_graph *g, weft_value value, const char *name);
    /* args: n bytes that are copied. width: of the result, per place. [required] */
    weft_value (*custom)(weft_graph *g, const weft_custom_op *op, const weft_value *inputs, int32_t n_inputs,
                         int64_t width, const void *args, size_t n);

    /* What adapters are written with. */
    /* Factors that are a gain's: of each element of x, or, where the gain is narrower, of each of as many equal parts
     * of it: one factor for each head, or a single gate. [required] */
    weft_value (*multiply)(weft_graph *g, weft_value x, weft_weight *factors);
    /* Elements become zero with probability p in [0, 1), the others x / (1 - p), in training; x itself elsewhere. Which
     * ones follows from [run] seed, the row in the stream of training rows, the place of this call in the model, and
     * the element: never from ranks, leaves or strategy. [required] */
    weft_value (*dropout)(weft_graph *g, weft_value x, double p);
    /* x times magnitude / ||W + factor U D||, row by row of the matrix, whose norms are constants to the backward: x is
     * what `linear` of that weight gave and what was added to it; a bias of the weight's is not scaled. No dense
     * copy of it is made. [required] */
    weft_value (*weight_norm)(weft_graph *g, weft_value x, const weft_weight_norm_args *args);
    /* A matrix (out, in) as a value of `out` places, whatever the leaf's: rows of a trained prefix. `linear`, `scale`,
     * `add`, `activation`, norms and `multiply` take such values and give them, of one number of places. [required] */
    weft_value (*matrix)(weft_graph *g, weft_weight *weight);
    /* attention over the keys of a prefix, (P, kv_heads * head_dim) by `matrix`, that every query sees, and the others
     * in one softmax: with q that rope has turned, as if P places without a turn of their own stood before each
     * document, which is how past keys are counted. No window, no cap. [required] */
    weft_value (*attention_with_prefix)(weft_graph *g, weft_value q, weft_value k, weft_value v, weft_value starts,
                                        weft_value prefix_k, weft_value prefix_v, const weft_attention_args *args);
    /* The same over the prefix alone, and no place more is counted. [required] */
    weft_value (*prefix_attention)(weft_graph *g, weft_value q, weft_value prefix_k, weft_value prefix_v,
                                   const weft_attention_args *args);
} weft_ops;

/* Of x, which is finite: eleven digits, or steps of 2^-24 where those are longer. Adding a power of two whose last
 * place is the step makes the adder round. */
static inline float weft_rounded_f16(float x) {
    const float size = x < 0 ? -x : x;
    uint32_t bits = 0;
    float step = 0, near = 0;
    memcpy(&bits, &size, sizeof bits);
    if (bits == 0) return x;
    bits = (bits & 0x7f800000u) < 113u << 23 ? 126u << 23 : (bits & 0x7f800000u) + (13u << 23);
    memcpy(&step, &bits, sizeof step);
    near = size + step;
    near = size >= 65520.0f ? size * 3e38f : near - step; /* infinite */
    return x < 0 ? -near : near;
}

/* The number of this type, fp32, bf16 or fp16, that is nearest to x, ties to even. */
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
