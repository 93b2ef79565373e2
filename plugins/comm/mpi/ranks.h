/* ranks.h: declarations shared by the files of the MPI communicator.
 *
 *   world.c     initializes and finalizes MPI; the world, its nodes and groups
 *   exchange.c  one function per call: validated, split into chunks, passed to MPI
 *   handle.c    calls in flight: test, wait, join, poke
 *   staging.c   host copies of operands in device memory, to and from the device
 *   sum.c       sums of two numbers; MPI has none for bf16 and fp16
 *   pairs.c     a reduce-scatter by direct messages in chunks, added here
 *   plugin.c    the plugin note and the function table
 *
 * Each MPI library has its own build of the same sources. No call uses a blocking MPI function. MPI waits in a busy
 * loop: with more ranks than cores, a waiting rank occupies the core that its peer needs. A blocking all-gather of 256
 * bytes among 4 ranks on 2 cores takes 5.7 ms with MPICH; one that tests and yields takes 0.02 ms. */
#ifndef WEFT_COMM_MPI_RANKS_H
#define WEFT_COMM_MPI_RANKS_H

#include <weft/comm.h>
#include <weft/transfer.h>

#include <mpi.h>
#include <stdbool.h>

#include "../common/asked.h"

/* Maximum bytes per MPI call: its counts are int, and some calls add counts internally. Larger operands are split into
 * chunks. */
#ifndef RANKS_MOST_BYTES
#define RANKS_MOST_BYTES ((int64_t)1 << 30)
#endif

/* Reduce-scatters with rows of at least this size use direct messages and are added here (pairs.c): that takes a third
 * of the time of MPI's own sum. Below it, fewer messages matter more. */
#ifndef RANKS_PAIRS_BYTES
#define RANKS_PAIRS_BYTES ((int64_t)64 << 10)
#endif

/* Such rows are split into chunks, received into RANKS_PLACES buffers of one chunk each. This is all the memory of a
 * communicator for them, for any row length and any number of calls in flight. With chunks of a quarter of this size,
 * two ranks of MPICH take half as long again. */
#ifndef RANKS_PIECE_BYTES
#define RANKS_PIECE_BYTES ((int64_t)1 << 20)
#endif
#define RANKS_PLACES 4
#define RANKS_AHEAD  4 /* chunks in flight to one rank */

struct weft_comm_group {
    weft_comm *comm;
    weft_comm_group *next; /* in comm->groups */
    MPI_Comm mpi;
    int32_t size, place;
    weft_comm_handle *pairs; /* reduce-scatters by chunks, in order; the first one is active */
};

/* Messages to and from one other rank. */
typedef struct ranks_way {
    MPI_Request sent[RANKS_AHEAD];
    int64_t begun, ended; /* chunks sent to it */
    int is_heard;         /* something was received from it */
} ranks_way;

/* to[n] = own[n] + the row of each other rank, in cyclic order from this rank on. */
typedef struct ranks_pairs {
    weft_comm_group *group; /* NULL: the call does not use pairs */
    weft_comm_handle *next; /* in group->pairs */
    const char *from;       /* (size of the group, n) */
    char *to;               /* may alias from's own row */
    int64_t n;
    int32_t dtype;
    int is_done, room;                  /* room: allocated ways */
    ranks_way *ways;                    /* [size - 1], to and from the rank k + 1 further in the group */
    int64_t asked, added;               /* chunks, of all rows: the first of each row, then the second of each, ... */
    MPI_Request requests[RANKS_PLACES]; /* of the chunks from added on; chunk i uses i % RANKS_PLACES */
    char *places[RANKS_PLACES];
} ranks_pairs;

/* A validated call with its operands in host memory. */
typedef struct ranks_operands {
    weft_comm *comm;
    weft_comm_group *group;
    char *to, *from; /* in host memory; NULL: absent, or in place */
    asked asked;
    int in_place;
} ranks_operands;

typedef struct ranks_kind ranks_kind; /* exchange.c */

/* Host memory for an operand, reused for later operands of its size. */
typedef struct ranks_block {
    struct ranks_block *next; /* in comm->blocks */
    char *memory;
    int64_t bytes;
} ranks_block;

typedef enum ranks_phase {
    RANKS_COMING, /* its operands are in flight from the device; MPI has not started */
    RANKS_MOVING,
    RANKS_ENDED /* its result is delivered, or queued before the event `record_event` */
} ranks_phase;

struct weft_comm_handle {
    weft_comm_handle *next;  /* in comm->pool, comm->under_way or comm->leaving */
    weft_comm_handle *later; /* in comm->coming */
    MPI_Request *requests;
    int32_t n_requests, room;
    int32_t n_done;   /* the first n_done requests have finished */
    int32_t code;     /* first MPI error, or MPI_SUCCESS */
    int64_t expected; /* bytes that a RECV still expects; -1: no RECV */
    const char *name; /* "all_gather" */
    ranks_phase phase;
    ranks_operands operands;
    const ranks_kind *kind;
    int fetches;            /* an operand is in flight from the device */
    ranks_block *to, *from; /* copies in host memory, or NULL */
    int64_t to_bytes;       /* of `to`, to copy to the device at the end */
    void *result;           /* destination of `to` in host memory; NULL: the device */
    weft_event *event;      /* after its work queued on the device; NULL: no such work */
    weft_error why;         /* a failure outside MPI; its code is WEFT_OK without one */
    weft_ref device_to;
    weft_stream *stream;
    ranks_pairs pairs;
};

