/* weft/comm.h: how ranks exchange (comm/0: may still change; version 1 when several ranks have used it).
 *
 * A communicator moves device buffers among the ranks of a group. Calls return at once with a handle; `test` and
 * `wait` end it. Every rank of the group makes the same calls in the same order. `progress` says who drives an
 * exchange: CALLER means that bytes move only inside calls of this table (MPI), so the executor pokes it between
 * operators; OWN means that they move by themselves (NCCL). An exchange takes its place in the stream that it is
 * given: it sees what was queued there before, and once it is done, what is queued there afterwards sees its result.
 * The device's own table is handed over at create, for copies and for staging through the host.
 */
#ifndef WEFT_COMM_H
#define WEFT_COMM_H

#include <weft/device.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_comm weft_comm;             /* the world */
typedef struct weft_comm_group weft_comm_group; /* some of its ranks */
typedef struct weft_comm_handle weft_comm_handle;

typedef enum weft_comm_progress { WEFT_PROGRESS_CALLER = 0, WEFT_PROGRESS_OWN = 1 } weft_comm_progress;

typedef struct weft_comm_info {
    uint32_t struct_size;
    uint32_t flags;
    int32_t rank, size, local_rank, local_size;
    int32_t progress; /* weft_comm_progress */
    int32_t reserved;
    char backend[64];
} weft_comm_info;

typedef struct weft_comm_job {
    uint32_t struct_size;
    uint32_t flags;
    weft_device *device; /* whose buffers the refs are; lives longer than the communicator */
    const weft_device_plugin *kernels;
    int32_t expected_size; /* the world that was asked for; another one is WEFT_E_PEER */
    int32_t reserved;
} weft_comm_job;

typedef struct weft_comm_plugin {
    uint32_t struct_size;
    uint32_t flags;

    /* [main] [collective] [required] */
    weft_status (*create)(weft_comm **out, const weft_host *host, const void *config, const weft_comm_job *job,
                          weft_error *err);
    void (*destroy)(weft_comm *comm);                         /* [main] [collective] [required] */
    void (*info)(const weft_comm *comm, weft_comm_info *out); /* [any-thread] [required] */

    /* ranks: n world ranks, ascending. Released with the world. [main] [collective] [required] */
    weft_status (*group)(weft_comm *comm, weft_comm_group **out, const int32_t *ranks, int32_t n, weft_error *err);

    /* to (n * size) gets every rank's from (n). [main] [collective] [required] */
    weft_status (*all_gather)(weft_comm *comm, weft_comm_handle **out, weft_comm_group *group, weft_stream *stream,
                              weft_ref to, weft_ref from, int64_t n, int32_t dtype, weft_error *err);
    /* to[r * n ..] gets what rank r has at from[self * n ..]: the exchange under the exact sums. [main] [collective]
     * [required] */
    weft_status (*all_to_all)(weft_comm *comm, weft_comm_handle **out, weft_comm_group *group, weft_stream *stream,
                              weft_ref to, weft_ref from, int64_t n, int32_t dtype, weft_error *err);
    /* 1: done, and the handle is gone; 0: not yet; < 0: failed. [main] [required] */
    int32_t (*test)(weft_comm *comm, weft_comm_handle *handle, weft_error *err);
    weft_status (*wait)(weft_comm *comm, weft_comm_handle *handle, weft_error *err); /* [main] [required] */

    const void *(*extension)(const weft_comm *comm, const char *id); /* [any-thread] [optional: none] */
} weft_comm_plugin;

#ifdef __cplusplus
}
#endif
#endif
