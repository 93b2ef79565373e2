/* host/tools/prove/grid.h: the cells of a proof: which settings of strategy, policy and split are tried with one
 * another.
 *
 * A cell is what is put in place of the configuration's own [strategy], [policy] and activation checkpointing, and on
 * how many ranks. Axes that do not apply to a strategy are not multiplied. The order of the cells, and what is chosen
 * of them, follows from the spec alone. */
#ifndef WEFT_HOST_TOOLS_PROVE_GRID_H
#define WEFT_HOST_TOOLS_PROVE_GRID_H

#include "report/required_memory.h"
#include "program/answers.h"
#include "program/program.h"

/* What is varied. */
typedef enum weft_axis {
    WEFT_AXIS_STRATEGY,
    WEFT_AXIS_SHARD,
    WEFT_AXIS_SCHEDULE,
    WEFT_AXIS_REDUCE_AT,
    WEFT_AXIS_RANKS,
    WEFT_AXIS_POLICY,
    WEFT_AXIS_PREFETCH,
    WEFT_AXIS_CHECKPOINTING,
    WEFT_N_AXES
} weft_axis;

enum { WEFT_MOST_LEVELS = 64, WEFT_OVERRIDE_SIZE = 256, WEFT_CELL_OVERRIDES = 16 };

/* Overrides of a configuration, in their order. */
typedef struct weft_grid_keys {
    char text[WEFT_CELL_OVERRIDES][WEFT_OVERRIDE_SIZE];
    int32_t n;
} weft_grid_keys;

/* A text that is too long, or one too many, is cut: the configuration then refuses it. */
void weft_grid_say(weft_grid_keys *keys, const char *format, ...) WEFT_PRINTF(2, 3);

typedef struct weft_cell {
    int32_t level[WEFT_N_AXES]; /* -1: the axis does not apply */
    int32_t ranks;
    char strategy[64], settings[64], policy[160]; /* for people: "fsdp", "hybrid 2, last", "size 4096" */
    int32_t prefetch;                             /* -1: does not apply */
    bool checkpointing, is_own;                   /* is_own: of the configuration's own strategy, which may refuse it */
    weft_grid_keys keys;
    /* Known once the cell is compiled. */
    char refused[400];                       /* why the strategy refuses it; "": it does not */
    int32_t replicas, micro_batches;         /* R, A */
    uint64_t identity;                       /* of its programs */
    int32_t by;                              /* the rank that compiled it for all */
    char policy_file[65], strategy_file[65]; /* what it was compiled with: SHA-256 */
    weft_plan_answers answers;
    weft_coverage coverage;
    weft_required_memory need; /* of its fullest rank, or machine; nothing where no room is looked at */
} weft_cell;

typedef struct weft_grid_policy {
    char label[160];
    weft_grid_keys keys; /* none: the configuration's own */
} weft_grid_policy;

enum { WEFT_GRID_POLICIES = 4, WEFT_GRID_MAP = WEFT_OVERRIDE_SIZE - 32 };

typedef struct weft_grid_spec {
    int32_t world, micro_batches, segments;
    weft_grid_policy policies[WEFT_GRID_POLICIES];
    int32_t n_policies;
    bool has_mp, has_ddp, has_fsdp;
    const char *own;       /* the configuration's strategy, where it is none of these; else NULL */
    weft_grid_keys common; /* what all strategies are told: reduce, reduce_dtype */
    /* The configuration's device_map for mp; "": auto. map_ranks: it is for so many ranks; 0: for any. map_1f1b: it was
     * written for that schedule too, which not every map is. */
    char device_map[WEFT_GRID_MAP];
    int32_t map_ranks;
    bool map_1f1b;
    weft_grid_keys fsdp; /* what fsdp is told of the configuration's: root, reshard_after_forward */
    bool at_last;        /* reduce_at is an axis; else it is the configuration's */
    char reduce_at[16];
} weft_grid_spec;

typedef struct weft_grid {
    weft_cell *cells;
    int32_t n, room;
} weft_grid;

/* Which strategies have cells on so many ranks, of those that there are. */
bool weft_grid_takes_stages(const weft_grid_spec *spec, int32_t ranks);
bool weft_grid_takes_replicas(const weft_grid_spec *spec, int32_t ranks);

/* Whether cells of mp on so many ranks take the configuration's device_map, but for some of 1f1b. */
bool weft_grid_takes_map(const weft_grid_spec *spec, int32_t ranks);

/* All cells; the first is `single` with the configuration's policy. */
weft_status weft_grid_create(weft_grid *out, const weft_grid_spec *spec, weft_error *err);
void weft_grid_free(weft_grid *self);

/* Removes the cells that the own strategy refuses and returns how many. ranks: "3, 5", their numbers of ranks. first:
 * the first of them. is_whole: no cell of that strategy is left. */
int32_t weft_grid_drop_refused(weft_grid *self, char ranks[160], weft_cell *first, bool *is_whole);
/* Takes out compiled cells whose programs equal those of one before, and returns how many. */
int32_t weft_grid_drop_twins(weft_grid *self);
/* Keeps the first cell and as few others as a greedy choice needs, so that any two settings that stand together in some
 * cell stand together in one that is kept. */
weft_status weft_grid_cover(weft_grid *self, weft_error *err);

/* Which cells run at once: wave by wave, in their order, each on ranks that follow one another. wave and base: [n].
 * Returns the number of waves. The first cell is in none (-1): every rank runs it by itself before. */
int32_t weft_grid_schedule(int32_t *wave, int32_t *base, const weft_grid *self, int32_t world);

/* "fsdp full, policy block, prefetch 1, checkpointing, on 4 ranks". */
void weft_cell_describe(char *text, size_t size, const weft_cell *cell);

#endif
