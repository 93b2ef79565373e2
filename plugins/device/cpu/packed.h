/* packed.h: products whose b is packed (weft/blocks.h). */
#ifndef WEFT_DEVICE_CPU_PACKED_H
#define WEFT_DEVICE_CPU_PACKED_H

#include "product.h"

/* The blocks of b, whose rows are p->transpose_b ? p->k : p->n long and lie without a gap. */
typedef struct packed_matrix {
    const void *blocks;
    int32_t dtype; /* weft_dtype */
} packed_matrix;

/* p->b is not looked at: b comes beside it. */
int64_t packed_workspace(const weft_device *device, const product *p);
weft_status packed_run(const weft_device *device, const product *p, const packed_matrix *b, void *workspace,
                       const char *kernel, weft_error *err);

/* n numbers of packed rows that lie without a gap, from the first on, which may be any. */
void packed_numbers(const weft_device *device, float *to, const void *blocks, int32_t dtype, int64_t first, int64_t n);

#endif
