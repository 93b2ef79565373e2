/* host/graph/graph.h: one segment's forward as a record, its derived backward, and their execution on a device.
 *
 * A graph is made once per (segment, mode, leaf shape) by calling the model's forward with the recording operators.
 * From the record follow, before anything runs: which parameters the segment reads, the bytes of its tape (what
 * backward needs from forward), of its scratch in either direction, of its key-value state, and its operations.
 * Execution replays the record with buffers that the caller binds; it allocates nothing and checks every operand
 * against its slot's size.
 *
 * This stage knows values and operators; it knows nothing of units, strategies, events or files. */
#ifndef WEFT_HOST_GRAPH_GRAPH_H
#define WEFT_HOST_GRAPH_GRAPH_H

#include "model/declare.h"

typedef struct weft_graph_spec {
    int32_t mode;  /* weft_mode */
    int32_t dtype; /* WEFT_F32, WEFT_BF16 or WEFT_F16: of values, their gradients, the key-value state, and of the
                             matrices that products read. Gains, statistics, losses, logits and gradients of
                             parameters are fp32 */
    int32_t rows, length; /* B, T of the leaf */
    uint64_t seed;        /* [run] seed: dropout */
    int32_t cache_rows;   /* GENERATE: places that the key-value state holds; else 0 */
    bool carry_gradient;  /* TRAIN: the gradient of the carry that comes in is wanted (something below is trained) */
    const weft_device_plugin *kernels; /* for workspace sizes */
    weft_device *device;
} weft_graph_spec;

/* Parameter use. */
typedef struct weft_graph_read {
    int32_t parameter;
    bool in_products; /* something else than a look-up reads it, too */
    bool adds; /* set by the caller before weft_graph_plan: an earlier BACKWARD of the same leaf has already written
                  this parameter's leaf gradient, so this segment's finished gradient is added to it, once */
} weft_graph_read;

typedef struct weft_graph_sizes {
    int64_t carry;                /* bytes of the carry that goes out; 0 for the last segment */
    int64_t tape;                 /* TRAIN with a backward; else 0 */
    int64_t forward_work;         /* scratch of a FORWARD that fills the tape */
    int64_t forward_work_untaped; /* scratch of a FORWARD without one (evaluation, generation, checkpointing) */
    int64_t recompute_work; /* scratch of RECOMPUTE, which makes the tape alone and no carry: at most forward_work */
    int64_t backward_work;  /* scratch of BACKWARD */
    int64_t state;          /* key-value state (GENERATE) */
    int64_t table_rows;     /* of position tables that are read whatever the leaf; 0: none */
    bool draws;             /* it has dropout: `first` is bound */
    bool has_backward;
    bool has_loss;                        /* ends in lm_head */
    bool backward_reads_carry;            /* BACKWARD reads the carry that came in; RECOMPUTE may always */
    double forward_flops, backward_flops; /* of matrix products and attention (causal counted by half) */
    double forward_bytes, backward_bytes; /* of memory traffic of the other operators */
} weft_graph_sizes;

typedef struct weft_call_sink weft_call_sink; /* calls.h */

/* Bytes of one place in each part of a leaf: ids, targets, starts and positions are int32, weights fp32. */
enum { WEFT_PLACE_BYTES = 4 };

/* `offset` bytes further. */
static inline weft_ref weft_ref_at(weft_ref ref, int64_t offset) {
    ref.offset += offset;
    return ref;
}

/* A planned buffer as a caller hands it over. Every call's operands are checked against `bytes` before it runs. */
typedef struct weft_slot_ref {
    weft_ref ref;  /* at a multiple of 64 bytes: places inside a slot are planned from there */
    int64_t bytes; /* from ref on */
    /* What was really touched: *used is raised to `start` plus the end of each operand, counted from ref. NULL: not
     * wanted. */
    int64_t start; /* of ref inside the caller's slot: 0, unless several refs share a slot, as leaf gradients do */
    int64_t *used;
} weft_slot_ref;

