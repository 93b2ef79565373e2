/* host/measure/survey.h: what every rank of a world will take and send, asked of one process.
 *
 * A rank's figures are made by the very functions that make a run's: its program is compiled, what it keeps is laid out
 * and its program placed. Of ranks whose programs are alike but for the leaves' numbers one is placed for all. */
#ifndef WEFT_HOST_MEASURE_SURVEY_H
#define WEFT_HOST_MEASURE_SURVEY_H

#include "plan/plan.h"
#include "ranks/traffic.h"

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

/* Of a plan for training. */
weft_status weft_survey_create(weft_survey **out, const weft_plan *plan, weft_error *err);
void weft_survey_destroy(weft_survey *survey); /* NULL is fine */

/* Bytes that a rank gives to each of the world in a step: to [world]. */
void weft_survey_links(const weft_survey *survey, int64_t *to, int32_t rank);

/* What another rank keeps of parameters: to be destroyed. */
weft_status weft_survey_hold(weft_hold **out, const weft_plan *plan, int32_t rank, weft_error *err);

#endif
