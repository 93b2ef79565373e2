/* host/report/rank_plan.h: what one rank of a world takes and sends in a step, by plan. */
#ifndef WEFT_HOST_REPORT_RANK_PLAN_H
#define WEFT_HOST_REPORT_RANK_PLAN_H

#include "program/plan.h"
#include "run/traffic.h"

/* Some ranks get `each` bytes a step from this one: those of its group under a cut and scope, or one peer. */
typedef struct weft_link {
    weft_cut cut;
    int32_t scope;
    int32_t peer; /* -1: the group */
    int64_t each;
} weft_link;

typedef struct weft_rank_plan {
    weft_plan_bytes bytes;
    int64_t padding;                        /* bytes of its parameters that belong to no parameter */
    int64_t kept, updated;                  /* elements of parameters that it keeps, and of those that it updates */
    int32_t events[WEFT_EVENT_REFRESH + 1]; /* of a training step, by kind */
    int32_t n_events;
    int64_t sent[WEFT_N_TRAFFIC]; /* bytes in a step whose leaves have the largest shape */
    int64_t total_sent, to_nodes; /* all kinds; of that to ranks of other nodes */
    weft_link *links;
    int32_t n_links;
} weft_rank_plan;

typedef struct weft_survey {
    weft_rank_plan *ranks; /* [world] */
    int32_t world, nodes, ranks_per_node;
} weft_survey;

#endif
