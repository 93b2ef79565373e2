/* host/program/exchange.h: the communication of an instruction: collective, process group and size. Planning,
 * execution, byte counts and time estimates all use it.
 *
 *     GATHER of parameters   all-gather    each rank's shard of every group of the unit (program/gathered.h)
 *     GATHER of a sum        all-gather    each rank's chunk, in fp32
 *     REDUCE                 all-to-all    a row for each rank; with reduce = fast a reduce-scatter of the rows
 *     REFRESH                all-gather    each rank's shard in fp32; of an owned unit one message to the copy
 *     SEND, RECV             a message     a carry or its gradient, or part of a micro-batch gradient
 *
 * A unit is split into R chunks of complete grid cells, identical on all ranks (model/layout.h). Only complete chunks
 * are sent; chunks after a group's last cell are padding. This file does not define buffer locations. */
#ifndef WEFT_HOST_PROGRAM_EXCHANGE_H
#define WEFT_HOST_PROGRAM_EXCHANGE_H

#include "program/plan.h"

typedef enum weft_exchange_way {
    WEFT_EXCHANGE_NONE = 0, /* no communication, or this rank does not participate */
    WEFT_EXCHANGE_ALL_GATHER = 1,
    WEFT_EXCHANGE_ALL_TO_ALL = 2,
    WEFT_EXCHANGE_REDUCE_SCATTER = 3,
    WEFT_EXCHANGE_SEND = 4,
    WEFT_EXCHANGE_RECV = 5
} weft_exchange_way;

/* One rank's part of an exchange. */
typedef struct weft_planned_exchange {
    int32_t way;        /* weft_exchange_way */
    int32_t scope;      /* weft_scope of the process group, by `cut`; 0: a message to or from `peer` */
    weft_cut cut;       /* sharding of the unit */
    int32_t peer;       /* rank; 0 if there is a scope */
    int32_t ranks;      /* size of the process group; 2: a message */
    int32_t place;      /* index of this rank in the group */
    int32_t dtype;      /* weft_dtype of the data; bytes if a unit's groups have several types */
    int64_t n;          /* elements sent to each other rank: a row; an all-gather receives n from each rank */
    int64_t each, sent; /* bytes of n elements; bytes to all other ranks. A RECV has the values of its SEND. */
} weft_planned_exchange;

/* Returns the exchange of any rank, not only the plan's. The job is placed and belongs to a mode of the plan; the
 * instruction is from a checked program of it. A carry has the size of the largest micro-batch. */
weft_planned_exchange weft_exchange_plan(const weft_plan *plan, const weft_job_spec *job,
                                         const weft_instruction *instruction, int32_t rank);

/* Layout of a REDUCE: the data that a rank sends of a unit's trained group, the received rows, and their offsets in
 * the slot. */
typedef struct weft_reduce_rows {
    int32_t ranks;      /* group size = received rows; 1: no communication, the row is the complete input */
    int32_t dtype;      /* type of sent rows: [strategy] reduce_dtype; sums of several micro-batches are fp32 */
    int64_t row, whole; /* elements: of a row; of the complete input */
    int64_t come;       /* byte offset of received rows in the slot: after the sent data if that is not fp32 */
    int64_t wide;       /* offset of one row, widened to fp32 */
    int64_t bytes;      /* of the slot */
} weft_reduce_rows;

/* Computes the layout. is_micro_batch: the input is a micro-batch gradient; otherwise it is the result of the first
 * hop. The unit is trained. */
weft_reduce_rows weft_exchange_reduce(const weft_plan *plan, const weft_job_spec *job, int32_t unit, int32_t scope,
                                      bool is_micro_batch);

/* Returns the elements of one of the R chunks of a unit's trained group; 0: the unit is frozen. */
int64_t weft_exchange_piece(const weft_plan *plan, const weft_job_spec *job, int32_t unit);

/* ---- exchanges of several ranks ----
 *
 * The k-th exchange of a rank in a process group matches the k-th one of the other ranks in it. A message matches
 * by its data. */

typedef struct weft_matches {
    int32_t **of;  /* [world][n_instructions] the exchange of an instruction; -1: only this rank participates */
    int32_t *size; /* [n] number of ranks in it */
    int32_t n, world;
} weft_matches;

/* programs: of all ranks of a placed job; the fields of each instruction are valid. */
weft_matches weft_matches_find(const weft_program *const *programs, const weft_job_spec *job);
void weft_matches_free(weft_matches *matches);

#endif
