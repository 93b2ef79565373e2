/* marks.h: what a mark is; of streams.c, which makes them, and transfer.c, which ends them by waiting. */
#ifndef WEFT_DEVICE_CUDA_MARKS_H
#define WEFT_DEVICE_CUDA_MARKS_H

#include "cuda.h"

struct weft_mark {
    cudaEvent_t event;
    weft_mark *next; /* among those that are spare */
};

void cuda_mark_put_back(weft_device *device, weft_mark *mark);

#endif
