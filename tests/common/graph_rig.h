/* tests/common/graph_rig.h: a small model of a test's own, on a device, with every buffer that its segments need.
 *
 *     static weft_value forward(const rig *r, uint32_t segment, weft_graph *g, const weft_ops *ops, weft_value carry) {
 *         return ops->linear(g, carry, r->weights[0]);
 *     }
 *     rig_open(&r, RIG_REFERENCE, &model, rows, length);
 *     rig_chain_open(&chain, &r, WEFT_MODE_TRAIN, 1, 1);      records, plans and binds segments first to last
 *     rig_chain_check_gradients(&chain);                      against finite differences
 *
 * Values, directions and documents come from fixed seeds. Whatever fails, fails the test with a sentence. */
#ifndef WEFT_TESTS_GRAPH_RIG_H
#define WEFT_TESTS_GRAPH_RIG_H

#include "graph/graph.h"

enum { RIG_WEIGHTS = 20, RIG_SEGMENTS = 4, RIG_BUFFERS = 1024 };
enum { RIG_REFERENCE = 0, RIG_CPU = 1, RIG_DEVICES = 2 };

typedef struct rig rig;

typedef struct rig_weight {
    const char *name; /* NULL ends the list */
    int32_t role;
    int64_t out, in;
} rig_weight;

typedef struct rig_model {
    const char *name;
    const rig_weight *weights; /* NULL: none */
    uint32_t frozen;           /* bit i: parameter i is not trained; weights first, then biases */
    uint32_t biased;           /* bit i: weight i has a bias, whose parameter comes after those of all weights */
    uint32_t from_one;         /* bit i: weight i is a gain that is stored from one */
    uint32_t packed;           /* bit i: weight i is stored in WEFT_I8X64 */
    uint32_t low_rank;         /* bit i: an adapter adds to weight i the product of weights i + 1 and i + 2 */
    uint32_t transposed;       /* bit i: weight i is a linear that is stored as (in, out) */
    bool fp32_alone;           /* an operator of its own takes no bf16 */
    int64_t carry_width;
    int64_t table_width; /* 0: no table */
    int32_t n_segments;
    weft_value (*forward)(const rig *r, uint32_t segment, weft_graph *g, const weft_ops *ops, weft_value carry);
} rig_model;

struct rig {
    const rig_model *model;
    const weft_device_plugin *kernels;
    weft_device *device;
    void *plugins, *config; /* of a device that was loaded */
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
    weft_ref reads[RIG_WEIGHTS];  /* what graphs read: the same, or in bf16 a rounded copy of each matrix, or packed */
    weft_slot_ref gradients[RIG_WEIGHTS], tables[1];
    weft_slot_ref ids, targets, weights_of_targets, starts, positions;
    weft_slot_ref first; /* the micro-batch's first row in the stream */
};

void rig_open(rig *r, int device, const rig_model *model, int32_t rows, int32_t length); /* in fp32 */
void rig_round(rig *r); /* from here on it computes in bf16 */
void rig_close(rig *r);

/* Memory of the device, exactly as long as asked for. */
weft_slot_ref rig_slot(rig *r, int64_t bytes);
void rig_write(const rig *r, weft_ref to, const void *from, int64_t bytes);
void rig_read(const rig *r, void *to, weft_ref from, int64_t bytes);
float *rig_floats(const rig *r, weft_ref from, int64_t n);  /* malloced */
float *rig_numbers(const rig *r, weft_ref from, int64_t n); /* n numbers of the type it computes in; malloced */

/* Uniform in [-1, 1); below n. */
double rig_uniform(rig *r);
int32_t rig_below(rig *r, int32_t n);

typedef struct rig_run {
    weft_graph *graph;
    weft_graph_binding binding;
    const weft_graph_sizes *sizes;
} rig_run;

/* Segments first to last of a mode, bound to each other. Below `first` stands a random carry; above `last`, where it is
 * not the model's last, a random gradient; in bf16 both are rounded. */
typedef struct rig_chain {
    rig *r;
    int32_t mode, first, last;
    rig_run runs[RIG_SEGMENTS];
    weft_slot_ref loss;
    float *above; /* gradient that comes from above */
    int64_t n_above;
} rig_chain;

void rig_chain_open(rig_chain *chain, rig *r, int32_t mode, int32_t first, int32_t last);
void rig_chain_close(rig_chain *chain);
void rig_chain_forward(const rig_chain *chain);
void rig_chain_backward(const rig_chain *chain);
/* Does any of its segments read this parameter? */
bool rig_chain_reads(const rig_chain *chain, int32_t parameter);
/* What gradients are of: the loss, or the outgoing carry times the gradient from above. Runs what that takes. */
double rig_chain_objective(const rig_chain *chain);

/* Gradients of every trained parameter and of the carry that comes in, against central differences of the objective
 * along the gradient itself and along random directions. fp32 only. */
void rig_chain_check_gradients(const rig_chain *chain);

/* Largest relative distance, in norm, of two lists of numbers. */
double rig_distance(const float *a, const float *b, int64_t n);

/* Fails the test with err's text unless status is WEFT_OK. */
void rig_ok(weft_status status, const weft_error *err);

#endif
