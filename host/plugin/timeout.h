/* host/plugin/timeout.h: timeout for a plugin call. A computing call cannot be interrupted from outside, so after the
 * timeout the process ends with an error message. */
#ifndef WEFT_HOST_PLUGIN_TIMEOUT_H
#define WEFT_HOST_PLUGIN_TIMEOUT_H

#include <pthread.h>
#include <stdbool.h>
#include <weft/base.h>

typedef struct weft_timeout {
    const void *table;
    const char *slot, *key;
    double seconds;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    pthread_t watcher;
    bool watched, is_over;
} weft_timeout;

/* Starts the timer. table, slot: the called plugin (enter.h). key: the setting of the timeout, "[plugins]
 * compile_seconds". seconds 0: no timeout. The struct must not move until the end. [main] */
void weft_timeout_begin(weft_timeout *self, const void *table, const char *slot, const char *key, double seconds);
void weft_timeout_end(weft_timeout *self);

#endif
