/* tests/common/golden.h: a golden batch as a data plugin, and an engine for a golden model. */
#ifndef WEFT_TEST_GOLDEN_H
#define WEFT_TEST_GOLDEN_H

#include "base/safetensors.h"
#include "run/generate.h"
#include "run/stepper.h"

typedef struct golden_batch {
    weft_safetensors *file; /* expected.safetensors */
    int32_t rows, length;
    int32_t *positions;
    int64_t count;
} golden_batch;

/* name: "llama-tied". Any error fails the test. */
void golden_batch_open(golden_batch *out, const char *name);
void golden_batch_close(golden_batch *batch);

/* Returns the same batch for every step. Micro-batch m of a request has the sequences first_row.. modulo B. */
extern const weft_data_plugin golden_data_plugin; /* its weft_data is a golden_batch */

/* Runs on a golden model; overrides: more "section.key=value". The engine is allocated and loaded. */
typedef struct golden_engine {
    weft_run *run;
    weft_engine *engine;
    weft_stepper *stepper;
} golden_engine;
void golden_engine_open(golden_engine *out, golden_batch *batch, const char *name, int32_t micro_batches,
                        const char *const *overrides, size_t n);
void golden_engine_close(golden_engine *engine);

/* Writes "$WEFT_SOURCE/tests/golden/NAME" to path. */
void golden_path(char *path, size_t size, const char *name);

/* Writes "model.plugin=llama": the plugin of the golden model's family, from its config.json. */
void golden_plugin(char *override, size_t size, const char *name);

/* Returns ||a - b|| / ||b|| of n floats. */
double relative_error(const float *a, const float *b, int64_t n);
/* Returns the relative error of a parameter's gradient against the batch's "grad." tensor. The engine's gradient is
 * multiplied by `scale`. */
double golden_gradient_error(const golden_engine *engine, const golden_batch *batch, const weft_parameter *p,
                             double scale);
/* Compares the trained parameters, or their gradients, to the batch's tensors "PREFIXname". Returns their number.
 * noisy: parameters with a gradient of rounding errors may be anything: AdamW takes steps of that rounding. */
int32_t golden_compare(const golden_engine *engine, const golden_batch *batch, const char *prefix, bool gradients,
                       bool noisy);
/* Ten clipped steps have the losses and norms of the batch, the first one its gradients, and the last one its
 * parameters. */
void golden_ten_steps(const golden_engine *engine, const golden_batch *batch, bool noisy);

/* Opens a generator of a golden model. */
weft_generator *golden_generator(weft_run **run, const char *name, const char *const *overrides, size_t n,
                                 int64_t n_prompt, const weft_generate_options *options);
/* Returns the largest error of logits at any position of the documents. */
double golden_worst_logit(const golden_batch *batch, weft_generator *generator);

/* Logits are the product of the last hidden states with the head, and so are their means over positions with a target,
 * without a soft cap. Compares the product of this mean to the batch's logits. */
void golden_compare_mean_logits(const golden_engine *engine, const golden_batch *batch, const double *mean,
                                int64_t width);

/* Copies n floats from device memory. The caller frees them. */
float *read_floats(const weft_engine *engine, weft_ref ref, int64_t n);
const float *golden_floats(const golden_batch *batch, const char *name);
const int32_t *golden_ints(const golden_batch *batch, const char *name);
const double *golden_doubles(const golden_batch *batch, const char *name);

#endif
