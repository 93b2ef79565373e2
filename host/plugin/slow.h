/* host/plugin/slow.h: a call that takes long says so, once, while it lasts: one that never ends would end a run in
 * silence. */
#ifndef WEFT_HOST_PLUGIN_SLOW_H
#define WEFT_HOST_PLUGIN_SLOW_H

#include <pthread.h>
#include <stdbool.h>

enum { WEFT_SLOW_SECONDS = 10 }; /* after which it is told */

typedef struct weft_slow {
    const void *table;
    const char *slot;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    pthread_t watcher;
    bool watched; /* there is a watcher */
    bool is_over;
} weft_slow;

/* table, slot: who is called (enter.h). Stays where it is until the end. Without a thread for it nothing is told.
 * [main] */
void weft_slow_begin(weft_slow *self, const void *table, const char *slot);
void weft_slow_end(weft_slow *self);

#endif
