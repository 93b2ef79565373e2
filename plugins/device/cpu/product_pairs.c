/* product_pairs.c: a tile of a bf16 product on the device's instructions for bf16. Both operands are packed into
 * panels, STEP_K of the inner dimension at a time; sums of more than one step wait in the tile's scratch, in fp32. */
#include "product_tile.h"

#define STEP_K 1024

static int64_t steps_of(int64_t k) {
    return cpu_ceil_div(k, STEP_K);
}
/* Steps are even, and whole numbers of what packing turns at a time. */
static int64_t step_of(int64_t k) {
    return cpu_round_up(cpu_ceil_div(k, steps_of(k)), 2 * PAIRS_LANES);
}

tile_sizes pairs_sizes(const product *p, int64_t m, int64_t n) {
    const int64_t k = cpu_min(p->k, STEP_K); /* as long as a step can be */
    const tile_sizes s = {pairs_bytes(m, k), pairs_bytes(n, k), steps_of(p->k) > 1 ? cpu_floats(m * n) : 0};
    return s;
}

/* An operand's lanes [from, from + lanes) and its inner dimension [k0, k1). */
static pairs_source source(const void *operand, int64_t ld, bool along, int64_t from, int64_t lanes, int64_t k0,
                           int64_t k1) {
    const pairs_source s = {.at = (const uint16_t *)operand + (along ? from * ld + k0 : k0 * ld + from),
                            .ld = ld,
                            .lanes = lanes,
                            .k = k1 - k0,
                            .along = along};
    return s;
}

void pairs_tile(const weft_device *device, const product *p, const tile *t, const tile_scratch *s,
                const tile_target *to) {
    const int64_t rows = t->m1 - t->m0, columns = t->n1 - t->n0, step = step_of(t->k1 - t->k0);
    int64_t k0 = 0;
    for (k0 = t->k0; k0 < t->k1; k0 += step) {
        const int64_t k1 = cpu_min(t->k1, k0 + step);
        const bool last = k1 == t->k1;
        const pairs_source a = source(p->a, p->lda, !p->transpose_a, t->m0, rows, k0, k1);
        const pairs_source b = source(p->b, p->ldb, p->transpose_b, t->n0, columns, k0, k1);
        const pairs_block block = {.a = s->a,
                                   .b = s->b,
                                   .room = pairs_room(k1 - k0),
                                   .pairs = cpu_ceil_div(k1 - k0, 2),
                                   .rows = rows,
                                   .columns = columns,
                                   .sum = k0 > t->k0 ? s->c : NULL,
                                   .sum_ld = columns,
                                   .c = last ? to->c : s->c,
                                   .ldc = last ? to->ldc : columns,
                                   .accumulate = last && to->mode != PRODUCT_SET,
                                   .narrow = last && to->dtype == WEFT_BF16};
        device->pairs->pack(s->a, &a);
        device->pairs->pack(s->b, &b);
        device->pairs->multiply(&block);
    }
}
