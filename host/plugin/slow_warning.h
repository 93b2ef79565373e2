/* host/plugin/slow_warning.h: slow-call warning, printed once while a call is running. A call that never returns
 * would hang a run without a message. */
#ifndef WEFT_HOST_PLUGIN_SLOW_WARNING_H
#define WEFT_HOST_PLUGIN_SLOW_WARNING_H

#include <pthread.h>
#include <stdbool.h>

enum { WEFT_SLOW_WARNING_SECONDS = 10 }; /* before the warning */

typedef struct weft_slow_warning {
    const void *table;
    const char *slot;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    pthread_t watcher;
    bool watched; /* the watcher thread exists */
    bool is_over;
} weft_slow_warning;

/* Starts the timer. table, slot: the called plugin (enter.h). The struct must not move until the end. Without a thread
 * there is no warning. [main] */
void weft_slow_warning_begin(weft_slow_warning *self, const void *table, const char *slot);
void weft_slow_warning_end(weft_slow_warning *self);

#endif
