/* weft/device.h: device memory, streams and the kernel table (device/1).
 *
 * A device consists of memory, streams and a table of kernels. No device operand is a host pointer: an operand is a
 * buffer handle with an offset in bytes. Every kernel takes a stream, and no kernel returns a value; only `read` copies
 * from the device to the host. A complete step can therefore be captured and replayed (a CUDA graph), and a kernel
 * table can be tested against a plain C reference on irregular shapes.
 *
 * Streams. Work of one stream runs in its order. Work of two streams runs in any order that stream events permit.
 * `record_event` records an event at the current end of a stream, and `wait` makes later work of another stream
 * wait for the event. Neither call blocks the host, and neither does a kernel call: it copies its arguments, and
 * the kernel runs when its stream reaches it. An error that a kernel detects while running is returned by the next call
 * that waits. A program of the host uses one stream per queue (weft/strategy.h); queue 0 is the device's default
 * stream, NULL.
 *
 * Numerics. A kernel's result depends only on its operands and their shapes, never on the number of threads, on
 * alignment, or on concurrent work. Matmuls accumulate in fp32. Sums over rows (bias, gain, embedding gradients) use
 * one order that the shape determines. Matrices are row-major; `ld` is the distance between rows in elements. Matmul
 * operands and results begin at a multiple of 16 bytes, or of the row distance in bytes if that is not a multiple of
 * 16. (For a, a multiple of its row length is also allowed, since a may be part of longer rows.) A device may reject
 * other alignments.
 *
 * Ids, positions, targets and tables of extents are in device memory. If the device's host code can read them, it
 * rejects an out-of-range value before it queues work. If only the kernel can, it never accesses memory out of bounds
 * and writes NaN to the affected results: the row, the loss and the gradient of its row, the sums. The gradient of an
 * out-of-range id is dropped.
 *
 * Each kernel takes one argument struct. The caller sets its struct_size, so that a later SDK can append fields. A
 * kernel that needs scratch memory has a function that returns its size from the same arguments, ignoring refs; the
 * caller passes the memory as `workspace`. A ref with buffer NULL means that the caller does not need that gradient.
 * `dtype` (activations) is WEFT_F32, WEFT_BF16 or WEFT_F16; a kernel without support for it returns WEFT_E_UNSUPPORTED.
 * Norm gains, statistics, losses and parameter gradients are always fp32. With 16-bit types the arithmetic is still
 * fp32. Matmul operands have the 16-bit type (in the head also the gradient of the logits), sums are fp32, and results
 * are rounded once, to nearest even. Accumulation onto an older value happens before that rounding (see weft_matmul).
 *
 * A device may lack a variant (a window, LayerNorm, GELU, ...): its kernel then returns WEFT_E_UNSUPPORTED and names
 * it.
 *
 * Extensions: weft/transfer.h (asynchronous copies), weft/capture.h (graph capture and replay), weft/dry_run.h (launch
 * counts of a step), weft/roofline.h (roofline measurement), weft/ranges.h (ranges for profilers), weft/team.h (number
 * of threads of kernels).
 *
 * Intended users: CUDA (streams, events, one fused variant per field of the arguments), 16-bit types (dtype of
 * each operand), packed weights (a dtype of B in matmul), several documents per sequence (starts).
 */
#ifndef WEFT_DEVICE_H
#define WEFT_DEVICE_H

#include <weft/optimizer.h>
#include <weft/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_device weft_device; /* defined by the plugin */
typedef struct weft_buffer weft_buffer; /* device memory */
typedef struct weft_stream weft_stream; /* an ordered queue of kernels */
typedef struct weft_event weft_event;   /* a stream event */

/* Start address of an operand. buffer NULL: no operand. */
typedef struct weft_ref {
    weft_buffer *buffer;
    int64_t offset; /* bytes */
} weft_ref;

#define WEFT_DEVICE_SHARES_MACHINE 1u /* device memory is host memory, shared by all ranks of this machine */

