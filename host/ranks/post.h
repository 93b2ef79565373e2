/* host/ranks/post.h: what host/model/peers.h asks for, by an engine's communicator. */
#ifndef WEFT_HOST_RANKS_POST_H
#define WEFT_HOST_RANKS_POST_H

#include "model/peers.h"
#include "ranks/ranks.h"

/* The context of the calls. Bytes go through a buffer of the device, which grows to what was needed most. */
typedef struct weft_post {
    const weft_ranks *ranks;
    const weft_device_plugin *kernels;
    weft_device *device;
    weft_buffer *buffer;
    int64_t bytes;
    weft_comm_handle **handles; /* [2 * world] */
    bool broken;                /* an exchange has failed: the others may wait for this rank */
} weft_post;

/* The post's buffer, with room for as many bytes, for bytes that go to the host or come from it: nothing is in it
 * between two exchanges. It grows outside of steps alone. */
weft_status weft_post_room(weft_post *post, weft_buffer **out, int64_t bytes, weft_error *err);

/* post lives as long as the peers do. */
weft_status weft_post_open(weft_post *post, weft_peers *out, const weft_ranks *ranks, const weft_device_plugin *kernels,
                           weft_device *device, weft_error *err);
void weft_post_close(weft_post *post, weft_peers *peers); /* zeroed ones are fine */

#endif
