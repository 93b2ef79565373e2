/* host/run/process_context.h: the device and the communicator of a process.
 *
 * An engine has a rank span in it: consecutive ranks of the world. Several engines may have rank spans at once,
 * those of one process in sequence. */
#ifndef WEFT_HOST_RUN_PROCESS_CONTEXT_H
#define WEFT_HOST_RUN_PROCESS_CONTEXT_H

#include "program/run.h"
#include <weft/comm.h>

typedef struct weft_process_context_group weft_process_context_group;

typedef struct weft_process_context {
    const weft_device_plugin *kernels;
    weft_device *device;
    weft_device_info device_info;
    const weft_comm_plugin *comm_plugin; /* NULL: one rank */
    weft_comm *comm;
    weft_comm_info comm_info;
    int32_t *nodes; /* [size of the world] each rank's machine */
    weft_process_context_group *groups;
    int32_t n_groups;
    bool broken;    /* a collective call has failed on this rank: others may wait in it forever */
    bool abandoned; /* `destroy` of the communicator does not wait for other ranks */
} weft_process_context;

/* Opens the run's device, and its communicator if it has loaded one, whose world must be the launcher's. A planned
 * world has no communication: this is rank 0 of as many. The plugins stay loaded; the configuration of `run` must
 * outlive the process context. [collective] */
weft_status weft_process_context_open(weft_process_context **out, const weft_run *run, weft_error *err);
/* For a rank that fails before it opens a process context, while the others wait for it in `create`: mpiexec takes an
 * exit before MPI_Init for a success. It creates the communicator, and must then exit without `destroy`, which reports
 * the failure to the launcher. path, overrides: the run's; if unreadable, the default communicator is used. */
void weft_process_context_meet_failed(const char *path, const char *const *overrides, size_t n_overrides);
/* After a failure of this rank: the device stops waiting for other ranks, if the communicator supports it, and every
 * later exchange fails. NULL is fine, and so is a second call. */
void weft_process_context_abandon(weft_process_context *self);
/* failed: other ranks may be gone or waiting, so nothing collective is called. NULL is fine. */
void weft_process_context_close(weft_process_context *self, bool failed);

/* Gets the device's info for a plan. `info` cannot report a failed measurement, so a call after it is checked. */
weft_status weft_device_measure(weft_device_info *out, const weft_device_plugin *kernels, weft_device *device,
                                weft_error *err);

/* The number of machines of n ranks from `base` on. */
int32_t weft_process_context_nodes(const weft_process_context *self, int32_t base, int32_t n);

/* Returns the group of these n world ranks in order, created at the first call. [collective: those] */
weft_status weft_process_context_group_of(weft_process_context *self, weft_comm_group **out, const int32_t *ranks,
                                          int32_t n, weft_error *err);

/* `world` ranks of the process context from `base` on; this process is number `rank`, which may be any for an engine
 * that is only planned. */
typedef struct weft_rank_span {
    weft_process_context *process_context;
    int32_t base, rank, world;
} weft_rank_span;

weft_rank_span weft_process_context_rank_span(weft_process_context *self); /* all ranks */

/* All-gather of `bytes` bytes per rank of all, or of the rank span, whose group is `group`. all: [world][bytes].
 * [collective] */
weft_status weft_process_context_share(weft_process_context *self, void *all, const void *mine, int64_t bytes,
                                       weft_error *err);
weft_status weft_process_context_all_gather(weft_process_context *self, const weft_rank_span *span,
                                            weft_comm_group *group, void *all, const void *mine, int64_t bytes,
                                            weft_error *err);

#endif
