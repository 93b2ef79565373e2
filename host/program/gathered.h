/* host/program/gathered.h: what the slot of a gathered unit holds: for each of its groups
 *
 *     as it is stored   the group, whole pieces: one all-gather straight into its place; then, where it is stored in
 *                       16 bits, its gains and biases, widened from there
 *     rounded           where it is stored in fp32 and computed with in 16 bits: the group rounded to those, whole
 *                       pieces: the same; then the gains and biases of each rank's shard in fp32, a row per rank; then
 *                       all gains and biases, put together from the rows
 *
 * since gains and biases are read in fp32 always. */
#ifndef WEFT_HOST_PROGRAM_GATHERED_H
#define WEFT_HOST_PROGRAM_GATHERED_H

#include "program/plan.h"

/* A group's part of a unit's slot; places in bytes from the start of the slot. */
typedef struct weft_gathered_part {
    const weft_group *group;
    int32_t index;
    int32_t dtype; /* weft_dtype of the image: what the group is stored in, or what it is rounded to */
    int64_t shard; /* elements that one rank keeps */
    int64_t image; /* the group as it is computed with */
    bool rounded, widened;
    int64_t rows, row; /* rounded: the rows; fp32 elements of one */
    int64_t gains;     /* either: where the gains are put together */
} weft_gathered_part;

/* True if ranks keep parts of the unit, so that it is computed with from a slot. One of them may keep all of it: a unit
 * of one cell of the grid. */
bool weft_gathered_is_due(const weft_job_spec *job, int32_t unit);

/* Lays a unit's slot out, a part per group of the unit; returns its bytes. */
int64_t weft_gathered_layout(const weft_plan *plan, const weft_cut *cut, int32_t unit,
                             weft_gathered_part parts[WEFT_UNIT_GROUPS]);

/* Bytes of a unit's slot; *each: that a rank gives to each other one in a GATHER. Both 0 where the unit is not cut. */
int64_t weft_gathered_bytes(const weft_plan *plan, const weft_job_spec *job, int32_t unit, int64_t *each);

/* True if the parameter travels in fp32 whatever is computed in. */
bool weft_gathered_is_gain(const weft_plan *plan, int32_t parameter);

/* Elements of a parameter in the shard of place j: [*begin, *end), counted from its first; false: none. */
bool weft_gathered_share(const weft_gathered_part *part, const weft_parameter *parameter, int64_t j, int64_t *begin,
                         int64_t *end);

#endif
