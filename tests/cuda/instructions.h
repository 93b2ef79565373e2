/* cuda/instructions.h: kernels of one warp that run one instruction of mma.cuh each (instructions.cu). Arrays are in
 * host memory. Nonzero: a call failed. */
#ifndef WEFT_TEST_CUDA_INSTRUCTIONS_H
#define WEFT_TEST_CUDA_INSTRUCTIONS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* c (16,8) += a (16,16) b (16,8); a and b are bf16, or half: fp16. */
int instruction_mma(float *c, const uint16_t *a, const uint16_t *b, int half);
/* out (32,8): each lane's words, two numbers per word, of four matrices in (4,8,8). */
int instruction_load(uint16_t *out, const uint16_t *in, int transposed);
/* Two copies of 16 bytes to shared memory, the second with valid = 0; `out` (32): the result. */
int instruction_copy(uint8_t *out, const uint8_t *in);
/* out = 2^in, 32 of them. */
int instruction_power(float *out, const float *in);

#ifdef __cplusplus
}
#endif
#endif
