/* host/run/control_channel.h: the functions of model/process_group.h, by an engine's communicator. */
#ifndef WEFT_HOST_RUN_CONTROL_CHANNEL_H
#define WEFT_HOST_RUN_CONTROL_CHANNEL_H

#include "model/process_group.h"
#include "run/ranks.h"

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
