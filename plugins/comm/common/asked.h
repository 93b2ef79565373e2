/* common/asked.h: what an exchange is asked for, judged; of every communicator.
 *
 * What fails here is a defect of whoever calls: nothing is sent then (weft/comm.h). */
#ifndef WEFT_COMM_COMMON_ASKED_H
#define WEFT_COMM_COMMON_ASKED_H

#include <weft/comm.h>

/* Rows of n elements that one side of an exchange has. */
enum { ASKED_NONE = 0, ASKED_ONE = 1, ASKED_ALL = 2 /* one for each rank of the group */ };

typedef struct asked_kind {
    const char *name;
    int from, to; /* ASKED_... */
    int is_sum, has_root, is_pair;
} asked_kind;

extern const asked_kind asked_all_gather, asked_all_to_all, asked_reduce_scatter, asked_all_reduce, asked_broadcast,
    asked_send, asked_recv;

/* Of a group with so many ranks, of which this one has the place. */
typedef struct asked {
    int32_t group_size, place, max_tag;
    int64_t n, size; /* size: bytes of an element */
    int32_t dtype, peer, tag;
    int in_place; /* the smaller operand is this rank's row of the larger one, or both are one */
} asked;

/* All of `what` is known here and has a meaning; fills out, whose first line is the caller's. */
weft_status asked_judge(asked *out, const weft_exchange *what, const asked_kind *kind, weft_error *err);
/* Bytes of a side that has so many rows. */
int64_t asked_bytes(const asked *self, int rows);

#endif
