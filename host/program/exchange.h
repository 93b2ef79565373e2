/* host/program/exchange.h: what an event of a program brings from rank to rank: how, among whom, and how much. Planning
 * sizes slots by it, a step is run by it, bytes are counted and seconds are priced by it.
 *
 *     GATHER of parameters   all-gather    each rank's shard of every group of the unit (program/gathered.h)
 *     GATHER of a sum        all-gather    each rank's piece, in fp32
 *     REDUCE                 all-to-all    a row for each rank; under reduce = fast a reduce-scatter of the rows
 *     REFRESH                all-gather    each rank's shard in fp32; of an owned unit one message to who has a copy
 *     SEND, RECV             a message     a carry or its gradient, or a part of a leaf gradient
 *
 * A unit is cut into R pieces of whole grid cells, the same for all ranks (model/hold.h): what travels is whole pieces,
 * and those behind a group's last cell are padding. Where buffers lie is no matter of this file. */
#ifndef WEFT_HOST_PROGRAM_EXCHANGE_H
#define WEFT_HOST_PROGRAM_EXCHANGE_H

#include "program/plan.h"

typedef enum weft_exchange_way {
    WEFT_EXCHANGE_NONE = 0, /* nothing travels: the event moves no bytes, or none of this rank's */
    WEFT_EXCHANGE_ALL_GATHER = 1,
    WEFT_EXCHANGE_ALL_TO_ALL = 2,
    WEFT_EXCHANGE_REDUCE_SCATTER = 3,
    WEFT_EXCHANGE_SEND = 4,
    WEFT_EXCHANGE_RECV = 5
} weft_exchange_way;

/* What one rank has to do with one event. */
typedef struct weft_planned_exchange {
    int32_t way;        /* weft_exchange_way */
    int32_t scope;      /* weft_scope of the ranks that take part, by `cut`; 0: a message to or from `peer` */
    weft_cut cut;       /* how the unit is cut */
    int32_t peer;       /* rank; 0 where there is a scope */
    int32_t ranks;      /* that take part; 2: a message */
    int32_t place;      /* of this rank among them */
    int32_t dtype;      /* weft_dtype of what travels; bytes where a unit's parts are of several types */
    int64_t n;          /* elements that a rank gives to each other one: a row; what gathers has that of each rank */
    int64_t each, sent; /* bytes: of those n; to all others together. A RECV has what its SEND gives. */
} weft_planned_exchange;

/* rank: whose part it is, which need not be the plan's. The job is placed, and of a mode of the plan; the event is of a
 * program for it that was judged. A carry has the size of the largest leaf. */
weft_planned_exchange weft_exchange_plan(const weft_plan *plan, const weft_job_spec *job, const weft_event *event,
                                         int32_t rank);

/* A REDUCE in detail: what a rank gives of a unit's trained group, the rows that come, and how both lie in its slot. */
typedef struct weft_reduce_rows {
    int32_t ranks;      /* that exchange: rows that come; 1: nothing travels, and the row is all that is given */
    int32_t dtype;      /* in which rows go: [strategy] reduce_dtype; what has taken in several leaves is fp32 */
    int64_t row, whole; /* elements: of a row; of all that is given */
    int64_t come;       /* bytes from the start of the slot: the rows, behind what is given where that is no fp32 */
    int64_t wide;       /* one row, widened to fp32 */
    int64_t bytes;      /* of the slot */
} weft_reduce_rows;

/* is_leaf: it gives a leaf's gradient; else what the first hop has come to. The unit is trained. */
weft_reduce_rows weft_exchange_reduce(const weft_plan *plan, const weft_job_spec *job, int32_t unit, int32_t scope,
                                      bool is_leaf);

/* Elements of one of the R pieces of a unit's trained group; 0: the unit is frozen. */
int64_t weft_exchange_piece(const weft_plan *plan, const weft_job_spec *job, int32_t unit);

#endif
