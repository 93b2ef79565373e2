/* host/report/stages.h: the owners of segments, the balance of their memory, and the layer move that improves it most.
 * host/report/all_rank_plan.h prints the memory by category. */
#ifndef WEFT_HOST_REPORT_STAGES_H
#define WEFT_HOST_REPORT_STAGES_H

#include "report/all_rank_plan.h"
#include "run/session.h"

#include <stdio.h>

/* Memory of one rank in bytes: planned before the run, measured after the first step. */
typedef struct weft_memory_snapshot {
    int64_t planned, taken;          /* on the device */
    int64_t resident, resident_peak; /* of the process, now and at the peak */
} weft_memory_snapshot;

/* Gathers a struct of each rank. out: [world], which the caller frees, also after a failure. Rank 0 receives all of
 * them, the others have only their own. [collective] */
weft_status weft_rank_structs_gather(void **out, const weft_engine *engine, const void *own, size_t bytes,
                                     weft_error *err);

/* Gathers the snapshots in the same way. [collective] */
weft_status weft_memory_snapshots_collect(weft_memory_snapshot **out, const weft_session *session, weft_error *err);

/* Prints the planned memory: on rank 0 the maximum with its rank, on any other rank its own. width: of the label. */
void weft_memory_snapshots_print_planned(const weft_memory_snapshot *moments, const weft_session *session, int width,
                                         FILE *to);

/* Formats this rank's memory after a step, without a newline. own: of moments; size: at least 200. */
void weft_memory_snapshot_describe(char *out, size_t size, const weft_memory_snapshot *own, const weft_session *session,
                                   int64_t step);
/* Formats the ranks with the least and the most memory, on rank 0. The same size. */
void weft_memory_snapshots_describe(char *out, size_t size, const weft_memory_snapshot *moments,
                                    const weft_session *session, int64_t step);

typedef struct weft_stage_row {
    char segments[1000];        /* "embed, layers.0-2, layers.3.attn" */
    int64_t total, activations; /* bytes, from the all-rank plan */
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

/* Computes the stages. all-rank plan: of the engine. */
void weft_stages_make(weft_stages *out, const weft_plan *plan, const weft_all_rank_plan *all_rank_plan);
void weft_stages_free(weft_stages *self);

/* Prints the stages; no output if n is 0. */
void weft_stages_print(const weft_stages *self, FILE *to);

#endif