typedef struct weft_device_info {
    uint32_t struct_size;
    uint32_t flags;   /* WEFT_DEVICE_SHARES_MACHINE */
    char name[64];    /* "AMD EPYC ...", "NVIDIA H200" */
    char isa[32];     /* "avx2", "avx512", "amx-bf16", "sm_90": part of the identity with guaranteed bit equality */
    char backend[64]; /* "oneDNN 2.6.3" */
    int64_t memory;   /* total bytes; if ranks share a separate device memory, this rank's share */
    int32_t threads;  /* threads used by kernels; 0: not applicable */
    int32_t has_bf16; /* 1: bf16 matmuls in hardware */
    /* Packed types that matmul accepts for b: 1u << WEFT_I8X64 | ...; 0: no packed types. The host rejects a model that
     * stores matrices in another type before it allocates memory. */
    uint32_t packed;
    /* Activation types that the kernels accept: 1u << WEFT_F32 | ...; 0: fp32 and bf16. The host rejects a run with
     * another type. */
    uint32_t types;
    /* Bytes of `memory` that the device context and its libraries currently use, in addition to allocations made
     * through it; plans subtract them. 0: no such memory, or unknown. The host queries it again once all ranks are
     * connected. */
    int64_t held;
} weft_device_info;

/* C (M,N) = op(A) op(B), or += if accumulate. op(A) is (M,K): A is (M,K), or (K,M) with transpose_a; B likewise. With
 * has_bias, every row of C is op(A) op(B) + bias; has_bias excludes accumulate. The older value of C, or the bias
 * rounded to C's type, is added to the finished sum, once. The result is rounded after the addition. If C has 16 bits,
 * a device may also round the sum to C's type before the addition, as cuBLASLt does.
 *
 * B may be packed (weft/blocks.h): its rows are contiguous (ldb is their length), and it begins at a block boundary.
 * Its values are those of the unpacked blocks, each rounded to A's type. A device unpacks them where needed, in the
 * workspace or in the kernel, and never the complete matrix at once. */
typedef struct weft_matmul {
    uint32_t struct_size;
    uint32_t flags;
    weft_ref a, b, c;
    int64_t m, n, k;
    int64_t lda, ldb, ldc;
    int32_t dtype_a, dtype_b, dtype_c; /* weft_dtype; a and b equal, or b packed; c: fp32, or a's type */
    int32_t transpose_a, transpose_b;
    int32_t accumulate;
    weft_ref workspace;
    weft_ref bias; /* (N) fp32; with has_bias */
    int32_t has_bias, reserved;
} weft_matmul;

/* out (N) fp32 = or += the sum of x's rows, in an order that the shape determines: the gradient of a bias. */
typedef struct weft_sum_rows {
    uint32_t struct_size;
    uint32_t flags;
    weft_ref x;   /* (R,N) */
    weft_ref out; /* (N) fp32 */
    int64_t rows, width;
    int32_t accumulate, dtype; /* dtype: of x */
    weft_ref workspace;
} weft_sum_rows;

/* Normalization formula. */
typedef enum weft_norm_form {
    WEFT_NORM_RMS = 0,  /* Zhang and Sennrich, arXiv 1910.07467 */
    WEFT_NORM_LAYER = 1 /* Ba, Kiros and Hinton, arXiv 1607.06450 */
} weft_norm_form;

/* Normalizes each row:
 *     RMS:   y = x * rstd * g,                  rstd = 1 / sqrt(mean(x^2) + eps)
 *     LAYER: y = (x - mean) * rstd * g + bias,  rstd = 1 / sqrt(mean((x - mean)^2) + eps)
 * g is the gain, or 1 + gain with gain_from_one (Gemma's storage). A per-head norm has one row for each head of each
 * position. A row whose squares overflow becomes NaN, never zero, so that the error is visible in the loss. With a
 * residual, the forward normalizes x + residual, rounded to their type, and writes that sum to `sum`. The bits equal
 * those of weft_add followed by a norm. */
typedef struct weft_norm {
    uint32_t struct_size;
    uint32_t flags;
    weft_ref x;             /* (R,D) */
    weft_ref gain;          /* (D) fp32 */
    weft_ref bias;          /* LAYER: (D) fp32 */
    weft_ref y;             /* (R,D) */
    weft_ref rstd;          /* (R) fp32, saved for the backward, which recomputes it if absent */
    weft_ref mean;          /* LAYER: (R) fp32, saved and recomputed like rstd */
    weft_ref residual, sum; /* forward: (R,D), both or neither; sum may alias either operand */
    int64_t rows, width;
    double eps;
    /* backward only: dx (+)= d/dx, dgain (+)= d/dgain, LAYER: dbias (+)= d/dbias */
    weft_ref dy, dx, dgain, dbias;
    int32_t accumulate_dx, accumulate_dgain, accumulate_dbias;
    int32_t form; /* weft_norm_form */
    int32_t gain_from_one;
    int32_t dtype; /* of x, y, residual, sum, dy, dx */
    weft_ref workspace;
} weft_norm;

