/* weft_emulator.h: what tests ask of the emulator beside CUDA's own calls. */
#ifndef WEFT_EMULATOR_H
#define WEFT_EMULATOR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

void emulator_seed(uint64_t seed);               /* of every draw from now on */
int emulator_mode(const char *mode);             /* "last", "any", "soon"; 0: no such mode */
void emulator_forbid_allocation(int forbid);     /* 1: memory that is taken or given back from now on is an error */
long long emulator_launches(const char *kernel); /* that have run; NULL: of all kernels */
long long emulator_calls(const char *function);  /* of CUDA; NULL: of all functions */
/* From now on the bytes are counted that kernels of plugins touch which are compiled for it (bytes.cpp). */
void emulator_count_bytes(int count);
/* Bytes that memory moves for a kernel and all its forms, NULL: for all; those that its loads and stores ask for are
 * added to *asked, which may be NULL. */
long long emulator_bytes(const char *kernel, long long *asked);
void emulator_plant(const char *what); /* as WEFT_EMULATOR_FAIL; NULL: nothing any more */

#ifdef __cplusplus
}
#endif
#endif
