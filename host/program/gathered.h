/* host/program/gathered.h: layout of the slot of a gathered unit. Each of its groups is one of
 *
 *     unchanged   the group in its storage type, complete shards from one all-gather; a group in 16 bits is followed by
 *                 its gains and biases, widened to fp32
 *     rounded     stored in fp32 and computed in 16 bits: the rounded group, complete shards from one all-gather; then
 *                 the fp32 gains and biases of each rank's shard, one row per rank; then all gains and biases,
 *                 assembled from the rows
 *
 * because kernels always read gains and biases in fp32. */
#ifndef WEFT_HOST_PROGRAM_GATHERED_H
#define WEFT_HOST_PROGRAM_GATHERED_H

#include "program/plan.h"

/* A group's part of a unit's slot. Offsets are in bytes from the start of the slot. */
typedef struct weft_gathered_part {
    const weft_group *group;
    int32_t index;
    int32_t dtype; /* weft_dtype of the image */
    int64_t shard; /* elements of one rank's shard */
    int64_t image; /* offset of the group in the type of the computation */
    bool rounded, widened;
    int64_t rows, row; /* rounded: offset of the rows; fp32 elements of one row */
    int64_t gains;     /* rounded or widened: offset of the fp32 gains and biases */
} weft_gathered_part;

/* True if the unit is sharded, so that kernels read it from a slot. A unit of one grid cell is on one rank. */
bool weft_gathered_is_due(const weft_job_spec *job, int32_t unit);

/* Computes the layout of a unit's slot, one part per group, and returns its bytes. */
int64_t weft_gathered_layout(const weft_plan *plan, const weft_cut *cut, int32_t unit,
                             weft_gathered_part parts[WEFT_UNIT_GROUPS]);

/* Returns the bytes of a unit's slot; *each: bytes that a GATHER sends to each other rank. Both are 0 if the unit is
 * not sharded. */
int64_t weft_gathered_bytes(const weft_plan *plan, const weft_job_spec *job, int32_t unit, int64_t *each);

/* Computes the elements [*begin, *end) of a parameter in shard j; false: none. */
bool weft_gathered_share(const weft_gathered_part *part, const weft_parameter *parameter, int64_t j, int64_t *begin,
                         int64_t *end);

#endif
