/* event_pool.h: what an event is; of streams.c, which makes them, and transfer.c, which ends them by waiting. */
#ifndef WEFT_DEVICE_CUDA_EVENT_POOL_H
#define WEFT_DEVICE_CUDA_EVENT_POOL_H

#include "cuda.h"

struct weft_event {
    cudaEvent_t event;
    weft_event *next; /* among those that are spare */
};

void cuda_event_put_back(weft_device *device, weft_event *event);

#endif
