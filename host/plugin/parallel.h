/* host/plugin/parallel.h: a loop on several threads. They live as long as the loop: what the host itself runs in
 * parallel (encoding, conversion) takes long enough for that, and no idle thread is left to disturb a device. */
#ifndef WEFT_HOST_PLUGIN_PARALLEL_H
#define WEFT_HOST_PLUGIN_PARALLEL_H

#include <stdint.h>

/* body(i, context) for each i in [0, n), in any order. threads 0: as many as this process may run on. Where threads
 * cannot be had the caller's alone does the work. [main] */
void weft_parallel_for(int64_t n, int32_t threads, void (*body)(int64_t i, void *context), void *context);

#endif
