/* host/run/values.h: the values of a training step for a listener (stepper->values): weights and carry of each segment,
 * loss, gradients, and the update. Also the search for the first number that is not finite, and mean hidden states.
 *
 * Of each value the first few numbers are downloaded. For one rank: of sharded values no rank has all, except of a
 * micro-batch's gradients. Without a listener the calls have no effect. */
#ifndef WEFT_HOST_RUN_VALUES_H
#define WEFT_HOST_RUN_VALUES_H

#include "run/stepper.h"

/* Checks the carry of a FORWARD. WEFT_E_NUMERIC: it is not finite. One rank among several stores the error as its
 * culprit and continues. */
weft_status weft_nonfinite_check(weft_stepper *self, const weft_instruction *instruction,
                                 const weft_graph_binding *binding, weft_error *err);
/* For a loss that is not finite although every carry is. WEFT_E_NUMERIC with the instruction that computed it; WEFT_OK:
 * another rank did. */
weft_status weft_nonfinite_head(const weft_stepper *self, weft_error *err);
/* For a norm that is not finite. Returns WEFT_E_NUMERIC with the parameter of the highest segment whose gradient is not
 * finite, because backward runs from there. */
weft_status weft_nonfinite_gradient(weft_stepper *self, weft_error *err);

enum { WEFT_VALUES_SHOWN = 4 };

/* One value after an instruction. The texts live until the call returns. */
typedef struct weft_value_row {
    uint64_t step;
    const char *instruction;           /* "BACKWARD layers.2 micro-batch 0" */
    const char *name;                  /* "carry", or a parameter's name */
    const char *part;                  /* of a parameter: "weight", "gradient", a state's name; else "" */
    double numbers[WEFT_VALUES_SHOWN]; /* its first ones */
    int64_t n;                         /* of the complete value */
} weft_value_row;

struct weft_value_sink {
    void *context;
    void (*report)(void *context, const weft_value_row *row); /* (optional) */
    /* (optional) A micro-batch's complete gradient of a parameter, in fp32 at `ref`, after this BACKWARD. If several
     * segments read the parameter, each reports it, and the last one has it complete. On any number of ranks. */
    weft_status (*gradient)(void *context, int32_t micro_batch, int32_t parameter, weft_ref ref, weft_error *err);
};

/* After the instruction has run. */
weft_status weft_values_forward(const weft_stepper *self, const weft_instruction *instruction,
                                const weft_graph_binding *binding, weft_error *err);
weft_status weft_values_backward(const weft_stepper *self, const weft_instruction *instruction,
                                 const weft_graph_binding *binding, weft_error *err);
weft_status weft_values_norm(const weft_stepper *self, const weft_instruction *instruction, weft_error *err);
weft_status weft_values_step(const weft_stepper *self, const weft_instruction *instruction, weft_error *err);

/* ---- the mean of the last hidden states (the input of lm_head) of the positions that have a target, over passes of
 * evaluation
 *
 * Each micro-batch's states are added in fp64 after its last segment. After a pass the sums of its micro-batches are
 * gathered on rank 0, which adds them in micro-batch order: the mean has the same bits on any number of ranks. ---- */

typedef struct weft_hidden {
    const weft_engine *engine;
    int64_t width;
    /* [world][most_losses][width]: sums of the pass's micro-batches, by rank and position (weft_loss_place) */
    double *micro_batches;
    double *sum; /* [width] over passes; on rank 0 */
    int64_t targets;
    float *weights; /* [most positions of a micro-batch] */
    int64_t at_once;
    float *numbers; /* [at_once] positions, as floats and in the device's type */
    void *stored;
} weft_hidden;

/* The engine must evaluate. */
weft_hidden *weft_hidden_create(const weft_engine *engine);
void weft_hidden_destroy(weft_hidden *hidden); /* NULL is fine */

/* Resets the sums. NULL is fine. */
void weft_hidden_begin(weft_hidden *hidden);

/* Adds a micro-batch after its last segment, on the rank that ran it. */
weft_status weft_hidden_add(weft_hidden *hidden, const weft_stepper *stepper, const weft_instruction *instruction,
                            const weft_graph *graph, const weft_graph_binding *binding, weft_error *err);
/* Ends a pass with `targets` target tokens on all ranks together. [collective] */
weft_status weft_hidden_end_pass(weft_hidden *hidden, int64_t targets, weft_error *err);

/* out: [width]; on rank 0. */
void weft_hidden_mean(const weft_hidden *hidden, double *out);

/* ---- the rotation of the model's mean hidden state during a run: [run] similarity
 *
 *     1 - cosine(mean last hidden state now, mean last hidden state before the first step)
 *
 * over the positions of the evaluation split that have a target. 0 is the same direction, 2 the opposite one. The
 * initial mean is stored in similarity.json of the run's directory, so that a resumed run is compared with its own
 * beginning. ---- */

typedef struct weft_similarity {
    weft_stepper *stepper; /* NULL: disabled */
    weft_hidden *hidden;
    const char *path;     /* of similarity.json */
    double *before, *now; /* [width] on rank 0: the initial mean if known, and the last one */
    bool known;           /* identical on all ranks */
} weft_similarity;

/* Opens the measurement; disabled if the run does not request it or has no evaluation. path: of similarity.json, which
 * must outlive self. resumed: an earlier process measured the initial mean; a warning is printed if it is missing.
 * Close it also after a failure. [collective] */
weft_status weft_similarity_open(weft_similarity *self, weft_stepper *stepper, const char *path, bool resumed,
                                 weft_error *err);
void weft_similarity_close(weft_similarity *self); /* a zeroed one is fine */

/* Sets *out, the similarity of an evaluation (NaN before), after it at `step`. At step 0 this measures the
 * initial mean; storing it may fail on rank 0 only. [collective] */
weft_status weft_similarity_note(weft_similarity *self, double *out, uint64_t step, weft_error *err);

/* Returns half the squared distance of the unit vectors, which is 1 - cosine without its rounding near 0: never below
 * 0, and 0 for equal vectors. NaN if one of them is zero or not finite. */
double weft_similarity_of(const double *a, const double *b, int64_t n);

#endif
