/* host/plugin/limit.h: timeout for a plugin call. A computing call cannot be interrupted from outside, so after the
 * timeout the process ends with an error message. */
#ifndef WEFT_HOST_PLUGIN_LIMIT_H
#define WEFT_HOST_PLUGIN_LIMIT_H

#include <pthread.h>
#include <stdbool.h>
#include <weft/base.h>

typedef struct weft_limit {
    const void *table;
    const char *slot, *key;
    double seconds;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    pthread_t watcher;
    bool watched, is_over;
} weft_limit;

/* Starts the timer. table, slot: the called plugin (enter.h). key: the setting of the timeout, "[plugins]
 * compile_seconds". seconds 0: no timeout. The struct must not move until the end. [main] */
void weft_limit_begin(weft_limit *self, const void *table, const char *slot, const char *key, double seconds);
void weft_limit_end(weft_limit *self);

#endif
