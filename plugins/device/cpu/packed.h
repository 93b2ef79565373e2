/* packed.h: products whose b is packed (weft/blocks.h). */
#ifndef WEFT_DEVICE_CPU_PACKED_H
#define WEFT_DEVICE_CPU_PACKED_H

#include <weft/blocks.h>

#include "product.h"

/* Types that b may be stored in, as weft_device_info says them. */
#define PACKED_TYPES (1u << WEFT_I8X64)

/* p->b is not looked at: b comes beside it. Its rows, of p->transpose_b ? p->k : p->n elements, are whole blocks. */
int64_t packed_workspace(const weft_device *device, const product *p);
weft_status packed_run(const weft_device *device, const product *p, const weft_i8x64 *b, void *workspace,
                       const char *kernel, weft_error *err);

#endif
