/* host/report/rank_plan.h: planned memory and traffic of one rank in a step. */
#ifndef WEFT_HOST_REPORT_RANK_PLAN_H
#define WEFT_HOST_REPORT_RANK_PLAN_H

#include "program/plan.h"
#include "run/traffic.h"

/* Some ranks receive `each` bytes a step from this one: its group under a cut and scope, or one peer. */
typedef struct weft_link {
    weft_cut cut;
    int32_t scope;
    int32_t peer; /* -1: the group */
    int64_t each;
} weft_link;

typedef struct weft_rank_plan {
    weft_plan_bytes bytes;
    int64_t padding;                                    /* padding bytes of its parameter shards */
    int64_t kept, updated;                              /* elements of parameters that it stores and that it updates */
    int32_t instructions[WEFT_INSTRUCTION_REFRESH + 1]; /* of a training step, by kind */
    int32_t n_instructions;
    int64_t sent[WEFT_N_TRAFFIC]; /* bytes in a step with micro-batches of the largest shape */
    int64_t total_sent, to_nodes; /* all kinds; the part of it to ranks of other nodes */
    weft_link *links;
    int32_t n_links;
} weft_rank_plan;

typedef struct weft_all_rank_plan {
    weft_rank_plan *ranks; /* [world] */
    int32_t world, nodes, ranks_per_node;
} weft_all_rank_plan;

#endif
