/* weft/device.h: where arithmetic happens (device/1).
 *
 * A device is memory, streams and a table of kernels. Nothing here is a host pointer: an operand is a buffer handle
 * with an offset in bytes, every kernel takes a stream, and no kernel hands a value back; `read` is the one way from
 * the device to the host. So a whole step can be recorded and replayed (a CUDA graph), and a kernel table can be
 * tested against a plain C oracle over odd shapes.
 *
 * Streams. What is queued in one stream runs in that order; what lies in two streams runs in any order that marks leave
 * open. `mark` notes the point that a stream has come to, and `wait` holds another stream back from what is queued
 * behind it until that point is reached. Neither blocks the host, nor does a kernel: its arguments are copied, and it
 * runs when its stream gets there. What a kernel finds wrong only then is told by the next call that waits. A program
 * of the host's uses one stream per queue (weft/strategy.h): queue 0 is the device's first stream, NULL.
 *
 * Numbers: a kernel's result depends on its operands and their shapes only: never on the number of threads, on
 * alignment, or on what else runs. Matrix products accumulate in fp32; sums over rows (bias, gain, embedding
 * gradients) have one order fixed by the shape. Matrices are row-major; `ld` is the distance between rows in
 * elements. What is multiplied, and what products are stored in, begins at a multiple of 16 bytes, or of the distance
 * of its rows in bytes where that has no factor of 16 (of the length of its rows, too, for a: it may be a part of
 * longer ones); a device may refuse what does not.
 *
 * Ids, positions, targets and tables of extents lie on the device. Where its own code sees them, one that is out of its
 * range is refused before anything is queued; where only the kernel does, nothing is read or written out of bounds, and
 * what would have come of it is NaN: the row, the loss and its row's gradient, the sums. An id's gradient goes nowhere.
 *
 * Every kernel's arguments are one struct whose struct_size the caller sets, so that a later SDK can append to it.
 * Kernels that need scratch say how much in a function of the same arguments (refs are not looked at); the caller
 * passes it as `workspace`. A gradient that a caller does not want has buffer NULL. `dtype` (activations) is WEFT_F32,
 * WEFT_BF16 or WEFT_F16; a kernel that lacks one returns WEFT_E_UNSUPPORTED. Norm gains, statistics, losses and
 * parameter gradients are fp32 always. In 16 bits the arithmetic is fp32 still: operands of products are of that type
 * (in the head also the gradient of the logits), sums are fp32, and what is stored is rounded once, to nearest even;
 * adding to an older value comes before that rounding.
 *
 * A device may lack a form (a window, LayerNorm, GELU, ...): its kernel answers WEFT_E_UNSUPPORTED and names it.
 *
 * Extensions: weft/transfer.h (copies that the host does not wait for), weft/capture.h (a step recorded and replayed),
 * weft/dry_run.h (a step counted), weft/roof.h (what the machine could give at most), weft/team.h (how many threads
 * kernels use).
 *
 * Later users this serves: CUDA (streams, marks, one fused form per args field), types of 16 bits (dtype of each
 * operand), packed weights (a dtype of B in matmul), several documents in a row (starts).
 */
#ifndef WEFT_DEVICE_H
#define WEFT_DEVICE_H

#include <weft/optimizer.h>
#include <weft/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_device weft_device; /* the plugin's own */
typedef struct weft_buffer weft_buffer; /* device memory */
typedef struct weft_stream weft_stream; /* an ordered queue of kernels */
typedef struct weft_mark weft_mark;     /* a point in a stream */

/* Where an operand begins. buffer NULL: no operand. */
typedef struct weft_ref {
    weft_buffer *buffer;
    int64_t offset; /* bytes */
} weft_ref;

#define WEFT_DEVICE_SHARES_MACHINE 1u /* its memory is the machine's own: what all ranks there take comes out of it */

