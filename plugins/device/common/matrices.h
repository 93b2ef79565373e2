/* common/matrices.h: validates and looks up the operands of a matmul. */
#ifndef WEFT_DEVICE_COMMON_MATRICES_H
#define WEFT_DEVICE_COMMON_MATRICES_H

#include <stdbool.h>

#include "operands.h"

typedef struct matrices {
    const void *a, *b; /* NULL if empty */
    void *c;
    const void *packed; /* instead of b, if it is stored in blocks (weft/blocks.h) */
    const float *bias;  /* NULL: no bias */
} matrices;

/* Packed types that devices multiply with; weft_dtype has others for optimizer states. */
#define PACKED_TYPES (1u << WEFT_I8X64 | 1u << WEFT_NF4 | 1u << WEFT_NF4X64 | 1u << WEFT_F8X128)
static inline bool matrices_is_packed(int32_t dtype) {
    return dtype >= 0 && dtype < 32 && (PACKED_TYPES >> dtype & 1u) != 0;
}

/* Validates sizes and types and looks up all operands except the workspace; errors are in c. */
void matrices_look_up(operands *c, matrices *out, const weft_matmul *args);

/* Looks up a packed operand with contiguous rows of complete blocks; a flat type's blocks may span rows. */
const void *matrices_packed(operands *c, weft_ref ref, const char *name, int32_t dtype, int64_t rows, int64_t width,
                            int64_t ld);

#endif
