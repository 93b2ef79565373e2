/* tests/ranks/test_grid.c: cells of a proof: their number, the pairwise cover, and the schedule. */
#include "tools/prove/grid.h"
#include "suite.h"

/* A spec with all settings; every list has different entries. */
static weft_grid_spec spec_of(int32_t world, int32_t micro_batches, bool at_last) {
    weft_grid_spec spec = {
        .world = world, .micro_batches = micro_batches, .segments = 8, .n_policies = WEFT_GRID_POLICIES};
    static const char *const policies[WEFT_GRID_POLICIES] = {"block", "whole", "size 10", "class Linear"};
    for (int i = 0; i < WEFT_GRID_POLICIES; i++)
        (void)snprintf(spec.policies[i].label, sizeof spec.policies[i].label, "%s", policies[i]);
    spec.has_mp = spec.has_ddp = spec.has_fsdp = true;
    spec.at_last = at_last;
    (void)snprintf(spec.reduce_at, sizeof spec.reduce_at, "each");
    return spec;
}

static weft_grid grid_of(int32_t world, int32_t micro_batches, bool at_last) {
    const weft_grid_spec spec = spec_of(world, micro_batches, at_last);
    weft_grid grid;
    weft_grid_create(&grid, &spec);
    for (int32_t i = 0; i < grid.n; i++) grid.cells[i].identity = (uint64_t)i;
    return grid;
}

TEST(counts_cells) {
    /* single 4 x 2; on 2, 3 and 4 ranks: mp 3 x 8, ddp 8, fsdp 8 + 8 + 3 x 8; on 4 hybrid 3 x 8. */
    weft_grid ordered = grid_of(4, 12, false), tree = grid_of(4, 8, true), alone = grid_of(1, 12, false);
    ck_assert_int_eq(ordered.n, 8 + 3 * (24 + 8 + 8 + 8 + 24) + 24);
    /* 3 ranks cannot share 8 micro-batches; reduction is possible at each micro-batch or at the last. */
    ck_assert_int_eq(tree.n, 8 + 3 * 24 + 2 * 2 * (8 + 8 + 8 + 24) + 2 * 24);
    ck_assert_int_eq(alone.n, 8);
    ck_assert_str_eq(ordered.cells[0].strategy, "single");
    ck_assert(!ordered.cells[0].checkpointing);
    weft_grid_free(&ordered);
    weft_grid_free(&tree);
    weft_grid_free(&alone);
}

TEST(axes_that_do_not_apply) {
    weft_grid grid = grid_of(4, 12, false);
    for (int32_t i = 0; i < grid.n; i++) {
        const weft_cell *cell = &grid.cells[i];
        const bool gathers = strcmp(cell->settings, "full") == 0 || strcmp(cell->settings, "hybrid 2") == 0;
        must((cell->prefetch >= 0) == gathers);
        must((cell->level[WEFT_AXIS_SHARD] >= 0) == (strcmp(cell->strategy, "fsdp") == 0));
        must((cell->level[WEFT_AXIS_SCHEDULE] >= 0) == (strcmp(cell->strategy, "mp") == 0));
        must(cell->level[WEFT_AXIS_REDUCE_AT] < 0);
        must(cell->keys.n < WEFT_CELL_OVERRIDES);
    }
    weft_grid_free(&grid);
}

/* Number of mp cells on these ranks with a key. */
static int32_t count_keys(const weft_grid *grid, int32_t ranks, const char *key) {
    int32_t n = 0;
    for (int32_t i = 0; i < grid->n; i++)
        for (int32_t k = 0; k < grid->cells[i].keys.n; k++)
            n += grid->cells[i].ranks == ranks && strcmp(grid->cells[i].keys.text[k], key) == 0;
    return n;
}

