/* host/plugin/timeout.c: see timeout.h. */
#include "plugin/timeout.h"

#include "plugin/enter.h"
#include "plugin/services.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

/* Ends the process without main's output: the caller's memory is in the middle of a call. */
static void end_process(const weft_timeout *self) {
    char title[700], line[1000];
    weft_plugin_title(title, sizeof title, self->table);
    (void)snprintf(line, sizeof line,
                   "%s has been in its %s for %g s, which %s allows: raise it if the call only is slow; this process "
                   "ends here",
                   title, self->slot, self->seconds, self->key);
    weft_services_say(WEFT_LOG_ERROR, line);
    weft_crash_crumb(NULL); /* the host ends the process, not the plugin */
    _exit(1);
}

static void *watch_limit(void *context) {
    weft_timeout *self = context;
    struct timespec until;
    int waited = 0;
    double whole = 0;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(1e9 * modf(self->seconds, &whole));
    until.tv_sec += (time_t)whole + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_mutex_lock(&self->lock);
    while (!self->is_over && waited != ETIMEDOUT) waited = pthread_cond_timedwait(&self->ended, &self->lock, &until);
    if (!self->is_over) end_process(self);
    (void)pthread_mutex_unlock(&self->lock);
    return NULL;
}

void weft_timeout_begin(weft_timeout *self, const void *table, const char *slot, const char *key, double seconds) {
    pthread_condattr_t by_clock;
    sigset_t all, before;
    *self = (weft_timeout){.table = table, .slot = slot, .key = key, .seconds = seconds};
    if (!(seconds > 0)) return;
    (void)pthread_mutex_init(&self->lock, NULL);
    (void)pthread_condattr_init(&by_clock);
    (void)pthread_condattr_setclock(&by_clock, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&self->ended, &by_clock);
    (void)pthread_condattr_destroy(&by_clock);
    (void)sigfillset(&all); /* other threads handle signals */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    self->watched = pthread_create(&self->watcher, NULL, watch_limit, self) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void weft_timeout_end(weft_timeout *self) {
    if (!(self->seconds > 0)) return;
    (void)pthread_mutex_lock(&self->lock);
    self->is_over = true;
    (void)pthread_cond_signal(&self->ended);
    (void)pthread_mutex_unlock(&self->lock);
    if (self->watched) (void)pthread_join(self->watcher, NULL);
    (void)pthread_cond_destroy(&self->ended);
    (void)pthread_mutex_destroy(&self->lock);
}
