/* common/operands.c: see operands.h. */
#include "operands.h"

operands operands_plain(const char *kernel, weft_error *err) {
    const operands c = {kernel, err, WEFT_OK};
    return c;
}

operands operands_begin(const char *kernel, const void *args, uint32_t least, size_t known, weft_error *err) {
    operands c = operands_plain(kernel, err);
    uint32_t given = 0;
    memcpy(&given, args, sizeof given);
    if (given < least) {
        c.status = weft_error_set(err, WEFT_E_HOST,
                                  "%s on device %s: the arguments' struct_size is %u and should be at least %u.",
                                  kernel, operands_device, given, least);
    } else if (!weft_struct_known(args, known)) {
        c.status =
            weft_error_set(err, WEFT_E_UNSUPPORTED,
                           "%s on device %s: the arguments set fields beyond the %zu bytes that this device supports.",
                           kernel, operands_device, known);
    }
    return c;
}

void operands_size(operands *c, const char *name, int64_t value, int64_t low) {
    if (c->status != WEFT_OK || (value >= low && value <= OPERANDS_SIZE_LIMIT)) return;
    c->status = weft_error_set(c->err, WEFT_E_HOST, "%s on device %s: %s is %lld. Allowed: [%lld, 2^40].", c->kernel,
                               operands_device, name, (long long)value, (long long)low);
}

int64_t operands_dtype(operands *c, const char *name, int32_t dtype) {
    if (c->status == WEFT_OK && (dtype < 0 || dtype > 31 || (operands_types >> dtype & 1u) == 0)) {
        c->status = weft_error_set(c->err, WEFT_E_UNSUPPORTED, "%s on device %s: %s is %s. Allowed: %s.", c->kernel,
                                   operands_device, name, weft_dtype_name(dtype),
                                   (operands_types >> WEFT_F16 & 1u) != 0 ? "fp32, bf16 and fp16" : "fp32 and bf16");
    }
    return dtype == WEFT_BF16 || dtype == WEFT_F16 ? 2 : 4;
}

/* Returns the bytes of an operand, or -1 on overflow of 64 bits. */
static int64_t operand_bytes(int64_t rows, int64_t width, int64_t bytes) {
    const int64_t elements = rows < 0 || width < 0 ? -1 : size_times(rows, width);
    return elements < 0 ? -1 : size_times(elements, bytes);
}

void *operands_may(operands *c, weft_ref ref, const char *name, int64_t rows, int64_t width, int64_t bytes) {
    return ref.buffer == NULL ? NULL : operands_need(c, ref, name, rows, width, bytes);
}

void *operands_need(operands *c, weft_ref ref, const char *name, int64_t rows, int64_t width, int64_t bytes) {
    const int64_t total = operand_bytes(rows, width, bytes);
    if (c->status != WEFT_OK) return NULL;
    if (total < 0) {
        c->status = weft_error_set(c->err, WEFT_E_HOST,
                                   "%s on device %s: operand %s of %lld x %lld elements has no valid size.", c->kernel,
                                   operands_device, name, (long long)rows, (long long)width);
    } else if (ref.buffer == NULL) {
        c->status = weft_error_set(c->err, WEFT_E_HOST, "%s on device %s: operand %s is missing.", c->kernel,
                                   operands_device, name);
    } else if (ref.offset < 0 || ref.offset > ref.buffer->size || total > ref.buffer->size - ref.offset) {
        c->status = weft_error_set(c->err, WEFT_E_HOST,
                                   "%s on device %s: operand %s needs %lld bytes from offset %lld on, and its buffer "
                                   "has %lld.",
                                   c->kernel, operands_device, name, (long long)total, (long long)ref.offset,
                                   (long long)ref.buffer->size);
    } else if (bytes > 1 && ref.offset % bytes != 0) {
        c->status = weft_error_set(c->err, WEFT_E_HOST,
                                   "%s on device %s: operand %s begins at offset %lld, which is no multiple of its "
                                   "element's %lld bytes.",
                                   c->kernel, operands_device, name, (long long)ref.offset, (long long)bytes);
    }
    return c->status == WEFT_OK ? ref.buffer->base + ref.offset : NULL;
}

const char *operands_need_rows(operands *c, weft_ref ref, const char *name, int64_t n, uint32_t stride,
                               uint32_t least) {
    if (c->status == WEFT_OK && (stride < least || stride % 8 != 0)) {
        c->status =
            weft_error_set(c->err, WEFT_E_HOST,
                           "%s on device %s: %s have a stride of %u bytes. Allowed: at least %u, and a multiple of 8.",
                           c->kernel, operands_device, name, stride, least);
    }
    return operands_need(c, ref, name, n, stride / 8, 8);
}