/* Rotary embedding: rotates pairs (x[i], x[i + r/2]) of the first r = rotary_dim elements of each head (rotate-half
 * form; Su et al., arXiv 2104.09864): y = x cos + rot(x) sin. The other elements are copied (Phi, GPT-NeoX). table: (P,
 * r) fp32: r/2 cosines, then r/2 sines of each position. The table includes any scaling of the angles and any common
 * factor (llama3, YaRN, LongRoPE). May run in place. */
typedef struct weft_rope {
    uint32_t struct_size;
    uint32_t flags;
    weft_ref x, y;      /* (R, H, d) */
    weft_ref positions; /* (R) int32 */
    weft_ref table;
    int64_t rows, heads, head_dim, table_rows;
    int32_t inverse;         /* 1: the transposed rotation, for the backward */
    int32_t accumulate;      /* y += */
    int32_t dtype, reserved; /* of x and y */
    int64_t rotary_dim;      /* even, at most d; 0: d */
} weft_rope;

/* Causal grouped-query attention. Position t of a sequence attends to positions s in [starts[t], t]. A window w limits
 * them to the last w, [max(starts[t], t - w + 1), t] (Beltagy et al., arXiv 2004.05150, counted as in Mistral). With a
 * KV cache, query i has position past + i, and keys and values are (B, cache_rows, Hkv, d), of which past + length are
 * filled. o = softmax(c(scale q k^T)) v, computed in blocks: no (T,T) matrix is stored, and blocks without a visible
 * key are skipped. c(s) = cap tanh(s / cap) (Gemma 2, arXiv 2408.00118), or s without a cap. lse: log-sum-exp of the
 * softmax input per query and head. With 16-bit types only stored values (q, k, v, o and their gradients) are rounded.
 * Scaled queries, scores, probabilities and score gradients stay fp32, also as matmul operands. */
typedef struct weft_attention {
    uint32_t struct_size;
    uint32_t flags;
    weft_ref q;            /* (B, T, H, d) */
    weft_ref k, v;         /* (B, S, Hkv, d), S = cache_rows or T */
    weft_ref new_k, new_v; /* (B, T, Hkv, d): appended to the cache first, at position past; absent: already stored */
    weft_ref starts;       /* (B, T) int32 */
    weft_ref o;            /* (B, T, H, d) */
    weft_ref lse;          /* (B, H, T) fp32, saved for the backward; may be absent */
    int64_t batch, length, heads, kv_heads, head_dim;
    weft_ref past;      /* one int64, which changes from token to token; absent without a cache */
    int64_t cache_rows; /* S; 0: T */
    double scale;
    int32_t dtype, reserved; /* of q, k, v, o and their gradients */
    /* backward only; dq, dk, dv are overwritten */
    weft_ref d_o, dq, dk, dv;
    weft_ref workspace;
    int64_t window; /* number of positions that a query can see, including its own; 0: all */
    double cap;     /* of scores; 0: no cap */
} weft_attention;

/* Element-wise functions (Hendrycks and Gimpel, arXiv 1606.08415; Elfwing et al., arXiv 1702.03118). */
typedef enum weft_activation_form {
    WEFT_SILU = 0,     /* x / (1 + exp(-x)) */
    WEFT_GELU = 1,     /* x (1 + erf(x / sqrt 2)) / 2 */
    WEFT_GELU_TANH = 2 /* x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 */
} weft_activation_form;

/* y = f(x) * up, or f(x) if up is absent, n elements: SwiGLU and GeGLU (Shazeer, arXiv 2002.05202), and the activation
 * of a plain MLP. Backward: computes dx and dup from dy; they may alias x and up. */
typedef struct weft_activation {
    uint32_t struct_size;
    uint32_t flags;
    weft_ref x, up, y;
    int64_t n;
    weft_ref dy, dx, dup;
    int32_t accumulate_dx, accumulate_dup;
    int32_t form; /* weft_activation_form */
    int32_t dtype;
} weft_activation;