typedef struct weft_device_info {
    uint32_t struct_size;
    uint32_t flags;   /* WEFT_DEVICE_SHARES_MACHINE */
    char name[64];    /* "AMD EPYC ...", "NVIDIA H200" */
    char isa[32];     /* "avx2", "avx512", "amx-bf16", "sm_90": part of the identity that bits are promised for */
    char backend[64]; /* "oneDNN 2.6.3" */
    int64_t memory;   /* bytes in all; where ranks share a device that is not the machine's memory, this rank's part */
    int32_t threads;  /* that kernels use; 0 where it has no meaning */
    int32_t has_bf16; /* 1: bf16 products in hardware */
    /* Block types that matmul takes for b: 1u << WEFT_I8X64 | ...; the host refuses a model that stores matrices in
     * another one, before anything is taken. 0: none. */
    uint32_t packed;
    /* Types of activations that its kernels take: 1u << WEFT_F32 | ...; the host refuses a run in another one, too.
     * 0: fp32 and bf16. */
    uint32_t types;
    /* Bytes of `memory` that its own context and the libraries that it uses hold at this moment, beside what was
     * allocated through it: no plan can have them. 0: none, or nobody knows. The host asks again once ranks meet. */
    int64_t held;
} weft_device_info;

/* C (M,N) = op(A) op(B), or += if accumulate. op(A) is (M,K): A is (M,K), or (K,M) with transpose_a; B likewise. With
 * has_bias C = op(A) op(B) + bias in every row: the bias, rounded to C's type, is added to the finished sum before that
 * is rounded, which is what fused epilogues do (cuBLASLt's takes a bias of C's type). Not together with accumulate.
 * B may be packed (weft/blocks.h): a matrix that is stored in a block type, its rows without a gap (ldb is their
 * length), from the beginning of a block on. It counts as the matrix of the numbers that its blocks stand for, each
 * rounded to A's type. A device makes those where it needs them, in its workspace or closer, and never all of them at
 * once. */
typedef struct weft_matmul {
    uint32_t struct_size;
    uint32_t flags;
    weft_ref a, b, c;
    int64_t m, n, k;
    int64_t lda, ldb, ldc;
    int32_t dtype_a, dtype_b, dtype_c; /* weft_dtype: a and b alike, or b packed; c: fp32, or what a is */
    int32_t transpose_a, transpose_b;
    int32_t accumulate;
    weft_ref workspace;
    weft_ref bias; /* (N) fp32; with has_bias */
    int32_t has_bias, reserved;
} weft_matmul;

/* out (N) fp32 = or += the sum of x's rows, in one order that the shape fixes: the gradient of a bias. */
typedef struct weft_sum_rows {
    uint32_t struct_size;
    uint32_t flags;
    weft_ref x;   /* (R,N) */
    weft_ref out; /* (N) fp32 */
    int64_t rows, width;
    int32_t accumulate, dtype; /* dtype: of x */
    weft_ref workspace;
} weft_sum_rows;

/* What a norm subtracts and divides by. */
typedef enum weft_norm_form {
    WEFT_NORM_RMS = 0,  /* Zhang and Sennrich, arXiv 1910.07467 */
    WEFT_NORM_LAYER = 1 /* Ba, Kiros and Hinton, arXiv 1607.06450 */
} weft_norm_form;

/* Each row by itself:
 *     RMS:   y = x * rstd * g,                  rstd = 1 / sqrt(mean(x^2) + eps)
 *     LAYER: y = (x - mean) * rstd * g + bias,  rstd = 1 / sqrt(mean((x - mean)^2) + eps)
 * g is the gain, or 1 + gain with gain_from_one (as Gemma stores it). A norm of heads has a row for each head of each
 * place. A row whose squares overflow is NaN, never zero: what is broken must show in the loss.
 * With a residual the forward takes x + residual, rounded to their type, for x, and leaves it in `sum`: the bits are
 * those of weft_add and a norm of what it gave. */
