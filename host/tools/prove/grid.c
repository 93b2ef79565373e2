/* host/tools/prove/grid.c: see grid.h. */
#include "tools/prove/grid.h"

#include "base/alloc.h"
#include "graph/record.h"

#include <stdlib.h>

/* Built-in strategies with known keys. */
enum { SINGLE, MP, DDP, FSDP, OWN };

static const char *const shards[] = {"optimizer", "gradients", "full", "hybrid"};
enum { OPTIMIZER, GRADIENTS, FULL, HYBRID };

enum { NAIVE, GPIPE, ONE_ONE, N_SCHEDULES };
static const char *const schedules[N_SCHEDULES] = {"naive", "gpipe", "1f1b"};
static const char *const reduce_ats[] = {"each", "last"};

enum { MOST_PREFETCH = 2, MOST_STAGES = 4 };

void weft_grid_print(weft_grid_keys *keys, const char *format, ...) {
    va_list args;
    if (keys->n == WEFT_CELL_OVERRIDES) return;
    va_start(args, format);
    (void)vsnprintf(keys->text[keys->n++], WEFT_OVERRIDE_SIZE, format, args);
    va_end(args);
}

static void print_all(weft_grid_keys *keys, const weft_grid_keys *more) {
    for (int32_t i = 0; i < more->n; i++) weft_grid_print(keys, "%s", more->text[i]);
}

typedef struct builder {
    weft_grid *grid;
    const weft_grid_spec *spec;
} builder;

/* ---- axes: each function varies its own and passes the cell on ---- */

static void push_cell(builder *b, const weft_cell *cell) {
    b->grid->cells = weft_grow(b->grid->cells, b->grid->n);
    b->grid->cells[b->grid->n++] = *cell;
}

static void add_checkpointing(builder *b, const weft_cell *cell) {
    for (int32_t on = 0; on < 2; on++) {
        weft_cell one = *cell;
        one.level[WEFT_AXIS_CHECKPOINTING] = on;
        one.checkpointing = on != 0;
        weft_grid_print(&one.keys, "train.activation_checkpointing=%s", on != 0 ? "yes" : "no");
        push_cell(b, &one);
    }
}

static void add_policies(builder *b, const weft_cell *cell) {
    for (int32_t i = 0; i < b->spec->n_policies; i++) {
        weft_cell one = *cell;
        one.level[WEFT_AXIS_POLICY] = i;
        (void)snprintf(one.policy, sizeof one.policy, "%s", b->spec->policies[i].label);
        print_all(&one.keys, &b->spec->policies[i].keys);
        add_checkpointing(b, &one);
    }
}

static void add_prefetch(builder *b, const weft_cell *cell) {
    for (int32_t depth = 0; depth <= MOST_PREFETCH; depth++) {
        weft_cell one = *cell;
        one.level[WEFT_AXIS_PREFETCH] = one.prefetch = depth;
        weft_grid_print(&one.keys, "strategy.prefetch=%d", (int)depth);
        add_policies(b, &one);
    }
}

static void add_reduce_at(builder *b, const weft_cell *cell, bool gathers) {
    for (int32_t i = 0; i < 2; i++) {
        weft_cell one = *cell;
        const char *name = b->spec->at_last ? reduce_ats[i] : b->spec->reduce_at;
        if (i > 0 && !b->spec->at_last) continue;
        if (b->spec->at_last) one.level[WEFT_AXIS_REDUCE_AT] = i;
        weft_grid_print(&one.keys, "strategy.reduce_at=%s", name);
        if (strcmp(name, "last") == 0)
            (void)snprintf(one.settings, sizeof one.settings, "%.40s%slast", cell->settings,
                           cell->settings[0] != '\0' ? ", " : "");
        if (gathers) add_prefetch(b, &one);
        else add_policies(b, &one);
    }
}

/* ---- strategies ---- */

static weft_cell cell_of(const builder *b, int32_t strategy, const char *name, int32_t ranks) {
    weft_cell cell = {.ranks = ranks, .prefetch = -1};
    for (int a = 0; a < WEFT_N_AXES; a++) cell.level[a] = -1;
    cell.level[WEFT_AXIS_STRATEGY] = strategy;
    cell.level[WEFT_AXIS_RANKS] = ranks < WEFT_MOST_LEVELS ? ranks : WEFT_MOST_LEVELS - 1;
    (void)snprintf(cell.strategy, sizeof cell.strategy, "%s", name);
    cell.is_own = strategy == OWN;
    if (cell.is_own) return cell;
    weft_grid_print(&cell.keys, "!strategy");
    weft_grid_print(&cell.keys, "strategy.plugin=%s", name);
    print_all(&cell.keys, &b->spec->common);
    return cell;
}

bool weft_grid_takes_map(const weft_grid_spec *spec, int32_t ranks) {
    return spec->device_map[0] != '\0' && (spec->map_ranks == 0 || spec->map_ranks == ranks);
}

