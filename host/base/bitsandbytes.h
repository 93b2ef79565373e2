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
 * A matrix that the blocks of weft/blocks.h represent exactly becomes one tensor (base/joined.h). Any other is rejected
 * with file, tensor and key. The values of both maps are constants here and in the kernels. The maps in the files must
 * match them except for the last bits, which releases of bitsandbytes and PyTorch round differently. */
#ifndef WEFT_HOST_BASE_BITSANDBYTES_H
#define WEFT_HOST_BASE_BITSANDBYTES_H

#include "base/safetensors.h"

/* Replaces the tensors of each such matrix by one joined tensor. */
weft_status weft_bitsandbytes_join(weft_safetensors *self, weft_error *err);

#endif
