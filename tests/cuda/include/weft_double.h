/* weft_double.h: what tests ask of the double beside CUDA's own calls. */
#ifndef WEFT_DOUBLE_H
#define WEFT_DOUBLE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

void double_seed(uint64_t seed);               /* of every draw from now on */
int double_mode(const char *mode);             /* "last", "any", "soon"; 0: no such mode */
void double_forbid_allocation(int forbid);     /* 1: memory that is taken or given back from now on is an error */
long long double_launches(const char *kernel); /* that have run; NULL: of all kernels */
long long double_calls(const char *function);  /* of CUDA; NULL: of all functions */
/* From now on the bytes are counted that kernels of plugins touch which are compiled for it (bytes.cpp). */
void double_count_bytes(int count);
/* Bytes that memory moves for a kernel and all its forms, NULL: for all; those that its loads and stores ask for are
 * added to *asked, which may be NULL. */
long long double_bytes(const char *kernel, long long *asked);
void double_plant(const char *what); /* as WEFT_DOUBLE_FAIL; NULL: nothing any more */

#ifdef __cplusplus
}
#endif
#endif
