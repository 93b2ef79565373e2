/* host/run/values.h: what the instructions of a training step leave, told to whoever wants to follow them
 * (stepper->values): the weights that a segment reads and the carry that it gives, the loss and all gradients, what the
 * optimizer does.
 *
 * Each value is brought from the device by itself, its first few numbers alone, and nothing is changed. For one rank:
 * what is cut among several lies nowhere whole, but for a micro-batch's gradients. Without a listener every call
 * here does nothing. */
#ifndef WEFT_HOST_RUN_VALUES_H
#define WEFT_HOST_RUN_VALUES_H

#include "run/stepper.h"

enum { WEFT_VALUES_TOLD = 4 };

/* One value that an instruction has left. The texts live until the call returns. */
typedef struct weft_value_row {
    uint64_t step;
    const char *instruction;          /* "BACKWARD layers.2 micro-batch 0" */
    const char *name;                 /* "carry", or a parameter's name */
    const char *part;                 /* of a parameter: "weight", "gradient", a state's name; else "" */
    double numbers[WEFT_VALUES_TOLD]; /* its first ones */
    int64_t n;                        /* that there are */
} weft_value_row;

struct weft_value_sink {
    void *context;
    void (*tell)(void *context, const weft_value_row *row); /* (optional) */
    /* (optional) A micro-batch's gradient of a parameter, all of it, in fp32 at `ref` as this BACKWARD has left it. Of
     * segments that read one parameter each says it in turn, and the last one has it whole. On any number of ranks. */
    weft_status (*gradient)(void *context, int32_t micro_batch, int32_t parameter, weft_ref ref, weft_error *err);
};

/* After the instruction has run. */
weft_status weft_values_forward(const weft_stepper *self, const weft_instruction *instruction,
                                const weft_graph_binding *binding, weft_error *err);
weft_status weft_values_backward(const weft_stepper *self, const weft_instruction *instruction,
                                 const weft_graph_binding *binding, weft_error *err);
weft_status weft_values_norm(const weft_stepper *self, const weft_instruction *instruction, weft_error *err);
weft_status weft_values_step(const weft_stepper *self, const weft_instruction *instruction, weft_error *err);

#endif
