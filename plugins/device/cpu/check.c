/* check.c: an operand is looked up here and nowhere else, so that no kernel can reach beyond a buffer.
 *
 * A handful of compares per call. What fails here is a defect of the host (a plan that is too small), never of the
 * user.
 */
#include "cpu.h"

cpu_check cpu_check_plain(const char *kernel, weft_error *err) {
    const cpu_check c = {kernel, err, WEFT_OK};
    return c;
}

cpu_check cpu_check_begin(const char *kernel, const void *args, uint32_t least, size_t known, weft_error *err) {
    cpu_check c = cpu_check_plain(kernel, err);
    uint32_t given = 0;
    memcpy(&given, args, sizeof given);
    if (given < least) {
        c.status = weft_error_set(err, WEFT_E_HOST,
                                  "%s on device cpu: the arguments' struct_size is %u and should be at least %u.",
                                  kernel, given, least);
    } else if (!weft_struct_known(args, known)) {
        c.status = weft_error_set(err, WEFT_E_UNSUPPORTED,
                                  "%s on device cpu: the arguments say something behind the %zu bytes that this device "
                                  "knows of them.",
                                  kernel, known);
    }
    return c;
}

void cpu_check_size(cpu_check *c, const char *name, int64_t value, int64_t low) {
    if (c->status != WEFT_OK || (value >= low && value <= CPU_SIZE_LIMIT)) return;
    c->status = weft_error_set(c->err, WEFT_E_HOST, "%s on device cpu: %s is %lld and should lie in [%lld, 2^40].",
                               c->kernel, name, (long long)value, (long long)low);
}

int64_t cpu_check_dtype(cpu_check *c, const char *name, int32_t dtype) {
    if (c->status == WEFT_OK && dtype != WEFT_F32 && dtype != WEFT_BF16) {
        c->status = weft_error_set(c->err, WEFT_E_UNSUPPORTED,
                                   "%s on device cpu: %s is %s; fp32 and bf16 are what this device computes with.",
                                   c->kernel, name, weft_dtype_name(dtype));
    }
    return cpu_cell_bytes(dtype);
}

/* Bytes of an operand, or -1 if they do not fit 64 bits. */
static int64_t operand_bytes(int64_t rows, int64_t width, int64_t bytes) {
    const int64_t elements = rows < 0 || width < 0 ? -1 : cpu_times(rows, width);
    return elements < 0 ? -1 : cpu_times(elements, bytes);
}

void *cpu_may(cpu_check *c, weft_ref ref, const char *name, int64_t rows, int64_t width, int64_t bytes) {
    return ref.buffer == NULL ? NULL : cpu_need(c, ref, name, rows, width, bytes);
}

void *cpu_need(cpu_check *c, weft_ref ref, const char *name, int64_t rows, int64_t width, int64_t bytes) {
    const int64_t total = operand_bytes(rows, width, bytes);
    if (c->status != WEFT_OK) return NULL;
    if (total < 0) {
        c->status = weft_error_set(c->err, WEFT_E_HOST,
                                   "%s on device cpu: operand %s of %lld x %lld elements has no valid size.", c->kernel,
                                   name, (long long)rows, (long long)width);
    } else if (ref.buffer == NULL) {
        c->status = weft_error_set(c->err, WEFT_E_HOST, "%s on device cpu: operand %s is missing.", c->kernel, name);
    } else if (ref.offset < 0 || ref.offset > ref.buffer->size || total > ref.buffer->size - ref.offset) {
        c->status = weft_error_set(c->err, WEFT_E_HOST,
                                   "%s on device cpu: operand %s needs %lld bytes from offset %lld on, and its buffer "
                                   "has %lld.",
                                   c->kernel, name, (long long)total, (long long)ref.offset,
                                   (long long)ref.buffer->size);
    } else if (bytes > 1 && ref.offset % bytes != 0) {
        c->status = weft_error_set(c->err, WEFT_E_HOST,
                                   "%s on device cpu: operand %s begins at offset %lld, which is no multiple of its "
                                   "element's %lld bytes.",
                                   c->kernel, name, (long long)ref.offset, (long long)bytes);
    }
    return c->status == WEFT_OK ? ref.buffer->base + ref.offset : NULL;
}

const char *cpu_need_rows(cpu_check *c, weft_ref ref, const char *name, int64_t n, uint32_t stride, uint32_t least) {
    if (c->status == WEFT_OK && (stride < least || stride % 8 != 0)) {
        c->status =
            weft_error_set(c->err, WEFT_E_HOST,
                           "%s on device cpu: %s lie %u bytes apart; at least %u, in whole words of 8, are needed.",
                           c->kernel, name, stride, least);
    }
    return cpu_need(c, ref, name, n, stride / 8, 8);
}

void *cpu_need_workspace(cpu_check *c, weft_ref ref, int64_t bytes) {
    if (c->status != WEFT_OK || bytes == 0) return NULL;
    return cpu_need(c, ref, "workspace", cpu_ceil_div(bytes, 8), 1, 8);
}

void cpu_check_indices(cpu_check *c, const char *name, const int32_t *values, const float *weights, int64_t n,
                       int64_t limit) {
    int64_t i = 0;
    if (c->status != WEFT_OK) return;
    for (i = 0; i < n; i++) {
        const bool inside = values[i] >= 0 && values[i] < limit;
        if (inside || (weights != NULL && !(weights[i] != 0))) continue;
        c->status = weft_error_set(c->err, WEFT_E_HOST,
                                   "%s on device cpu: %s[%lld] is %d, and the table has rows 0 to %lld.", c->kernel,
                                   name, (long long)i, values[i], (long long)limit - 1);
        return;
    }
}
