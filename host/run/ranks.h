/* host/run/ranks.h: the ranks of one engine: who they are, and the groups in which they exchange.
 *
 * The ranks of an engine are `world` ranks of the communicator that follow one another, from `base` on; all numbers in
 * programs count from there. An engine without a communicator is a world of one. */
#ifndef WEFT_HOST_RUN_RANKS_H
#define WEFT_HOST_RUN_RANKS_H

#include "program/terms.h"
#include "run/process_context.h"
#include "run/traffic.h"

typedef struct weft_ranks {
    const weft_comm_plugin *plugin; /* NULL: one rank, and nothing to exchange with */
    weft_comm *comm;
    weft_comm_info info;
    int32_t base, rank, world;
    weft_process_context *process_context;
    weft_comm_group *everyone; /* the engine's ranks in their order; NULL: those of the world */
    struct {
        int32_t group;
        weft_comm_group *by_scope[WEFT_SCOPE_ACROSS + 1];
    } cuts[WEFT_MAX_CUTS];
    int32_t n_cuts;
    weft_traffic *sent; /* what this rank has sent while `counts` was true; NULL: it has nobody to send to */
    bool counts;
} weft_ranks;

/* The ranks of a rank span; nothing is exchanged yet. */
void weft_ranks_take(weft_ranks *self, const weft_rank_span *rank_span);
/* Makes `everyone`, unless it is there. [collective] */
weft_status weft_ranks_meet(weft_ranks *self, weft_error *err);
void weft_ranks_leave(weft_ranks *self); /* frees what is counted */

/* Makes the groups of a cut, unless they are there. [collective] */
weft_status weft_ranks_group(weft_ranks *self, const weft_cut *cut, weft_error *err);
weft_comm_group *weft_ranks_group_of(const weft_ranks *self, const weft_cut *cut, int32_t scope);

/* Bytes that this rank gave to another one while they were counted. */
int64_t weft_ranks_sent_to(const weft_ranks *self, int32_t rank);

/* An exchange of the table, by the name of its slot. */
typedef struct weft_transfer {
    weft_comm_group *group;
    weft_stream *stream; /* in which it has its place; NULL: the device's first */
    weft_ref to, from;
    int64_t n;
    int32_t dtype, peer, tag, lane;
    int32_t traffic; /* weft_traffic_kind */
} weft_transfer;
weft_status weft_ranks_start(const weft_ranks *self, weft_comm_handle **out, weft_exchange_fn *how, const char *name,
                             const weft_transfer *what, weft_error *err);
weft_status weft_ranks_wait(const weft_ranks *self, weft_comm_handle **handle, weft_error *err); /* NULL is done */
/* What is queued in the stream from now on sees the result; the host waits where the communicator needs it. */
weft_status weft_ranks_join(const weft_ranks *self, weft_comm_handle **handle, weft_stream *stream, weft_error *err);
void weft_ranks_poke(const weft_ranks *self);
/* What went wrong behind calls that have returned: an exchange that was given up ends, too, and what it left means
 * nothing. To be asked once the device has ended what was queued. */
weft_status weft_ranks_check(const weft_ranks *self, weft_error *err);

/* Starts, and the stream waits. */
weft_status weft_ranks_exchange(const weft_ranks *self, weft_exchange_fn *how, const char *name,
                                const weft_transfer *what, weft_error *err);

#endif