/* y = or += c(factor * x), n elements; c(s) = cap tanh(s / cap), or s without a cap. Computed in fp32, with factor and
 * cap rounded to fp32; the result is rounded once. y may alias x. */
typedef struct weft_scale {
    uint32_t struct_size;
    uint32_t flags;
    weft_ref x, y;
    int64_t n;
    double factor;
    double cap; /* 0: no cap */
    int32_t accumulate, dtype;
} weft_scale;

/* y[r] = table[ids[r]]. ids may be any integer per position, such as position numbers (learned positions of GPT-2).
 * Backward: dtable (V,D) = or += the rows of dy, summed per id in the order of r. Rows of ids that do not occur become
 * zero, or stay unchanged with accumulate. */
typedef struct weft_embedding {
    uint32_t struct_size;
    uint32_t flags;
    weft_ref ids;   /* (R) int32 */
    weft_ref table; /* (V,D) */
    weft_ref y;     /* (R,D) */
    int64_t rows, width, vocab;
    weft_ref dy, dtable;
    int32_t accumulate;  /* dtable += */
    int32_t dtype;       /* of y and dy */
    int32_t dtype_table; /* of table; dtable is fp32 */
    int32_t reserved;
    weft_ref workspace;
    int32_t has_padding, padding; /* backward: rows of the id `padding` add nothing */
} weft_embedding;

/* Fused logits and cross-entropy, in chunks of rows, so that the full logits are never stored: loss = sum over r of
 * weights[r] * (logsumexp(z[r]) - z[r][targets[r]]), z[r] = c(scale (x[r] W^T + bias)), c(s) = cap tanh(s / cap), or s
 * without a cap (Gemma 2, arXiv 2408.00118). z is fp32 throughout. head_loss computes only the loss. head_loss_grad
 * also computes dx, dw and dbias (each may be absent), multiplied by the seed. The seed multiplies the gradient of the
 * logits before it is rounded. dbias is the sum over rows of the same rounded logit gradient that dw uses. */
typedef struct weft_head {
    uint32_t struct_size;
    uint32_t flags;
    weft_ref x;       /* (R,D) */
    weft_ref w;       /* (V,D) */
    weft_ref targets; /* (R) int32 */
    weft_ref weights; /* (R) fp32 */
    weft_ref loss;    /* one fp64, overwritten: sum over rows in order */
    int64_t rows, width, vocab;
    weft_ref dx; /* (R,D), overwritten */
    weft_ref dw; /* (V,D), fp32 */
    int32_t accumulate_dw;
    int32_t dtype; /* of x, w and dx */
    weft_ref workspace;
    double scale;         /* of the logits; 0: no scaling */
    double cap;           /* of the scaled logits; 0: no cap */
    weft_ref bias, dbias; /* (V) fp32; with has_bias */
    int32_t accumulate_dbias, has_bias;
    weft_ref seed; /* one fp32, which may change in every step; absent: 1 */
} weft_head;

/* y = a + b, n elements; y may alias a or b. */
typedef struct weft_add {
    uint32_t struct_size;
    uint32_t flags;
    weft_ref a, b, y;
    int64_t n;
    int32_t dtype, reserved;
} weft_add;

/* A range of x, in a table in device memory, with the index of its first sum. */
typedef struct weft_extent {
    uint32_t struct_size;
    uint32_t flags;
    int64_t offset, length; /* elements of x */
    int64_t out;            /* number of sums before it in weft_square_sum.out */
} weft_extent;

/* Sum of squares in fp64: 64-element blocks are summed in order, then block sums by a binary tree of neighbors 2i,
 * 2i+1; an odd last one moves up. The result is one sum over x; with a table of extents, one sum per extent. With a
 * cell size of 64 * 2^k elements as well, it is one sum per cell of each extent, in sequence in `out`; the last cell of
 * an extent may be short. The cell sums of a tensor are nodes of its tree: a second call over them (dtype WEFT_F64)
 * returns the same bits as one call over the tensor. A few calls therefore compute the norm of any number of
 * tensors. */
typedef struct weft_square_sum {
    uint32_t struct_size;
    uint32_t flags;
    weft_ref x;   /* fp32; or fp64 sums, which are not squared again */
    weft_ref out; /* fp64 */
    int64_t n;    /* elements: of x; with extents, the total of all extents */
    weft_ref workspace;
    int32_t dtype, reserved; /* of x: 0 or WEFT_F32, or WEFT_F64 */
    weft_ref extents;        /* (n_extents) weft_extent; absent: all of x */
    int64_t n_extents;
    int64_t cell;           /* fp32 elements, at most 65,536; 0: one sum per extent */
    uint32_t extent_stride; /* sizeof(weft_extent) in the host */
    int32_t reserved2;
} weft_square_sum;