typedef struct weft_norm {
    uint32_t struct_size;
    uint32_t flags;
    weft_ref x;             /* (R,D) */
    weft_ref gain;          /* (D) fp32 */
    weft_ref bias;          /* LAYER: (D) fp32 */
    weft_ref y;             /* (R,D) */
    weft_ref rstd;          /* (R) fp32, kept for the backward; may be none, which then makes it again */
    weft_ref mean;          /* LAYER: (R) fp32, kept and none as rstd is */
    weft_ref residual, sum; /* forward: (R,D) both, or none; sum may lie on either operand */
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

/* Rotates pairs (x[i], x[i + r/2]) of the first r = rotary_dim elements of each head (rotate-half form; Su et al.,
 * arXiv 2104.09864): y = x cos + rot(x) sin; the others pass unchanged (Phi, GPT-NeoX). table: (P, r) fp32: r/2
 * cosines, then r/2 sines of each position; how angles are scaled, and a factor on all of them (llama3, YaRN,
 * LongRoPE), is in the table. May run in place. */
typedef struct weft_rope {
    uint32_t struct_size;
    uint32_t flags;
    weft_ref x, y;      /* (R, H, d) */
    weft_ref positions; /* (R) int32 */
    weft_ref table;
    int64_t rows, heads, head_dim, table_rows;
    int32_t inverse;         /* 1: the transpose, which is the backward */
    int32_t accumulate;      /* y += */
    int32_t dtype, reserved; /* of x and y */
    int64_t rotary_dim;      /* even, at most d; 0: d */
} weft_rope;

/* Causal attention with grouped queries. Place t of a row sees places s in [starts[t], t], with a window w those of the
 * last w of them, [max(starts[t], t - w + 1), t] (Beltagy et al., arXiv 2004.05150, as Mistral counts); with a cache,
 * query place i has place past + i, and keys and values are (B, cache_rows, Hkv, d) of which past + length are filled.
 * o = softmax(c(scale q k^T)) v, in blocks: no (T,T) matrix is ever held, and blocks that no query of theirs sees are
 * not made. c(s) = cap tanh(s / cap) (Gemma 2, arXiv 2408.00118), or s without a cap. lse: log-sum-exp per query and
 * head, of what the softmax took. In 16 bits what is stored (q, k, v, o and their gradients) is rounded and nothing in
 * between: scaled queries, scores, probabilities and the gradients of scores stay fp32, also as factors of products. */
typedef struct weft_attention {
    uint32_t struct_size;
    uint32_t flags;
    weft_ref q;            /* (B, T, H, d) */
    weft_ref k, v;         /* (B, S, Hkv, d), S = cache_rows or T */
    weft_ref new_k, new_v; /* (B, T, Hkv, d): put into a cache first, from place past on; none: they are there */
    weft_ref starts;       /* (B, T) int32 */
    weft_ref o;            /* (B, T, H, d) */
    weft_ref lse;          /* (B, H, T) fp32, kept for the backward; may be none */
    int64_t batch, length, heads, kv_heads, head_dim;
    weft_ref past;      /* one int64, which changes from token to token; none without a cache */
    int64_t cache_rows; /* S; 0: T */
    double scale;
    int32_t dtype, reserved; /* of q, k, v, o and their gradients */
    /* backward only; dq, dk, dv are overwritten */
    weft_ref d_o, dq, dk, dv;
    weft_ref workspace;
    int64_t window; /* places that a query sees at most, itself among them; 0: all */
    double cap;     /* of scores; 0: none */
} weft_attention;

/* Element by element (Hendrycks and Gimpel, arXiv 1606.08415; Elfwing et al., arXiv 1702.03118). */
typedef enum weft_activation_form {
    WEFT_SILU = 0,     /* x / (1 + exp(-x)) */
    WEFT_GELU = 1,     /* x (1 + erf(x / sqrt 2)) / 2 */
    WEFT_GELU_TANH = 2 /* x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 */
} weft_activation_form;

/* y = f(x) * up, or f(x) where up is none, n elements: SwiGLU and GeGLU (Shazeer, arXiv 2002.05202), and an MLP's own
 * activation. Backward: dx, dup from dy; they may lie on x and up. */
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

/* y = or += c(factor * x), n elements; c(s) = cap tanh(s / cap), or s without a cap. Computed in fp32 from factor and
 * cap rounded to it; what is stored is rounded once. May lie on x. */
typedef struct weft_scale {
    uint32_t struct_size;
    uint32_t flags;
    weft_ref x, y;
    int64_t n;
    double factor;
    double cap; /* 0: none */
    int32_t accumulate, dtype;
} weft_scale;

/* y[r] = table[ids[r]]; ids may be any numbers per place, such as positions (GPT-2's learned ones). Backward: dtable
 * (V,D) = or += the rows of dy summed per id in the order of r; rows of ids that do not occur become zero (or stay, if
 * accumulate). */
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

/* Logits and cross-entropy in one, over chunks of rows, so that the logits of all rows are never held:
 * loss = sum over r of weights[r] * (logsumexp(z[r]) - z[r][targets[r]]),  z[r] = c(scale (x[r] W^T + bias)),
 * c(s) = cap tanh(s / cap), or s without a cap (Gemma 2, arXiv 2408.00118). All of z is fp32.
 * head_loss gives the loss alone; head_loss_grad also dx, dw and dbias (any may be none), each times the seed, by which
 * the gradient of the logits is multiplied before it is rounded. dbias is the sum over rows of the gradient that dw is
 * a product of. */
typedef struct weft_head {
    uint32_t struct_size;
    uint32_t flags;
    weft_ref x;       /* (R,D) */
    weft_ref w;       /* (V,D) */
    weft_ref targets; /* (R) int32 */
    weft_ref weights; /* (R) fp32 */
    weft_ref loss;    /* one fp64, overwritten: the sum over rows in order */
    int64_t rows, width, vocab;
    weft_ref dx; /* (R,D), overwritten */
    weft_ref dw; /* (V,D), fp32 */
    int32_t accumulate_dw;
    int32_t dtype; /* of x, w and dx */
    weft_ref workspace;
    double scale;         /* of the logits; 0: none */
    double cap;           /* of the scaled logits; 0: none */
    weft_ref bias, dbias; /* (V) fp32; with has_bias */
    int32_t accumulate_dbias, has_bias;
    weft_ref seed; /* one fp32, which every step may have another one of; none: one */
} weft_head;

/* y = a + b, n elements; may lie on a or b. */
typedef struct weft_add {
    uint32_t struct_size;
    uint32_t flags;
    weft_ref a, b, y;
    int64_t n;
    int32_t dtype, reserved;
} weft_add;

/* A stretch of x in a table in device memory, and where its first sum goes. */
typedef struct weft_extent {
    uint32_t struct_size;
    uint32_t flags;
    int64_t offset, length; /* elements of x */
    int64_t out;            /* sums before it in weft_square_sum.out */
} weft_extent;

/* Sum of squares in fp64: blocks of 64 elements in order, blocks by a tree of neighbours 2i, 2i+1, an odd last one
 * moving up. One sum of all of x; or, with a table of extents, one of each extent; or, with a cell of 64 * 2^k elements
 * as well, one of each cell of each extent (the last one may be short), which follow one another in `out`. The sums of
 * a tensor's cells are nodes of its tree: a call over those (dtype WEFT_F64) gives the bits of one over the tensor. So
 * the norm of any number of tensors takes a few calls. */
typedef struct weft_square_sum {
    uint32_t struct_size;
    uint32_t flags;
    weft_ref x;   /* fp32; or fp64 sums, which are not squared */
    weft_ref out; /* fp64 */
    int64_t n;    /* elements: of x; with extents, of all of them together */
    weft_ref workspace;
    int32_t dtype, reserved; /* of x: 0 or WEFT_F32, or WEFT_F64 */
    weft_ref extents;        /* (n_extents) weft_extent; none: all of x */
    int64_t n_extents;
    int64_t cell;           /* elements, at most 65,536, of fp32; 0: one sum for each extent */
    uint32_t extent_stride; /* sizeof(weft_extent) as the host was compiled */
    int32_t reserved2;
} weft_square_sum;

/* norm = sqrt(sum of n square sums, in order) / c, with c = count * seed; coefficient = min(1, clip / (norm + 1e-6)) /
 * c, in fp64, rounded once; skip = 1 if the norm is not finite, else 0. clip <= 0: no clipping. Count and seed are
 * others in each step, so they lie on the device, where a step that is replayed finds them. */
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
    weft_ref seed; /* one fp32: what the gradients were multiplied by (weft_head); none: one */
} weft_clip;

