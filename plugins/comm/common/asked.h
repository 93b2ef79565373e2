/* common/asked.h: validates the arguments of a collective or point-to-point call, for all communicators.
 *
 * A failure is a bug of the caller; nothing is sent then (weft/comm.h). */
#ifndef WEFT_COMM_COMMON_ASKED_H
#define WEFT_COMM_COMMON_ASKED_H

#include <weft/comm.h>

/* Number of rows of n elements on one side of a call. */
enum { ASKED_NONE = 0, ASKED_ONE = 1, ASKED_ALL = 2 /* one per rank of the group */ };

typedef struct asked_kind {
    const char *name;
    int from, to; /* ASKED_... */
    int is_sum, has_root, is_pair;
} asked_kind;

extern const asked_kind asked_all_gather, asked_all_to_all, asked_reduce_scatter, asked_all_reduce, asked_broadcast,
    asked_send, asked_recv;

/* A validated call in a group of group_size ranks; this rank is number `place`. */
typedef struct asked {
    int32_t group_size, place, max_tag;
    int64_t n, size; /* size: bytes per element */
    int32_t dtype, peer, tag;
    int in_place; /* the smaller operand is this rank's row of the larger one, or both are the same */
} asked;

/* Validates `what` and fills out; the caller has set group_size, place and max_tag. */
weft_status asked_judge(asked *out, const weft_exchange *what, const asked_kind *kind, weft_error *err);
/* Returns the bytes of a side with that many rows. */
int64_t asked_bytes(const asked *self, int rows);

#endif