/* norm = sqrt(sum of n square sums, in order) / c, with c = count * seed; coefficient = min(1, clip / (norm + 1e-6)) /
 * c, in fp64, rounded once; skip = 1 if the norm is not finite, otherwise 0. clip <= 0: no clipping. Count and seed
 * change in each step. They are in device memory, so that a replayed graph reads their current values. */
typedef struct weft_clip {
    uint32_t struct_size;
    uint32_t flags;
    weft_ref square_sums; /* (n) fp64 */
    weft_ref count;       /* one fp64: target tokens of the step */
    weft_ref norm;        /* one fp64 */
    weft_ref coefficient; /* one fp32 */
    weft_ref skip;        /* one int32 */
    int64_t n;
    double clip;
    weft_ref seed; /* one fp32: factor of the gradients (weft_head); absent: 1 */
} weft_clip;

/* y = x v, or (x - shift) v + shift. Backward: dx (+)= dy v; dby (+)= the sum of dy x, or dy (x - shift), over all rows
 * and the elements of each part, divided by `over`. A row consists of P consecutive parts of D / P elements. The factor
 * of part p is v[p] = by[p], or by[p] / over[p]. P = D scales channels (IA3, Liu et al., arXiv 2205.05638); one factor
 * per head, or a single one, is a gate. `over` and `shift` are constants in the backward: the row norms of DoRA, and a
 * bias that is not scaled. y may alias x, and dx may alias dy. Sums over rows as in sum_rows. */
typedef struct weft_multiply {
    uint32_t struct_size;
    uint32_t flags;
    weft_ref x, y;  /* (R,D) */
    weft_ref by;    /* (P) fp32 */
    weft_ref over;  /* (P) fp32; absent: ones */
    weft_ref shift; /* (P) fp32, requires P = D; absent: zeros */
    int64_t rows, width, parts;
    weft_ref dy, dx, dby; /* backward; dby: (P) fp32; dx and dby may be absent */
    int32_t accumulate_dx, accumulate_dby;
    int32_t dtype, reserved; /* of x, y, dy, dx */
    weft_ref workspace;
} weft_multiply;

/* Dropout: y = or += x / (1 - p) for a kept element, 0 otherwise (Srivastava et al., JMLR 15, 2014). The backward is
 * the same operation on dy. Element e of sequence `first` + b of the stream is kept if word e % 256 / 64 of
 *     weft_random(seed, WEFT_RANDOM_DROPOUT, first + b, site << 40 | (e / 256 * 64 + e % 64))
 * is at least p 2^32, rounded down. No mask is stored, and the distribution of sequences over micro-batches and ranks
 * does not change the result. May run in place. */
typedef struct weft_dropout {
    uint32_t struct_size;
    uint32_t flags;
    weft_ref x, y;  /* (B,N): N elements per sequence of the micro-batch, for all its positions */
    weft_ref first; /* one int64, which changes per step: stream index of the micro-batch's first sequence */
    int64_t batch, row;
    uint64_t seed;
    double p;
    int32_t site; /* 24 bits: number of the dropout call in the model */
    int32_t accumulate;
    int32_t dtype, reserved;
} weft_dropout;

/* out[n] = the 2-norm of row n of W + factor U D, computed row by row: the divisor of weight-decomposed adaptation
 * (DoRA; Liu et al., arXiv 2402.09353). W may be packed. rank 0: the norms of W. */
typedef struct weft_row_norms {
    uint32_t struct_size;
    uint32_t flags;
    weft_ref w;    /* (N,K) */
    weft_ref down; /* D (rank,K) */
    weft_ref up;   /* U (N,rank) */
    weft_ref out;  /* (N) fp32 */
    int64_t rows, width, rank;
    double factor;
    int32_t dtype, dtype_w; /* dtype: D and U; dtype_w: W, may be packed */
    weft_ref workspace;
} weft_row_norms;

