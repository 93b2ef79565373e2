/* event_pool.h: the event type weft_event; shared by streams.c, which creates events, and transfer.c, which waits for
 * them. */
#ifndef WEFT_DEVICE_CUDA_EVENT_POOL_H
#define WEFT_DEVICE_CUDA_EVENT_POOL_H

#include "cuda.h"

struct weft_event {
    cudaEvent_t event;
    weft_event *next; /* in the list of reusable events */
};

void cuda_event_put_back(weft_device *device, weft_event *event);

#endif