typedef struct weft_graph_binding {
    weft_stream *stream;
    const weft_ref *parameters;     /* [n_parameters of the model]: matrices in the spec's dtype, gains in fp32 */
    const int32_t *dtypes;          /* [n_parameters]: the type in which each is bound. Tables that are looked up and
                                       nothing else may be in fp32: look-ups round. NULL: all as above */
    const weft_slot_ref *gradients; /* [n_parameters]: leaf-gradient storage; buffer NULL where not trained */
    const weft_slot_ref *tables;    /* [n_tables] */
    weft_slot_ref ids, targets, weights, starts, positions; /* the leaf, (B,T) each */
    weft_slot_ref first; /* one int64: the leaf's first row in the stream of training rows; where a graph draws */
    weft_slot_ref carry_in, carry_out;
    weft_slot_ref d_carry_out, d_carry_in; /* BACKWARD: gradient that comes from above; that goes below */
    weft_slot_ref tape; /* FORWARD with buffer NULL keeps nothing: the untaped variant; RECOMPUTE makes it later */
    weft_slot_ref work;
    weft_slot_ref state; /* GENERATE */
    weft_slot_ref past;  /* GENERATE: one int64: places already in the state */
    weft_ref loss; /* one fp64: overwritten with the leaf's loss sum. TRAIN: by BACKWARD (the loss is formed where its
                      gradient is, so that logits are made once); EVALUATE: by FORWARD */
    weft_slot_ref seed;             /* TRAIN in fp16: one fp32 that the loss's gradient is multiplied by */
    weft_slot_ref logits;           /* GENERATE: (B, vocab) fp32 of the last place */
    const weft_call_sink *sink;     /* is told how long each call took; NULL: nothing is timed */
    void (*between)(void *context); /* called after each call, while exchanges may be under way; NULL: nothing is */
    void *between_context;
} weft_graph_binding;

/* Records segment `segment`. The graph keeps pointers to declared and spec's device. */
weft_status weft_graph_record(weft_graph **out, const weft_declared *declared, int32_t segment,
                              const weft_graph_spec *spec, weft_error *err);
void weft_graph_destroy(weft_graph *graph); /* NULL is fine */

/* What the segment reads: parameters, each once, in order of first use. Set `adds` through it, then plan. */
weft_graph_read *weft_graph_reads(weft_graph *graph, int32_t *n_reads);

/* Derives the backward and places every value. After it sizes are final and the graph can run. */
weft_status weft_graph_plan(weft_graph *graph, weft_error *err);
const weft_graph_sizes *weft_graph_size(const weft_graph *graph);

/* FORWARD. With recompute = true RECOMPUTE: the tape again, bit by bit, from carry_in and the leaf; no loss, no carry.
 */
weft_status weft_graph_forward(const weft_graph *graph, const weft_graph_binding *binding, bool recompute,
                               weft_error *err);
weft_status weft_graph_backward(const weft_graph *graph, const weft_graph_binding *binding, weft_error *err);

/* An operator of the model's own that does more than to queue (WEFT_CUSTOM_QUEUES); NULL: none. */
const char *weft_graph_unqueued(const weft_graph *graph);

/* A value that the segment named with `output` (EVALUATE), as the last forward with this binding left it: `width`
 * elements of the spec's dtype per place, valid until its slot is written again. False: no such name. */
bool weft_graph_output(const weft_graph *graph, const weft_graph_binding *binding, const char *name, weft_slot_ref *out,
                       int64_t *width);

/* The same of what lm_head read (EVALUATE), the last hidden states; 0 wide: there is no lm_head. */
int64_t weft_graph_hidden_width(const weft_graph *graph);
weft_slot_ref weft_graph_hidden(const weft_graph *graph, const weft_graph_binding *binding);

/* A line per node for `plan --print-program` and for people: "linear q_proj (8,256,288) -> (8,256,288)". */
void weft_graph_print(const weft_graph *graph, FILE *to);

#endif
