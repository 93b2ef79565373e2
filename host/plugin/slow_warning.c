/* host/plugin/slow_warning.c: see slow_warning.h. */
#include "plugin/slow_warning.h"

#include "plugin/enter.h"
#include "plugin/services.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

/* Formats ", now in linear of adapter:lora (FILE)", the nested call of the plugin; "": unknown. */
static const char *now_in(char *out, size_t size, const weft_slow_warning *self) {
    weft_doing call = {0};
    uint64_t number = 0;
    out[0] = '\0';
    if (!weft_crash_main_call(&call, &number) || call.kind == NULL || call.file == NULL) return out;
    if (strcmp(call.what, self->slot) != 0)
        (void)snprintf(out, size, ", now in %s of %s:%s (%s),", call.what, call.kind, call.id, call.file);
    return out;
}

static void *watch_call(void *context) {
    weft_slow_warning *self = context;
    struct timespec until;
    char title[700], line[2000], inner[700];
    int waited = 0;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += WEFT_SLOW_WARNING_SECONDS;
    (void)pthread_mutex_lock(&self->lock);
    while (!self->is_over && waited != ETIMEDOUT) waited = pthread_cond_timedwait(&self->ended, &self->lock, &until);
    if (!self->is_over) {
        weft_plugin_title(title, sizeof title, self->table);
        (void)snprintf(line, sizeof line, "%s has been in its %s for %d s%s and goes on", title, self->slot,
                       (int)WEFT_SLOW_WARNING_SECONDS, now_in(inner, sizeof inner, self));
        weft_services_say(WEFT_LOG_WARN, line); /* printed even in trial runs, which suppress other output */
    }
    (void)pthread_mutex_unlock(&self->lock);
    return NULL;
}

/* Starts the watcher with all signals blocked: other threads handle them. */
static bool start_watcher(weft_slow_warning *self) {
    sigset_t all, before;
    bool started = false;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    started = pthread_create(&self->watcher, NULL, watch_call, self) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

void weft_slow_warning_begin(weft_slow_warning *self, const void *table, const char *slot) {
    pthread_condattr_t by_clock;
    self->table = table;
    self->slot = slot;
    self->is_over = false;
    (void)pthread_mutex_init(&self->lock, NULL);
    (void)pthread_condattr_init(&by_clock);
    (void)pthread_condattr_setclock(&by_clock, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&self->ended, &by_clock);
    (void)pthread_condattr_destroy(&by_clock);
    self->watched = start_watcher(self);
}

void weft_slow_warning_end(weft_slow_warning *self) {
    (void)pthread_mutex_lock(&self->lock);
    self->is_over = true;
    (void)pthread_cond_signal(&self->ended);
    (void)pthread_mutex_unlock(&self->lock);
    if (self->watched) (void)pthread_join(self->watcher, NULL);
    (void)pthread_cond_destroy(&self->ended);
    (void)pthread_mutex_destroy(&self->lock);
}
