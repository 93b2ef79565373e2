/* weft/comm.h: communication between ranks (comm/1).
 *
 * A communicator moves device buffers among the ranks of a process group. It is created in two steps: `create`
 * determines the world and this rank's position in it, so that the host can select a device; `attach` passes that
 * device.
 *
 *     create -> info -> attach -> group ... -> { an exchange -> poke ... -> join, test or wait } ... -> destroy
 *
 * A call below starts an exchange and returns immediately with a handle, which `join`, `test` or `wait` ends. Until
 * then the exchange owns its buffers; after `join` it owns them until the stream reaches the join. All ranks of a group
 * start its collectives in the same order. Exchanges of different groups may interleave freely, and any number may be
 * in flight. SEND and RECV match by group, peer and tag, in the order of their start. Buffering is not guaranteed: a
 * SEND may end only after its RECV has started. `wait` progresses all exchanges of this rank, not only its own, and
 * yields the core while no data moves: there may be more ranks than cores.
 *
 * `progress` states who drives an exchange. CALLER: bytes move only inside calls of this table (MPI), so the executor
 * calls poke between operators. OWN: bytes move without calls (NCCL). An exchange is ordered in the stream that it
 * receives: it sees the work queued there before it, and work queued there after its end sees its result. With OWN the
 * host therefore never waits. With CALLER bytes pass through the host: earlier work of the stream may still run when
 * the exchange starts, and its result may still be on the way to the device when `join` returns. A later call reports
 * errors that occur after `join`.
 *
 * With OWN, exchanges of one stream run in stream order like other work. Exchanges of two groups that ranks may start
 * in different orders therefore use two streams.
 *
 * Errors of one rank are not sent to the other ranks. A failed rank calls `abandon`, or exits without `destroy` if that
 * slot is NULL; the launcher then stops the other ranks. A call that violates the rules of this header returns
 * WEFT_E_HOST and sends no data. Examples: an invalid group, a root or peer outside the group, a negative count, an
 * unknown dtype, overlapping operands.
 *
 * Intended users: NCCL (streams, OWN progress, join, one grouped call per exchange; the unique id by the host's
 * WEFT_HOST_EXCHANGE), host staging of device buffers (attach, weft/transfer.h), exact sums (ALL_TO_ALL and a local sum
 * in order), pipelines (SEND and RECV by tag).
 */
#ifndef WEFT_COMM_H
#define WEFT_COMM_H

#include <weft/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Two lines of the note of a communicator with its own launcher. Both are optional, occur at most once per file, and
 * have fewer than 500 characters:
 *
 *     #define WEFT_NOTE_MORE WEFT_NOTE_LAUNCH("/usr/bin/mpiexec -n {ranks}") WEFT_NOTE_LAUNCHED("PMI_RANK PMI_SIZE")
 *
 * WEFT_NOTE_LAUNCH is the command that starts {ranks} ranks on this machine. The host appends a rank's program and its
 * arguments. The command begins with an absolute path and is split at spaces without a shell. A communicator that needs
 * no launcher uses WEFT_LAUNCH_BY_HOST: the host starts the ranks on this machine, offers them WEFT_HOST_EXCHANGE, and
 * sets WEFT_RANK and WEFT_RANKS.
 *
 * A communicator that wraps another (WEFT_HOST_PLUGINS) has only WEFT_NOTE_LAUNCH_AS, with the id or family of the
 * wrapped communicator as in [comm] plugin. Its ranks are started and detected like those of the wrapped one.
 *
 * WEFT_NOTE_LAUNCHED lists the environment variables that identify a launched process: pairs of names in capitals, for
 * the rank and for the number of ranks. A process was launched if both variables of a pair are set. Earlier pairs are
 * more reliable. */
#define WEFT_NOTE_LAUNCH(command)     "launch=" command "\n"
#define WEFT_NOTE_LAUNCH_AS(id)       "launch=as " id "\n"
#define WEFT_NOTE_LAUNCHED(variables) "launched=" variables "\n"
#define WEFT_LAUNCH_BY_HOST           "weft {ranks}"

/* A line of the note of a communicator that moves only one kind of device memory, through the vendor's library: the
 * `api` of weft_device_native (weft/native.h), such as "cuda". The host rejects another device before it starts ranks
 * and in plans; in running ranks `attach` rejects it. [optional: any device] */
#define WEFT_NOTE_NATIVE(api) "native=" api "\n"

typedef struct weft_comm weft_comm;             /* the world group */
typedef struct weft_comm_group weft_comm_group; /* a subset of its ranks */
typedef struct weft_comm_handle weft_comm_handle;

typedef enum weft_comm_progress { WEFT_PROGRESS_CALLER = 0, WEFT_PROGRESS_OWN = 1 } weft_comm_progress;

/* Messages of one lane between two ranks arrive in sending order, regardless of their tags (NCCL). The host rejects a
 * program in which a rank receives them in another order. Messages of different lanes never wait for each other. */
#define WEFT_COMM_IN_ORDER 1u
#define WEFT_COMM_LANES    4

typedef struct weft_comm_info {
    uint32_t struct_size;
    uint32_t flags;                 /* WEFT_COMM_... */
    int32_t rank, size;             /* of this process in the world, and of the world */
    int32_t local_rank, local_size; /* the same, within this machine */
    int32_t node, nodes;            /* index of this machine, ordered by lowest rank, and number of machines */
    int32_t progress;               /* weft_comm_progress */
    int32_t max_tag;                /* largest tag of SEND and RECV: at least 32766 */
    char backend[64];               /* "MPICH 4.0.2" */
} weft_comm_info;

