/* world.h: what the files of this plugin share.
 *
 *   world.c     the world, its machines and groups; NCCL begins and ends
 *   cards.c     which ranks have one card, which NCCL refuses
 *   pairs.c     a communicator of two for each direction in which a rank sends
 *   exchange.c  one call each: judged, then handed to NCCL in the stream of its operands
 *   handle.c    what is under way: test, wait, join
 *   watch.c     a thread that asks NCCL what went wrong behind the calls, and ends what hangs of it; and a rank that
 *               gives up
 *   failure.c   NCCL's answers as sentences
 *   plugin.c    the note and the table
 *
 * NCCL moves bytes by kernels, so an exchange is queued as they are and the host never waits (WEFT_PROGRESS_OWN). What
 * is queued on one communicator of NCCL's runs in that order on every rank. For collectives that is the order in which
 * all ranks start them. Two ranks that send to each other would each wait for the other's RECV behind their own SEND,
 * so each lane of each direction between two ranks has a communicator and a stream of its own. NCCL knows no tags:
 * messages of a lane come in the order in which they were sent (WEFT_COMM_IN_ORDER).
 */
#ifndef WEFT_COMM_NCCL_WORLD_H
#define WEFT_COMM_NCCL_WORLD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include <nccl.h>

#include <weft/native.h>
#include <weft/transfer.h>

#include "../common/asked.h"

/* What NCCL drives. Tests put another library here. */
#ifndef NCCL_DRIVER
#define NCCL_DRIVER "libcuda.so.1"
#endif

enum { NCCL_FAILURE = 640 }; /* bytes of a sentence of the watching thread */

struct weft_comm_group {
    weft_comm *comm;
    weft_comm_group *next; /* in comm->groups */
    ncclComm_t nccl;
    int32_t size, place;
    int32_t *ranks; /* [size] of the world */
};

/* One lane of one direction between this rank and another. */
typedef struct nccl_way {
    struct nccl_way *next; /* in comm->ways */
    int32_t peer;          /* of the world */
    int32_t lane;
    bool sends;      /* this rank to it; else it to this rank */
    ncclComm_t nccl; /* of two: the sender is place 0 */
    weft_stream *stream;
} nccl_way;

struct weft_comm_handle {
    weft_comm_handle *next;  /* in comm->pool, while it is there */
    weft_comm_handle *older; /* in comm->handles */
    const char *name;        /* "all_gather" */
    weft_event *event;       /* behind the exchange; it is the handle's. NULL: nothing is under way */
};

struct weft_comm {
    const weft_host *host;
    weft_device *device;
    const weft_device_plugin *kernels;
    const weft_device_native *native;
    const weft_device_transfer *transfer;
    weft_comm_info info;
    ncclUniqueId id;
    weft_comm_group *world, *groups; /* the world is the last of the groups */
    nccl_way *ways;
    weft_comm_handle *handles, *pool; /* all of them, and those that may be taken */
    weft_buffer *nothing;             /* what barriers add up; NULL: there was none yet */
    /* watch.c: `lock` guards what both threads see, the lists above among it */
    pthread_t watcher;
    pthread_mutex_t lock;
    pthread_cond_t ending;
    bool watches, ends;
    char failure[NCCL_FAILURE]; /* "": none that was noticed */
};

/* failure.c. "all_gather: <NCCL's words>"; comm may be NULL. */
weft_status nccl_judge(ncclResult_t code, ncclComm_t comm, const char *what, weft_error *err);
/* Gives it back, which nobody needs any more: a failure is logged. NULL is fine. */
void nccl_end(const weft_comm *comm, ncclComm_t nccl);

/* world.c */
weft_status nccl_create(weft_comm **out, const weft_host *host, const void *config, const weft_comm_job *job,
                        weft_error *err);
void nccl_destroy(weft_comm *comm);
void nccl_info(const weft_comm *comm, weft_comm_info *out);
weft_status nccl_attach(weft_comm *comm, weft_device *device, const weft_device_plugin *kernels, weft_error *err);
weft_status nccl_group(weft_comm *comm, weft_comm_group **out, const int32_t *ranks, int32_t n, weft_error *err);

/* machines.c */
typedef struct nccl_told {
    const weft_host *host;
    const weft_host_exchange *exchange;
    const char *name; /* of the items, "machine"; no others of this world have it */
    void *items;      /* [size], of `bytes` each; this rank's is there */
    size_t bytes;
    int32_t rank, size;
} nccl_told;
/* All ranks hear of all items. [collective] */
weft_status nccl_tell_all(const nccl_told *told, weft_error *err);
/* Fills local_rank, local_size, node, nodes of info. [collective] */
weft_status nccl_find_machines(weft_comm_info *info, const weft_host *host, const weft_host_exchange *exchange,
                               weft_error *err);

/* cards.c: WEFT_E_USER on every rank where two have one card. [collective] */
weft_status nccl_compare_cards(const weft_comm *comm, const weft_host_exchange *exchange, weft_error *err);

/* pairs.c. peer: of the world. find: NULL where it was not connected. */
weft_status nccl_connect(weft_comm *comm, weft_comm_group *group, int32_t peer, int32_t lane, int32_t sends,
                         weft_error *err);
nccl_way *nccl_way_find(const weft_comm *comm, int32_t peer, int32_t lane, bool sends);
void nccl_ways_free(weft_comm *comm);

/* exchange.c */
weft_exchange_fn nccl_all_gather, nccl_all_to_all, nccl_reduce_scatter, nccl_all_reduce, nccl_broadcast, nccl_barrier,
    nccl_send, nccl_recv;

/* handle.c */
weft_comm_handle *nccl_handle_take(weft_comm *comm); /* NULL: no memory */
void nccl_handle_give_back(weft_comm *comm, weft_comm_handle *handle);
void nccl_handles_free(weft_comm *comm); /* what is under way is waited for */
int32_t nccl_test(weft_comm *comm, weft_comm_handle *handle, weft_error *err);
weft_status nccl_wait(weft_comm *comm, weft_comm_handle *handle, weft_error *err);
weft_status nccl_join(weft_comm *comm, weft_comm_handle *handle, weft_stream *stream, weft_error *err);

/* watch.c */
weft_status nccl_watch_start(weft_comm *comm, weft_error *err);
void nccl_watch_end(weft_comm *comm);
/* OK, or what the thread has noticed. */
weft_status nccl_watch_ask(weft_comm *comm, weft_error *err);
/* The same, and while NCCL is told something the thread takes no communicator away. Ends with nccl_watch_let_go. */
weft_status nccl_watch_hold(weft_comm *comm, weft_error *err);
void nccl_watch_let_go(weft_comm *comm);
void nccl_abandon(weft_comm *comm);

#endif
