/* host/base/joined.h: a packed matrix stored as separate code and scale tensors, read as one tensor in the block
 * formats of weft/blocks.h. Reads assemble the blocks from the stored codes and scales without dequantization. Only the
 * requested blocks are in memory. */
#ifndef WEFT_HOST_BASE_JOINED_H
#define WEFT_HOST_BASE_JOINED_H

#include "base/safetensors.h"

typedef struct weft_joined {
    int32_t dtype;         /* of the blocks: WEFT_NF4, WEFT_NF4X64 or WEFT_I8X64 */
    int64_t rows, columns; /* of the matrix */
    weft_tensor codes;     /* 4-bit: two a byte, the first in the upper half, of any dtype; int8: one a byte */
    weft_tensor scales;    /* nf4: one code per `each` numbers; nf4x64: one fp32; int8: a row's largest |x|, fp32 */
    weft_tensor shared;    /* nf4: one scale per `among` scales, fp32 */
    int64_t each, among;   /* nf4: multiples of 64, each * among a multiple of the block; int8: each = columns */
    float added;           /* nf4: offset added to every scale */
} weft_joined;

/* Sets dtype, rank, dims, numel and bytes of `out`, which is U8. */
void weft_joined_describe(weft_tensor *out, const weft_joined *self);

/* Reads bytes [offset, offset + bytes) of its blocks. [any-thread] */
weft_status weft_joined_read(const weft_safetensors *files, void *out, const weft_joined *self, int64_t offset,
                             int64_t bytes, weft_error *err);

/* Frees self and the names of its tensors; NULL is fine. */
void weft_joined_free(weft_joined *self);

#endif
