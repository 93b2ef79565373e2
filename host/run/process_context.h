/* host/run/process_context.h: what a process has once, whatever runs in it: the device, and the communicator of its
 * ranks.
 *
 * An engine has a rank span in it: ranks of the world that follow one another. Several engines may have rank spans
 * at once, those of one process one after the other. */
#ifndef WEFT_HOST_RUN_PROCESS_CONTEXT_H
#define WEFT_HOST_RUN_PROCESS_CONTEXT_H

#include "program/run.h"
#include <weft/comm.h>

typedef struct weft_process_context_group weft_process_context_group;

typedef struct weft_process_context {
    const weft_device_plugin *kernels;
    weft_device *device;
    weft_device_info device_info;
    const weft_comm_plugin *comm_plugin; /* NULL: one rank, and nothing to exchange with */
    weft_comm *comm;
    weft_comm_info comm_info;
    int32_t *nodes; /* [size of the world] each rank's machine */
    weft_process_context_group *groups;
    int32_t n_groups;
    bool broken;    /* ranks that were to meet have not, for this one: others may wait in that for ever */
    bool abandoned; /* `destroy` of the communicator waits for nobody */
} weft_process_context;

/* The device and communicator that the run names, the latter if the run has loaded one; its world must be the one that
 * the launcher's variables told. In a world that is only planned for, nobody is spoken to: this is rank 0 of as many.
 * Their plugins stay loaded, but the configuration of `run` must outlive the process context. [collective] */
weft_status weft_process_context_open(weft_process_context **out, const weft_run *run, weft_error *err);
/* This rank has failed before it opened a process context, so the others of its launcher wait for it in `create` for
 * ever: mpiexec takes an exit before MPI_Init for a good one. It creates the communicator, and must then end: to end
 * without `destroy` is how a rank of a communicator tells its launcher that it has failed. Does nothing in every
 * other process. path, overrides: the run's; where they cannot be read, the default communicator is taken. */
void weft_process_context_meet_failed(const char *path, const char *const *overrides, size_t n_overrides);
/* This rank has failed: nothing of the device waits for other ranks any longer, where the communicator can see to that,
 * and every later exchange fails. NULL is fine, and so is a second call. */
void weft_process_context_abandon(weft_process_context *self);
/* failed: peers may be gone or waiting, so the world is not ended in good order. NULL is fine. */
void weft_process_context_close(weft_process_context *self, bool failed);

/* What the device says of itself, for a plan to be made by: `info` has nobody to tell that it cannot measure something,
 * so a call behind it is asked. */
weft_status weft_device_measure(weft_device_info *out, const weft_device_plugin *kernels, weft_device *device,
                                weft_error *err);

int32_t weft_process_context_rank(const weft_process_context *self);
int32_t weft_process_context_size(const weft_process_context *self);
/* Machines that n ranks from `base` on are on. */
int32_t weft_process_context_nodes(const weft_process_context *self, int32_t base, int32_t n);

/* The group of these n world ranks in their order: made when it is first asked for, and kept. [collective: those] */
weft_status weft_process_context_group_of(weft_process_context *self, weft_comm_group **out, const int32_t *ranks,
                                          int32_t n, weft_error *err);

/* all: [size][bytes], what every rank has at `mine`. [collective] */
weft_status weft_process_context_share(weft_process_context *self, void *all, const void *mine, int64_t bytes,
                                       weft_error *err);

/* Where an engine runs: `world` ranks of the process context from `base` on, of which this process has the place
 * `rank`. An engine that is only planned may have any. */
typedef struct weft_rank_span {
    weft_process_context *process_context;
    int32_t base, rank, world;
} weft_rank_span;

/* All ranks. */
weft_rank_span weft_process_context_rank_span(weft_process_context *self);

#endif
