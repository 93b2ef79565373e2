/* update_stored.h: an update whose weight or states are not all fp32. A run of elements is converted to fp32, passes
 * through the optimizer's loop, and is rounded once to its storage type. Also the copy of weights of any type. */
#ifndef WEFT_DEVICE_CPU_UPDATE_STORED_H
#define WEFT_DEVICE_CPU_UPDATE_STORED_H

#include "cpu.h"

typedef struct cpu_stored_array {
    char *at;
    int32_t dtype;
} cpu_stored_array;

typedef struct cpu_stored {
    cpu_stored_array weight, states[WEFT_MAX_STATES];
    int64_t block;  /* elements of the longest block of the types */
    bool is_narrow; /* some array is not fp32 */
    char *copy;     /* of the weights; NULL: none */
    int32_t copy_dtype;
} cpu_stored;

/* Looks up one array of n elements into *out, which is part of self. dtype: 0 is fp32. */
void cpu_stored_look_up(operands *c, cpu_stored *self, cpu_stored_array *out, weft_ref ref, const char *name,
                        int32_t dtype, int64_t n);

/* Writes weights [first, first + n) to the copy, if there is one. */
void cpu_stored_copy(const weft_device *device, const cpu_stored *self, const float *weights, int64_t first, int64_t n);

/* call: as for the loop, without weight and states; it begins at a block boundary. */
void cpu_stored_update(const weft_device *device, const weft_elementwise *kernel, const cpu_stored *self,
                       const weft_elementwise_call *call);

#endif
