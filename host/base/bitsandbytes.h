/* host/base/bitsandbytes.h: matrices as bitsandbytes saves them, in files that transformers has written.
 *
 * A 4-bit matrix is a tensor of its codes, and beside it, for X.weight:
 *     X.weight.quant_state.bitsandbytes__nf4   JSON as bytes: quant_type, blocksize, shape, and where the scales are
 *                                              quantised as well nested_blocksize and nested_offset
 *     X.weight.absmax                          the scale of `blocksize` numbers, fp32, or then codes of 8 bits
 *     X.weight.nested_absmax                   then the scale of `nested_blocksize` of them, fp32
 *     X.weight.quant_map, X.weight.nested_quant_map   what the codes stand for
 * An int8 one is a tensor I8, and beside it
 *     X.SCB                                    the largest |x| of each row, fp32
 *     X.weight_format                          0: rows lie as they are; may be missing
 * What the blocks of weft/blocks.h hold to the bit becomes one tensor (base/joined.h); all else is refused by file,
 * tensor and key. The numbers of the two maps are constants here and in the kernels: those of the files must agree, but
 * for the last bits, which releases of bitsandbytes and PyTorch round differently. */
#ifndef WEFT_HOST_BASE_BITSANDBYTES_H
#define WEFT_HOST_BASE_BITSANDBYTES_H

#include "base/safetensors.h"

/* Makes one tensor of each such matrix; what belonged to it is no tensor of its own any more. */
weft_status weft_bitsandbytes_join(weft_safetensors *self, weft_error *err);

#endif
