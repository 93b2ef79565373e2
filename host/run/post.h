/* host/run/post.h: what host/model/peers.h asks for, by an engine's communicator. */
#ifndef WEFT_HOST_RUN_POST_H
#define WEFT_HOST_RUN_POST_H

#include "model/peers.h"
#include "run/ranks.h"

/* A message that is under way. */
typedef struct weft_letter {
    int64_t offset, n; /* in the buffer */
    void *to;          /* where it goes on; NULL: it is this rank's own */
} weft_letter;

/* The context of the calls. Bytes go through a buffer of the device, which the plan counts. */
typedef struct weft_post {
    const weft_ranks *ranks;
    const weft_device_plugin *kernels;
    weft_device *device;
    weft_buffer *buffer;
    int64_t bytes;              /* weft_peers_room */
    weft_comm_handle **handles; /* [2 * world] */
    weft_letter *letters;       /* the same */
    int32_t n_letters;
    int32_t *senders, *sizes; /* [world] of what is told to all: who has something, and how much for each rank */
    int64_t filled;           /* of the buffer, by them */
    bool broken;              /* an exchange has failed: the others may wait for this rank */
} weft_post;

/* post lives as long as the peers do. */
weft_status weft_post_open(weft_post *post, weft_peers *out, const weft_ranks *ranks, const weft_device_plugin *kernels,
                           weft_device *device, weft_error *err);
/* Ways to the first rank, where the communicator has to be told of them: all that the post ever opens. Before it `swap`
 * fails there, while `gather` and `share` work: an engine in a seat of somebody else's swaps nothing, and takes no
 * memory for ways. [collective] */
weft_status weft_post_connect(const weft_post *post, weft_error *err);
void weft_post_close(weft_post *post, weft_peers *peers); /* zeroed ones are fine */

#endif
