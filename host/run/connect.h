/* host/run/connect.h: ranks that will send to one another are connected before they do, where the communicator needs
 * it (weft/comm.h). */
#ifndef WEFT_HOST_RUN_CONNECT_H
#define WEFT_HOST_RUN_CONNECT_H

#include "run/ranks.h"

/* By lane, what goes between this rank and another. */
typedef struct weft_p2p_channels {
    bool sends[WEFT_COMM_LANES], takes[WEFT_COMM_LANES];
} weft_p2p_channels;

/* False: the communicator needs nothing of the kind. */
bool weft_ranks_need_connecting(const weft_ranks *self);

/* lanes: [world], each side's like the other's. All ranks go through the same list, sender by sender, receiver by
 * receiver, lane by lane, each taking what it is a part of: so no two of them wait for one another in another order.
 * What is connected already stays so. [collective] */
weft_status weft_ranks_connect(const weft_ranks *self, const weft_p2p_channels *lanes, weft_error *err);

#endif
