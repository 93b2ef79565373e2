/* product_panels.c: a tile of a product on panels (panels.h): b's part is packed, STEP words of the inner dimension at
 * a time, and met by a's rows as they lie, or PACKED at a time packed too where their words do not lie side by side.
 *
 * An element is one chain over a step, and steps are added in order: which tile it falls into changes no bit. Sums of
 * more than one step wait in c itself, or in the tile's scratch where c is bf16 or has a value that comes last.
 */
#include "product_tile.h"

#define STEP   ((int64_t)512) /* words */
#define PACKED (2 * PANEL_LANES)

const cpu_panels *panels_of(const weft_device *device, const product *p) {
    if (p->dtype == WEFT_BF16) return device->panels_bf16;
    return !p->transpose_a && p->transpose_b && p->m >= PANEL_LANES ? device->panels_f32 : NULL;
}

static int64_t words_of(const cpu_panels *panels, int64_t k) {
    return cpu_ceil_div(k, panels->values);
}
/* Values of a step: whole numbers of what packing turns at a time. */
static int64_t step_of(const cpu_panels *panels, int64_t k) {
    const int64_t words = words_of(panels, k);
    return cpu_round_up(cpu_ceil_div(words, cpu_ceil_div(words, STEP)), PANEL_LANES) * panels->values;
}
bool panels_read_a(const cpu_panels *panels, const product *p) {
    return !p->transpose_a && p->lda % panels->values == 0 && p->k % panels->values == 0;
}
static bool sums_wait_in_c(const tile_target *to) {
    return to->dtype == WEFT_F32 && to->mode != PRODUCT_ADD;
}

tile_sizes panels_sizes(const cpu_panels *panels, const product *p, int64_t m, int64_t n) {
    const int64_t all = words_of(panels, p->k), words = cpu_min(all, STEP); /* as long as a step can be */
    const bool steps = all > STEP, apart = p->dtype_c == WEFT_BF16 || p->mode == PRODUCT_ADD;
    const tile_sizes s = {panels_read_a(panels, p) ? 0 : panel_bytes(PACKED, words), panel_bytes(n, words),
                          steps && apart ? cpu_floats(m * n) : 0};
    return s;
}

/* An operand's lanes [from, from + lanes) and its inner dimension [k0, k1). */
static panel_source source(const void *operand, int64_t bytes, int64_t ld, bool along, int64_t from, int64_t lanes,
                           int64_t k0, int64_t k1) {
    const panel_source s = {.at = cpu_from(operand, along ? from * ld + k0 : k0 * ld + from, bytes),
                            .ld = ld,
                            .lanes = lanes,
                            .k = k1 - k0,
                            .along = along};
    return s;
}

/* The block's rows of a, from the tile's row i on, from k0 to k1. */
static void take_a(panel_block *block, const cpu_panels *panels, const product *p, const tile *t, uint32_t *packed,
                   int64_t i, int64_t k0, int64_t k1) {
    const int64_t bytes = weft_dtype_bytes(p->dtype), rows = cpu_min(PACKED, t->m1 - t->m0 - i);
    const panel_source from = source(p->a, bytes, p->lda, !p->transpose_a, t->m0 + i, rows, k0, k1);
    if (panels_read_a(panels, p)) {
        block->a = from.at;
        block->a_row = p->lda / panels->values;
        block->a_step = 1;
        return;
    }
    if (i % PACKED == 0) panels->pack(packed, &from);
    block->a = packed + i % PACKED * block->room;
    block->a_row = 1;
    block->a_step = PANEL_LANES;
}

/* Where the sums of a step come from and go to, from the tile's row i on. */
static void take_c(panel_block *block, const tile *t, const tile_scratch *s, const tile_target *to, int64_t i,
                   bool first, bool last) {
    const int64_t columns = t->n1 - t->n0;
    const bool in_c = last || sums_wait_in_c(to);
    block->c = in_c ? cpu_at(to->c, i * to->ldc, weft_dtype_bytes(to->dtype)) : (void *)(s->c + i * columns);
    block->ldc = in_c ? to->ldc : columns;
    block->sum = !first && !sums_wait_in_c(to) ? s->c + i * columns : NULL;
    block->sum_ld = columns;
    block->accumulate = sums_wait_in_c(to) ? !first || to->mode != PRODUCT_SET : last && to->mode != PRODUCT_SET;
    block->narrow = in_c && to->dtype == WEFT_BF16;
}

void panels_tile(const cpu_panels *panels, const product *p, const tile *t, const tile_scratch *s,
                 const tile_target *to) {
    const int64_t bytes = weft_dtype_bytes(p->dtype), step = step_of(panels, t->k1 - t->k0);
    int64_t k0 = 0, i = 0;
    for (k0 = t->k0; k0 < t->k1; k0 += step) {
        const int64_t k1 = cpu_min(t->k1, k0 + step), columns = t->n1 - t->n0;
        const panel_source b = source(p->b, bytes, p->ldb, p->transpose_b, t->n0, columns, k0, k1);
        panel_block block = {.b = s->b,
                             .room = panel_room(words_of(panels, k1 - k0)),
                             .words = words_of(panels, k1 - k0),
                             .columns = columns};
        panels->pack(s->b, &b);
        for (i = 0; i < t->m1 - t->m0; i += PANEL_LANES) {
            block.rows = cpu_min(PANEL_LANES, t->m1 - t->m0 - i);
            take_a(&block, panels, p, t, s->a, i, k0, k1);
            take_c(&block, t, s, to, i, k0 == t->k0, k1 == t->k1);
            panels->multiply(&block);
        }
    }
}
