/* host/launch/slow_call.c: see slow_call.h. */
#include "launch/slow_call.h"

#include "launch/proc.h"
#include "launch/heartbeat.h"
#include "launch/signals.h"
#include "plugin/exit_guard.h"
#include "plugin/services.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { UNTOLD_SECONDS = 60 };

static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    double seconds; /* duration before a call is reported or given up */
    int32_t users;
    bool is_begun, is_over, tells;
    weft_doing told; /* the last reported call */
    void (*give_up)(bool stopped, const char *call);
    double until; /* time at which a call is given up without a signal */
} self = {.lock = PTHREAD_MUTEX_INITIALIZER, .until = INFINITY};

static double now(void) {
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Formats "optimizer:lion (/home/you/weft-optimizer-lion.so) has been in its prepare for 60 s, in training, in step 12,
 * at instruction 33, STEP". */
static void describe(char *line, size_t size, const weft_doing *call) {
    const char *const mode = weft_crash_current_mode(), *const arm = weft_crash_current_arm();
    char place[WEFT_HEARTBEAT_TEXT + 96] = "";
    weft_heartbeat_place(place, sizeof place);
    (void)snprintf(line, size, "%s:%s (%s) has been in its %s for %g s%s%s%s%.256s, %s", call->kind, call->id,
                   call->file == NULL ? "of the program itself" : call->file, call->what, self.seconds,
                   mode == NULL ? "" : ", in ", mode == NULL ? "" : mode, arm == NULL ? "" : ", in arm ",
                   arm == NULL ? "" : arm, place);
}

static void tell(const weft_doing *call) {
    char said[1400], line[1700];
    describe(said, sizeof said, call);
    (void)snprintf(line, sizeof line,
                   "%s, " WEFT_SLOW_WARNING_CALL_WORDS ". [plugins] call_seconds says after how long that is told",
                   said);
    weft_services_say(WEFT_LOG_WARN, line); /* also on ranks that print no other lines */
    self.told = *call;
}

/* Returns whether the call is a plugin's own work: a rank that waits for another is not the cause. */
static bool is_plugins(const weft_doing *call) {
    return call->kind != NULL && call->what != NULL && !weft_heartbeat_waits();
}

/* Returns whether the call is not yet reported, to avoid a line in each step. */
static bool is_news(const weft_doing *call) {
    return self.tells && (call->id != self.told.id || call->what != self.told.what);
}

static void judge(const weft_doing *call) {
    const bool stopped = weft_signals_stop();
    char said[1400];
    if (!is_plugins(call)) return;
    if (is_news(call)) tell(call);
    if (self.give_up == NULL || !(stopped || now() >= self.until)) return;
    describe(said, sizeof said, call);
    self.give_up(stopped, said);
}

static void wait_a_little(double seconds) {
    const double until = now() + seconds;
    double whole = 0;
    const long nanoseconds = (long)(1e9 * modf(until, &whole));
    const struct timespec time = {(time_t)whole, nanoseconds};
    (void)pthread_cond_timedwait(&self.ended, &self.lock, &time);
}

/* Returns whether the main thread has ended by a system call, which runs no handler. The process continues with its
 * other threads. */
static bool is_main_gone(void) {
    return weft_proc_read((int32_t)getpid()).state == 'Z';
}

static void *look(void *unused) {
    const double tick = fmin(self.seconds / 4, 1);
    weft_doing call = {0};
    uint64_t number = 0, last = 0;
    double since = now();
    (void)unused;
    (void)pthread_mutex_lock(&self.lock);
    while (!self.is_over) {
        wait_a_little(tick);
        if (is_main_gone() && weft_crash_main_call(&call, &number)) weft_exit_guard_end_main(&call);
        if (!weft_crash_main_call(&call, &number) || number != last) {
            last = number;
            since = now();
        } else if (now() - since >= self.seconds) judge(&call);
    }
    (void)pthread_mutex_unlock(&self.lock);
    return NULL;
}

/* Starts the thread with all signals blocked: other threads handle them. */
static void start(void) {
    pthread_condattr_t by_clock;
    sigset_t all, before;
    (void)pthread_condattr_init(&by_clock);
    (void)pthread_condattr_setclock(&by_clock, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&self.ended, &by_clock);
    (void)pthread_condattr_destroy(&by_clock);
    self.is_over = false;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    self.is_begun = pthread_create(&self.thread, NULL, look, NULL) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!self.is_begun) (void)pthread_cond_destroy(&self.ended);
}

void weft_slow_warning_call_begin(double seconds) {
    if (self.users++ > 0) return;
    self.tells = seconds > 0;
    self.seconds = self.tells ? seconds : UNTOLD_SECONDS;
    if (self.tells) start();
}

void weft_slow_warning_call_gives_up(void (*end)(bool stopped, const char *call), double most) {
    if (self.users == 0) return;
    if (!self.is_begun && end != NULL) start();
    (void)pthread_mutex_lock(&self.lock);
    self.give_up = end;
    self.until = now() + most;
    (void)pthread_mutex_unlock(&self.lock);
}

void weft_slow_warning_call_end(void) {
    if (--self.users > 0 || !self.is_begun) return;
    (void)pthread_mutex_lock(&self.lock);
    self.is_over = true;
    (void)pthread_cond_signal(&self.ended);
    (void)pthread_mutex_unlock(&self.lock);
    (void)pthread_join(self.thread, NULL);
    (void)pthread_cond_destroy(&self.ended);
    self.is_begun = false;
    self.give_up = NULL;
}
