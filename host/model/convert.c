/* host/model/convert.c: converts between bit patterns of fp32, bf16 and fp16. Loads and stores use memcpy, because a
 * checkpoint's data may begin at any byte; this has no cost. Requires the default rounding mode, as the complete host
 * does. */
#include "model/convert.h"

#include "base/safetensors.h"

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
    return weft_parameter_is_packed(parameter) && tensor->dtype == WEFT_U8 &&
           weft_tensor_has_dims(tensor, spec.dims, spec.rank) &&
           (tensor->joined == NULL ||
            (tensor->joined->rows == parameter->dims[0] && tensor->joined->columns == parameter->dims[1]));
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

static uint32_t bits_of(float x) {
    uint32_t bits = 0;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits) {
    float x = 0;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float from_bf16(uint16_t half) {
    return float_of((uint32_t)half << 16);
}

static uint16_t to_bf16(float x) {
    const uint32_t bits = bits_of(x);
    const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t quiet = (bits >> 16) | 0x40u; /* quiet NaN: rounding could turn it into infinity */
    return (uint16_t)((bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded);
}

/* fp16: 1 sign bit, 5 exponent bits (bias 15), 10 fraction bits; subnormals are multiples of 2^-24. */
static float from_f16(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16, exponent = (half >> 10) & 31u, fraction = half & 0x3FFu;
    const uint32_t small = bits_of((float)fraction * 0x1p-24f); /* exact */
    const uint32_t normal = ((exponent + 127 - 15) << 23) | (fraction << 13);
    const uint32_t special = 0x7F800000u | (fraction << 13); /* infinity, NaN */
    return float_of(sign | (exponent == 0 ? small : exponent == 31 ? special : normal));
}

static uint16_t to_f16(float x) {
    const uint32_t sign = (bits_of(x) >> 16) & 0x8000u, size = bits_of(x) & 0x7FFFFFFFu;
    /* 0.5 plus a number below 2^-14 has its last bit at 2^-24, so this sum rounds like a subnormal fp16. */
    const uint32_t small = bits_of(float_of(size) + 0.5f) - bits_of(0.5f);
    const uint32_t normal = (size - ((uint32_t)(127 - 15) << 23) + 0xFFFu + ((size >> 13) & 1u)) >> 13;
    uint32_t out = normal;
    if (size < 0x38800000u) out = small;    /* below 2^-14 */
    if (size >= 0x477FF000u) out = 0x7C00u; /* 65520 and above: infinity */
    if (size > 0x7F800000u) out = 0x7E00u;  /* NaN */
    return (uint16_t)(sign | out);
}

static uint16_t f16_to_bf16(uint16_t half) {
    return to_bf16(from_f16(half));
}

static uint16_t bf16_to_f16(uint16_t half) {
    return to_f16(from_bf16(half));
}

/* Loops over elements of `from_type` and `to_type` at any address. */
#define CONVERT(to_type, from_type, function)                                                                          \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        from_type element;                                                                                             \
        to_type result;                                                                                                \
        memcpy(&element, (const char *)from + i * (int64_t)sizeof element, sizeof element);                            \
        result = function(element);                                                                                    \
        memcpy((char *)to + i * (int64_t)sizeof result, &result, sizeof result);                                       \
    }

bool weft_convert(void *to, int32_t dtype_to, const void *from, int32_t dtype_from, int64_t n) {
    if (weft_is_convertible(dtype_from) && dtype_to == dtype_from) {
        if (n > 0) memcpy(to, from, (size_t)(n * weft_dtype_bytes(dtype_to)));
    } else if (dtype_to == WEFT_F32 && dtype_from == WEFT_BF16) {
        CONVERT(float, uint16_t, from_bf16)
    } else if (dtype_to == WEFT_F32 && dtype_from == WEFT_F16) {
        CONVERT(float, uint16_t, from_f16)
    } else if (dtype_to == WEFT_BF16 && dtype_from == WEFT_F32) {
        CONVERT(uint16_t, float, to_bf16)
    } else if (dtype_to == WEFT_F16 && dtype_from == WEFT_F32) {
        CONVERT(uint16_t, float, to_f16)
    } else if (dtype_to == WEFT_BF16 && dtype_from == WEFT_F16) {
        CONVERT(uint16_t, uint16_t, f16_to_bf16)
    } else if (dtype_to == WEFT_F16 && dtype_from == WEFT_BF16) {
        CONVERT(uint16_t, uint16_t, bf16_to_f16)
    } else {
        return false;
    }
    return true;
}
