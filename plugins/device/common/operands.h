/* common/operands.h: bounds-checked operand lookup for all devices with this buffer layout.
 *
 * Every operand is looked up here, so no kernel can access memory outside a buffer; the cost is a few comparisons per
 * call. A failure is a bug of the host (for example a plan that is too small), never of the user. */
#ifndef WEFT_DEVICE_COMMON_OPERANDS_H
#define WEFT_DEVICE_COMMON_OPERANDS_H

#include <weft/device.h>

#include "sizes.h"

struct weft_buffer {
    char *base;    /* first byte that a ref may address, as a device address */
    int64_t size;  /* requested bytes */
    size_t mapped; /* allocated bytes */
};

/* "cpu": device name in error messages; each plugin defines its own. */
extern const char operands_device[];
extern const uint32_t operands_types; /* 1u << weft_dtype of each supported activation type */

#define OPERANDS_SIZE_LIMIT ((int64_t)1 << 40) /* of each size, in elements */

/* The first error of a call. Kernels look up all operands and then check status once. */
typedef struct operands {
    const char *kernel;
    weft_error *err;
    weft_status status;
} operands;

/* For a call without an argument struct. */
operands operands_plain(const char *kernel, weft_error *err);
/* For a call with an argument struct of `type`. It must contain all fields of SDK 1.0, and unknown later fields must be
 * zero. */
#define OPERANDS(kernel, type, args, err) operands_begin((kernel), (args), WEFT_SIZE_1_0(type), sizeof(type), (err))
operands operands_begin(const char *kernel, const void *args, uint32_t least, size_t known, weft_error *err);
/* Fails unless a size, stride or count is in [low, 2^40]. Sums then fit 64 bits; products of two may not
 * (size_times). */
void operands_size(operands *c, const char *name, int64_t value, int64_t low);
/* Validates an activation type against operands_types. Returns the bytes of an element; for unsupported types those of
 * fp32. */
int64_t operands_dtype(operands *c, const char *name, int32_t dtype);
/* Returns rows x width elements of `bytes` each from ref on. Returns NULL with an error if they exceed the buffer or
 * size_times returned -1. */
void *operands_need(operands *c, weft_ref ref, const char *name, int64_t rows, int64_t width, int64_t bytes);
/* Same for an optional operand: NULL without an error if it is absent. */
void *operands_may(operands *c, weft_ref ref, const char *name, int64_t rows, int64_t width, int64_t bytes);
/* Fails unless a row of `width` elements divides into equal parts. */
void operands_parts(operands *c, int64_t parts, int64_t width);
/* Fails unless a shift is used with parts of one element. */
void operands_shift(operands *c, const weft_multiply *args);
/* Validate a dropout's sizes, probability and site; return the smallest word that keeps an element, and the factor of
 * kept elements. */
void operands_dropout(operands *c, const weft_dropout *args);
uint32_t operands_least(double p);
float operands_kept(double p);
/* Validates sizes and form of attention to a prefix. */
void operands_prefix(operands *c, const weft_prefix *args);
/* Looks up n rows of a public struct, `stride` bytes apart as in the caller's version; least: its size in SDK 1.0. */
const char *operands_need_rows(operands *c, weft_ref ref, const char *name, int64_t n, uint32_t stride, uint32_t least);
/* Validate an update's array of regions in host memory, and one region like an argument struct in OPERANDS. */
void operands_regions(operands *c, const weft_update *args);
void operands_region(operands *c, const weft_update_region *region);
/* Looks up the copy of a region; NULL: absent. *dtype: its type, which an absent copy may have too, or 0. */
void *operands_copy(operands *c, const weft_update_region *region, int32_t *dtype);
/* Returns NULL if bytes is 0. */
void *operands_need_workspace(operands *c, weft_ref ref, int64_t bytes);

#endif
