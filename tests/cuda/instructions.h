/* cuda/instructions.h: kernels of one warp, each of which runs one instruction of mma.cuh (instructions.cu). Arrays are
 * the host's. Nonzero: a call failed. */
#ifndef WEFT_TEST_CUDA_INSTRUCTIONS_H
#define WEFT_TEST_CUDA_INSTRUCTIONS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* c (16,8) += a (16,16) b (16,8); a and b are bf16, or half: fp16. */
int instruction_mma(float *c, const uint16_t *a, const uint16_t *b, int half);
/* out (32,8): what each lane has, two numbers to a word, of four matrices in (4,8,8). */
int instruction_load(uint16_t *out, const uint16_t *in, int transposed);
/* Two copies of 16 bytes into shared memory, the second one with none of them valid; `out` (32): what arrived. */
int instruction_copy(uint8_t *out, const uint8_t *in);
/* out = 2^in, 32 of them. */
int instruction_power(float *out, const float *in);

#ifdef __cplusplus
}
#endif
#endif
