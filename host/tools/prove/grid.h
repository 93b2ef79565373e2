/* host/tools/prove/grid.h: cells of a proof: combinations of strategy, policy and sharding settings.
 *
 * A cell replaces the configuration's [strategy], [policy] and activation checkpointing, and sets the number of ranks.
 * Axes that do not apply to a strategy are not multiplied. Cells, order and selection depend only on the spec. */
#ifndef WEFT_HOST_TOOLS_PROVE_GRID_H
#define WEFT_HOST_TOOLS_PROVE_GRID_H

#include "program/plan.h"
#include "program/program.h"
#include "train/fit.h"

/* Varied settings. */
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

/* Overrides of a configuration, in order. */
typedef struct weft_grid_keys {
    char text[WEFT_CELL_OVERRIDES][WEFT_OVERRIDE_SIZE];
    int32_t n;
} weft_grid_keys;

/* Appends an override. Truncates texts beyond the limits; the configuration then rejects them. */
void weft_grid_print(weft_grid_keys *keys, const char *format, ...) WEFT_PRINTF(2, 3);

typedef struct weft_cell {
    int32_t level[WEFT_N_AXES]; /* -1: the axis does not apply */
    int32_t ranks;
    char strategy[64], settings[64], policy[160]; /* display names: "fsdp", "hybrid 2, last", "size 4096" */
    int32_t prefetch;                             /* -1: not applicable */
    bool checkpointing, is_own;                   /* is_own: the configuration's own strategy, which may reject it */
    weft_grid_keys keys;
    /* Set when the cell is compiled. */
    char refused[400];                       /* reason of the strategy's rejection; "": accepted */
    int32_t replicas, micro_batches;         /* R, A of the step program: replicas, micro-batches */
    uint64_t identity;                       /* hash of its programs */
    int32_t by;                              /* rank that compiled it for all */
    char policy_file[65], strategy_file[65]; /* SHA-256 of the plugin files used to compile it */
    weft_plan_answers answers;
    weft_coverage coverage;
    weft_required_memory need; /* required memory of its fullest rank or node; empty if memory is not checked */
} weft_cell;

typedef struct weft_grid_policy {
    char label[160];
    weft_grid_keys keys; /* empty: the configuration's own */
} weft_grid_policy;

enum { WEFT_GRID_POLICIES = 4, WEFT_GRID_MAP = WEFT_OVERRIDE_SIZE - 32 };

typedef struct weft_grid_spec {
    int32_t world, micro_batches, segments;
    weft_grid_policy policies[WEFT_GRID_POLICIES];
    int32_t n_policies;
    bool has_mp, has_ddp, has_fsdp;
    const char *own;       /* the configuration's strategy if it is not a built-in one; else NULL */
    weft_grid_keys common; /* keys for all strategies: reduce, reduce_dtype */
    /* The configuration's device_map for mp; "": auto. map_ranks: its number of ranks; 0: any. map_1f1b: true if it was
     * written for that schedule, too, which not every map supports. */
    char device_map[WEFT_GRID_MAP];
    int32_t map_ranks;
    bool map_1f1b;
    weft_grid_keys fsdp; /* the configuration's keys for fsdp: root, reshard_after_forward */
    bool at_last;        /* reduce_at is an axis; otherwise it has the configuration's value */
    char reduce_at[16];
} weft_grid_spec;

typedef struct weft_grid {
    weft_cell *cells;
    int32_t n;
} weft_grid;

/* Return true if available strategies of this kind have cells on `ranks` ranks. */
bool weft_grid_takes_stages(const weft_grid_spec *spec, int32_t ranks);
bool weft_grid_takes_replicas(const weft_grid_spec *spec, int32_t ranks);

/* Returns true if cells of mp on `ranks` ranks use the configuration's device_map; some 1f1b cells may not. */
bool weft_grid_takes_map(const weft_grid_spec *spec, int32_t ranks);

/* Creates all cells; the first is `single` with the configuration's policy. */
void weft_grid_create(weft_grid *out, const weft_grid_spec *spec);
void weft_grid_free(weft_grid *self);

/* Removes the cells that the own strategy rejects and returns their number. ranks: their rank counts, "3, 5". first:
 * the first of them. is_whole: no cell of that strategy remains. */
int32_t weft_grid_drop_refused(weft_grid *self, char ranks[160], weft_cell *first, bool *is_whole);
/* Removes compiled cells with the same programs as an earlier one, and returns their number. */
int32_t weft_grid_drop_twins(weft_grid *self);
/* Keeps the first cell and a greedy pairwise cover: every pair of settings in some cell is in a kept cell. */
void weft_grid_cover(weft_grid *self);

/* Schedules cells in waves that run at the same time, in order, each on consecutive ranks. wave and base: [n]. Returns
 * the number of waves. The first cell is in no wave (-1): every rank runs it before. */
int32_t weft_grid_schedule(int32_t *wave, int32_t *base, const weft_grid *self, int32_t world);

/* Writes "fsdp full, policy block, prefetch 1, checkpointing, on 4 ranks". */
void weft_cell_describe(char *text, size_t size, const weft_cell *cell);

#endif
