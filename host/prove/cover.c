/* host/prove/cover.c: a part of a grid in which any two settings stand together that do so anywhere in it. */
#include "prove/grid.h"

#include <stdlib.h>

enum { PAIRS = WEFT_N_AXES * WEFT_N_AXES * WEFT_MOST_LEVELS * WEFT_MOST_LEVELS };

typedef struct cover {
    unsigned char *open;   /* [PAIRS] 1: stands together somewhere, and in no cell that was chosen yet */
    unsigned char *chosen; /* [cells] */
    int32_t n_open;
} cover;

/* -1: one of the axes does not apply. */
static int32_t pair_of(const weft_cell *cell, int a, int b) {
    if (cell->level[a] < 0 || cell->level[b] < 0) return -1;
    return ((a * WEFT_N_AXES + b) * WEFT_MOST_LEVELS + cell->level[a]) * WEFT_MOST_LEVELS + cell->level[b];
}

static int32_t count_open(const cover *self, const weft_cell *cell) {
    int32_t n = 0;
    for (int a = 0; a < WEFT_N_AXES; a++)
        for (int b = a + 1; b < WEFT_N_AXES; b++) {
            const int32_t pair = pair_of(cell, a, b);
            n += pair >= 0 && self->open[pair] != 0;
        }
    return n;
}

static void set_pairs(cover *self, const weft_cell *cell, unsigned char open) {
    for (int a = 0; a < WEFT_N_AXES; a++)
        for (int b = a + 1; b < WEFT_N_AXES; b++) {
            const int32_t pair = pair_of(cell, a, b);
            if (pair < 0) continue;
            self->n_open += open - self->open[pair];
            self->open[pair] = open;
        }
}

static void choose(cover *self, const weft_grid *grid, int32_t i) {
    self->chosen[i] = 1;
    set_pairs(self, &grid->cells[i], 0);
}

/* The cell with the most open pairs; of several the first. */
static int32_t best_of(const cover *self, const weft_grid *grid) {
    int32_t best = -1, most = 0;
    for (int32_t i = 0; i < grid->n; i++) {
        const int32_t n = self->chosen[i] != 0 ? 0 : count_open(self, &grid->cells[i]);
        if (n > most) best = i;
        if (n > most) most = n;
    }
    return best;
}

weft_status weft_grid_cover(weft_grid *self, weft_error *err) {
    cover c = {calloc(PAIRS, 1), calloc((size_t)self->n + 1, 1), 0};
    weft_status status = WEFT_OK;
    int32_t kept = 0;
    if (c.open == NULL || c.chosen == NULL) {
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the pairs of settings");
        goto done;
    }
    for (int32_t i = 0; i < self->n; i++) set_pairs(&c, &self->cells[i], 1);
    if (self->n > 0) choose(&c, self, 0);
    while (c.n_open > 0) choose(&c, self, best_of(&c, self));
    for (int32_t i = 0; i < self->n; i++)
        if (c.chosen[i] != 0) self->cells[kept++] = self->cells[i];
    self->n = kept;
done:
    free(c.open);
    free(c.chosen);
    return status;
}
