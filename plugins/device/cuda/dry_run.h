/* dry_run.h: counters of a dry run (weft/dry_run.h), for C and CUDA C++. Each function that queues CUDA work queries
 * them: kernels in CUDA_LAUNCH, bytes in copies.c, matmuls in product.c, updates in update.c. */
#ifndef WEFT_DEVICE_CUDA_DRY_RUN_H
#define WEFT_DEVICE_CUDA_DRY_RUN_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Counts this thread's launches into `counter` from now on; NULL: they start (convert.cu). */
void cuda_count_launches_into(int64_t *counter);

/* Each counts one operation if a dry run is active. True: the caller must queue nothing. */
bool cuda_dry_kernel(void);
bool cuda_dry_product(void);
bool cuda_dry_copy(void);
bool cuda_is_dry(void); /* counts nothing */
/* Returns a fake buffer address: aligned and disjoint from all others, because launches depend on which operands
 * overlap. Never dereferenced. */
void *cuda_dry_address(int64_t bytes);

#ifdef __cplusplus
}
#endif
#endif