typedef struct weft_comm_job {
    uint32_t struct_size;
    uint32_t flags;
    int32_t expected_size; /* the requested world size; another size is WEFT_E_PEER; 0: any */
    int32_t reserved;
} weft_comm_job;

/* One exchange within a group of P ranks. This rank has index p in the group. */
typedef struct weft_exchange {
    uint32_t struct_size;
    uint32_t flags;
    weft_comm_group *group; /* NULL: the world */
    weft_stream *stream;
    weft_ref to, from;
    int64_t n;     /* elements; meaning depends on the call */
    int32_t dtype; /* weft_dtype; reductions: fp32, bf16 or fp16 */
    int32_t peer;  /* rank in the group: root of BROADCAST, other side of SEND and RECV; otherwise 0 */
    int32_t tag;   /* SEND and RECV: 0 to max_tag; otherwise 0 */
    int32_t lane;  /* SEND and RECV: 0 to WEFT_COMM_LANES - 1, equal on both sides; otherwise 0 */
} weft_exchange;

/* Signature of all exchanges. */
typedef weft_status weft_exchange_fn(weft_comm *comm, weft_comm_handle **out, const weft_exchange *what,
                                     weft_error *err);

typedef struct weft_comm_plugin {
    uint32_t struct_size;
    uint32_t flags;

    /* Determines the world. [main] [collective] [required] */
    weft_status (*create)(weft_comm **out, const weft_host *host, const void *config, const weft_comm_job *job,
                          weft_error *err);
    /* Ends the world after all exchanges have ended. [main] [collective] [required] */
    void (*destroy)(weft_comm *comm);
    void (*info)(const weft_comm *comm, weft_comm_info *out); /* [any-thread] [required] */
    /* Sets the device that owns the buffers of all refs, and its table, for copies and staging. Both outlive the
     * communicator. Called once, before any group or exchange. [main] [collective] [required] */
    weft_status (*attach)(weft_comm *comm, weft_device *device, const weft_device_plugin *kernels, weft_error *err);

    /* Creates a group of n distinct world ranks; their order in `ranks` defines the group ranks. Exactly the member
     * ranks call it. The group lives as long as the world. [main] [collective: the ranks of the group] [required] */
    weft_status (*group)(weft_comm *comm, weft_comm_group **out, const int32_t *ranks, int32_t n, weft_error *err);

    /* Collectives. [main] [collective: the ranks of the group] [required]
     *   all_gather      to (P, n): row r receives from (n) of rank r. from may be this rank's row of to (in place).
     *   all_to_all      to (P, n): row r receives row p of rank r's from (P, n). to and from must not overlap.
     *   reduce_scatter  to (n): the sum over ranks of row p of from (P, n), in an order chosen by the library. to may
     *                   be this rank's row of from (in place).
     *   all_reduce      to (n): the sum over ranks of from (n), bit-identical on every rank; to may equal from.
     *   broadcast       to (n) of every rank receives the root's to; from is ignored.
     *   barrier         ends when every rank has started it; all fields but the group are ignored. */
    weft_exchange_fn *all_gather;
    weft_exchange_fn *all_to_all;
    weft_exchange_fn *reduce_scatter;
    weft_exchange_fn *all_reduce;
    weft_exchange_fn *broadcast;
    weft_exchange_fn *barrier;
    /* Point-to-point between two ranks of a group: copies from (n) of the sender to to (n) of the receiver. [main]
     * [required] */
    weft_exchange_fn *send;
    weft_exchange_fn *recv;

    /* Returns 1: completed; 0: still running; < 0: failed. Frees the handle unless it returns 0. [main] [required] */
    int32_t (*test)(weft_comm *comm, weft_comm_handle *handle, weft_error *err);
    /* Returns when the exchange has completed and its result is visible to every stream. Always frees the handle.
     * [main] [required] */
    weft_status (*wait)(weft_comm *comm, weft_comm_handle *handle, weft_error *err);
    /* Makes work queued in the stream from now on run after the exchange. Any stream of the device is allowed, also the
     * exchange's own. Always frees the handle. With OWN it does not block (NCCL: the stream waits for an event
     * recorded after the call). With CALLER it returns when no byte needs to be driven any more. [main] [optional:
     * the host calls `wait`] */
    weft_status (*join)(weft_comm *comm, weft_comm_handle *handle, weft_stream *stream, weft_error *err);
    /* Briefly progresses the exchanges in flight. [main] [optional: progress is OWN] */
    void (*poke)(weft_comm *comm);

    const void *(*extension)(const weft_comm *comm, const char *id); /* [any-thread] [optional: none] */

    /* Prepares the p2p channel of a lane between this rank and peer; sends is 1 on the sending rank. The host calls it
     * before any step, on both ranks, for each lane that their programs use. The order is the same on all ranks, so the
     * call may block for the peer. A second call has no effect. [main] [collective: the two ranks] [optional: no
     * preparation is needed] */
    weft_status (*connect)(weft_comm *comm, weft_comm_group *group, int32_t peer, int32_t lane, int32_t sends,
                           weft_error *err);

    /* Aborts after a failure of this rank, when peers may be gone or waiting: cancels the exchanges in flight, so that
     * the device no longer waits for them. Every later exchange fails, and `destroy` becomes local to this rank. [main]
     * [optional: a failed rank exits without `destroy`] */
    void (*abandon)(weft_comm *comm);

    /* Reports errors that occurred after their calls had returned, such as a lost peer, and that invalidate results.
     * The host calls it when all work of a pass has ended, before it uses any result. Does not block. [main] [optional:
     * every error is reported by the call that ends the exchange] */
    weft_status (*check)(weft_comm *comm, weft_error *err);
} weft_comm_plugin;

#ifdef __cplusplus
}
#endif
#endif
