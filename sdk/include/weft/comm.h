/* weft/comm.h: how ranks exchange (comm/1).
 *
 * A communicator moves device buffers among the ranks of a group. It is made in two steps: `create` finds the world
 * and this rank's place in it, so that the host can choose a device by it; `attach` names that device.
 *
 *     create -> info -> attach -> group ... -> { an exchange -> poke ... -> join, test or wait } ... -> destroy
 *
 * An exchange is started by one of the calls below and returns at once with a handle, which `join`, `test` or `wait`
 * ends; until then, and in a stream that joins it until it gets there, its buffers belong to the exchange. All ranks
 * of a group start the same collective exchanges on it in the same order; how they lie between exchanges of other
 * groups is free, and any number may be under way. SEND and RECV match by group, peer and tag, in the order in which
 * they were started. Nothing is promised to be buffered: a SEND may end only when its RECV has been started. `wait`
 * lets all exchanges of this rank go on, whichever it waits for, and gives the core away while nothing moves: there
 * may be more ranks than cores.
 *
 * `progress` says who drives an exchange: CALLER means that bytes move only inside calls of this table (MPI), so the
 * executor pokes it between operators; OWN means that they move by themselves (NCCL). An exchange takes its place in
 * the stream that it is given: it sees what was queued there before, and what is queued there once it has ended sees
 * its result. So the host never waits where progress is OWN; where it is CALLER, bytes go through the host: what is
 * queued before the exchange may still run when it is started, and its result may still be on its way to the device
 * when `join` returns. What goes wrong behind a `join` is told by a later call.
 *
 * Where progress is OWN, exchanges of one stream follow one another as its other work does: those of two groups that
 * ranks may start in another order go into two streams.
 *
 * Errors of one rank are not told to the others. A rank that fails ends by `abandon`, or without `destroy` where there
 * is no such slot; whoever started the ranks then stops the rest. A call that breaks a rule of this page (ranks that
 * make no group, a root or peer outside of it, a negative count, an unknown dtype, operands that overlap) is
 * WEFT_E_HOST, and nothing is sent.
 *
 * Later users that this serves: NCCL (streams, OWN progress, join, a grouped call per exchange; its id by the host's
 * WEFT_HOST_EXCHANGE), host staging of device buffers (attach, weft/transfer.h), the exact sums (ALL_TO_ALL and a local
 * sum in order), pipelines (SEND and RECV by tag).
 */
#ifndef WEFT_COMM_H
#define WEFT_COMM_H

#include <weft/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Two lines of the note of a communicator whose ranks are started by a program of their own; both optional, each at
 * most once in a file, under 500 characters:
 *
 *     #define WEFT_NOTE_MORE WEFT_NOTE_LAUNCH("/usr/bin/mpiexec -n {ranks}") WEFT_NOTE_LAUNCHED("PMI_RANK PMI_SIZE")
 *
 * WEFT_NOTE_LAUNCH is the command that starts {ranks} ranks on this machine; the program of a rank and its arguments
 * are put behind it. It begins with an absolute path, is cut at spaces, and no shell looks at it. A communicator that
 * needs no launcher of its library's gives WEFT_LAUNCH_BY_HOST: the host starts the ranks itself, on this machine, and
 * offers them WEFT_HOST_EXCHANGE; their variables are WEFT_RANK and WEFT_RANKS.
 * One that wraps others (WEFT_HOST_PLUGINS) gives WEFT_NOTE_LAUNCH_AS alone, with the id or family of communicators, as
 * [comm] plugin has them, whose ranks start as its own and know it by the same variables.
 * WEFT_NOTE_LAUNCHED says how a process knows that it was started so: pairs of environment variables, of this process's
 * rank and of the number of ranks, in capitals. A process that has both of a pair is one; of two pairs the earlier is
 * the surer. */
#define WEFT_NOTE_LAUNCH(command)     "launch=" command "\n"
#define WEFT_NOTE_LAUNCH_AS(id)       "launch=as " id "\n"
#define WEFT_NOTE_LAUNCHED(variables) "launched=" variables "\n"
#define WEFT_LAUNCH_BY_HOST           "weft {ranks}"

/* A line of the note of a communicator that moves the memory of one sort of device alone, through the vendor's library:
 * weft_device_native's `api` (weft/native.h), such as "cuda". The host refuses another device before it starts ranks,
 * and where they are only planned; where they are there, `attach` does. [optional: any device] */
#define WEFT_NOTE_NATIVE(api) "native=" api "\n"

typedef struct weft_comm weft_comm;             /* the world */
typedef struct weft_comm_group weft_comm_group; /* some of its ranks */
typedef struct weft_comm_handle weft_comm_handle;

typedef enum weft_comm_progress { WEFT_PROGRESS_CALLER = 0, WEFT_PROGRESS_OWN = 1 } weft_comm_progress;

/* Messages of one lane between two ranks come in the order in which they were sent, whatever their tags (NCCL): the
 * host refuses a program in which a rank takes them in another order. What is of two lanes never waits
 * for one another. */
#define WEFT_COMM_IN_ORDER 1u
#define WEFT_COMM_LANES    4

typedef struct weft_comm_info {
    uint32_t struct_size;
    uint32_t flags;                 /* WEFT_COMM_... */
    int32_t rank, size;             /* of this process in the world, and of the world */
    int32_t local_rank, local_size; /* the same among the ranks of this machine */
    int32_t node, nodes;            /* machines, numbered by their lowest ranks, and how many there are */
    int32_t progress;               /* weft_comm_progress */
    int32_t max_tag;                /* of SEND and RECV: at least 32766 */
    char backend[64];               /* "MPICH 4.0.2" */
} weft_comm_info;

