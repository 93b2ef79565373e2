/* tests/common/graph_rig.h: a test's small model on a device, with all buffers of its segments.
 *
 *     FORWARD(forward) { return ops->linear(g, carry, r->weights[0]); }
 *     rig_open(&r, RIG_REFERENCE, &model, rows, length);
 *     rig_chain_open(&chain, &r, WEFT_MODE_TRAIN, 1, 1);      records, plans and binds segments first to last
 *     rig_chain_check_gradients(&chain);                      against finite differences
 *
 * Values, directions and documents come from fixed seeds. Any error fails the test with a message. */
#ifndef WEFT_TESTS_GRAPH_RIG_H
#define WEFT_TESTS_GRAPH_RIG_H

#include "graph/graph.h"

enum { RIG_WEIGHTS = 20, RIG_SEGMENTS = 4, RIG_BUFFERS = 1024 };
enum { RIG_REFERENCE = 0, RIG_CPU = 1, RIG_DEVICES = 2 };

typedef struct rig rig;

typedef struct rig_weight {
    const char *name; /* NULL terminates the list */
    int32_t role;
    int64_t out, in;
} rig_weight;

typedef struct rig_model {
    const char *name;
    const rig_weight *weights; /* NULL: no weights */
    uint32_t frozen;           /* bit i: parameter i is frozen; weights first, then biases */
    uint32_t biased;           /* bit i: weight i has a bias; the biases follow all weights */
    uint32_t from_one;         /* bit i: weight i is a gain stored relative to one */
    uint32_t packed;           /* bit i: weight i is stored in WEFT_I8X64 */
    uint32_t low_rank;         /* bit i: an adapter adds the product of weights i + 1 and i + 2 to weight i */
    uint32_t transposed;       /* bit i: weight i is a linear stored as (in, out) */
    bool fp32_alone;           /* an operator of the model's own does not support bf16 */
    int64_t carry_width;
    int64_t table_width; /* 0: no table */
    int32_t n_segments;
    weft_value (*forward)(const rig *r, uint32_t segment, weft_graph *g, const weft_ops *ops, weft_value carry);
} rig_model;

/* Defines the forward of a model, which may use r, s (the segment), g, ops and carry; one that returns a value. */
#define FORWARD(name)                                                                                                  \
    static weft_value name(const rig *r, uint32_t s, weft_graph *g, const weft_ops *ops, weft_value carry)
#define RETURNS(name, ...)                                                                                             \
    FORWARD(name) {                                                                                                    \
        return __VA_ARGS__;                                                                                            \
    }

struct rig {
    const rig_model *model;
    const weft_device_plugin *kernels;
    weft_device *device;
    void *plugins, *config; /* of a loaded device */
    int32_t rows, length, dtype;
    weft_declared declared;
    weft_declared_site sites[RIG_WEIGHTS]; /* of the adapter */
    weft_weight weight_storage[RIG_WEIGHTS], *weights[RIG_WEIGHTS];
    weft_parameter parameters[RIG_WEIGHTS];
    weft_module module;
    weft_table table_storage, *table, *table_list[1];
    weft_segment segments[RIG_SEGMENTS];
    weft_buffer *buffers[RIG_BUFFERS];
    int32_t n_buffers;
    uint64_t random;
    weft_ref values[RIG_WEIGHTS]; /* fp32 */
    weft_ref reads[RIG_WEIGHTS];  /* as read by graphs: the same, in bf16 a rounded copy of each matrix, or packed */
    weft_slot_ref gradients[RIG_WEIGHTS], tables[1];
    weft_slot_ref ids, targets, weights_of_targets, starts, positions;
    weft_slot_ref first; /* the micro-batch's first sequence number in the stream */
};

void rig_open(rig *r, int device, const rig_model *model, int32_t rows, int32_t length); /* in fp32 */
void rig_round(rig *r); /* from here on it computes in bf16 */
void rig_close(rig *r);

/* Allocates device memory of exactly this size. */
weft_slot_ref rig_slot(rig *r, int64_t bytes);
void rig_write(const rig *r, weft_ref to, const void *from, int64_t bytes);
void rig_read(const rig *r, void *to, weft_ref from, int64_t bytes);
float *rig_floats(const rig *r, weft_ref from, int64_t n);  /* allocated with malloc */
float *rig_numbers(const rig *r, weft_ref from, int64_t n); /* n numbers of the compute dtype; allocated with malloc */

/* Return a uniform number in [-1, 1), and an integer below n. */
double rig_uniform(rig *r);
int32_t rig_below(rig *r, int32_t n);

typedef struct rig_run {
    weft_graph *graph;
    weft_graph_binding binding;
    const weft_graph_sizes *sizes;
} rig_run;

/* Consecutive segments of a mode, connected to each other. A random carry enters `first`; unless `last` is the model's
 * last segment, a random gradient enters it. In bf16 both are rounded. */
typedef struct rig_chain {
    rig *r;
    int32_t mode, first, last;
    rig_run runs[RIG_SEGMENTS];
    weft_slot_ref loss;
    float *above; /* incoming gradient of the last carry */
    int64_t n_above;
} rig_chain;

void rig_chain_open(rig_chain *chain, rig *r, int32_t mode, int32_t first, int32_t last);
void rig_chain_close(rig_chain *chain);
void rig_chain_forward(const rig_chain *chain);
void rig_chain_backward(const rig_chain *chain);
/* Returns true if one of its segments reads this parameter. */
bool rig_chain_reads(const rig_chain *chain, int32_t parameter);
/* Returns the differentiated objective: the loss, or the dot product of the outgoing carry and its gradient. Runs the
 * required passes. */
double rig_chain_objective(const rig_chain *chain);

/* Compares the gradients of trained parameters and of the incoming carry to central differences of the objective, along
 * the gradient and along random directions. fp32 only. */
void rig_chain_check_gradients(const rig_chain *chain);

/* Returns the relative distance, in norm, of two lists of numbers. */
double rig_distance(const float *a, const float *b, int64_t n);

/* Fails the test with err's text unless status is WEFT_OK. */
void rig_ok(weft_status status, const weft_error *err);

#endif
