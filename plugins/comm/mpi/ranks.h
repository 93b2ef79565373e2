/* ranks.h: what the files of this plugin share.
 *
 *   world.c     MPI begins and ends; the world, its machines, its groups
 *   exchange.c  one call each: checked, cut into pieces, handed to MPI
 *   handle.c    what is under way: test, wait, join, poke
 *   staging.c   operands of a device whose memory the host does not see, on their way to it and back
 *   sum.c       how two numbers are added; of bf16 and fp16 MPI does not know it
 *   pairs.c     a reduce-scatter that goes straight from rank to rank, piece by piece, and is added here
 *   plugin.c    the note and the table
 *
 * The same sources are built against each MPI that there is. No exchange uses a call of MPI that waits: MPI waits in a
 * busy loop, and with more ranks than cores a rank that waits holds the core of the one that it waits for (a blocking
 * all-gather of 256 bytes among 4 ranks on 2 cores takes 5.7 ms with MPICH, one that is tested and yields 0.02 ms).
 */
#ifndef WEFT_COMM_MPI_RANKS_H
#define WEFT_COMM_MPI_RANKS_H

#include <weft/comm.h>
#include <weft/transfer.h>

#include <mpi.h>
#include <stdbool.h>

#include "../common/asked.h"

/* The most bytes that one call of MPI is given: its counts are int, and so are sums of counts inside of some. What is
 * larger goes in pieces. */
#ifndef RANKS_MOST_BYTES
#define RANKS_MOST_BYTES ((int64_t)1 << 30)
#endif

/* Rows of a reduce-scatter with at least so many bytes go straight from rank to rank and are added here (pairs.c): that
 * takes a third of the time of MPI's own sum. Below that its fewer messages count. */
#ifndef RANKS_PAIRS_BYTES
#define RANKS_PAIRS_BYTES ((int64_t)64 << 10)
#endif

/* Such rows are cut into pieces, which come through places of a piece each: all the memory that a communicator takes
 * for them, however long the rows are and however many such exchanges are under way. With pieces of a quarter two ranks
 * of MPICH take half as long again. */
#ifndef RANKS_PIECE_BYTES
#define RANKS_PIECE_BYTES ((int64_t)1 << 20)
#endif
#define RANKS_PLACES 4
#define RANKS_AHEAD  4 /* pieces that are on their way to one rank */

struct weft_comm_group {
    weft_comm *comm;
    weft_comm_group *next; /* in comm->groups */
    MPI_Comm mpi;
    int32_t size, place;
    weft_comm_handle *pairs; /* exchanges by pieces, in their order; the first one is at work */
};

/* To and from one other rank. */
typedef struct ranks_way {
    MPI_Request sent[RANKS_AHEAD];
    int64_t begun, ended; /* pieces to it */
    int is_heard;         /* something came from it */
} ranks_way;

/* to[n] = own[n] + the row of each other rank, in the order of their places from this one's on, around. */
typedef struct ranks_pairs {
    weft_comm_group *group; /* NULL: the exchange does not go so */
    weft_comm_handle *next; /* in group->pairs */
    const char *from;       /* (size of the group, n) */
    char *to;               /* may be from's own row */
    int64_t n;
    int32_t dtype;
    int is_done, room;                  /* room: of ways */
    ranks_way *ways;                    /* [size - 1], to and from the place k + 1 further on */
    int64_t asked, added;               /* pieces, of all rows: first of each row, then the second of each, ... */
    MPI_Request requests[RANKS_PLACES]; /* of the pieces from added on; piece i has i % RANKS_PLACES */
    char *places[RANKS_PLACES];
} ranks_pairs;

/* What an exchange is asked for, with its operands in the host's memory. */
typedef struct ranks_operands {
    weft_comm *comm;
    weft_comm_group *group;
    char *to, *from; /* in the host's memory; NULL: none, or in place */
    asked asked;
    int in_place;
} ranks_operands;

typedef struct ranks_kind ranks_kind; /* exchange.c */

/* Host memory for an operand, kept for the next one of its size. */
typedef struct ranks_block {
    struct ranks_block *next; /* in comm->blocks */
    char *memory;
    int64_t bytes;
} ranks_block;

typedef enum ranks_phase {
    RANKS_COMING, /* its operands are on their way from the device: MPI knows nothing of it yet */
    RANKS_MOVING,
    RANKS_ENDED /* its result is where it belongs, or on its way there behind `record_event` */
} ranks_phase;

