/* host/model/packed.c: see packed.h. */
#include "model/packed.h"

#include "base/joined.h"

/* RANK if blocks end with the rows; FLAT_RANK if they do not, without a dimension for the rows. */
enum { RANK = 3, FLAT_RANK = 2 };

weft_tensor_spec weft_packed_spec(const weft_parameter *parameter, int32_t dtype) {
    const int32_t stored = parameter->dtype;
    weft_tensor_spec spec = {.name = parameter->name, .dtype = dtype, .rank = parameter->rank};
    memcpy(spec.dims, parameter->dims, sizeof parameter->dims);
    if (!weft_parameter_is_packed(parameter)) return spec;
    spec.dtype = WEFT_U8;
    spec.rank = weft_dtype_is_flat(stored) ? FLAT_RANK : RANK;
    if (weft_dtype_is_flat(stored)) spec.dims[0] = weft_dtype_span(stored, parameter->numel) / weft_dtype_bytes(stored);
    else spec.dims[1] = parameter->dims[1] / weft_dtype_block(stored);
    spec.dims[spec.rank - 1] = weft_dtype_bytes(stored);
    return spec;
}

weft_tensor_spec weft_packed_state_spec(const weft_parameter *parameter, int32_t dtype) {
    weft_tensor_spec spec = {.name = parameter->name, .dtype = dtype, .rank = parameter->rank};
    memcpy(spec.dims, parameter->dims, sizeof parameter->dims);
    if (!weft_dtype_is_packed(dtype)) return spec;
    spec.dtype = WEFT_U8;
    spec.rank = RANK;
    spec.dims[0] = 1;
    spec.dims[RANK - 1] = weft_dtype_bytes(dtype);
    spec.dims[1] = weft_dtype_span(dtype, parameter->numel) / spec.dims[RANK - 1];
    return spec;
}

int64_t weft_packed_file_bytes(const weft_parameter *parameter, int32_t dtype) {
    return weft_dtype_span(weft_parameter_is_packed(parameter) ? parameter->dtype : dtype, parameter->numel);
}

bool weft_packed_holds(const weft_tensor *tensor, const weft_parameter *parameter) {
    const weft_tensor_spec spec = weft_packed_spec(parameter, tensor->dtype);
    bool same = weft_parameter_is_packed(parameter) && tensor->dtype == WEFT_U8 && tensor->rank == spec.rank;
    for (int32_t i = 0; same && i < spec.rank; i++) same = tensor->dims[i] == spec.dims[i];
    if (same && tensor->joined != NULL)
        same = tensor->joined->rows == parameter->dims[0] && tensor->joined->columns == parameter->dims[1];
    return same;
}

int32_t weft_packed_type(const weft_tensor *tensor) {
    if (tensor->dtype != WEFT_U8 || (tensor->rank != RANK && tensor->rank != FLAT_RANK)) return 0;
    for (int32_t dtype = 1; dtype <= WEFT_DTYPE_LAST; dtype++)
        if (weft_dtype_is_packed(dtype) && tensor->rank == (weft_dtype_is_flat(dtype) ? FLAT_RANK : RANK) &&
            weft_dtype_bytes(dtype) == tensor->dims[tensor->rank - 1])
            return dtype;
    return 0;
}

int64_t weft_packed_cell(const weft_tensor *tensor, int64_t grid) {
    const int32_t packed = weft_packed_type(tensor);
    return weft_dtype_span(packed != 0 ? packed : tensor->dtype, grid);
}
