/* host/launch/watchdog.c: see watchdog.h. Observes the processes of this machine and diagnoses the job. */
#include "launch/watchdog.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/units.h"
#include "base/text.h"
#include "launch/signals.h"
#include "plugin/crash.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- diagnosis ---- */

enum {
    NAMED = 4,           /* ranks that a message describes individually */
    STOPPED_BY_USER = 75 /* exit status */
};

static bool can_resume;
static char checkpoints[PATH_MAX];

void weft_watchdog_resumes(bool resumes) {
    can_resume = resumes;
}

void weft_watchdog_output(const char *directory) {
    (void)snprintf(checkpoints, sizeof checkpoints, "%.*s/checkpoints", PATH_MAX - 20, directory);
}

void weft_watchdog_explain(char *out, size_t size, const char *why) {
    bool has = false;
    if (can_resume && weft_tree_has(&has, checkpoints, "step-", NULL) != WEFT_OK) has = false;
    (void)snprintf(out, size, "%s: the other ranks were stopped%s", why,
                   has ? "; --resume continues from the newest checkpoint" : "");
}

static bool is_over(const weft_rank_view *rank) {
    return rank->condition == WEFT_RANK_ENDED || rank->condition == WEFT_RANK_GONE;
}

bool weft_ranks_are_over(const weft_rank_view *ranks, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        if (!is_over(&ranks[i])) return false;
    return true;
}

void weft_rank_view_end_texts(weft_rank_view *view) {
    view->text[sizeof view->text - 1] = '\0';
    view->call.who[sizeof view->call.who - 1] = view->call.what[sizeof view->call.what - 1] = '\0';
}

/* Appends where the rank is, or was. */
static void append_position(char *out, size_t size, const weft_rank_view *rank) {
    char text[256];
    weft_position_format(text, sizeof text, rank->evaluates, rank->step, rank->instruction, rank->text);
    weft_words_append(out, size, " %s", text);
}

/* Appends a rank's end. A signal is not attributed to a plugin; the plugin call is printed only for an exit by itself
 * or an unknown end. */
static void append_end(char *out, size_t size, const weft_rank_view *rank) {
    const int32_t status = rank->status;
    const weft_crumb *call = &rank->call;
    const bool was_called = call->what[0] != '\0';
    if (rank->condition == WEFT_RANK_ENDED) {
        weft_words_append(out, size, "ended with status %d", (int)status);
    } else if (status >= 0 && WIFSIGNALED(status)) {
        weft_words_append(out, size, "died by signal %d", WTERMSIG(status));
    } else if (status >= 0 && WIFEXITED(status)) {
        if (was_called) weft_words_append(out, size, "was ended by %s in its %s, with status", call->who, call->what);
        else weft_words_append(out, size, "ended with status");
        weft_words_append(out, size, " %d%s", WEXITSTATUS(status), was_called ? "," : "");
    } else {
        weft_words_append(out, size, "died without a report, as after kill -9 or when memory runs out,");
        if (was_called) weft_words_append(out, size, " while %s was in its %s,", call->who, call->what);
    }
}

/* Returns true if the rank ended abnormally, and before `other`. */
static bool has_failed_before(const weft_rank_view *rank, const weft_rank_view *other) {
    const bool has_failed = rank->condition == WEFT_RANK_ENDED ? rank->status != 0 && rank->status != STOPPED_BY_USER
                                                               : rank->condition == WEFT_RANK_GONE;
    if (!has_failed || other == NULL) return has_failed;
    return rank->followed != other->followed ? other->followed != 0 : rank->over_at < other->over_at;
}

static bool report_failed(char *out, size_t size, const weft_watchdog *self, const weft_rank_view *rank) {
    const int32_t status = rank->status, number = status >= 0 && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    /* It has printed its failure, or a user stopped it: not reported unless other ranks do not stop. */
    const bool known = rank->condition == WEFT_RANK_ENDED || number == SIGINT || number == SIGTERM || number == SIGHUP;
    const bool all_over = weft_ranks_are_over(self->ranks, self->total);
    if (known && (all_over || self->left < WEFT_WATCHDOG_SOON)) return false;
    if (!all_over && (self->left < self->settle || (rank->followed && self->left < WEFT_WATCHDOG_SETTLE))) return false;
    (void)snprintf(out, size, "rank %d ", (int)rank->rank);
    append_end(out, size, rank);
    append_position(out, size, rank);
    if (known) weft_words_append(out, size, ", and others did not follow");
    return true;
}

