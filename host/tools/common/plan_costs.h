/* host/tools/common/plan_costs.h: traffic, elements and instructions of every rank of a plan; key facts of a
 * configuration, and the differences between two configurations. */
#ifndef WEFT_HOST_TOOLS_COMMON_PLAN_COSTS_H
#define WEFT_HOST_TOOLS_COMMON_PLAN_COSTS_H

#include "run/session.h"
#include "train/fit.h"

#include <jansson.h>

/* Some ranks receive `each` bytes a step from this one: its group under a cut and scope, or one peer. */
typedef struct weft_link {
    weft_cut cut;
    int32_t scope;
    int32_t peer; /* -1: the group */
    int64_t each;
} weft_link;

/* Returns whether a link of `rank` has the other rank as a receiver. */
bool weft_link_reaches(const weft_link *link, int32_t rank, int32_t other);

/* Costs of one rank in a step. */
typedef struct weft_rank_costs {
    int64_t padding;                                    /* padding bytes of its parameter shards */
    int64_t kept, updated;                              /* elements of parameters that it stores and that it updates */
    int32_t instructions[WEFT_INSTRUCTION_REFRESH + 1]; /* of a training step, by kind */
    int64_t sent[WEFT_N_TRAFFIC];                       /* bytes in a step with micro-batches of the largest shape */
    int64_t total_sent, to_nodes;                       /* all kinds; the part of it to ranks of other nodes */
    weft_link *links;
    int32_t n_links;
    int32_t like; /* the first rank with equal figures and equal memory: itself or an earlier one */
} weft_rank_costs;

/* Returns [world] costs of the ranks of a training plan. */
weft_rank_costs *weft_rank_costs_make(const weft_plan *plan, const weft_all_rank_plan *all_rank_plan);
void weft_rank_costs_free(weft_rank_costs *costs, int32_t world); /* NULL is fine */

/* Returns the number of gradient elements whose squares a rank sums. */
int64_t weft_norm_elements(const weft_plan *plan, int32_t rank);

/* Returns the elements of trained parameters with a copy that STEP's update writes, or that is refreshed after it. */
int64_t weft_copies_elements(const weft_plan *plan, bool in_update);

/* Returns the bytes of the flat region that belong to no parameter. */
int64_t weft_layout_padding(const weft_layout *layout);

/* Returns the facts as names and values:
 *
 *     {"keys": {"strategy.plugin": "ddp"}, "numbers": {"memory total": 14356896}}
 *
 * Bytes of memory are those of the largest rank; instructions and bytes sent are totals of all ranks. */
weft_status weft_plan_diff_facts(json_t **out, const weft_session *session, const weft_all_rank_plan *all_rank_plan,
                                 weft_error *err);

/* Returns {"keys": [{"name": ..., "a": ..., "b": ...}], "numbers": [...]}: the differences; null for a missing value.
 */
json_t *weft_plan_diff_make(const json_t *a, const json_t *b);
/* Prints the differences as a table; the names are the titles of the two columns. */
void weft_plan_diff_print(const json_t *difference, const char *name_a, const char *name_b, FILE *to);

#endif
