/* weft_emulator.h: test functions of the CUDA emulator beyond CUDA's own calls. */
#ifndef WEFT_EMULATOR_H
#define WEFT_EMULATOR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

void emulator_seed(uint64_t seed);               /* for all later random choices */
int emulator_mode(const char *mode);             /* "last", "any", "soon"; returns 0 for an unknown mode */
void emulator_forbid_allocation(int forbid);     /* 1: allocating or freeing memory is an error from now on */
long long emulator_launches(const char *kernel); /* kernels that have run; NULL: all kernels */
long long emulator_calls(const char *function);  /* calls of a CUDA function; NULL: all functions */
/* Starts or stops counting the bytes touched by kernels of plugins compiled for it (bytes.cpp). */
void emulator_count_bytes(int count);
/* Returns the bytes that memory moves for a kernel and all its instances, NULL: for all kernels. Adds the bytes of its
 * loads and stores to *asked, which may be NULL. */
long long emulator_bytes(const char *kernel, long long *asked);
void emulator_plant(const char *what); /* like WEFT_EMULATOR_FAIL; NULL: removes all */

#ifdef __cplusplus
}
#endif
#endif