/* y = x v, or (x - shift) v + shift; backward: dx (+)= dy v, dby (+)= the sums over rows and their parts of dy x, or dy
 * (x - shift), over `over`. Each row has P parts of D / P elements that follow one another, and v[p] = by[p], or
 * by[p] / over[p], is the factor of part p: P = D scales channels (IA3, Liu et al., arXiv 2205.05638), one for each
 * head or a single one is a gate. `over` and `shift` are held constant: the norms of DoRA's rows, and a bias that is
 * not scaled. y may lie on x, dx on dy. Sums over rows as in sum_rows. */
typedef struct weft_multiply {
    uint32_t struct_size;
    uint32_t flags;
    weft_ref x, y;  /* (R,D) */
    weft_ref by;    /* (P) fp32 */
    weft_ref over;  /* (P) fp32; none: ones */
    weft_ref shift; /* (P) fp32, with P = D; none: zeros */
    int64_t rows, width, parts;
    weft_ref dy, dx, dby; /* backward; dby: (P) fp32; dx and dby may be none */
    int32_t accumulate_dx, accumulate_dby;
    int32_t dtype, reserved; /* of x, y, dy, dx */
    weft_ref workspace;
} weft_multiply;

/* y = or += x / (1 - p) where the element is kept, and 0 where it is not (Srivastava et al., JMLR 15, 2014); its
 * backward is the same on dy. Element e of row `first` + b of the stream of rows is kept if word e % 256 / 64 of
 *     weft_random(seed, WEFT_RANDOM_DROPOUT, first + b, site << 40 | (e / 256 * 64 + e % 64))
 * is at least p 2^32, rounded down: nothing is stored, and how rows lie in leaves, or leaves on ranks, changes nothing.
 * May run in place. */
