/* host/model/convert.h: conversion among the three floating-point types of checkpoints, on the host. */
#ifndef WEFT_HOST_MODEL_CONVERT_H
#define WEFT_HOST_MODEL_CONVERT_H

#include "base/safetensors.h"
#include "model/declare.h"

#include <stdbool.h>
#include <weft/base.h>

/* File format of packed parameters: bytes (U8) with dimensions for rows, blocks of a row and bytes
 * of a block. If blocks continue in the next row, the dimension for rows is omitted. So a file shows which of its
 * tensors are packed, and in which type. */

/* Returns a parameter's tensor in a file of `dtype`: name, type and shape. */
weft_tensor_spec weft_packed_spec(const weft_parameter *parameter, int32_t dtype);
/* Returns the same for an optimizer state of the parameter, stored in `dtype`. A packed state is packed over the
 * complete tensor as one row. */
weft_tensor_spec weft_packed_state_spec(const weft_parameter *parameter, int32_t dtype);
/* Returns the size of the file tensor in bytes. */
int64_t weft_packed_file_bytes(const weft_parameter *parameter, int32_t dtype);

/* Returns the packed type of a tensor, from the bytes of its blocks; 0 for plain elements. */
int32_t weft_packed_type(const weft_tensor *tensor);

/* True if the tensor contains a packed parameter in its storage format. */
bool weft_packed_holds(const weft_tensor *tensor, const weft_parameter *parameter);

/* Returns the file bytes of `grid` elements of a tensor; grid: a multiple of the block. */
int64_t weft_packed_cell(const weft_tensor *tensor, int64_t grid);

/* True for fp32, bf16 and fp16. */
static inline bool weft_is_convertible(int32_t dtype) {
    return dtype == WEFT_F32 || dtype == WEFT_BF16 || dtype == WEFT_F16;
}

/* Converts to (n) = from (n) among fp32, bf16 and fp16. Narrowing rounds to nearest, ties to even; overflow becomes
 * infinity, NaN remains NaN. Both addresses may be unaligned. Returns false for other types and writes no output.
 * [any-thread] [hot] */
bool weft_convert(void *to, int32_t dtype_to, const void *from, int32_t dtype_from, int64_t n);

#endif
