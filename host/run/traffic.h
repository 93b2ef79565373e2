/* host/run/traffic.h: bytes that a rank sends in optimizer steps, by what they are for and by who gets them.
 *
 * Counted are the bytes that an exchange gives to other ranks: to each one that differs its row, whatever way a library
 * chooses to bring it there. A run counts where exchanges are started (ranks.c); a plan adds up the same from programs
 * (report/sent.c). */
#ifndef WEFT_HOST_RUN_TRAFFIC_H
#define WEFT_HOST_RUN_TRAFFIC_H

#include <weft/strategy.h>

typedef enum weft_traffic_kind {
    WEFT_TRAFFIC_OTHER = 0, /* evaluations, checkpoints: not counted */
    WEFT_TRAFFIC_GATHER = 1,
    WEFT_TRAFFIC_SUM = 2, /* GATHER of a finished sum */
    WEFT_TRAFFIC_REDUCE_ALL = 3,
    WEFT_TRAFFIC_REDUCE_NODE = 4,
    WEFT_TRAFFIC_REDUCE_ACROSS = 5,
    WEFT_TRAFFIC_REFRESH = 6,
    WEFT_TRAFFIC_SEND = 7,
    WEFT_TRAFFIC_NORM = 8,
    WEFT_TRAFFIC_LOSSES = 9, /* they go round with NORM */
    WEFT_N_TRAFFIC = 10
} weft_traffic_kind;

enum { WEFT_MAX_CUTS = 8 }; /* sizes of rank groups that units are cut over */

/* Counting costs an exchange the same however many ranks take part: what a group gets is told apart by group, and added
 * up by rank when it is asked for (weft_ranks_sent_to). */
typedef struct weft_traffic {
    int64_t sent[WEFT_N_TRAFFIC];
    int64_t steps;                                      /* that were counted */
    int64_t *to;                                        /* [world] all kinds, what went to one rank by itself */
    int64_t each[WEFT_MAX_CUTS][WEFT_SCOPE_ACROSS + 1]; /* to each other rank of a cut's group */
    int64_t everyone;                                   /* to each other rank of the world */
} weft_traffic;

void weft_traffic_add(weft_traffic *to, const weft_traffic *more, int32_t world);

const char *weft_traffic_name(int32_t kind); /* "reduce all" */
int32_t weft_traffic_of(const weft_instruction *instruction);

#endif