void operands_regions(operands *c, const weft_update *args) {
    operands_size(c, "n_regions", args->n_regions, 0);
    if (c->status != WEFT_OK || args->n_regions == 0) return;
    if (args->regions != NULL && args->region_stride >= WEFT_SIZE_1_0(weft_update_region) &&
        args->region_stride % 8 == 0)
        return;
    c->status = weft_error_set(
        c->err, WEFT_E_HOST,
        "%s on device %s: %d regions have a stride of %u bytes from %s on. Allowed: at least %u, and a multiple of 8.",
        c->kernel, operands_device, args->n_regions, args->region_stride,
        args->regions == NULL ? "nowhere" : "an address", WEFT_SIZE_1_0(weft_update_region));
}

void operands_region(operands *c, const weft_update_region *region) {
    if (c->status == WEFT_OK) *c = OPERANDS(c->kernel, weft_update_region, region, c->err);
    operands_size(c, "n", region->n, 0);
    operands_size(c, "n_ranges", region->n_ranges, 0);
}

void *operands_copy(operands *c, const weft_update_region *region, int32_t *dtype) {
    const int known = c->status == WEFT_OK && WEFT_HAS(region, copy_dtype);
    *dtype = known ? region->copy_dtype : 0;
    if (!known || (*dtype == 0 && region->copy.buffer == NULL)) return NULL;
    if (*dtype == WEFT_F32 || *dtype == WEFT_BF16 || *dtype == WEFT_F16)
        return operands_may(c, region->copy, "copy", region->n, 1, weft_dtype_bytes(*dtype));
    c->status = weft_error_set(c->err, WEFT_E_UNSUPPORTED, "%s on device %s: copy is %s. Allowed: fp32, bf16 and fp16.",
                               c->kernel, operands_device, weft_dtype_name(*dtype));
    return NULL;
}

void *operands_need_workspace(operands *c, weft_ref ref, int64_t bytes) {
    if (c->status != WEFT_OK || bytes == 0) return NULL;
    return operands_need(c, ref, "workspace", size_ceil_div(bytes, 8), 1, 8);
}

void operands_parts(operands *c, int64_t parts, int64_t width) {
    operands_size(c, "parts", parts, 1);
    if (c->status != WEFT_OK || width % parts == 0) return;
    c->status = weft_error_set(c->err, WEFT_E_HOST,
                               "%s on device %s: %lld elements cannot be split into %lld equal chunks.", c->kernel,
                               operands_device, (long long)width, (long long)parts);
}

void operands_shift(operands *c, const weft_multiply *args) {
    if (c->status != WEFT_OK || args->shift.buffer == NULL || args->parts == args->width) return;
    c->status = weft_error_set(c->err, WEFT_E_UNSUPPORTED,
                               "%s on device %s: a shift is supported only if each chunk is one element.", c->kernel,
                               operands_device);
}

void operands_dropout(operands *c, const weft_dropout *args) {
    operands_size(c, "batch", args->batch, 0);
    operands_size(c, "row", args->row, 0);
    if (c->status != WEFT_OK || (args->p >= 0 && args->p < 1 && args->site >= 0 && args->site < 1 << 24)) return;
    c->status = weft_error_set(c->err, WEFT_E_HOST,
                               "%s on device %s: p is %g and site is %d. Allowed: [0, 1) and [0, 2^24).", c->kernel,
                               operands_device, args->p, args->site);
}

uint32_t operands_least(double p) {
    return (uint32_t)(p * 4294967296.0);
}

float operands_kept(double p) {
    return (float)(1.0 / (1.0 - p));
}

void operands_prefix(operands *c, const weft_prefix *args) {
    operands_size(c, "batch", args->batch, 0);
    operands_size(c, "length", args->length, 0);
    operands_size(c, "heads", args->heads, 1);
    operands_size(c, "kv_heads", args->kv_heads, 1);
    operands_size(c, "head_dim", args->head_dim, 1);
    operands_size(c, "places", args->places, 1);
    operands_size(c, "rotary_dim", args->rotary_dim, 0);
    if (c->status != WEFT_OK ||
        (args->heads % args->kv_heads == 0 && args->rotary_dim % 2 == 0 && args->rotary_dim <= args->head_dim))
        return;
    c->status =
        weft_error_set(c->err, WEFT_E_HOST,
                       "%s on device %s: %lld heads over %lld of keys, and %lld elements of %lld are rotated. Allowed: "
                       "a multiple of the heads of keys, and an even number of rotated elements up to a head.",
                       c->kernel, operands_device, (long long)args->heads, (long long)args->kv_heads,
                       (long long)args->rotary_dim, (long long)args->head_dim);
}