typedef struct weft_dropout {
    uint32_t struct_size;
    uint32_t flags;
    weft_ref x, y;  /* (B,N): N elements of each row of the leaf, all its places */
    weft_ref first; /* one int64, which changes from step to step: the leaf's first row in the stream */
    int64_t batch, row;
    uint64_t seed;
    double p;
    int32_t site; /* of 24 bits: which dropout of the model it is */
    int32_t accumulate;
    int32_t dtype, reserved;
} weft_dropout;

/* out[n] = the 2-norm of row n of W + factor U D, a row at a time: what weight-decomposed adaptation divides by (Liu et
 * al., arXiv 2402.09353). W may be packed. rank 0: of W alone. */
typedef struct weft_row_norms {
    uint32_t struct_size;
    uint32_t flags;
    weft_ref w;    /* (N,K) */
    weft_ref down; /* D (rank,K) */
    weft_ref up;   /* U (N,rank) */
    weft_ref out;  /* (N) fp32 */
    int64_t rows, width, rank;
    double factor;
    int32_t dtype, dtype_w; /* of D and U; of W, or packed */
    weft_ref workspace;
} weft_row_norms;

/* Attention to keys that every query sees, of any row and document: those of a trained prefix (Li and Liang, arXiv
 * 2101.00190; Zhang et al., arXiv 2303.16199). o = softmax(scale q k^T) v over them alone; or with `join` the softmax
 * goes over them and the keys that o and lse are of already, and both become those of all. `turn`: cosines, then sines,
 * of the rotation that keys get the inverse of (first rotary_dim elements of each head, in pairs as in weft_rope; a
 * factor that they have in common counts as one), as if each query stood that much further behind; none: as they are.
 * Backward, from o and lse as the forward left them: dq (+)=, dk and dv are overwritten; sums over rows as in sum_rows.
 * dq of a joined softmax adds to that of the other keys' attention_backward, which takes the same o and lse. */
typedef struct weft_prefix {
    uint32_t struct_size;
    uint32_t flags;
    weft_ref q;    /* (B, T, H, d) */
    weft_ref k, v; /* (P, Hkv, d) */
    weft_ref turn; /* (rotary_dim) fp32, or none */
    weft_ref o;    /* (B, T, H, d) */
    weft_ref lse;  /* (B, H, T) fp32; forward: may be none without join */
    int64_t batch, length, heads, kv_heads, head_dim, places, rotary_dim; /* places: P */
    double scale;
    int32_t dtype, join;
    weft_ref d_o, dq, dk, dv; /* backward; dk and dv: (P, Hkv, d) */
    int32_t accumulate_dq, reserved;
    weft_ref workspace;
} weft_prefix;

/* A flat region of n elements that an optimizer updates: a group of parameters, or this rank's part of one. dtypes are
 * weft_dtype; 0: fp32. A weight may be bf16, a state bf16 or in blocks (weft/dynamic8.h): it is made fp32 before the
 * body sees it, and rounded once behind it. Ranges begin where blocks do, n is whole blocks, and what lies behind a
 * range's end in its last block counts as zeros. */
typedef struct weft_update_region {
    uint32_t struct_size;
    uint32_t flags;
    weft_ref weight;                  /* (n) fp32, or of weight_dtype */
    weft_ref gradient;                /* (n) fp32, the unscaled sum */
    weft_ref states[WEFT_MAX_STATES]; /* (n) fp32, or of state_dtypes */
    weft_ref ranges; /* weft_range rows, ascending and apart, in [0, n); what none covers is left alone */
    int64_t n, n_ranges;
    uint32_t range_stride; /* sizeof(weft_range) as the host was compiled */
    int32_t weight_dtype;
    int32_t state_dtypes[WEFT_MAX_STATES];
} weft_update_region;