struct weft_comm {
    const weft_host *host;
    weft_device *device;
    const weft_device_plugin *kernels;
    weft_comm_info info;
    weft_comm_group *world, *groups;      /* the world is the last of the groups */
    const weft_device_transfer *transfer; /* NULL: copies to and from the device are synchronous */
    weft_comm_handle *pool, *under_way;
    weft_comm_handle *coming;  /* in the order of starting MPI */
    weft_comm_handle *leaving; /* joined, results still in flight */
    ranks_block *blocks;       /* unused ones */
    weft_error late;           /* failure after a call was joined; the next call reports it */
    MPI_Op add_bf16, add_f16;
    char *places;             /* [RANKS_PLACES] of a chunk each; NULL: not allocated yet */
    char *free[RANKS_PLACES]; /* unassigned ones */
    int n_free;
};

/* Formats "<what>: <MPI's message>". */
weft_status ranks_error(weft_error *err, weft_status status, int code, const char *what);

/* world.c */
weft_status ranks_create(weft_comm **out, const weft_host *host, const void *config, const weft_comm_job *job,
                         weft_error *err);
void ranks_destroy(weft_comm *comm);
void ranks_info(const weft_comm *comm, weft_comm_info *out);
weft_status ranks_attach(weft_comm *comm, weft_device *device, const weft_device_plugin *kernels, weft_error *err);
weft_status ranks_group(weft_comm *comm, weft_comm_group **out, const int32_t *ranks, int32_t n, weft_error *err);

/* exchange.c */
weft_exchange_fn ranks_all_gather, ranks_all_to_all, ranks_reduce_scatter, ranks_all_reduce, ranks_broadcast,
    ranks_barrier, ranks_send, ranks_recv;

/* Starts MPI's part of a call; its operands are in host memory. */
weft_status ranks_begin(weft_comm_handle *handle, weft_error *err);

/* handle.c */
weft_comm_handle *ranks_handle_take(weft_comm *comm); /* NULL: out of memory */
void ranks_handle_give_back(weft_comm *comm, weft_comm_handle *handle);
weft_status ranks_tell_late(weft_comm *comm, weft_error *err);
void ranks_handles_free(weft_comm *comm);
MPI_Request *ranks_request(weft_comm *comm, weft_comm_handle *handle); /* one more; NULL: out of memory */
int32_t ranks_test(weft_comm *comm, weft_comm_handle *handle, weft_error *err);
weft_status ranks_wait(weft_comm *comm, weft_comm_handle *handle, weft_error *err);
weft_status ranks_join(weft_comm *comm, weft_comm_handle *handle, weft_stream *stream, weft_error *err);
void ranks_poke(weft_comm *comm);
/* Waits for the oldest joined handle with a copy of that size and releases it; false: no such handle. */
bool ranks_let_leave(weft_comm *comm, int64_t bytes);

/* staging.c */
weft_status ranks_block_take(weft_comm *comm, ranks_block **out, int64_t bytes, weft_error *err);
void ranks_block_give(weft_comm *comm, ranks_block *block); /* NULL is allowed */
void ranks_blocks_free(weft_comm *comm);
/* Queues the copy of an operand from the device; synchronous if the device has no transfer extension. */
weft_status ranks_fetch(weft_comm_handle *handle, ranks_block *to, weft_ref from, int64_t bytes, weft_error *err);
/* Starts MPI at once if the operands are present, otherwise in turn after they have arrived. */
weft_status ranks_line_up(weft_comm_handle *handle, weft_error *err);
void ranks_begin_arrived(weft_comm *comm); /* all whose turn it is */
/* Delivers the result after MPI's part has finished. */
void ranks_deliver(weft_comm_handle *handle);
/* Returns 1 if the event is reached or NULL, 0 if not yet, < 0 if earlier work has failed. Keeps the event. */
int32_t ranks_reached(const weft_comm *comm, weft_event *event, weft_error *err);
/* Waits for the handle's event and releases it. */
weft_status ranks_await(weft_comm_handle *handle, weft_error *err);

/* sum.c: to[n] = a[n] + b[n]; to may alias a. */
void ranks_add(void *to, const void *a, const void *b, int64_t n, int32_t dtype);
void ranks_add_bf16(void *from, void *to, int *n, MPI_Datatype *type);
void ranks_add_f16(void *from, void *to, int *n, MPI_Datatype *type);

/* pairs.c */
/* Queues the handle, which has its name and copies, among the calls of its group; fails with WEFT_E_MEMORY without
 * memory. */
weft_status ranks_pairs_start(weft_comm_handle *handle, weft_comm_group *group, char *to, const char *from, int64_t n,
                              int32_t dtype, weft_error *err);
void ranks_pairs_advance(weft_comm *comm); /* all of them, without blocking */

#endif