struct weft_comm_handle {
    weft_comm_handle *next;  /* in comm->pool, comm->under_way or comm->leaving */
    weft_comm_handle *later; /* in comm->coming */
    MPI_Request *requests;
    int32_t n_requests, room;
    int32_t n_done;   /* the first n_done requests have ended */
    int32_t code;     /* the first error of MPI; MPI_SUCCESS */
    int64_t expected; /* bytes that a RECV still waits for; -1: no RECV */
    const char *name; /* "all_gather" */
    ranks_phase phase;
    ranks_operands operands;
    const ranks_kind *kind;
    int fetches;            /* something comes from the device */
    ranks_block *to, *from; /* copies in the host's memory, or NULL */
    int64_t to_bytes;       /* of `to`, for the device when all has ended */
    void *result;           /* where `to` goes in the host's memory; NULL: to the device */
    weft_event *event;      /* behind what is queued on the device for it; NULL: nothing is */
    weft_error why;         /* what failed beside MPI; its code is WEFT_OK as long as nothing did */
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
    const weft_device_transfer *transfer; /* NULL: copies to and from the device are waited for */
    weft_comm_handle *pool, *under_way;
    weft_comm_handle *coming;  /* in the order in which MPI will be asked */
    weft_comm_handle *leaving; /* joined, while their results are on their way */
    ranks_block *blocks;       /* that nobody has now */
    weft_error late;           /* what failed behind an exchange that was joined; the next call tells it */
    MPI_Op add_bf16, add_f16;
    char *places;             /* [RANKS_PLACES] of a piece each; NULL: none was needed yet */
    char *free[RANKS_PLACES]; /* those that nothing comes to */
    int n_free;
};

/* "<what>: <MPI's own words>". */
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

/* Asks MPI for an exchange whose operands are there. */
weft_status ranks_begin(weft_comm_handle *handle, weft_error *err);

/* handle.c */
weft_comm_handle *ranks_handle_take(weft_comm *comm); /* NULL: no memory */
void ranks_handle_give_back(weft_comm *comm, weft_comm_handle *handle);
weft_status ranks_tell_late(weft_comm *comm, weft_error *err);
void ranks_handles_free(weft_comm *comm);
MPI_Request *ranks_request(weft_comm *comm, weft_comm_handle *handle); /* one more; NULL: no memory */
int32_t ranks_test(weft_comm *comm, weft_comm_handle *handle, weft_error *err);
weft_status ranks_wait(weft_comm *comm, weft_comm_handle *handle, weft_error *err);
weft_status ranks_join(weft_comm *comm, weft_comm_handle *handle, weft_stream *stream, weft_error *err);
void ranks_poke(weft_comm *comm);
/* The oldest that was joined and has a copy of so many bytes has left; false: there is none. */
bool ranks_let_leave(weft_comm *comm, int64_t bytes);

/* staging.c */
weft_status ranks_block_take(weft_comm *comm, ranks_block **out, int64_t bytes, weft_error *err);
void ranks_block_give(weft_comm *comm, ranks_block *block); /* NULL is fine */
void ranks_blocks_free(weft_comm *comm);
/* Queues the copy of an operand from the device; without a transfer of the device's it is made at once. */
weft_status ranks_fetch(weft_comm_handle *handle, ranks_block *to, weft_ref from, int64_t bytes, weft_error *err);
/* The operands are there, or queued: MPI is asked now, or in its turn once they have come. */
weft_status ranks_line_up(weft_comm_handle *handle, weft_error *err);
void ranks_begin_arrived(weft_comm *comm); /* all whose turn it is */
/* All of MPI's part has ended: brings the result where it belongs. */
void ranks_deliver(weft_comm_handle *handle);
/* 1: it is, as NULL is; 0: not yet; < 0: what is queued before it has failed. The event stays. */
int32_t ranks_reached(const weft_comm *comm, weft_event *event, weft_error *err);
/* Until the handle's event is reached, which is gone then. */
weft_status ranks_await(weft_comm_handle *handle, weft_error *err);

/* sum.c: to[n] = a[n] + b[n]; to may be a. */
void ranks_add(void *to, const void *a, const void *b, int64_t n, int32_t dtype);
void ranks_add_bf16(void *from, void *to, int *n, MPI_Datatype *type);
void ranks_add_f16(void *from, void *to, int *n, MPI_Datatype *type);

/* pairs.c */
/* The handle has its name and its copies, and joins the exchanges of its group; no memory is WEFT_E_MEMORY. */
weft_status ranks_pairs_start(weft_comm_handle *handle, weft_comm_group *group, char *to, const char *from, int64_t n,
                              int32_t dtype, weft_error *err);
void ranks_pairs_advance(weft_comm *comm); /* all of them, as far as they can */

#endif
