/* host/model/convert.h: conversion among the three floating-point types of checkpoints, on the host. */
#ifndef WEFT_HOST_MODEL_CONVERT_H
#define WEFT_HOST_MODEL_CONVERT_H

#include <stdbool.h>
#include <weft/base.h>

/* Converts to (n) = from (n) among fp32, bf16 and fp16. Narrowing rounds to nearest, ties to even; overflow becomes
 * infinity, NaN remains NaN. Both addresses may be unaligned. Returns false for other types and writes no output.
 * [any-thread] [hot] */
bool weft_convert(void *to, int32_t dtype_to, const void *from, int32_t dtype_from, int64_t n);

#endif
