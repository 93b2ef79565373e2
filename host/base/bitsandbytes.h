/* host/base/bitsandbytes.h: reads matrices in the bitsandbytes format, from files that transformers has written.
 *
 * A 4-bit matrix X.weight is a tensor of codes with these additional tensors:
 *     X.weight.quant_state.bitsandbytes__nf4   JSON as bytes: quant_type, blocksize, shape; for quantized scales also
 *                                              nested_blocksize and nested_offset
 *     X.weight.absmax                          the scale of `blocksize` numbers: fp32, or 8-bit codes if quantized
 *     X.weight.nested_absmax                   if quantized: the scale of `nested_blocksize` scales, fp32
 *     X.weight.quant_map, X.weight.nested_quant_map   the values of the codes
 * An int8 matrix is a tensor I8 with these additional tensors:
 *     X.SCB                                    the largest |x| of each row, fp32
 *     X.weight_format                          0: row-major; may be missing
 * A matrix that the blocks of weft/blocks.h represent exactly becomes one tensor (weft_joined). Any other is rejected
 * with file, tensor and key. The values of both maps are constants here and in the kernels. The maps in the files must
 * match them except for the last bits, which releases of bitsandbytes and PyTorch round differently. */
#ifndef WEFT_HOST_BASE_BITSANDBYTES_H
#define WEFT_HOST_BASE_BITSANDBYTES_H

#include "base/safetensors.h"

/* A matrix stored as separate code and scale tensors. */
typedef struct weft_joined {
    int32_t dtype;         /* of the blocks: WEFT_NF4, WEFT_NF4X64 or WEFT_I8X64 */
    int64_t rows, columns; /* of the matrix */
    weft_tensor codes;     /* 4-bit: two a byte, the first in the upper half, of any dtype; int8: one a byte */
    weft_tensor scales;    /* nf4: one code per `each` numbers; nf4x64: one fp32; int8: a row's largest |x|, fp32 */
    weft_tensor shared;    /* nf4: one scale per `among` scales, fp32 */
    int64_t each, among;   /* nf4: multiples of 64, each * among a multiple of the block; int8: each = columns */
    float added;           /* nf4: offset added to every scale */
} weft_joined;

/* Replaces the tensors of each such matrix by one joined tensor. */
weft_status weft_bitsandbytes_join(weft_safetensors *self, weft_error *err);

/* Reads bytes [offset, offset + bytes) of its blocks. [any-thread] */
weft_status weft_joined_read(const weft_safetensors *files, void *out, const weft_joined *self, int64_t offset,
                             int64_t bytes, weft_error *err);

/* Frees self and the names of its tensors; NULL is fine. */
void weft_joined_free(weft_joined *self);

#endif
