/* common/matrices.c: see matrices.h. */
#include "matrices.h"

/* Looks up a rows x width matrix with row distance ld. Elements after the last row's end are not accessed. */
static void *look_up_matrix(operands *c, weft_ref ref, const char *name, int64_t rows, int64_t width, int64_t ld,
                            int32_t dtype) {
    const int64_t bytes = weft_dtype_bytes(dtype);
    if (c->status == WEFT_OK && ld < size_max(width, 1)) {
        c->status = weft_error_set(c->err, WEFT_E_HOST,
                                   "%s on device %s: operand %s has a row stride of %lld and a row length of %lld.",
                                   c->kernel, operands_device, name, (long long)ld, (long long)width);
    }
    if (c->status != WEFT_OK || rows == 0 || width == 0) return NULL;
    if (size_times(rows, ld) < 0) return operands_need(c, ref, name, rows, ld, bytes);
    return operands_need(c, ref, name, (rows - 1) * ld + width, 1, bytes);
}

/* Looks up contiguous rows in blocks that start with an fp32 scale and have a size in 4-byte words. */
const void *matrices_packed(operands *c, weft_ref ref, const char *name, int32_t dtype, int64_t rows, int64_t width,
                            int64_t ld) {
    const int64_t block = weft_dtype_block(dtype), words = weft_dtype_bytes(dtype) / 4;
    const int64_t numbers = size_times(rows, width);
    if (c->status == WEFT_OK && ld != width) {
        c->status = weft_error_set(
            c->err, WEFT_E_HOST,
            "%s on device %s: operand %s has a row stride of %lld and a row length of %lld; %s must be contiguous.",
            c->kernel, operands_device, name, (long long)ld, (long long)width, weft_dtype_name(dtype));
    } else if (c->status == WEFT_OK && !weft_dtype_is_flat(dtype) && width % block != 0) {
        c->status = weft_error_set(
            c->err, WEFT_E_HOST,
            "%s on device %s: operand %s has a row length of %lld; rows of %s must be complete blocks of %lld.",
            c->kernel, operands_device, name, (long long)width, weft_dtype_name(dtype), (long long)block);
    }
    if (c->status != WEFT_OK || rows == 0 || width == 0) return NULL;
    return operands_need(c, ref, name, numbers < 0 ? numbers : size_ceil_div(numbers, block), words, 4);
}

/* Fails unless both operands are fp32, or both bf16 or fp16 with a result of that type or fp32. b may be packed. */
static void check_types(operands *c, const weft_matmul *args) {
    const bool is_packed = matrices_is_packed(args->dtype_b);
    (void)operands_dtype(c, "a", args->dtype_a);
    if (!is_packed) (void)operands_dtype(c, "b", args->dtype_b);
    (void)operands_dtype(c, "c", args->dtype_c);
    if (c->status != WEFT_OK) return;
    if ((is_packed || args->dtype_a == args->dtype_b) && (args->dtype_c == args->dtype_a || args->dtype_c == WEFT_F32))
        return;
    c->status = weft_error_set(
        c->err, WEFT_E_UNSUPPORTED,
        "%s on device %s: a is %s, b is %s and c is %s; both operands may be fp32 with c in "
        "fp32, or both bf16 or both fp16 with c in that or fp32; b may be packed with any. Convert one first.",
        c->kernel, operands_device, weft_dtype_name(args->dtype_a), weft_dtype_name(args->dtype_b),
        weft_dtype_name(args->dtype_c));
}

static void check_bias(operands *c, const weft_matmul *args) {
    if (c->status != WEFT_OK || !args->has_bias || !args->accumulate) return;
    c->status = weft_error_set(c->err, WEFT_E_UNSUPPORTED,
                               "%s on device %s: a bias cannot be combined with an accumulation into c.", c->kernel,
                               operands_device);
}

static void check_sizes(operands *c, const weft_matmul *args) {
    operands_size(c, "m", args->m, 0);
    operands_size(c, "n", args->n, 0);
    operands_size(c, "k", args->k, 0);
    operands_size(c, "lda", args->lda, 1);
    operands_size(c, "ldb", args->ldb, 1);
    operands_size(c, "ldc", args->ldc, 1);
}

void matrices_look_up(operands *c, matrices *out, const weft_matmul *args) {
    const int64_t m = args->m, n = args->n, k = args->k;
    check_types(c, args);
    check_bias(c, args);
    check_sizes(c, args);
    out->a =
        look_up_matrix(c, args->a, "a", args->transpose_a ? k : m, args->transpose_a ? m : k, args->lda, args->dtype_a);
    if (weft_dtype_is_packed(args->dtype_b))
        out->packed = matrices_packed(c, args->b, "b", args->dtype_b, args->transpose_b ? n : k,
                                      args->transpose_b ? k : n, args->ldb);
    else
        out->b = look_up_matrix(c, args->b, "b", args->transpose_b ? n : k, args->transpose_b ? k : n, args->ldb,
                                args->dtype_b);
    out->c = look_up_matrix(c, args->c, "c", m, n, args->ldc, args->dtype_c);
    if (args->has_bias) out->bias = operands_need(c, args->bias, "bias", n, 1, 4);
}
