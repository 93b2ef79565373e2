/* world.h: declarations shared by the files of the NCCL communicator.
 *
 *   world.c     the world, its machines and groups; starts and ends NCCL
 *   cards.c     finds ranks that share a GPU, which NCCL rejects
 *   pairs.c     a two-rank communicator for each direction in which a rank sends
 *   exchange.c  one function per call: validated, then queued by NCCL in the stream of its operands
 *   handle.c    calls in flight: test, wait, join
 *   watch.c     a watchdog thread that polls NCCL's asynchronous errors and aborts pending work; and abort by a rank
 *   failure.c   NCCL errors as messages
 *   plugin.c    the plugin note and the function table
 *
 * NCCL moves data by kernels, so calls are queued like kernels and the host never waits (WEFT_PROGRESS_OWN). Work
 * queued on one NCCL communicator runs in that order on every rank. Collectives use the order in which all ranks start
 * them. Two ranks that send to each other on one communicator would deadlock: each waits for the other's RECV, queued
 * after its own SEND. Each p2p channel of each direction between two ranks therefore has its own communicator and
 * stream. NCCL has no tags: messages of a channel arrive in the order of sending (WEFT_COMM_IN_ORDER). */
#ifndef WEFT_COMM_NCCL_WORLD_H
#define WEFT_COMM_NCCL_WORLD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include <nccl.h>

#include <weft/native.h>
#include <weft/transfer.h>

#include "../common/asked.h"

/* NCCL's driver library. Tests substitute another one. */
#ifndef NCCL_DRIVER
#define NCCL_DRIVER "libcuda.so.1"
#endif

enum { NCCL_FAILURE = 640 }; /* bytes of the watchdog thread's message */

struct weft_comm_group {
    weft_comm *comm;
    weft_comm_group *next; /* in comm->groups */
    ncclComm_t nccl;
    int32_t size, place;
    int32_t *ranks; /* [size] of the world */
};

/* One p2p channel of one direction between this rank and another. */
typedef struct nccl_way {
    struct nccl_way *next; /* in comm->ways */
    int32_t peer;          /* of the world */
    int32_t lane;
    bool sends;      /* this rank to the peer; false: the reverse */
    ncclComm_t nccl; /* of two ranks: the sender is rank 0 */
    weft_stream *stream;
} nccl_way;

struct weft_comm_handle {
    weft_comm_handle *next;  /* in comm->pool, while unused */
    weft_comm_handle *older; /* in comm->handles */
    const char *name;        /* "all_gather" */
    weft_event *event;       /* after the call; owned by the handle. NULL: not in flight */
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
    weft_comm_handle *handles, *pool; /* all of them, and the unused ones */
    weft_buffer *nothing;             /* dummy operand of barriers; NULL: no barrier yet */
    /* watch.c: `lock` guards all data shared by both threads, including the lists above */
    pthread_t watcher;
    pthread_mutex_t lock;
    pthread_cond_t ending;
    bool watches, ends;
    char failure[NCCL_FAILURE]; /* "": no failure noticed */
};

/* failure.c. Fails with "all_gather: <NCCL's message>"; comm may be NULL. */
weft_status nccl_judge(ncclResult_t code, ncclComm_t comm, const char *what, weft_error *err);
/* Destroys an NCCL communicator and logs a failure. NULL is allowed. */
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
    const char *name; /* key of the items, such as "machine"; unique in this world */
    void *items;      /* [size], `bytes` each; the caller fills this rank's */
    size_t bytes;
    int32_t rank, size;
} nccl_told;
/* All-gathers the items. [collective] */
weft_status nccl_tell_all(const nccl_told *told, weft_error *err);
/* Fills local_rank, local_size, node, nodes of info. [collective] */
weft_status nccl_find_machines(weft_comm_info *info, const weft_host *host, const weft_host_exchange *exchange,
                               weft_error *err);

/* cards.c: fails with WEFT_E_USER on every rank if two ranks share a GPU. [collective] */
weft_status nccl_compare_cards(const weft_comm *comm, const weft_host_exchange *exchange, weft_error *err);

/* pairs.c. peer: rank of the world. find: NULL if it is not connected. */
weft_status nccl_connect(weft_comm *comm, weft_comm_group *group, int32_t peer, int32_t lane, int32_t sends,
                         weft_error *err);
nccl_way *nccl_way_find(const weft_comm *comm, int32_t peer, int32_t lane, bool sends);
void nccl_ways_free(weft_comm *comm);

/* exchange.c */
weft_exchange_fn nccl_all_gather, nccl_all_to_all, nccl_reduce_scatter, nccl_all_reduce, nccl_broadcast, nccl_barrier,
    nccl_send, nccl_recv;

/* handle.c */
weft_comm_handle *nccl_handle_take(weft_comm *comm); /* NULL: out of memory */
void nccl_handle_give_back(weft_comm *comm, weft_comm_handle *handle);
void nccl_handles_free(weft_comm *comm); /* waits for calls in flight */
int32_t nccl_test(weft_comm *comm, weft_comm_handle *handle, weft_error *err);
weft_status nccl_wait(weft_comm *comm, weft_comm_handle *handle, weft_error *err);
weft_status nccl_join(weft_comm *comm, weft_comm_handle *handle, weft_stream *stream, weft_error *err);

/* watch.c */
weft_status nccl_watch_start(weft_comm *comm, weft_error *err);
void nccl_watch_end(weft_comm *comm);
/* Returns WEFT_OK or the failure that the thread noticed. */
weft_status nccl_watch_ask(weft_comm *comm, weft_error *err);
/* Same, and keeps the thread from aborting a communicator during an NCCL call. End with nccl_watch_let_go. */
weft_status nccl_watch_hold(weft_comm *comm, weft_error *err);
void nccl_watch_let_go(weft_comm *comm);
void nccl_abandon(weft_comm *comm);

#endif
