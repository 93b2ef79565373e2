/* sum.c: see ranks.h. Each sum is formed in fp32 and rounded once, to the nearest, ties to even. */
#include "ranks.h"

static inline float widen(uint16_t x) {
    const uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* A NaN that comes of two bf16 has nothing in its lower half, so rounding leaves it alone. */
static inline uint16_t narrow(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

void ranks_add_bf16(void *from, void *to, int *n, MPI_Datatype *type) {
    const uint16_t *restrict a = from;
    uint16_t *restrict sum = to;
    int i;
    (void)type; /* MPI_UINT16_T, of which MPI does not know that it is bf16 */
    for (i = 0; i < *n; i++) sum[i] = narrow(widen(a[i]) + widen(sum[i]));
}
