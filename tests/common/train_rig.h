/* tests/common/train_rig.h: an engine on any model directory, with sequences made by a test. Any error fails the
 * test. */
#ifndef WEFT_TEST_TRAIN_RIG_H
#define WEFT_TEST_TRAIN_RIG_H

#include "run/stepper.h"

/* Sequences in memory as a data plugin. Sequence i of the stream is i modulo `rows`; counts calls. */
typedef struct row_data {
    int32_t rows, length;
    int32_t *ids, *targets, *starts, *positions; /* [rows][length] */
    float *weights;
    int32_t *used;                 /* [rows], positions used by documents */
    int64_t shapes, micro_batches; /* calls so far */
} row_data;

extern const weft_data_plugin row_data_plugin; /* its weft_data is a row_data */

void row_data_make(row_data *out, int32_t rows, int32_t length); /* only padding */
void row_data_free(row_data *data);
/* Appends a document of n ids to a sequence: n - 1 positions. target_weights: [n - 1], or NULL: all 1. */
void row_data_add(row_data *data, int32_t row, const int32_t *ids, const float *target_weights, int32_t n);
/* Uses the batch of a golden model. */
void row_data_golden(row_data *out, const char *name);
/* Makes full sequences of random ids below `vocabulary`; each has two documents. */
void row_data_random(row_data *out, int32_t rows, int32_t length, int32_t vocabulary, uint64_t seed);

/* Micro-batches of two lengths as a data plugin, derived from their sequence number: every third is short, and the
 * first positions of some have weight zero. */
typedef struct ragged_data {
    int32_t shorter, longer, vocabulary;
} ragged_data;
extern const weft_data_plugin ragged_data_plugin; /* its weft_data is a ragged_data */

/* A LLaMA for a fresh start: a directory with only its config.json. */
typedef struct fresh_model {
    char path[64];
} fresh_model;
typedef struct fresh_shape {
    int32_t hidden, mlp, layers, heads, kv_heads, vocabulary, context;
    bool tied;
} fresh_shape;
void fresh_model_make(fresh_model *out, const fresh_shape *shape);
void fresh_model_remove(const fresh_model *model);

typedef struct train_rig {
    weft_run *run;
    weft_engine *engine;
    weft_stepper *stepper;
    const weft_data_plugin *data_plugin;
    weft_data *data;
    row_data rows; /* of train_rig_golden */
} train_rig;

/* Returns a spec: sequences per micro-batch, micro-batches per step, one length, and an optional evaluation of the same
 * shape. */
weft_plan_spec train_rig_spec(const row_data *data, int32_t micro_batches, bool evaluates);

/* Opens the run and the engine, without programs. directory: of the model; "llama-..." is a golden one. n overrides of
 * "section.key=value". */
void train_rig_open(train_rig *out, const char *directory, row_data *data, const char *const *overrides, size_t n);
/* The same in a process context of a process context; NULL: a context of its own. */
void train_rig_open_at(train_rig *out, const weft_rank_span *rank_span, const char *directory, row_data *data,
                       const char *const *overrides, size_t n);
/* Creates programs, memory, weights and stepper. */
void train_rig_start(train_rig *rig, const weft_plan_spec *spec);
/* Both, with the spec of train_rig_spec. */
void train_rig_begin(train_rig *out, const char *directory, row_data *data, int32_t micro_batches, bool evaluates,
                     const char *const *overrides, size_t n);
/* The same on a golden model and its batch, which belongs to the rig. */
void train_rig_golden(train_rig *out, const char *name, int32_t micro_batches, bool evaluates,
                      const char *const *overrides, size_t n);
void train_rig_close(train_rig *rig);

/* Runs a step that must succeed: lr 1e-3, clip 0.5. */
weft_step_result train_rig_step(train_rig *rig, uint64_t step);
void train_rig_steps(train_rig *rig, uint64_t steps); /* 1 .. steps */
double train_rig_evaluate(train_rig *rig);            /* loss sum of the first validation micro-batch */

/* Copies device memory, [layout->numel]; the caller frees it. */
float *train_rig_parameters(const train_rig *rig);
bool same_floats(const float *a, const float *b, int64_t n); /* bit by bit */

#endif
