/* host/base/joined.h: a packed matrix whose codes and scales are tensors of their own in its files, as one tensor of
 * the blocks of weft/blocks.h. The blocks are put together as they are read, of the codes and scales as they stand:
 * nothing becomes numbers on the way, and of a matrix no more is held than the blocks that are asked for. */
#ifndef WEFT_HOST_BASE_JOINED_H
#define WEFT_HOST_BASE_JOINED_H

#include "base/safetensors.h"

typedef struct weft_joined {
    int32_t dtype;         /* of the blocks: WEFT_NF4, WEFT_NF4X64 or WEFT_I8X64 */
    int64_t rows, columns; /* of the matrix */
    weft_tensor codes;     /* of 4 bits: two a byte, the first one in the upper half, of any type; int8: one a byte */
    weft_tensor scales;    /* nf4: a code for `each` numbers; nf4x64: fp32 for them; int8: a row's largest |x|, fp32 */
    weft_tensor shared;    /* nf4: the scale of `among` scales, fp32 */
    int64_t each, among;   /* whole 64, and of nf4 as many numbers together as some blocks have */
    float added;           /* nf4: to every scale */
} weft_joined;

/* Elements of the tensor that it is handed out as: dtype, rank, dims, numel and bytes of `out`, which is U8. */
void weft_joined_describe(weft_tensor *out, const weft_joined *self);

/* Bytes [offset, offset + bytes) of its blocks. [any-thread] */
weft_status weft_joined_read(const weft_safetensors *files, void *out, const weft_joined *self, int64_t offset,
                             int64_t bytes, weft_error *err);

/* With the names of its tensors; NULL is fine. */
void weft_joined_free(weft_joined *self);

#endif
