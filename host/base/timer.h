/* host/base/timer.h: calls a function after a time from a thread of its own, once or periodically. */
#ifndef WEFT_HOST_BASE_TIMER_H
#define WEFT_HOST_BASE_TIMER_H

#include <pthread.h>
#include <stdbool.h>

typedef struct weft_timer {
    double seconds;
    bool (*tick)(void *context);
    void *context;
    pthread_mutex_t lock; /* held during tick */
    pthread_cond_t ended;
    pthread_t thread;
    bool runs, is_over;
} weft_timer;

/* Calls tick(context) after `seconds`, and again every `seconds` while it returns true. The thread handles no signals.
 * If no thread can be created, tick is never called. The struct must not move until the end. */
void weft_timer_begin(weft_timer *self, double seconds, bool (*tick)(void *context), void *context);
/* Waits for a running tick; no call follows. A struct that was only zeroed is fine. */
void weft_timer_end(weft_timer *self);

#endif
