/* host/tools/check/device_calls.h: calls of a device's kernels over odd shapes, which any device can be asked.
 *
 * A call is a struct of arguments and what its operands hold: numbers that depend on the call alone. A forward and its
 * backward are one call, since the one reads what the other leaves. */
#ifndef WEFT_HOST_TOOLS_CHECK_DEVICE_CALLS_H
#define WEFT_HOST_TOOLS_CHECK_DEVICE_CALLS_H

#include "graph/kernels.h"

#include <weft/optimizer.h>

enum { WEFT_CALL_OPERANDS = 20 };

typedef struct weft_call_operand {
    size_t field; /* of its weft_ref in the arguments */
    const char *name;
    int64_t n; /* elements of the type */
    int32_t dtype;
    bool is_result;
    void *data; /* before the call; owned; NULL: anything */
} weft_call_operand;

/* An update and its regions, which may be as far apart as a later host's are. */
enum { WEFT_CALL_REGIONS = 2 };
typedef struct weft_call_region {
    weft_update_region region;
    char later[48];
} weft_call_region;
typedef struct weft_call_update {
    weft_update args;
    weft_call_region regions[WEFT_CALL_REGIONS];
} weft_call_update;

/* Stays where it was drawn: the arguments of an update point into it. */
typedef struct weft_device_call {
    const char *name; /* "attention" */
    union {
        weft_kernel_args kernel;
        weft_square_sum square_sum;
        weft_clip clip;
        weft_call_update update;
    } args;
    const weft_kernel *kernels[2]; /* that take them, in this order; NULL: none */
    weft_call_operand operands[WEFT_CALL_OPERANDS];
    int n;
    int32_t dtype;
    bool exact;      /* the interface says the bits, not the formula alone */
    bool has_memory; /* false: an allocation failed */
} weft_device_call;

enum { WEFT_CALL_SHAPES = 3 }; /* calls of a kernel that follow one another, the smallest first */

/* Call `number` of those in fp32, bf16 or fp16. False past the end. To be freed. */
bool weft_device_call_draw(weft_device_call *out, int32_t number, int32_t dtype);
void weft_device_call_free(weft_device_call *call);

#endif
