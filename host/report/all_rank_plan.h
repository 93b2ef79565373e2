/* host/report/all_rank_plan.h: memory and traffic of every rank of a world, computed by one process.
 *
 * The functions that plan a run also compute a rank's figures: its program is compiled, its stored shards are laid out
 * and its program is placed in memory. Ranks with equal programs, except for the numbers of their micro-batches, share
 * one placement. */
#ifndef WEFT_HOST_REPORT_ALL_RANK_PLAN_H
#define WEFT_HOST_REPORT_ALL_RANK_PLAN_H

#include "program/plan.h"
#include "run/ranks.h"

#include <jansson.h>

/* Some ranks receive `each` bytes a step from this one: its group under a cut and scope, or one peer. */
typedef struct weft_link {
    weft_cut cut;
    int32_t scope;
    int32_t peer; /* -1: the group */
    int64_t each;
} weft_link;

/* Planned memory and traffic of one rank in a step. */
typedef struct weft_rank_plan {
    weft_plan_bytes bytes;
    int64_t padding;                                    /* padding bytes of its parameter shards */
    int64_t kept, updated;                              /* elements of parameters that it stores and that it updates */
    int32_t instructions[WEFT_INSTRUCTION_REFRESH + 1]; /* of a training step, by kind */
    int64_t sent[WEFT_N_TRAFFIC];                       /* bytes in a step with micro-batches of the largest shape */
    int64_t total_sent, to_nodes;                       /* all kinds; the part of it to ranks of other nodes */
    weft_link *links;
    int32_t n_links;
    int32_t like; /* the first rank with equal figures: itself or an earlier one */
} weft_rank_plan;

typedef struct weft_all_rank_plan {
    weft_rank_plan *ranks;         /* [world] */
    const weft_program **programs; /* [world] of training */
    int32_t world, nodes, ranks_per_node;
} weft_all_rank_plan;

/* Creates an all-rank plan of a training plan. */
weft_status weft_all_rank_plan_create(weft_all_rank_plan **out, const weft_plan *plan, weft_error *err);
void weft_all_rank_plan_destroy(weft_all_rank_plan *all_rank_plan); /* NULL is fine */

/* Creates the parameter shards of another rank; the caller destroys them. */
weft_hold *weft_all_rank_plan_hold(const weft_plan *plan, int32_t rank);

/* ---- tables and objects; equal ranks share a row ---- */

void weft_all_rank_plan_print(const weft_all_rank_plan *all_rank_plan, FILE *to);
/* Prints the bytes between each pair of ranks. */
void weft_all_rank_plan_print_links(const weft_all_rank_plan *all_rank_plan, FILE *to);

/* Returns {"name": bytes} of numbers [first, n). */
json_t *weft_bytes_object(const int64_t *bytes, int first, int n, const char *(*name)(int32_t index));
json_t *weft_memory_object(const weft_plan_bytes *bytes);
/* Returns an object per row, with the numbers of its ranks. */
json_t *weft_all_rank_plan_array(const weft_all_rank_plan *all_rank_plan);
/* Returns [{"from": 0, "to": [1, 3], "bytes": 4096}]: to each rank from the first to the last. */
json_t *weft_all_rank_plan_links_array(const weft_all_rank_plan *all_rank_plan);

#endif