/* Attention to the keys of a trained prefix, which every query of every document sees (Li and Liang, arXiv 2101.00190;
 * Zhang et al., arXiv 2303.16199). o = softmax(scale q k^T) v over the prefix. With `join` the softmax covers the
 * prefix and the keys already included in o and lse, and both are updated to the result over all keys. `turn` holds the
 * cosines, then the sines, of a rotation whose inverse is applied to the keys, as if each query were that many
 * positions later. It covers the first rotary_dim elements of each head, in pairs as in weft_rope; a factor common to
 * all of them is ignored. Absent: keys are not rotated. Backward, from the forward's o and lse: dq (+)=, dk and dv are
 * overwritten; sums over rows as in sum_rows. With a joined softmax, dq adds to the dq of attention_backward for the
 * other keys, which uses the same o and lse. */
typedef struct weft_prefix {
    uint32_t struct_size;
    uint32_t flags;
    weft_ref q;    /* (B, T, H, d) */
    weft_ref k, v; /* (P, Hkv, d) */
    weft_ref turn; /* (rotary_dim) fp32; may be absent */
    weft_ref o;    /* (B, T, H, d) */
    weft_ref lse;  /* (B, H, T) fp32; forward: may be absent without join */
    int64_t batch, length, heads, kv_heads, head_dim, places, rotary_dim; /* places: P */
    double scale;
    int32_t dtype, join;
    weft_ref d_o, dq, dk, dv; /* backward; dk and dv: (P, Hkv, d) */
    int32_t accumulate_dq, reserved;
    weft_ref workspace;
} weft_prefix;

/* A flat region of n elements that an optimizer updates: a group of parameters, or this rank's shard of one. dtypes are
 * weft_dtype; 0: fp32. A weight may be bf16, and a state bf16 or block-quantized (weft/dynamic8.h): the device converts
 * it to fp32 before the body and rounds it once after it. Ranges begin at block boundaries, and n is a whole number of
 * blocks. Elements past a range's end in its last block count as zeros. With a copy, each updated weight as stored is
 * also written there, converted with the bits of `convert`. */
typedef struct weft_update_region {
    uint32_t struct_size;
    uint32_t flags;
    weft_ref weight;                  /* (n) fp32, or of weight_dtype */
    weft_ref gradient;                /* (n) fp32, the unscaled sum */
    weft_ref states[WEFT_MAX_STATES]; /* (n) fp32, or of state_dtypes */
    weft_ref ranges;                  /* weft_range rows in [0, n), ascending, disjoint; other elements do not change */
    int64_t n, n_ranges;
    uint32_t range_stride; /* sizeof(weft_range) in the host */
    int32_t weight_dtype;
    int32_t state_dtypes[WEFT_MAX_STATES];
    weft_ref copy;                /* (n) of copy_dtype; may be absent */
    int32_t copy_dtype, reserved; /* fp32, bf16 or fp16; 0: no copy */
} weft_update_region;

/* Runs an optimizer's element-wise update (weft/optimizer.h) over all regions that a rank updates in a step. Regions
 * never overlap, so a device may process them in any order or together, for example all regions of one type in one
 * launch. */
typedef struct weft_update {
    uint32_t struct_size;
    uint32_t flags;
    const weft_elementwise *kernel;
    weft_ref hp;                       /* hp_size bytes */
    weft_ref coefficient;              /* one fp32: multiplies the gradient */
    weft_ref skip;                     /* one int32: 1 skips the update */
    const weft_update_region *regions; /* host memory, copied like args; see weft_update_region_at */
    int32_t n_regions;
    uint32_t region_stride; /* sizeof(weft_update_region) in the host */
} weft_update;

/* Returns region i by its stride. [any-thread] */
static inline const weft_update_region *weft_update_region_at(const weft_update *args, int32_t i) {
    return (const weft_update_region *)(const void *)((const char *)args->regions +
                                                      (size_t)i * (size_t)args->region_stride);
}

/* The kernels of the table below and their argument structs: X(name, type). Plugins and hosts generate declarations and
 * rows from these lists. A kernel of a later SDK is appended here; its slots are appended to the table. */