/* Runs an optimizer's element-wise update (weft/optimizer.h) over all regions that a rank updates in a step. No two
 * overlap, so a device may take them in any order, or together: one launch for all of one type is what this is for. */
typedef struct weft_update {
    uint32_t struct_size;
    uint32_t flags;
    const weft_elementwise *kernel;
    weft_ref hp;                       /* hp_size bytes */
    weft_ref coefficient;              /* one fp32: multiplies the gradient */
    weft_ref skip;                     /* one int32: 1 leaves everything as it is */
    const weft_update_region *regions; /* host memory, which is copied as args is; see weft_update_region_at */
    int32_t n_regions;
    uint32_t region_stride; /* sizeof(weft_update_region) as the host was compiled */
} weft_update;

/* Region i, whatever size its maker gave it. [any-thread] */
static inline const weft_update_region *weft_update_region_at(const weft_update *args, int32_t i) {
    return (const weft_update_region *)(const void *)((const char *)args->regions +
                                                      (size_t)i * (size_t)args->region_stride);
}

typedef struct weft_device_plugin {
    uint32_t struct_size;
    uint32_t flags;

    /* index: this rank's place among the ranks of its machine, from 0. One of n devices takes number index mod n, so
     * that several ranks may share one; where there is no choice it has no meaning. [main] [required] */
    weft_status (*create)(weft_device **out, const weft_host *host, const void *config, int32_t index, weft_error *err);
    void (*destroy)(weft_device *device);                           /* [main] [required] */
    void (*info)(const weft_device *device, weft_device_info *out); /* [any-thread] [required] */

    /* Memory, aligned to 256 bytes or better; its content is undefined. Never called while a step runs; both may wait
     * for all that is queued. [main] [required] */
    weft_status (*alloc)(weft_device *device, weft_buffer **out, int64_t bytes, weft_error *err);
    void (*release)(weft_device *device, weft_buffer *buffer); /* NULL is fine. [main] [required] */
    /* The host's own view of a buffer, for devices that share its memory; valid while no kernel writes there. NULL: the
     * host cannot see this buffer, or the ref lies outside of it; it sees all of a buffer or nothing. [any-thread]
     * [optional: the device's memory is not the host's] */
    void *(*host_view)(weft_device *device, weft_ref ref);

    /* Streams. NULL means the device's first, which is ordered with the others by marks alone. Destroying one waits for
     * what is queued in it. [main] [required] */
    weft_status (*stream_create)(weft_device *device, weft_stream **out, weft_error *err);
    void (*stream_destroy)(weft_device *device, weft_stream *stream);
    weft_status (*synchronize)(weft_device *device, weft_stream *stream, weft_error *err); /* until all of it is done */
    /* The point behind all that is queued in the stream so far. It ends in one `wait` or `await`. [main] [hot] */
    weft_status (*mark)(weft_device *device, weft_stream *stream, weft_mark **out, weft_error *err);
    weft_status (*wait)(weft_device *device, weft_stream *stream, weft_mark *mark, weft_error *err); /* frees it */

    /* Host to device (`from` is free again when it returns, though the copy may still be queued), device to host (done
     * when it returns, with all that its stream held before), within the device, and fill with a 32-bit pattern.
     * [main] [hot] [required] */
    weft_status (*write)(weft_device *device, weft_stream *s, weft_ref to, const void *from, int64_t bytes,
                         weft_error *err);
    weft_status (*read)(weft_device *device, weft_stream *s, void *to, weft_ref from, int64_t bytes, weft_error *err);
    weft_status (*copy)(weft_device *device, weft_stream *s, weft_ref to, weft_ref from, int64_t bytes,
                        weft_error *err);
    weft_status (*fill)(weft_device *device, weft_stream *s, weft_ref to, uint32_t pattern, int64_t words,
                        weft_error *err);
    /* to (n, dtype_to) = from (n, dtype_from), nearest even; among fp32, bf16, fp16. [main] [hot] [required] */
    weft_status (*convert)(weft_device *device, weft_stream *s, weft_ref to, int32_t dtype_to, weft_ref from,
                           int32_t dtype_from, int64_t n, weft_error *err);

    /* Bytes of `workspace` that these arguments need; 0: none. [any-thread] [required] */
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

    /* Kernels; args is copied, with the regions of an update, and what else it points to beyond itself lives as long as
     * the plugin that gave it. [main] [hot] [required] */
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
