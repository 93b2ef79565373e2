/* host/base/timer.c: see timer.h. */
#include "base/timer.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <time.h>

static void *timer_main(void *argument) {
    weft_timer *self = argument;
    bool again = true;
    (void)pthread_mutex_lock(&self->lock);
    while (again && !self->is_over) {
        struct timespec until;
        double whole = 0;
        int waited = 0;
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += (long)(1e9 * modf(self->seconds, &whole));
        until.tv_sec += (time_t)whole + until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        while (!self->is_over && waited != ETIMEDOUT)
            waited = pthread_cond_clockwait(&self->ended, &self->lock, CLOCK_MONOTONIC, &until);
        if (!self->is_over) again = self->tick(self->context);
    }
    (void)pthread_mutex_unlock(&self->lock);
    return NULL;
}

void weft_timer_begin(weft_timer *self, double seconds, bool (*tick)(void *context), void *context) {
    sigset_t all, before;
    *self = (weft_timer){seconds, tick, context, .lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    self->runs = pthread_create(&self->thread, NULL, timer_main, self) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void weft_timer_end(weft_timer *self) {
    if (!self->runs) return;
    (void)pthread_mutex_lock(&self->lock);
    self->is_over = true;
    (void)pthread_cond_signal(&self->ended);
    (void)pthread_mutex_unlock(&self->lock);
    (void)pthread_join(self->thread, NULL);
    self->runs = false;
}
