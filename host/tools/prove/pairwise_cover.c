/* host/tools/prove/pairwise_cover.c: a part of a grid in which any two settings stand together that do so anywhere
 * in it. */
#include "tools/prove/grid.h"

#include <stdlib.h>

enum { PAIRS = WEFT_N_AXES * WEFT_N_AXES * WEFT_MOST_LEVELS * WEFT_MOST_LEVELS };

/* A pair: -1 it stands together nowhere, 0 in no cell that was chosen, n in n of them. */
typedef struct cover {
    int32_t *pairs;        /* [PAIRS] */
    unsigned char *chosen; /* [cells] */
    int32_t n_open;        /* pairs that are 0 */
} cover;

/* The pair of two axes; -1: one of them does not apply. */
static int32_t pair_of(const weft_cell *cell, int a, int b) {
    if (cell->level[a] < 0 || cell->level[b] < 0) return -1;
    return ((a * WEFT_N_AXES + b) * WEFT_MOST_LEVELS + cell->level[a]) * WEFT_MOST_LEVELS + cell->level[b];
}

/* How many of the cell's pairs stand in exactly n chosen cells. */
static int32_t count_pairs(const cover *self, const weft_cell *cell, int32_t n) {
    int32_t found = 0;
    for (int a = 0; a < WEFT_N_AXES; a++)
        for (int b = a + 1; b < WEFT_N_AXES; b++) {
            const int32_t pair = pair_of(cell, a, b);
            found += pair >= 0 && self->pairs[pair] == n;
        }
    return found;
}

/* by: 1 for a cell that is chosen, -1 for one that is not any more. */
static void choose_cell(cover *self, const weft_grid *grid, int32_t i, int32_t by) {
    for (int a = 0; a < WEFT_N_AXES; a++)
        for (int b = a + 1; b < WEFT_N_AXES; b++) {
            const int32_t pair = pair_of(&grid->cells[i], a, b);
            if (pair < 0) continue;
            self->n_open -= self->pairs[pair] == 0;
            self->pairs[pair] += by;
            self->n_open += self->pairs[pair] == 0;
        }
    self->chosen[i] = by > 0;
}

static void open_pairs(cover *self, const weft_cell *cell) {
    for (int a = 0; a < WEFT_N_AXES; a++)
        for (int b = a + 1; b < WEFT_N_AXES; b++) {
            const int32_t pair = pair_of(cell, a, b);
            if (pair < 0 || self->pairs[pair] == 0) continue;
            self->pairs[pair] = 0;
            self->n_open++;
        }
}

/* The cell with the most open pairs; of several the first from `from` on. */
static int32_t best_of(const cover *self, const weft_grid *grid, int32_t from) {
    int32_t best = -1, most = 0;
    for (int32_t k = 0; k < grid->n; k++) {
        const int32_t i = (from + k) % grid->n;
        const int32_t n = self->chosen[i] != 0 ? 0 : count_pairs(self, &grid->cells[i], 0);
        if (n > most) best = i;
        if (n > most) most = n;
    }
    return best;
}

/* Chooses from the first cell on; which of equally good ones comes first decides how many it takes. Returns that. */
static int32_t cover_from(cover *self, const weft_grid *grid, int32_t from) {
    int32_t n = 0;
    memset(self->pairs, 0xFF, PAIRS * sizeof *self->pairs);
    memset(self->chosen, 0, (size_t)grid->n);
    self->n_open = 0;
    for (int32_t i = 0; i < grid->n; i++) open_pairs(self, &grid->cells[i]);
    choose_cell(self, grid, 0, 1);
    while (self->n_open > 0) choose_cell(self, grid, best_of(self, grid, from), 1);
    /* What later choices have made needless. */
    for (int32_t i = 1; i < grid->n; i++)
        if (self->chosen[i] != 0 && count_pairs(self, &grid->cells[i], 1) == 0) choose_cell(self, grid, i, -1);
    for (int32_t i = 0; i < grid->n; i++) n += self->chosen[i];
    return n;
}

enum { ATTEMPTS = 24 };

weft_status weft_grid_cover(weft_grid *self, weft_error *err) {
    cover c = {malloc(PAIRS * sizeof *c.pairs), calloc((size_t)self->n + 1, 1), 0};
    weft_status status = WEFT_OK;
    int32_t kept = 0, best = 0, least = INT32_MAX;
    if (c.pairs == NULL || c.chosen == NULL) {
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the pairs of settings");
        goto done;
    }
    for (int32_t attempt = 0; attempt < ATTEMPTS; attempt++) {
        const int32_t from = attempt * self->n / ATTEMPTS, n = cover_from(&c, self, from);
        if (n < least) best = from;
        if (n < least) least = n;
    }
    (void)cover_from(&c, self, best);
    for (int32_t i = 0; i < self->n; i++)
        if (c.chosen[i] != 0) self->cells[kept++] = self->cells[i];
    self->n = kept;
done:
    free(c.pairs);
    free(c.chosen);
    return status;
}