/* Reports a deadlock: each rank waits for others, and all are waiting. */
static void report_waiting(char *out, size_t size, const weft_watchdog *self) {
    (void)snprintf(out, size, "the ranks hang: no rank has made progress for %lld s and none computes",
                   (long long)(self->quiet / 1000));
    for (int32_t i = 0; i < self->total && i < NAMED; i++) {
        const weft_rank_view *rank = &self->ranks[i];
        const bool has_begun = rank->condition != WEFT_RANK_UNBORN;
        weft_words_append(out, size, "; rank %d %s", (int)rank->rank,
                          !has_begun                           ? "has not begun"
                          : rank->condition == WEFT_RANK_ENDED ? "has ended"
                                                               : "waits");
        if (has_begun) append_position(out, size, rank);
    }
    if (self->total > NAMED) weft_words_append(out, size, "; and %d more", (int)(self->total - NAMED));
}

static int64_t now_us(clockid_t clock) {
    struct timespec time;
    (void)clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

/* ---- one process ---- */

/* Reads the exit status through the pidfd (PIDFD_GET_INFO, Linux 6.15 and later). */
static bool read_exit(int32_t *status, int file) {
    struct {
        uint64_t mask, cgroup;
        uint32_t ids[11];
        int32_t exit_status;
    } info = {.mask = 1u << 3};
    if (ioctl(file, _IOC(_IOC_READ | _IOC_WRITE, 0xFF, 11, sizeof info), &info) != 0) return false;
    if ((info.mask & 1u << 3) == 0) return false;
    *status = info.exit_status;
    return true;
}

static void sleep_ms(long ms) {
    const struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    (void)nanosleep(&time, NULL);
}

/* Returns true if the process has ended, or ends within 2 seconds. Its connection closes shortly before. */
static bool has_ended(int32_t pid) {
    for (int i = 0; i < 400; i++, sleep_ms(5)) {
        const char state = weft_proc_read(pid).state;
        if (state == ' ' || state == 'Z' || state == 'X') return true;
    }
    return false;
}

/* Returns how a dead process has ended: its parent reads the status first, after a moment. A fatal signal in its own
 * record is equivalent. */
static int32_t read_end(const weft_heartbeat *heartbeat, int file) {
    weft_proc seen;
    int32_t status = -1;
    for (int i = 0; i < 40; i++, sleep_ms(5)) {
        if (file >= 0 && read_exit(&status, file)) return status;
        seen = weft_proc_read(atomic_load(&heartbeat->pid));
        if (seen.state == 'Z') return seen.status;
        if (file < 0) break;
    }
    status = atomic_load(&heartbeat->call.signal) & ~WEFT_CRASH_IN_COMM;
    return status > 0 ? status : -1;
}

/* ---- all processes ---- */

bool weft_watchdog_add(const weft_watchdog *self, int file, int32_t rank) {
    struct epoll_event event = {.events = EPOLLIN, .data = {.u64 = (uint64_t)rank}};
    return epoll_ctl(self->events, EPOLL_CTL_ADD, file, &event) == 0 || errno == EEXIST;
}

weft_status weft_watchdog_open(weft_watchdog *self, weft_heartbeat *heartbeats, const char *path, int32_t n,
                               int32_t total, weft_error *err) {
    char name[WEFT_LOCAL_NAME];
    *self = (weft_watchdog){.heartbeats = heartbeats,
                            .n = n,
                            .total = total,
                            .settle = total > n ? WEFT_WATCHDOG_SETTLE : 0,
                            .events = epoll_create1(EPOLL_CLOEXEC)};
    if (self->events < 0)
        return weft_error_set(err, WEFT_E_SYSTEM, "no epoll to watch %d ranks: %s", (int)n, strerror(errno));
    self->ranks = weft_alloc(total, sizeof *self->ranks);
    self->files = weft_alloc(n, sizeof *self->files);
    self->links = weft_alloc(n, sizeof *self->links);
    for (int32_t i = 0; i < n; i++) {
        self->files[i] = self->links[i] = -1;
        self->ranks[i].rank = i;
        self->ranks[i].instruction = -1;
    }
    for (int32_t i = n; i < total; i++)
        self->ranks[i].condition = WEFT_RANK_COMPUTES; /* until their watchdog reports */
    (void)snprintf(name, sizeof name, WEFT_WATCH_NAME, path);
    self->listener = weft_local_socket(name, true);
    if (self->listener >= 0) (void)weft_watchdog_add(self, self->listener, n);
    return WEFT_OK;
}

static void close_files(weft_watchdog *self, int32_t i) {
    if (self->files[i] >= 0) (void)close(self->files[i]);
    if (self->links[i] >= 0) (void)close(self->links[i]);
    self->files[i] = self->links[i] = -1;
}

void weft_watchdog_close(weft_watchdog *self) {
    if (self->ranks == NULL) return; /* not opened */
    for (int32_t i = 0; i < self->n; i++) close_files(self, i);
    (void)close(self->events);
    if (self->listener >= 0) (void)close(self->listener);
    free(self->ranks);
    free(self->files);
    free(self->links);
    memset(self, 0, sizeof *self);
}

/* Accepts connections, identified by their process. A connection of a finished process would wake the watchdog for
 * ever, so it is closed. */
static void accept_links(weft_watchdog *self) {
    struct ucred who;
    socklen_t size = sizeof who;
    int file = -1;
    while (self->listener >= 0 && (file = accept4(self->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        int32_t i = 0;
        if (getsockopt(file, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) who.pid = -1;
        while (i < self->n && atomic_load(&self->heartbeats[i].pid) != (int32_t)who.pid) i++;
        if (i < self->n && self->links[i] < 0 && !is_over(&self->ranks[i])) {
            self->links[i] = file; /* kept even without epoll: closing it would kill the rank */
            (void)weft_watchdog_add(self, file, i);
        } else (void)close(file);
    }
}

/* Checks a rank, ms after the last check; woken: its process has ended. A rank seen as ended without a wake-up is not
 * necessarily the first. If its wake-up is pending, it is deferred until then to keep the order. */
static void check_rank(weft_watchdog *self, int32_t i, int64_t ms, bool woken) {
    weft_rank_view *view = &self->ranks[i];
    const weft_heartbeat *heartbeat = &self->heartbeats[i];
    int *file = &self->files[i];
    const int32_t pid = atomic_load(&heartbeat->pid);
    const int64_t now = now_us(CLOCK_REALTIME);
    char state = ' ';
    bool wakes = false, over = false;
    if (pid == 0 || is_over(view)) return;
    if (*file < 0) *file = (int)syscall(SYS_pidfd_open, pid, 0);
    wakes = *file >= 0 && weft_watchdog_add(self, *file, i);
    state = weft_proc_read(pid).state;
    over = state == ' ' || state == 'Z' || state == 'X';
    view->rank = atomic_load(&heartbeat->rank);
    view->instruction = atomic_load(&heartbeat->instruction);
    view->evaluates = atomic_load(&heartbeat->evaluates);
    view->step = atomic_load(&heartbeat->step);
    view->progress = atomic_load(&heartbeat->progress);
    memcpy(view->text, heartbeat->texts[atomic_load(&heartbeat->text) & 1], sizeof view->text);
    view->call = heartbeat->call;
    weft_rank_view_end_texts(view);
    view->stopped = state == 'T' ? view->stopped + (int32_t)ms : 0;
    if (atomic_load(&heartbeat->state) == WEFT_HEARTBEAT_ENDED) {
        view->condition = WEFT_RANK_ENDED;
        view->status = atomic_load(&heartbeat->status);
    } else if (over && !woken && wakes) {
        return;
    } else if (over || (woken && has_ended(pid))) {
        view->status = read_end(heartbeat, *file);
        view->condition = WEFT_RANK_GONE;
        view->followed = (atomic_load(&heartbeat->call.signal) & WEFT_CRASH_IN_COMM) != 0;
    } else if (state == 'T' || state == 't') view->condition = state == 'T' ? WEFT_RANK_STOPPED : WEFT_RANK_TRACED;
    else
        view->condition = atomic_load(&heartbeat->state) == WEFT_HEARTBEAT_WAITS ? WEFT_RANK_WAITS : WEFT_RANK_COMPUTES;
    if (!is_over(view)) return;
    view->over_at = now;
    close_files(self, i);
}

/* Checks all ranks. A launcher ends the others within milliseconds of the first. Therefore ended ranks are processed in
 * their order, and ranks without a known end are deferred to the next check. */
int64_t weft_watchdog_check(weft_watchdog *self) {
    struct epoll_event events[256];
    const int n = epoll_wait(self->events, events, self->n < 128 ? 2 * self->n : 256, WEFT_WATCHDOG_TICK);
    const int64_t now = now_us(CLOCK_MONOTONIC) / 1000, since = self->last == 0 ? 0 : now - self->last;
    const int64_t ms = weft_smaller(since, 2 * WEFT_WATCHDOG_TICK); /* ranks do not work in a suspended machine */
    bool has_woken = false;
    self->last = now;
    accept_links(self);
    for (int i = 0; i < n; i++) {
        if (events[i].data.u64 >= (uint64_t)self->n) continue;
        check_rank(self, (int32_t)events[i].data.u64, ms, true);
        has_woken = true;
    }
    for (int32_t i = 0; !has_woken && i < self->n; i++) check_rank(self, i, ms, false);
    return ms;
}

bool weft_watchdog_decide(weft_watchdog *self, char *out, size_t size, int64_t ms) {
    const weft_rank_view *failed = NULL, *lost = NULL, *stopped = NULL;
    int32_t n_waiting = 0, n_absent = 0, n_stopped = 0, n_traced = 0, longest = 0;
    int64_t patience = WEFT_WATCHDOG_PATIENCE;
    uint64_t progress = 0;
    for (int32_t i = 0; i < self->n; i++) {
        const int32_t seconds = atomic_load(&self->heartbeats[i].patience);
        if (seconds > longest) longest = seconds;
    }
    if (longest > 0) patience = 1000 * (int64_t)longest;
    for (int32_t i = 0; i < self->total; i++) {
        const weft_rank_view *view = &self->ranks[i];
        const int32_t condition = view->condition;
        progress += view->progress + (uint64_t)condition; /* starts and ends count as progress, too */
        n_waiting += condition == WEFT_RANK_WAITS;
        n_absent += condition == WEFT_RANK_UNBORN || condition == WEFT_RANK_ENDED;
        n_stopped += condition == WEFT_RANK_STOPPED;
        n_traced += condition == WEFT_RANK_TRACED;
        /* the first failure: a launcher ends the other ranks soon after, and peers of a dead rank fail, too */
        if (has_failed_before(view, failed)) failed = view;
        if (condition == WEFT_RANK_LOST && lost == NULL) lost = view;
        if (condition == WEFT_RANK_STOPPED && stopped == NULL &&
            view->stopped >= weft_smaller(patience, WEFT_WATCHDOG_SOON))
            stopped = view;
    }
    self->quiet = progress != self->progress ? 0 : self->quiet + ms;
    self->left = failed != NULL ? self->left + ms : 0; /* starts at 0 with the first check */
    self->progress = progress;
    if (failed != NULL) return report_failed(out, size, self, failed);
    if (lost != NULL) {
        (void)snprintf(out, size, "the machine of rank %d is out of reach, where it was last seen", (int)lost->rank);
        append_position(out, size, lost);
        return true;
    }
    if (n_traced > 0) return false;
    if (stopped != NULL && n_stopped < self->total) { /* all of them stopped at once is a suspended job */
        (void)snprintf(out, size, "rank %d hangs: it has been stopped by a signal for %lld s,", (int)stopped->rank,
                       (long long)(stopped->stopped / 1000));
        append_position(out, size, stopped);
        return true;
    }
    if (n_waiting == 0 || n_waiting + n_absent < self->total || self->quiet < patience) return false;
    report_waiting(out, size, self);
    return true;
}

bool weft_watchdog_listens(const weft_watchdog *self) {
    for (int32_t i = 0; i < self->n; i++)
        if (!is_over(&self->ranks[i]) && atomic_load(&self->heartbeats[i].listens) == 0) return false;
    return true;
}

void weft_watchdog_stop(const weft_watchdog *self) {
    for (int32_t i = 0; i < self->n; i++) {
        const int32_t pid = atomic_load(&self->heartbeats[i].pid);
        if (self->files[i] >= 0) (void)syscall(SYS_pidfd_send_signal, self->files[i], SIGKILL, NULL, 0);
        else if (pid > 0 && !is_over(&self->ranks[i])) (void)kill(pid, SIGKILL);
    }
}