/* clang-format off */
#define WEFT_DEVICE_KERNELS(X)                                                                                         \
    X(matmul, weft_matmul) X(sum_rows, weft_sum_rows) X(norm, weft_norm) X(norm_backward, weft_norm)                   \
    X(rope, weft_rope) X(attention, weft_attention) X(attention_backward, weft_attention)                              \
    X(activation, weft_activation) X(activation_backward, weft_activation) X(embedding, weft_embedding)                \
    X(embedding_backward, weft_embedding) X(head_loss, weft_head) X(head_loss_grad, weft_head) X(scale, weft_scale)    \
    X(add, weft_add) X(multiply, weft_multiply) X(multiply_backward, weft_multiply) X(dropout, weft_dropout)           \
    X(row_norms, weft_row_norms) X(prefix, weft_prefix) X(prefix_backward, weft_prefix)                                \
    X(square_sum, weft_square_sum) X(clip, weft_clip) X(update, weft_update)
/* The kernels with a workspace query. */
#define WEFT_DEVICE_WORKSPACES(X)                                                                                      \
    X(matmul, weft_matmul) X(sum_rows, weft_sum_rows) X(norm_backward, weft_norm) X(attention, weft_attention)         \
    X(attention_backward, weft_attention) X(embedding_backward, weft_embedding) X(head_loss, weft_head)                \
    X(head_loss_grad, weft_head) X(square_sum, weft_square_sum) X(multiply_backward, weft_multiply)                    \
    X(row_norms, weft_row_norms) X(prefix, weft_prefix) X(prefix_backward, weft_prefix)
/* clang-format on */

