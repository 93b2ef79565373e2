/* sum.c: see ranks.h. The sum of two numbers is computed in fp32; 16-bit types are rounded once, to nearest even. */
#include "ranks.h"

#include "../../common/half.h"

static inline float widen(uint16_t x) {
    const uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* A NaN from two bf16 has a zero lower half, so rounding keeps it. */
static inline uint16_t narrow(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

static void add_bf16(uint16_t *to, const uint16_t *a, const uint16_t *restrict b, int64_t n) {
    int64_t i;
    for (i = 0; i < n; i++) to[i] = narrow(widen(a[i]) + widen(b[i]));
}

static void add_f16(uint16_t *to, const uint16_t *a, const uint16_t *restrict b, int64_t n) {
    int64_t i;
    for (i = 0; i < n; i++) to[i] = half_narrow(half_widen(a[i]) + half_widen(b[i]));
}

static void add_f32(float *to, const float *a, const float *restrict b, int64_t n) {
    int64_t i;
    for (i = 0; i < n; i++) to[i] = a[i] + b[i];
}

void ranks_add(void *to, const void *a, const void *b, int64_t n, int32_t dtype) {
    if (dtype == WEFT_F32) add_f32(to, a, b, n);
    else if (dtype == WEFT_F16) add_f16(to, a, b, n);
    else add_bf16(to, a, b, n);
}

void ranks_add_bf16(void *from, void *to, int *n, MPI_Datatype *type) {
    (void)type; /* MPI_UINT16_T; MPI does not know that it is bf16 */
    add_bf16(to, to, from, *n);
}

void ranks_add_f16(void *from, void *to, int *n, MPI_Datatype *type) {
    (void)type;
    add_f16(to, to, from, *n);
}