TEST(the_users_map) {
    weft_grid_spec spec = spec_of(3, 12, false);
    weft_grid grid;
    for (int32_t pass = 0; pass < 2; pass++) {
        (void)snprintf(spec.device_map, sizeof spec.device_map, "%s", pass == 0 ? "a=0;b=1" : "sequential");
        spec.map_ranks = pass == 0 ? 2 : 0;
        spec.map_1f1b = pass != 0;
        weft_grid_create(&grid, &spec);
        ck_assert_int_eq(count_keys(&grid, 2, "strategy.device_map=a=0;b=1"), pass == 0 ? 16 : 0);
        ck_assert_int_eq(count_keys(&grid, 2, "strategy.device_map=auto"), pass == 0 ? 8 : 0);
        ck_assert_int_eq(count_keys(&grid, 3, "strategy.device_map=auto"), pass == 0 ? 24 : 0);
        ck_assert_int_eq(count_keys(&grid, 3, "strategy.device_map=sequential"), pass == 0 ? 0 : 24);
        weft_grid_free(&grid);
    }
}

/* True if a cell of the grid has these two settings. */
static bool has_pair(const weft_grid *grid, const weft_cell *cell, int a, int b) {
    for (int32_t i = 0; i < grid->n; i++)
        if (grid->cells[i].level[a] == cell->level[a] && grid->cells[i].level[b] == cell->level[b]) return true;
    return false;
}

static void check_cover(int32_t world, int32_t micro_batches, bool at_last, int32_t most) {
    weft_grid full = grid_of(world, micro_batches, at_last), small = grid_of(world, micro_batches, at_last);
    weft_grid_cover(&small);
    ck_assert_msg(small.n <= most, "%d cells", (int)small.n);
    ck_assert_int_eq((int)small.cells[0].identity, 0);
    for (int32_t i = 0; i < full.n; i++)
        for (int a = 0; a < WEFT_N_AXES; a++)
            for (int b = a + 1; b < WEFT_N_AXES; b++)
                must(full.cells[i].level[a] < 0 || full.cells[i].level[b] < 0 ||
                     has_pair(&small, &full.cells[i], a, b));
    weft_grid_free(&full);
    weft_grid_free(&small);
}

TEST(the_small_grid_has_all_pairs) {
    check_cover(4, 12, false, 40);
    check_cover(4, 8, true, 40);
    check_cover(3, 12, false, 40);
    check_cover(2, 12, true, 40);
    check_cover(1, 12, false, 40);
    check_cover(8, 24, false, 64);
}

TEST(cells_with_the_same_programs_are_one) {
    weft_grid grid = grid_of(2, 12, false);
    const int32_t n = grid.n;
    grid.cells[5].identity = grid.cells[2].identity;
    grid.cells[n - 1].identity = grid.cells[0].identity;
    ck_assert_int_eq(weft_grid_drop_twins(&grid), 2);
    ck_assert_int_eq(grid.n, n - 2);
    ck_assert_int_eq((int)grid.cells[5].identity, 6);
    weft_grid_free(&grid);
}

TEST(every_cell_has_ranks_of_its_own) {
    weft_grid grid = grid_of(4, 12, false);
    int32_t *wave = calloc((size_t)grid.n, sizeof *wave), *base = calloc((size_t)grid.n, sizeof *base);
    const int32_t waves = weft_grid_schedule(wave, base, &grid, 4);
    int32_t ranks = 0;
    unsigned char *busy = calloc((size_t)waves * 4, 1);
    for (int32_t i = 1; i < grid.n; i++) {
        must(wave[i] >= 0 && wave[i] < waves && base[i] >= 0 && base[i] + grid.cells[i].ranks <= 4);
        for (int32_t r = base[i]; r < base[i] + grid.cells[i].ranks; r++) must(busy[wave[i] * 4 + r]++ == 0);
        ranks += grid.cells[i].ranks;
    }
    ck_assert_int_eq(wave[0], -1);
    ck_assert_msg(4 * waves - ranks <= 100, "%d ranks wait in %d waves", (int)(4 * waves - ranks), (int)waves);
    free(wave);
    free(base);
    free(busy);
    weft_grid_free(&grid);
}

int main(void) {
    return run_tests(tcase_create("grid"));
}
