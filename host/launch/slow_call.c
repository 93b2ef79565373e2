/* host/launch/slow_call.c: see watchdog.h. */
#include "launch/watchdog.h"

#include "base/timer.h"
#include "base/units.h"
#include "launch/heartbeat.h"
#include "launch/signals.h"
#include "plugin/crash.h"
#include "plugin/plugin.h"
#include "plugin/services.h"

#include <math.h>
#include <unistd.h>

enum { UNREPORTED_SECONDS = 60, MOST_REPORTED = 64 };

static struct {
    weft_timer timer;
    double seconds; /* duration before a call is reported or given up */
    int32_t users;
    bool reports;
    weft_call_record reported[MOST_REPORTED];
    size_t n_reported;
    uint64_t version; /* of the main thread's record at the last check */
    double since;     /* the time of the first check that saw this version */
    uint64_t waiting; /* number of the main thread's call that waited for a slow call of another thread */
    void (*give_up)(bool stopped, const char *call);
    double until; /* time at which a call is given up without a signal */
} self = {.until = INFINITY};

/* Formats "optimizer:lion (/home/you/weft-optimizer-lion.so) has been in its prepare for 60 s, in training, in step 12,
 * at instruction 33, STEP". */
static void describe(char *line, size_t size, const weft_call_record *call) {
    const char *const mode = atomic_load(&weft_crash_where.mode), *const arm = atomic_load(&weft_crash_where.arm);
    const weft_plugin *plugin = call->loaded->plugin;
    char position[WEFT_HEARTBEAT_TEXT + 96];
    weft_heartbeat_position(position, sizeof position);
    (void)snprintf(line, size, "%s:%s (%s) has been in its %s for %g s%s%s%s%.256s, %s", plugin->kind, plugin->id,
                   call->loaded->path, call->what, self.seconds, mode == NULL ? "" : ", in ", mode == NULL ? "" : mode,
                   arm == NULL ? "" : ", in arm ", arm == NULL ? "" : arm, position);
}

/* Handles a call that has lasted `seconds`. */
static void handle_slow_call(const weft_call_record *call, bool may_report) {
    const bool stopped = weft_signals_stop();
    bool reports = self.reports && may_report;
    char text[1400], line[1700];
    describe(text, sizeof text, call);
    for (size_t i = 0; i < self.n_reported; i++) /* a slot is reported once: it could be slow in each step */
        reports = reports && (self.reported[i].loaded != call->loaded || self.reported[i].what != call->what);
    if (reports && self.n_reported < MOST_REPORTED) self.reported[self.n_reported++] = *call;
    if (reports) {
        (void)snprintf(line, sizeof line,
                       "%s, " WEFT_SLOW_CALL_WORDS ". [plugins] call_seconds sets the time of this warning", text);
        weft_services_print(WEFT_LOG_WARN, line); /* also on ranks that print no other lines */
    }
    if (self.give_up != NULL && (stopped || weft_clock_seconds() >= self.until)) self.give_up(stopped, text);
}

/* Handles the main thread's call if its record has not changed for `seconds`. While another thread is in a call that
 * began during this one, the main thread waits for that thread, and only the other call can be slow. A main call that
 * waited for a slow one is not reported for its remaining work, unless it then hangs. */
static void check_call(const weft_call_record *call, double now) {
    weft_call_record other;
    double seconds = 0;
    const bool waits = weft_crash_other_call(&other, &seconds, call->number);
    if (waits) self.since = fmax(self.since, now - seconds);
    if (now - self.since < self.seconds) return;
    if (waits) self.waiting = call->number;
    handle_slow_call(waits ? &other : call, waits || self.waiting != call->number ||
                                                now - self.since >= fmax(self.seconds, UNREPORTED_SECONDS));
}

static bool check_main_thread(void *unused) {
    const double now = weft_clock_seconds();
    weft_call_record call = {0};
    uint64_t version = 0;
    const bool is_read = weft_crash_main_call(&call, &version);
    (void)unused;
    /* a main thread that ends by a system call runs no handler; the process continues with its other threads */
    if (is_read && weft_proc_read((int32_t)getpid()).state == 'Z') weft_exit_guard_end_main(&call);
    if (!is_read || version != self.version) {
        self.version = version;
        self.since = now;
    } else if (call.loaded != NULL && !weft_heartbeat_waits()) { /* a rank that waits for another is not the cause */
        check_call(&call, now);
    }
    return true;
}

void weft_slow_call_begin(double seconds) {
    if (self.users++ > 0) return;
    self.reports = seconds > 0;
    self.seconds = self.reports ? seconds : UNREPORTED_SECONDS;
    self.since = weft_clock_seconds();
    weft_timer_begin(&self.timer, fmin(self.seconds / 4, 1), check_main_thread, NULL);
}

void weft_slow_call_give_up(void (*end)(bool stopped, const char *call), double most) {
    if (self.users == 0) return;
    (void)pthread_mutex_lock(&self.timer.lock);
    self.give_up = end;
    self.until = weft_clock_seconds() + most;
    (void)pthread_mutex_unlock(&self.timer.lock);
}

void weft_slow_call_end(void) {
    if (--self.users > 0) return;
    weft_timer_end(&self.timer);
    self.give_up = NULL;
}
