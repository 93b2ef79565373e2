/* packed.h: matmuls with a packed b (weft/blocks.h). */
#ifndef WEFT_DEVICE_CPU_PACKED_H
#define WEFT_DEVICE_CPU_PACKED_H

#include "product.h"

/* The blocks of b; its rows have p->transpose_b ? p->k : p->n numbers and are contiguous. */
typedef struct packed_matrix {
    const void *blocks;
    int32_t dtype; /* weft_dtype */
} packed_matrix;

/* p->b is ignored; b is a separate argument. */
int64_t packed_workspace(const weft_device *device, const product *p);
weft_status packed_run(const weft_device *device, const product *p, const packed_matrix *b, void *workspace,
                       const char *kernel, weft_error *err);

/* Decodes n numbers of contiguous packed rows, starting at any number `first`. */
void packed_numbers(const weft_device *device, float *to, const void *blocks, int32_t dtype, int64_t first, int64_t n);

#endif