typedef struct weft_comm_job {
    uint32_t struct_size;
    uint32_t flags;
    int32_t expected_size; /* the world that was asked for: another one is WEFT_E_PEER; 0: whatever there is */
    int32_t reserved;
} weft_comm_job;

/* One exchange of a group of P ranks, of which this one has the place p. */
typedef struct weft_exchange {
    uint32_t struct_size;
    uint32_t flags;
    weft_comm_group *group; /* NULL: the world */
    weft_stream *stream;
    weft_ref to, from;
    int64_t n;     /* elements, see each call */
    int32_t dtype; /* weft_dtype; sums: fp32, bf16 or fp16 */
    int32_t peer;  /* a place in the group: the root of BROADCAST, of SEND and RECV the other side; else 0 */
    int32_t tag;   /* of SEND and RECV, from 0 to max_tag; else 0 */
    int32_t lane;  /* of SEND and RECV, from 0 to WEFT_COMM_LANES - 1: its sort; the same on both sides; else 0 */
} weft_exchange;

/* Every exchange has this form. */
typedef weft_status weft_exchange_fn(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what,
                                     weft_error *err);

typedef struct weft_comm_plugin {
    uint32_t struct_size;
    uint32_t flags;

    /* Finds the world. [main] [collective] [required] */
    weft_status (*create)(weft_comm **out, const weft_host *host, const void *config, const weft_comm_job *job,
                          weft_error *err);
    /* Ends the world; every exchange has been waited for. [main] [collective] [required] */
    void (*destroy)(weft_comm *comm);
    void (*info)(const weft_comm *comm, weft_comm_info *out); /* [any-thread] [required] */
    /* The device whose buffers the refs are, and its table, for copies and staging; both live longer than the
     * communicator. Called once, before any group or exchange. [main] [collective] [required] */
    weft_status (*attach)(weft_comm *comm, weft_device *device, const weft_device_plugin *kernels, weft_error *err);

    /* A group of n different world ranks, in the order of their places; this rank is one of them, and exactly those
     * ranks call. It lives as long as the world. [main] [collective: the ranks of the group] [required] */
    weft_status (*group)(weft_comm *comm, weft_comm_group **out, const int32_t *ranks, int32_t n, weft_error *err);

    /* Collective exchanges. [main] [collective: the ranks of the group] [required]
     *   all_gather      to (P, n): row r is what rank r has at from (n). from may be to's own row, in place.
     *   all_to_all      to (P, n): row r is what rank r has in row p of its from (P, n). to and from are apart.
     *   reduce_scatter  to (n): the sum over ranks of row p of from (P, n), in whatever order the library likes. to may
     *                   be from's own row, in place.
     *   all_reduce      to (n): the sum over ranks of from (n), the same bits on every rank; to may be from.
     *   broadcast       to (n) of every rank gets what the root has there; from is not looked at.
     *   barrier         ends when every rank has started it; nothing but the group is looked at. */
    weft_exchange_fn *all_gather;
    weft_exchange_fn *all_to_all;
    weft_exchange_fn *reduce_scatter;
    weft_exchange_fn *all_reduce;
    weft_exchange_fn *broadcast;
    weft_exchange_fn *barrier;
    /* Between two ranks of a group: from (n) of the sender gets to (n) of the receiver. [main] [required] */
    weft_exchange_fn *send;
    weft_exchange_fn *recv;

    /* 1: done, and the handle is gone; 0: not yet; < 0: failed, and the handle is gone. [main] [required] */
    int32_t (*test)(weft_comm *comm, weft_comm_handle *handle, weft_error *err);
    /* Returns when the exchange is done, and its result is there for every stream; the handle is gone either way.
     * [main] [required] */
    weft_status (*wait)(weft_comm *comm, weft_comm_handle *handle, weft_error *err);
    /* What is queued in the stream from now on runs once the exchange is done; the handle is gone either way. Any
     * stream of the device, also that of the exchange. Does not wait where progress is OWN (NCCL: the stream waits for
     * an event behind the call); where it is CALLER, returns when no byte has to be driven any more. [main]
     * [optional: the host calls `wait`] */
    weft_status (*join)(weft_comm *comm, weft_comm_handle *handle, weft_stream *stream, weft_error *err);
    /* Lets what is under way go on, shortly. [main] [optional: progress is OWN] */
    void (*poke)(weft_comm *comm);

    const void *(*extension)(const weft_comm *comm, const char *id); /* [any-thread] [optional: none] */

    /* Makes ready what SENDs of a lane between this rank and another need: sends is 1 on the rank that sends. The host
     * calls it before any step, on both ranks, for each lane that their programs use, and on all ranks in one order, so
     * that it may wait for the other. A second call changes nothing. [main] [collective: the two ranks]
     * [optional: nothing is needed] */
    weft_status (*connect)(weft_comm *comm, weft_comm_group *group, int32_t peer, int32_t lane, int32_t sends,
                           weft_error *err);

    /* This rank has failed, and the others may be gone or wait for it: what is under way is given up, so that nothing
     * of the device waits for it any longer. Every later exchange is refused, and `destroy` is this rank's alone.
     * [main] [optional: a rank that fails ends without `destroy`] */
    void (*abandon)(weft_comm *comm);

    /* What went wrong behind calls that have returned, such as an exchange with a rank that is gone, and made what
     * came of them worthless. The host asks when all that a pass queued has ended, before it believes any of it. Does
     * not wait. [main] [optional: whatever goes wrong is told by the call that ends the exchange] */
    weft_status (*check)(weft_comm *comm, weft_error *err);
} weft_comm_plugin;

#ifdef __cplusplus
}
#endif
#endif
