/* host/model/packed.h: how files hold packed parameters: as bytes (U8), a dimension for the rows, one for the blocks of
 * a row and one for the bytes of a block; blocks that go on in the next row have no dimension for the rows. So a file
 * says by itself which of its tensors are packed, and how. */
#ifndef WEFT_HOST_MODEL_PACKED_H
#define WEFT_HOST_MODEL_PACKED_H

#include "base/safetensors.h"
#include "model/declare.h"

/* A parameter's tensor in a file of numbers of `dtype`: name, type and shape. */
weft_tensor_spec weft_packed_spec(const weft_parameter *parameter, int32_t dtype);
/* The same of an optimizer state of it, which is kept in `dtype`: what is packed is packed over the whole tensor, one
 * row whatever its shape. */
weft_tensor_spec weft_packed_state_spec(const weft_parameter *parameter, int32_t dtype);
/* Its bytes. */
int64_t weft_packed_file_bytes(const weft_parameter *parameter, int32_t dtype);

/* The packed type of a tensor, by the bytes of its blocks; 0: its elements are plain. */
int32_t weft_packed_type(const weft_tensor *tensor);

/* The tensor is a parameter's, which is packed, as it is stored. */
bool weft_packed_holds(const weft_tensor *tensor, const weft_parameter *parameter);

/* Bytes that `grid` elements of a tensor take in its file; grid: whole blocks. */
int64_t weft_packed_cell(const weft_tensor *tensor, int64_t grid);

#endif
