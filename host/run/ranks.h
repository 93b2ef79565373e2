/* host/run/ranks.h: the ranks of one engine and their groups.
 *
 * An engine has `world` consecutive ranks of the communicator, from `base` on; all numbers in programs count from
 * there. An engine without a communicator has one rank. */
#ifndef WEFT_HOST_RUN_RANKS_H
#define WEFT_HOST_RUN_RANKS_H

#include "model/process_group.h"
#include "program/job.h"
#include "run/process_context.h"

#include <weft/strategy.h>

/* Bytes that a rank sends in optimizer steps, by purpose. Each other rank of an exchange counts with its row,
 * independent of the library's algorithm. A run counts at the start of an exchange; tools/common/plan_costs.c adds
 * the same up from programs. */
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
    WEFT_TRAFFIC_LOSSES = 9, /* gathered with NORM */
    WEFT_N_TRAFFIC = 10
} weft_traffic_kind;

enum { WEFT_MAX_CUTS = 8 }; /* sizes of rank groups that units are cut over */

typedef struct weft_traffic {
    int64_t sent[WEFT_N_TRAFFIC];
    int64_t steps; /* counted */
    int64_t *to;   /* [world] all kinds */
} weft_traffic;

const char *weft_traffic_name(int32_t kind); /* "reduce all" */
int32_t weft_traffic_of(const weft_instruction *instruction);

typedef struct weft_ranks {
    const weft_comm_plugin *plugin; /* NULL: one rank */
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
    weft_traffic *sent; /* by this rank while `counts` was true; NULL: a single rank */
    bool counts;
} weft_ranks;

/* Sets the ranks of a rank span, without communication. */
void weft_ranks_set(weft_ranks *self, const weft_rank_span *rank_span);
void weft_ranks_clear(weft_ranks *self); /* frees the counts */
/* Creates `everyone`, unless it exists. [collective] */
weft_status weft_ranks_create_group(weft_ranks *self, weft_error *err);
/* Creates the groups of a sharding, unless they exist. [collective] */
weft_status weft_ranks_group(weft_ranks *self, const weft_cut *cut, weft_error *err);
weft_comm_group *weft_ranks_group_of(const weft_ranks *self, const weft_cut *cut, int32_t scope);

/* The arguments of an exchange. */
typedef struct weft_transfer {
    weft_comm_group *group;
    weft_stream *stream; /* its stream; NULL: the device's first */
    weft_ref to, from;
    int64_t n;
    int32_t dtype, peer, tag, lane;
    int32_t traffic; /* weft_traffic_kind */
} weft_transfer;

weft_status weft_ranks_start(const weft_ranks *self, weft_comm_handle **out, weft_exchange_fn *how, const char *name,
                             const weft_transfer *what, weft_error *err);
/* Later work in the stream sees the result; the host waits if the communicator needs it. */
weft_status weft_ranks_join(const weft_ranks *self, weft_comm_handle **handle, weft_stream *stream, weft_error *err);
/* Returns an asynchronous failure. Aborted exchanges complete too, with undefined results. After the device has
 * completed its queued work. */
weft_status weft_ranks_check(const weft_ranks *self, weft_error *err);
/* Starts and joins. */
weft_status weft_ranks_exchange(const weft_ranks *self, weft_exchange_fn *how, const char *name,
                                const weft_transfer *what, weft_error *err);

/* The channels between this rank and another. Some communicators need ranks to be connected before they send to each
 * other (weft/comm.h). */
typedef struct weft_p2p_channels {
    bool sends[WEFT_COMM_LANES], receives[WEFT_COMM_LANES];
} weft_p2p_channels;

bool weft_ranks_need_connecting(const weft_ranks *self);
/* lanes: [world], consistent on both sides. All ranks process the same list in order of sender, receiver, lane, so
 * no two wait for each other in different orders. Existing connections stay. [collective] */
weft_status weft_ranks_connect(const weft_ranks *self, const weft_p2p_channels *lanes, weft_error *err);

/* ---- the control channel: the functions of model/process_group.h, by an engine's communicator ---- */

/* A message in flight. */
typedef struct weft_control_message {
    weft_comm_handle *handle;
    int64_t offset, n; /* in the buffer */
    void *to;          /* destination; NULL: this rank sends it */
} weft_control_message;

/* The context of the calls. Bytes go through a buffer of the device, which the plan counts. */
typedef struct weft_control_channel {
    const weft_ranks *ranks;
    const weft_device_plugin *kernels;
    weft_device *device;
    weft_buffer *buffer;
    int64_t bytes;                  /* weft_process_group_scratch */
    weft_control_message *messages; /* [2 * world] */
    int32_t n_messages;
    int32_t *senders, *sizes; /* [world] of a broadcast all-to-all: who sends, and how much to each rank */
    int64_t filled;           /* of the buffer, by messages */
    bool broken;              /* an exchange has failed: other ranks may wait for this one */
} weft_control_channel;

/* self lives as long as the process group. */
weft_status weft_control_channel_open(weft_control_channel *self, weft_process_group *out, const weft_ranks *ranks,
                                      weft_error *err);
/* Opens the channels to rank 0, if the communicator needs it: the only ones of a control channel. Before that `swap`
 * fails there, while `gather` and `share` work. An engine in another process context's rank span never swaps and
 * opens none. [collective] */
weft_status weft_control_channel_connect(const weft_control_channel *self, weft_error *err);
void weft_control_channel_close(weft_control_channel *self, weft_process_group *peers); /* zeroed ones are fine */

/* Broadcasts an array of rank `from`: *n elements of `size` bytes at `mine`. *out, on every rank: an allocated copy,
 * for free. [collective] */
weft_status weft_share_array(const weft_process_group *peers, void **out, int64_t *n, const void *mine, size_t size,
                             int32_t from, weft_error *err);

/* Starts the watchdogs after the communicator: the lowest rank of each machine shares memory with the others and
 * with its watchdog (launch/watchdog.h). Nothing if the parent of all ranks watches. [collective] */
weft_status weft_watchdogs_start(const weft_process_group *peers, const weft_comm_info *info, weft_error *err);

#endif
