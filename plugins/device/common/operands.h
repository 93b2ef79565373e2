/* common/operands.h: the operands of a call, looked up in their buffers; of every device that lays its buffers out so.
 *
 * An operand is looked up here and nowhere else, so that no kernel can reach beyond a buffer: a handful of compares per
 * call. What fails here is a defect of the host (a plan that is too small), never of the user.
 */
#ifndef WEFT_DEVICE_COMMON_OPERANDS_H
#define WEFT_DEVICE_COMMON_OPERANDS_H

#include <weft/device.h>

#include "sizes.h"

struct weft_buffer {
    char *base;    /* the first byte that a ref may name, where the device sees it */
    int64_t size;  /* bytes that were asked for */
    size_t mapped; /* bytes that were taken for it */
};

/* "cpu": how sentences name the device. Each plugin has its own. */
extern const char operands_device[];
extern const uint32_t operands_types; /* 1u << weft_dtype of each type of activations that it computes with */

#define OPERANDS_SIZE_LIMIT ((int64_t)1 << 40) /* of each size, in elements */

/* The first thing that is wrong with a call. Kernels ask for all their operands and then look at status once. */
typedef struct operands {
    const char *kernel;
    weft_error *err;
    weft_status status;
} operands;

/* Of a call without arguments in a struct. */
operands operands_plain(const char *kernel, weft_error *err);
/* Of arguments of that type: all of SDK 1.0 is there, and nothing is asked for that is not known here. */
#define OPERANDS(kernel, type, args, err) operands_begin((kernel), (args), WEFT_SIZE_1_0(type), sizeof(type), (err))
operands operands_begin(const char *kernel, const void *args, uint32_t least, size_t known, weft_error *err);
/* Sizes, strides and counts must lie in [low, 2^40]: sums fit 64 bits, products of two may not (size_times). */
void operands_size(operands *c, const char *name, int64_t value, int64_t low);
/* Activations are of one of operands_types; the bytes of one element, as of fp32 for types that are refused. */
int64_t operands_dtype(operands *c, const char *name, int32_t dtype);
/* rows x width elements of `bytes` each from ref on, or NULL with the sentence in err, as for the -1 of size_times. */
void *operands_need(operands *c, weft_ref ref, const char *name, int64_t rows, int64_t width, int64_t bytes);
/* The same for an operand that may be absent: NULL then, and no error. */
void *operands_may(operands *c, weft_ref ref, const char *name, int64_t rows, int64_t width, int64_t bytes);
/* The parts of a row of `width` elements are equal. */
void operands_parts(operands *c, int64_t parts, int64_t width);
/* A shift is of single elements. */
void operands_shift(operands *c, const weft_multiply *args);
/* Sizes, probability and site of a dropout; the least word that keeps, and the factor of what is kept. */
void operands_dropout(operands *c, const weft_dropout *args);
uint32_t operands_least(double p);
float operands_kept(double p);
/* Sizes and form of attention to a prefix. */
void operands_prefix(operands *c, const weft_prefix *args);
/* n rows of a public struct, `stride` bytes apart as the caller has them; least: of one in SDK 1.0. */
const char *operands_need_rows(operands *c, weft_ref ref, const char *name, int64_t n, uint32_t stride, uint32_t least);
/* The regions of an update lie in an array of the host's; then each of them, as OPERANDS judges arguments. */
void operands_regions(operands *c, const weft_update *args);
void operands_region(operands *c, const weft_update_region *region);
/* NULL when bytes is 0. */
void *operands_need_workspace(operands *c, weft_ref ref, int64_t bytes);

#endif
