/* dry_run.h: what a dry run (weft/dry_run.h) counts instead of queuing; for C and CUDA C++. Each place that gives CUDA
 * something to do asks here: kernels in CUDA_LAUNCH, bytes in copies.c, products in product.c, updates in update.c. */
#ifndef WEFT_DEVICE_CUDA_DRY_RUN_H
#define WEFT_DEVICE_CUDA_DRY_RUN_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* This thread's launches are counted into it from now on; NULL: they start (convert.cu). */
void cuda_count_launches_into(int64_t *counter);

/* True: a dry run is under way, has counted it, and the caller does nothing. */
bool cuda_dry_kernel(void);
bool cuda_dry_product(void);
bool cuda_dry_copy(void);
bool cuda_is_dry(void); /* without counting anything */
/* Where a buffer would lie: aligned, and apart from all others, for what is launched depends on which operands meet. It
 * is never touched. */
void *cuda_dry_address(int64_t bytes);

#ifdef __cplusplus
}
#endif
#endif