typedef struct weft_device_plugin {
    uint32_t struct_size;
    uint32_t flags;

    /* index: this rank's local rank on its machine. With n devices it selects number index mod n, so that several ranks
     * may share one; without a choice of devices it is ignored. [main] [required] */
    weft_status (*create)(weft_device **out, const weft_host *host, const void *config, int32_t index, weft_error *err);
    void (*destroy)(weft_device *device);                           /* [main] [required] */
    void (*info)(const weft_device *device, weft_device_info *out); /* [any-thread] [required] */

    /* Allocates memory, aligned to at least 256 bytes, with undefined content. Never called while a step runs. alloc
     * and release may wait for all queued work. [main] [required] */
    weft_status (*alloc)(weft_device *device, weft_buffer **out, int64_t bytes, weft_error *err);
    void (*release)(weft_device *device, weft_buffer *buffer); /* NULL is allowed. [main] [required] */
    /* Returns a host pointer into a buffer, for devices that share host memory; valid while no kernel writes there.
     * NULL: the buffer is not visible to the host, or the ref is out of its bounds. A buffer is either fully visible or
     * not at all. [any-thread] [optional: the device's memory is not the host's] */
    void *(*host_view)(weft_device *device, weft_ref ref);

    /* Streams. NULL is the default stream; only events order it with other streams. Destroying a stream waits
     * for its queued work. [main] [required] */
    weft_status (*stream_create)(weft_device *device, weft_stream **out, weft_error *err);
    void (*stream_destroy)(weft_device *device, weft_stream *stream);
    weft_status (*synchronize)(weft_device *device, weft_stream *stream, weft_error *err); /* waits for all its work */
    /* Records an event at the current end of the stream. One `wait` or `await` frees the event. [main]
     * [hot] */
    weft_status (*record_event)(weft_device *device, weft_stream *stream, weft_event **out, weft_error *err);
    weft_status (*wait)(weft_device *device, weft_stream *stream, weft_event *event, weft_error *err); /* frees it */

    /* write: host to device; `from` may be reused when it returns, though the copy may still be queued. read: device to
     * host; returns after the copy and all earlier work of its stream. copy: within the device. fill: writes a 32-bit
     * pattern. [main] [hot] [required] */
    weft_status (*write)(weft_device *device, weft_stream *s, weft_ref to, const void *from, int64_t bytes,
                         weft_error *err);
    weft_status (*read)(weft_device *device, weft_stream *s, void *to, weft_ref from, int64_t bytes, weft_error *err);
    weft_status (*copy)(weft_device *device, weft_stream *s, weft_ref to, weft_ref from, int64_t bytes,
                        weft_error *err);
    weft_status (*fill)(weft_device *device, weft_stream *s, weft_ref to, uint32_t pattern, int64_t words,
                        weft_error *err);
    /* to (n, dtype_to) = from (n, dtype_from), rounded to nearest even; fp32, bf16 and fp16. [main] [hot] [required] */
    weft_status (*convert)(weft_device *device, weft_stream *s, weft_ref to, int32_t dtype_to, weft_ref from,
                           int32_t dtype_from, int64_t n, weft_error *err);

    /* Return the bytes of `workspace` required by these arguments; may be 0. [any-thread] [required] */
    int64_t (*matmul_workspace)(const weft_device *device, const weft_matmul *args);
    int64_t (*sum_rows_workspace)(const weft_device *device, const weft_sum_rows *args);
    int64_t (*norm_backward_workspace)(const weft_device *device, const weft_norm *args);
    int64_t (*attention_workspace)(const weft_device *device, const weft_attention *args);
    int64_t (*attention_backward_workspace)(const weft_device *device, const weft_attention *args);
    int64_t (*embedding_backward_workspace)(const weft_device *device, const weft_embedding *args);
    int64_t (*head_loss_workspace)(const weft_device *device, const weft_head *args);
    int64_t (*head_loss_grad_workspace)(const weft_device *device, const weft_head *args);
    int64_t (*square_sum_workspace)(const weft_device *device, const weft_square_sum *args);
    int64_t (*multiply_backward_workspace)(const weft_device *device, const weft_multiply *args);
    int64_t (*row_norms_workspace)(const weft_device *device, const weft_row_norms *args);
    int64_t (*prefix_workspace)(const weft_device *device, const weft_prefix *args);
    int64_t (*prefix_backward_workspace)(const weft_device *device, const weft_prefix *args);

    /* Kernels. args and an update's regions are copied; other data that args points to lives as long as the plugin that
     * owns it. [main] [hot] [required] */
    weft_status (*matmul)(weft_device *device, weft_stream *s, const weft_matmul *args, weft_error *err);
    weft_status (*sum_rows)(weft_device *device, weft_stream *s, const weft_sum_rows *args, weft_error *err);
    weft_status (*norm)(weft_device *device, weft_stream *s, const weft_norm *args, weft_error *err);
    weft_status (*norm_backward)(weft_device *device, weft_stream *s, const weft_norm *args, weft_error *err);
    weft_status (*rope)(weft_device *device, weft_stream *s, const weft_rope *args, weft_error *err);
    weft_status (*attention)(weft_device *device, weft_stream *s, const weft_attention *args, weft_error *err);
    weft_status (*attention_backward)(weft_device *device, weft_stream *s, const weft_attention *args, weft_error *err);
    weft_status (*activation)(weft_device *device, weft_stream *s, const weft_activation *args, weft_error *err);
    weft_status (*activation_backward)(weft_device *device, weft_stream *s, const weft_activation *args,
                                       weft_error *err);
    weft_status (*embedding)(weft_device *device, weft_stream *s, const weft_embedding *args, weft_error *err);
    weft_status (*embedding_backward)(weft_device *device, weft_stream *s, const weft_embedding *args, weft_error *err);
    weft_status (*head_loss)(weft_device *device, weft_stream *s, const weft_head *args, weft_error *err);
    weft_status (*head_loss_grad)(weft_device *device, weft_stream *s, const weft_head *args, weft_error *err);
    weft_status (*scale)(weft_device *device, weft_stream *s, const weft_scale *args, weft_error *err);
    weft_status (*add)(weft_device *device, weft_stream *s, const weft_add *args, weft_error *err);
    weft_status (*multiply)(weft_device *device, weft_stream *s, const weft_multiply *args, weft_error *err);
    weft_status (*multiply_backward)(weft_device *device, weft_stream *s, const weft_multiply *args, weft_error *err);
    weft_status (*dropout)(weft_device *device, weft_stream *s, const weft_dropout *args, weft_error *err);
    weft_status (*row_norms)(weft_device *device, weft_stream *s, const weft_row_norms *args, weft_error *err);
    weft_status (*prefix)(weft_device *device, weft_stream *s, const weft_prefix *args, weft_error *err);
    weft_status (*prefix_backward)(weft_device *device, weft_stream *s, const weft_prefix *args, weft_error *err);
    weft_status (*square_sum)(weft_device *device, weft_stream *s, const weft_square_sum *args, weft_error *err);
    weft_status (*clip)(weft_device *device, weft_stream *s, const weft_clip *args, weft_error *err);
    weft_status (*update)(weft_device *device, weft_stream *s, const weft_update *args, weft_error *err);

    const void *(*extension)(const weft_device *device, const char *id); /* [any-thread] [optional: none] */
} weft_device_plugin;

#ifdef __cplusplus
}
#endif
#endif
