/* host/run/control_channel.h: what host/model/process_group.h asks for, by an engine's communicator. */
#ifndef WEFT_HOST_RUN_CONTROL_CHANNEL_H
#define WEFT_HOST_RUN_CONTROL_CHANNEL_H

#include "model/process_group.h"
#include "run/ranks.h"

/* A message that is under way. */
typedef struct weft_control_message {
    int64_t offset, n; /* in the buffer */
    void *to;          /* where it goes on; NULL: it is this rank's own */
} weft_control_message;

/* The context of the calls. Bytes go through a buffer of the device, which the plan counts. */
typedef struct weft_control_channel {
    const weft_ranks *ranks;
    const weft_device_plugin *kernels;
    weft_device *device;
    weft_buffer *buffer;
    int64_t bytes;                 /* weft_process_group_scratch */
    weft_comm_handle **handles;    /* [2 * world] */
    weft_control_message *letters; /* the same */
    int32_t n_letters;
    int32_t *senders, *sizes; /* [world] of what is told to all: who has something, and how much for each rank */
    int64_t filled;           /* of the buffer, by them */
    bool broken;              /* an exchange has failed: the others may wait for this rank */
} weft_control_channel;

/* post lives as long as the peers do. */
weft_status weft_control_channel_open(weft_control_channel *post, weft_process_group *out, const weft_ranks *ranks,
                                      const weft_device_plugin *kernels, weft_device *device, weft_error *err);
/* Ways to the first rank, where the communicator has to be told of them: all that the post ever opens. Before it `swap`
 * fails there, while `gather` and `share` work: an engine in a rank span of somebody else's swaps nothing, and takes no
 * memory for ways. [collective] */
weft_status weft_control_channel_connect(const weft_control_channel *post, weft_error *err);
void weft_control_channel_close(weft_control_channel *post, weft_process_group *peers); /* zeroed ones are fine */

#endif
