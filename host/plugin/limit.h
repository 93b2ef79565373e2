/* host/plugin/limit.h: a call that may take so long and no longer. Code that computes and never asks anything cannot be
 * left from outside but by ending the process, and that is what happens then, with a sentence. */
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

/* table, slot: who is called (enter.h). key: what sets the limit, "[plugins] compile_seconds". seconds 0: no limit. The
 * struct stays where it is until the end. [main] */
void weft_limit_begin(weft_limit *self, const void *table, const char *slot, const char *key, double seconds);
void weft_limit_end(weft_limit *self);

#endif
