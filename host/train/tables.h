/* host/train/tables.h: tables of a run: wrapping, shards, sequences of a step, stages of a pipeline. */
#ifndef WEFT_HOST_TRAIN_TABLES_H
#define WEFT_HOST_TRAIN_TABLES_H

#include "run/session.h"
#include "train/fit.h"

/* A module is wrapped if a unit has its path, or if a unit of several modules contains all of it but not all of its
 * parent module. */
typedef struct weft_wrapped {
    const weft_declared *declared;
    const weft_layout *layout;
    int32_t *unit; /* [n_modules] unit of all parameters of its subtree; WEFT_WRAPPED_NONE, WEFT_WRAPPED_SEVERAL */
    bool *is_wrapped;
    int32_t n_wrapped;
    double percent; /* of all modules */
} weft_wrapped;

enum { WEFT_WRAPPED_NONE = -1, WEFT_WRAPPED_SEVERAL = -2 };

/* Computes the wrapping, which refers to both arguments; the caller frees it. */
weft_wrapped weft_wrapped_make(const weft_declared *declared, const weft_layout *layout);
void weft_wrapped_free(weft_wrapped *self);

/* Prints modules, units and parameters in one line. width: of the label; policy: id of the wrap policy. */
void weft_wrapped_print_line(const weft_wrapped *self, const char *policy, int width, FILE *to);

/* Prints each module with its tag (top_module, module group, --fsdp_wrap_module, --unwrap-module) and its unit; then
 * the totals. */
void weft_wrapped_print(const weft_wrapped *self, FILE *to);

/* Prints the size of the plan's rank's shard of each unit, each parameter and the complete model, a line each. Of units
 * and of parameters only the first and the last `ends`, 0: all. */
void weft_sharding_print(const weft_plan *plan, int32_t ends, FILE *to);
/* Returns how many elements of the parameter the plan's rank keeps. */
int64_t weft_sharding_kept(const weft_plan *plan, const weft_parameter *parameter);
/* Returns the elements of a unit (-1: of the model) and how many of them the plan's rank keeps. */
int64_t weft_sharding_sum(int64_t *kept, const weft_plan *plan, int32_t unit);

/* Bit mask of tables. */
typedef enum weft_shown {
    WEFT_SHOWN_WRAPPING = 1, /* every module with its unit */
    WEFT_SHOWN_SHARDING = 2, /* this rank's shards of the first and last parameters */
    WEFT_SHOWN_SAMPLES = 4   /* sequences of the step, and their first ids */
} weft_shown;

weft_status weft_tables_print(const weft_session *session, uint32_t tables, int64_t step, FILE *to, weft_error *err);

/* Prints the sequences that every rank processes in each step: rank 0 prints all ranks, any other only itself. No
 * output with one replica. */
void weft_batches_print(const weft_session *session, FILE *to);

/* ---- stages: the owners of segments, the balance of their memory, and the layer move that improves it most ---- */

typedef struct weft_stage_row {
    char segments[1000];        /* "embed, layers.0-2, layers.3.attn" */
    int64_t total, activations; /* bytes, planned */
    double micro_batch;         /* activation bytes of one micro-batch */
    int32_t n;                  /* segments */
} weft_stage_row;

typedef struct weft_stages {
    weft_stage_row *rows; /* [n] by rank; n 0: segments have no owners */
    int32_t n;
    double imbalance; /* excess of the largest over the mean, in percent */
    int32_t largest;  /* rank */
    /* The estimated best move of a layer between neighbours; layer "": no move helps. */
    char layer[128];
    int32_t from, to;
    double imbalance_then;
} weft_stages;

/* Returns whether the engine's training assigns segments to owners, with several ranks. */
bool weft_stages_exist(const weft_plan *plan);

/* Computes the stages of a training plan. */
void weft_stages_make(weft_stages *out, const weft_plan *plan, const weft_all_rank_plan *all_rank_plan);
void weft_stages_free(weft_stages *self);

/* Prints the stages; no output if n is 0. */
void weft_stages_print(const weft_stages *self, FILE *to);

#endif
