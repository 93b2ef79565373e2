/* host/plugin/parallel.h: parallel loop. Its threads live as long as the loop. The host's own parallel work (encoding,
 * conversion) is long enough for that, and no idle thread remains to disturb a device. */
#ifndef WEFT_HOST_PLUGIN_PARALLEL_H
#define WEFT_HOST_PLUGIN_PARALLEL_H

#include <stdint.h>

/* Runs body(i, context) for each i in [0, n), in any order. threads 0: as many as this process may run on. If no thread
 * can be created, the caller's thread runs the loop. [main] */
void weft_parallel_for(int64_t n, int32_t threads, void (*body)(int64_t i, void *context), void *context);

#endif
