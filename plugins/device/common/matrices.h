/* common/matrices.h: the operands of a product, judged and looked up. */
#ifndef WEFT_DEVICE_COMMON_MATRICES_H
#define WEFT_DEVICE_COMMON_MATRICES_H

#include <stdbool.h>

#include "operands.h"

typedef struct matrices {
    const void *a, *b; /* NULL where they have no element */
    void *c;
    const void *packed; /* in place of b, where that is stored in blocks (weft/blocks.h) */
    const float *bias;  /* NULL: none */
} matrices;

/* The packed types whose numbers devices multiply with; weft_dtype has others, of states. */
#define PACKED_TYPES (1u << WEFT_I8X64 | 1u << WEFT_NF4 | 1u << WEFT_NF4X64 | 1u << WEFT_F8X128)
static inline bool matrices_is_packed(int32_t dtype) {
    return dtype >= 0 && dtype < 32 && (PACKED_TYPES >> dtype & 1u) != 0;
}

/* Sizes, types and all operands but the workspace; what is wrong is in c. */
void matrices_look_up(operands *c, matrices *out, const weft_matmul *args);

/* A packed operand, whose rows lie without a gap: of whole blocks, unless the type is flat. */
const void *matrices_packed(operands *c, weft_ref ref, const char *name, int32_t dtype, int64_t rows, int64_t width,
                            int64_t ld);

#endif
