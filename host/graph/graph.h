/* host/graph/graph.h: records the forward of one segment, derives its backward, and runs both on a device.
 *
 * A graph is created once per (segment, mode, micro-batch shape): the model's forward runs with recording operators.
 * Before execution, the record determines the parameters that the segment reads and its device calls. It also
 * determines the bytes of the tape (activations for backward), of forward and backward scratch, and of the key-value
 * state. Execution replays the record with buffers that the caller binds. It allocates no memory and checks every
 * operand against its slot's size.
 *
 * This module depends on values and operators, not on units, strategies, instructions or files. */
#ifndef WEFT_HOST_GRAPH_GRAPH_H
#define WEFT_HOST_GRAPH_GRAPH_H

#include "model/declare.h"

typedef struct weft_graph_spec {
    int32_t mode;  /* weft_mode */
    int32_t dtype; /* WEFT_F32, WEFT_BF16 or WEFT_F16: type of values, their gradients, the key-value state, and the
                      matrices that matmuls read. Gains, statistics, losses, logits and parameter gradients are fp32 */
    int32_t rows, length; /* B, T of the micro-batch */
    uint64_t seed;        /* [run] seed, for dropout */
    int32_t cache_rows;   /* GENERATE: positions in the key-value state; else 0 */
    bool carry_gradient;  /* TRAIN: compute the gradient of the incoming carry, because an earlier segment is trained */
    const weft_device_plugin *kernels; /* for workspace sizes */
    weft_device *device;
} weft_graph_spec;

/* A parameter that the segment reads. */
typedef struct weft_graph_read {
    int32_t parameter;
    bool in_products; /* true if an operator other than an embedding lookup reads it */
    bool adds; /* Set by the caller before weft_graph_plan: an earlier BACKWARD of the same micro-batch has already
                  written this parameter's micro-batch gradient. This segment's complete gradient is then added once */
} weft_graph_read;

typedef struct weft_graph_sizes {
    int64_t carry;                /* bytes of the outgoing carry; 0 for the last segment */
    int64_t tape;                 /* TRAIN with a backward; else 0 */
    int64_t forward_work;         /* scratch of a FORWARD that fills the tape */
    int64_t forward_work_untaped; /* scratch of a FORWARD without a tape (evaluation, generation, checkpointing) */
    int64_t recompute_work; /* scratch of RECOMPUTE, which fills only the tape, without a carry: at most forward_work */
    int64_t backward_work;  /* scratch of BACKWARD */
    int64_t state;          /* key-value state (GENERATE) */
    int64_t table_rows;     /* minimum rows of position tables for any micro-batch; 0: no requirement */
    bool draws;             /* it has dropout: `first` must be bound */
    bool has_backward;
    bool backward_reads_carry;            /* BACKWARD reads the incoming carry; RECOMPUTE may always read it */
    double forward_flops, backward_flops; /* of matmuls and attention (causal counted by half) */
} weft_graph_sizes;

typedef struct weft_call_sink weft_call_sink; /* kernels.h */

/* Bytes per position in each array of a micro-batch: ids, targets, starts and positions are int32, weights fp32. */
enum { WEFT_PLACE_BYTES = 4 };

/* Returns `ref` advanced by `offset` bytes. */
static inline weft_ref weft_ref_at(weft_ref ref, int64_t offset) {
    ref.offset += offset;
    return ref;
}

/* A planned buffer that the caller binds. Every call's operands are checked against `bytes` before the call runs. */
typedef struct weft_slot_ref {
    weft_ref ref;  /* a multiple of 64 bytes: offsets inside a slot are planned from here */
    int64_t bytes; /* size from ref on */
    /* High-water mark: *used is raised to `start` plus the end of each operand from ref. NULL: not recorded. */
    int64_t start; /* offset of ref inside the caller's slot, which several micro-batch gradients may share */
    int64_t *used;
} weft_slot_ref;

typedef struct weft_graph_binding {
    weft_stream *stream;
    const weft_ref *parameters;     /* [n_parameters of the model]: matrices in the spec's dtype, gains in fp32 */
    const int32_t *dtypes;          /* [n_parameters]: the type in which each one is bound. Tables that only embedding
                                       lookups read may be fp32, because lookups round. NULL: types as above */
    const weft_slot_ref *gradients; /* [n_parameters]: micro-batch gradients; buffer NULL for a frozen parameter */
    const weft_slot_ref *tables;    /* [n_tables] */
    weft_slot_ref ids, targets, weights, starts, positions; /* the micro-batch, (B,T) each */
    weft_slot_ref first; /* one int64, if the graph has dropout: stream index of the micro-batch's first sequence */
    weft_slot_ref carry_in, carry_out;
    weft_slot_ref d_carry_out, d_carry_in; /* BACKWARD: gradients from the next and for the previous segment */
    weft_slot_ref tape; /* FORWARD with buffer NULL runs the untaped variant; RECOMPUTE fills the tape later */
    weft_slot_ref work;
    weft_slot_ref state; /* GENERATE */
    weft_slot_ref past;  /* GENERATE: one int64: positions already in the state */
    weft_ref loss;       /* One fp64, overwritten with the micro-batch's loss sum. TRAIN: BACKWARD writes it, because it
                            computes loss and gradient from the same logits. EVALUATE: FORWARD writes it */
    weft_slot_ref seed;  /* TRAIN in fp16: one fp32 loss scale, by which the loss's gradient is multiplied */
    weft_slot_ref logits;           /* GENERATE: (B, vocab) fp32 of the last position */
    const weft_call_sink *sink;     /* receives the duration of each call; NULL: no timing */
    void (*between)(void *context); /* called after each call, to progress collectives in flight; NULL: not called */
    void *between_context;
} weft_graph_binding;

/* Records segment `segment`. The graph keeps pointers to `declared` and to the spec's device. */
weft_status weft_graph_record(weft_graph **out, const weft_declared *declared, int32_t segment,
                              const weft_graph_spec *spec, weft_error *err);
void weft_graph_destroy(weft_graph *graph); /* NULL is allowed */

/* Returns the parameters that the segment reads, each once, in order of first use. The caller sets `adds` in them. */
weft_graph_read *weft_graph_reads(weft_graph *graph, int32_t *n_reads);

/* Derives the backward and assigns storage to every value, once. Then the sizes are final and the graph can run. */
void weft_graph_plan(weft_graph *graph);
const weft_graph_sizes *weft_graph_size(const weft_graph *graph);

/* Runs FORWARD; with recompute = true RECOMPUTE, which fills the tape with the same bits from carry_in and the
 * micro-batch, without loss or carry. */
weft_status weft_graph_forward(const weft_graph *graph, const weft_graph_binding *binding, bool recompute,
                               weft_error *err);
weft_status weft_graph_backward(const weft_graph *graph, const weft_graph_binding *binding, weft_error *err);

/* Returns the name of a custom operator that does not only enqueue work (it lacks WEFT_CUSTOM_QUEUES), else NULL. */
const char *weft_graph_unqueued(const weft_graph *graph);

/* Return the elements per position, and the memory as computed by the last forward with this binding, of the input of
 * lm_head (EVALUATE), the last hidden states in the spec's dtype. Width 0: the segment has no lm_head. */
int64_t weft_graph_hidden_width(const weft_graph *graph);
weft_slot_ref weft_graph_hidden(const weft_graph *graph, const weft_graph_binding *binding);

#endif