static void add_mp(builder *b, int32_t ranks) {
    for (int32_t i = 0; i < N_SCHEDULES; i++) {
        const bool own = weft_grid_takes_map(b->spec, ranks) && (i != ONE_ONE || b->spec->map_1f1b);
        weft_cell cell = cell_of(b, MP, "mp", ranks);
        cell.level[WEFT_AXIS_SCHEDULE] = i;
        weft_grid_print(&cell.keys, "strategy.device_map=%s", own ? b->spec->device_map : "auto");
        weft_grid_print(&cell.keys, "strategy.schedule=%s", schedules[i]);
        (void)snprintf(cell.settings, sizeof cell.settings, "%s%s", schedules[i], own ? ", own map" : "");
        add_policies(b, &cell);
    }
}

static void add_fsdp(builder *b, int32_t ranks, int32_t shard, int32_t group) {
    weft_cell cell = cell_of(b, FSDP, "fsdp", ranks);
    cell.level[WEFT_AXIS_SHARD] = shard;
    print_all(&cell.keys, &b->spec->fsdp);
    weft_grid_print(&cell.keys, "strategy.shard=%s", shards[shard]);
    (void)snprintf(cell.settings, sizeof cell.settings, "%s", shards[shard]);
    if (shard == HYBRID) {
        weft_grid_print(&cell.keys, "strategy.shard_group=%d", (int)group);
        (void)snprintf(cell.settings, sizeof cell.settings, "%s %d", shards[shard], (int)group);
    }
    add_reduce_at(b, &cell, shard == FULL || shard == HYBRID);
}

static void add_replicas(builder *b, int32_t ranks) {
    if (b->spec->has_ddp) {
        const weft_cell cell = cell_of(b, DDP, "ddp", ranks);
        add_reduce_at(b, &cell, false);
    }
    for (int32_t shard = OPTIMIZER; b->spec->has_fsdp && shard <= FULL; shard++) add_fsdp(b, ranks, shard, 0);
    for (int32_t group = 2; b->spec->has_fsdp && group < ranks; group++)
        if (ranks % group == 0) add_fsdp(b, ranks, HYBRID, group);
}

bool weft_grid_takes_stages(const weft_grid_spec *spec, int32_t ranks) {
    return ranks <= spec->segments && (ranks <= MOST_STAGES || ranks == spec->world);
}

bool weft_grid_takes_replicas(const weft_grid_spec *spec, int32_t ranks) {
    return spec->micro_batches % ranks == 0;
}

static void add_ranks(builder *b, int32_t ranks) {
    const weft_grid_spec *spec = b->spec;
    if (spec->has_mp && weft_grid_takes_stages(spec, ranks)) add_mp(b, ranks);
    if (weft_grid_takes_replicas(spec, ranks)) add_replicas(b, ranks);
    if (spec->own != NULL) {
        const weft_cell cell = cell_of(b, OWN, spec->own, ranks);
        add_policies(b, &cell);
    }
}

void weft_grid_create(weft_grid *out, const weft_grid_spec *spec) {
    builder b = {.grid = out, .spec = spec};
    const weft_cell single = cell_of(&b, SINGLE, "single", 1);
    memset(out, 0, sizeof *out);
    add_policies(&b, &single);
    for (int32_t ranks = 2; ranks <= spec->world; ranks++) add_ranks(&b, ranks);
}

void weft_grid_free(weft_grid *self) {
    free(self->cells);
    memset(self, 0, sizeof *self);
}

/* ---- cells that the configuration's own strategy rejects ---- */

static void list_number(char text[160], int32_t number) {
    const size_t n = strlen(text);
    (void)snprintf(text + n, 160 - n, "%s%d", n == 0 ? "" : ", ", (int)number);
}

int32_t weft_grid_drop_refused(weft_grid *self, char ranks[160], weft_cell *first, bool *is_whole) {
    int32_t kept = 0, dropped = 0, last = 0;
    ranks[0] = '\0';
    *is_whole = true;
    for (int32_t i = 0; i < self->n; i++) {
        const weft_cell *cell = &self->cells[i];
        if (cell->refused[0] == '\0') {
            *is_whole = *is_whole && !cell->is_own;
            self->cells[kept++] = *cell;
            continue;
        }
        if (dropped++ == 0) *first = *cell;
        if (cell->ranks != last) list_number(ranks, cell->ranks);
        last = cell->ranks;
    }
    self->n = kept;
    return dropped;
}

/* ---- cells with identical programs ---- */

int32_t weft_grid_drop_twins(weft_grid *self) {
    const int32_t before = self->n;
    int32_t kept = 0;
    for (int32_t i = 0; i < before; i++) {
        int32_t twin = 0;
        while (twin < kept && self->cells[twin].identity != self->cells[i].identity) twin++;
        if (twin == kept) self->cells[kept++] = self->cells[i];
    }
    self->n = kept;
    return before - kept;
}

