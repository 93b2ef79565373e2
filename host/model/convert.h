/* host/model/convert.h: the three floating-point types of checkpoints, on the host. */
#ifndef WEFT_HOST_MODEL_CONVERT_H
#define WEFT_HOST_MODEL_CONVERT_H

#include <stdbool.h>
#include <weft/base.h>

/* to (n) = from (n) among fp32, bf16 and fp16. Narrowing rounds to the nearest, ties to even; what is too large becomes
 * infinity, NaN stays NaN. Neither side need be aligned. False: another type, and nothing is written.
 * [any-thread] [hot] */
bool weft_convert(void *to, int32_t dtype_to, const void *from, int32_t dtype_from, int64_t n);

#endif
