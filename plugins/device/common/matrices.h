/* common/matrices.h: the operands of a product, judged and looked up. */
#ifndef WEFT_DEVICE_COMMON_MATRICES_H
#define WEFT_DEVICE_COMMON_MATRICES_H

#include <stdbool.h>

#include <weft/blocks.h>

#include "operands.h"

typedef struct matrices {
    const void *a, *b; /* NULL where they have no element */
    void *c;
    const weft_i8x64 *packed; /* in place of b, where that is stored in blocks */
    const float *bias;        /* NULL: none */
} matrices;

/* Sizes, types and all operands but the workspace; what is wrong is in c. */
void matrices_look_up(operands *c, matrices *out, const weft_matmul *args);

/* A packed operand: rows of whole blocks without a gap, each of which begins with a scale in fp32. */
const weft_i8x64 *matrices_packed(operands *c, weft_ref ref, const char *name, int64_t rows, int64_t width, int64_t ld);

#endif