/* ---- schedule ---- */

int32_t weft_grid_schedule(int32_t *wave, int32_t *base, const weft_grid *self, int32_t world) {
    int32_t waves = 0, left = self->n - 1;
    for (int32_t i = 0; i < self->n; i++) wave[i] = base[i] = -1;
    while (left > 0) {
        int32_t taken = 0;
        /* Largest first, so that small cells fill the remaining ranks. */
        for (int32_t ranks = world; ranks >= 1; ranks--)
            for (int32_t i = 1; i < self->n; i++) {
                if (self->cells[i].ranks != ranks || wave[i] >= 0 || taken + ranks > world) continue;
                wave[i] = waves;
                base[i] = taken;
                taken += ranks;
                left--;
            }
        waves++;
    }
    return waves;
}

void weft_cell_describe(char *text, size_t size, const weft_cell *cell) {
    char prefetch[32] = "";
    if (cell->prefetch >= 0) (void)snprintf(prefetch, sizeof prefetch, ", prefetch %d", (int)cell->prefetch);
    (void)snprintf(text, size, "%s%s%s, policy %s%s%s, on %d rank%s", cell->strategy,
                   cell->settings[0] != '\0' ? " " : "", cell->settings, cell->policy, prefetch,
                   cell->checkpointing ? ", checkpointing" : "", (int)cell->ranks, cell->ranks == 1 ? "" : "s");
}

/* Pairwise cover: cells of a grid with every pair of its settings. */

enum { PAIRS = WEFT_N_AXES * WEFT_N_AXES * WEFT_MOST_LEVELS * WEFT_MOST_LEVELS };

/* Count per pair of settings. -1: occurs in no cell; 0: in no chosen cell; n: in n chosen cells. */
typedef struct cover {
    int32_t *pairs;        /* [PAIRS] */
    unsigned char *chosen; /* [cells] */
    int32_t n_open;        /* pairs with count 0 */
} cover;

/* Returns the index of a cell's pair of settings on two axes; -1: an axis does not apply. */
static int32_t pair_of(const weft_cell *cell, int a, int b) {
    if (cell->level[a] < 0 || cell->level[b] < 0) return -1;
    return ((a * WEFT_N_AXES + b) * WEFT_MOST_LEVELS + cell->level[a]) * WEFT_MOST_LEVELS + cell->level[b];
}

/* Returns how many of the cell's pairs occur in exactly n chosen cells. */
static int32_t count_pairs(const cover *self, const weft_cell *cell, int32_t n) {
    int32_t found = 0;
    for (int a = 0; a < WEFT_N_AXES; a++)
        for (int b = a + 1; b < WEFT_N_AXES; b++) {
            const int32_t pair = pair_of(cell, a, b);
            found += pair >= 0 && self->pairs[pair] == n;
        }
    return found;
}

/* by: 1 adds the cell, -1 removes it. */
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

/* Returns the cell with the most open pairs; of equal ones the first from `from` on. */
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

/* Chooses greedily from cell `from` on, which breaks ties and so affects the size. Returns the number of cells. */
static int32_t cover_from(cover *self, const weft_grid *grid, int32_t from) {
    int32_t n = 0;
    memset(self->pairs, 0xFF, PAIRS * sizeof *self->pairs);
    memset(self->chosen, 0, (size_t)grid->n);
    self->n_open = 0;
    for (int32_t i = 0; i < grid->n; i++) open_pairs(self, &grid->cells[i]);
    choose_cell(self, grid, 0, 1);
    while (self->n_open > 0) choose_cell(self, grid, best_of(self, grid, from), 1);
    /* Removes cells that later choices made redundant. */
    for (int32_t i = 1; i < grid->n; i++)
        if (self->chosen[i] != 0 && count_pairs(self, &grid->cells[i], 1) == 0) choose_cell(self, grid, i, -1);
    for (int32_t i = 0; i < grid->n; i++) n += self->chosen[i];
    return n;
}

enum { ATTEMPTS = 24 };

void weft_grid_cover(weft_grid *self) {
    cover c = {weft_alloc(PAIRS, sizeof *c.pairs), weft_alloc(self->n, 1), 0};
    int32_t kept = 0, best = 0, least = INT32_MAX;
    for (int32_t attempt = 0; attempt < ATTEMPTS; attempt++) {
        const int32_t from = attempt * self->n / ATTEMPTS, n = cover_from(&c, self, from);
        if (n < least) best = from;
        if (n < least) least = n;
    }
    (void)cover_from(&c, self, best);
    for (int32_t i = 0; i < self->n; i++)
        if (c.chosen[i] != 0) self->cells[kept++] = self->cells[i];
    self->n = kept;
    free(c.pairs);
    free(c.chosen);
}
