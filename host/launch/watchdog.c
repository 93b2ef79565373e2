/* host/launch/watchdog.c: see watchdog.h. Observes the processes of this machine; rank_verdict.c makes the
 * diagnosis. */
#include "launch/watchdog.h"

#include "launch/proc.h"
#include "plugin/crash.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

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
static bool has_ended(int32_t pid, int file) {
    struct pollfd end = {file, POLLIN, 0};
    if (file >= 0) return poll(&end, 1, 2000) == 1;
    for (int i = 0; i < 400; i++, sleep_ms(5)) {
        const char state = weft_proc_read(pid).state;
        if (state == ' ' || state == 'Z' || state == 'X') return true;
    }
    return false;
}

/* Returns how a dead process has ended: its parent reads the status first, after a moment. A fatal signal in its own
 * record is equivalent. */
static int32_t ask_end(const weft_heartbeat *heartbeat, int file) {
    weft_proc seen;
    int32_t status = -1;
    for (int i = 0; i < 40; i++, sleep_ms(5)) {
        if (file >= 0 && read_exit(&status, file)) return status;
        seen = weft_proc_read(atomic_load(&heartbeat->pid));
        if (seen.state == 'Z') return seen.status;
        if (file < 0) break;
    }
    status = atomic_load(&heartbeat->crash) & ~WEFT_CRASH_IN_COMM;
    return status > 0 ? status : -1;
}

/* ---- all processes ---- */

/* Adds a descriptor that wakes the watchdog; true also if it is ready already. */
static bool attend_to_file(const weft_watchdog *self, int file, int64_t rank) {
    struct epoll_event event = {.events = EPOLLIN, .data = {.u64 = (uint64_t)rank}};
    return epoll_ctl(self->events, EPOLL_CTL_ADD, file, &event) == 0 || errno == EEXIST;
}

bool weft_watchdog_attend(const weft_watchdog *self, int file) {
    return attend_to_file(self, file, self->n);
}

static void open_listener(weft_watchdog *self, const char *path) {
    struct sockaddr_un address;
    const uint32_t size = weft_heartbeat_address(&address, path);
    self->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (self->listener >= 0 && bind(self->listener, (const struct sockaddr *)&address, size) == 0 &&
        listen(self->listener, 4096) == 0 && attend_to_file(self, self->listener, self->n))
        return;
    if (self->listener >= 0) (void)close(self->listener);
    self->listener = -1;
}

weft_status weft_watchdog_open(weft_watchdog *self, weft_heartbeat *heartbeats, const char *path, int32_t n,
                               int32_t total, weft_error *err) {
    memset(self, 0, sizeof *self);
    self->heartbeats = heartbeats;
    self->n = n;
    self->total = total;
    self->times.settle = total > n ? WEFT_WATCHDOG_SETTLE : 0;
    self->ranks = calloc((size_t)total, sizeof *self->ranks);
    self->files = calloc((size_t)n, sizeof *self->files);
    self->links = calloc((size_t)n, sizeof *self->links);
    self->woke = calloc(2 * (size_t)n, sizeof *self->woke);
    self->events = epoll_create1(EPOLL_CLOEXEC);
    self->listener = -1;
    for (int32_t i = 0; self->files != NULL && self->links != NULL && i < n; i++) self->files[i] = self->links[i] = -1;
    if (self->ranks == NULL || self->files == NULL || self->links == NULL || self->woke == NULL || self->events < 0) {
        weft_watchdog_close(self);
        return weft_error_set(err, WEFT_E_MEMORY, "no memory to watch %d ranks", (int)n);
    }
    for (int32_t i = 0; i < n; i++) {
        self->ranks[i].rank = i;
        self->ranks[i].instruction = -1;
    }
    for (int32_t i = n; i < total; i++)
        self->ranks[i].condition = WEFT_RANK_COMPUTES; /* until their watchdog
                                                                                        * reports */
    open_listener(self, path);
    return WEFT_OK;
}

static void let_go(weft_watchdog *self, int32_t i) {
    if (self->files[i] >= 0) (void)close(self->files[i]);
    if (self->links[i] >= 0) (void)close(self->links[i]);
    self->files[i] = self->links[i] = -1;
}

void weft_watchdog_close(weft_watchdog *self) {
    for (int32_t i = 0; self->files != NULL && self->links != NULL && i < self->n; i++) let_go(self, i);
    if (self->ranks != NULL && self->events >= 0) (void)close(self->events);
    if (self->ranks != NULL && self->listener >= 0) (void)close(self->listener);
    free(self->ranks);
    free(self->files);
    free(self->links);
    free(self->woke);
    memset(self, 0, sizeof *self);
}

/* Accepts connections, identified by their process. A connection of a finished process would wake the watchdog for
 * ever, so it is closed. */
static void take_links(weft_watchdog *self) {
    struct ucred who;
    socklen_t size = sizeof who;
    int file = -1;
    while (self->listener >= 0 && (file = accept4(self->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        int32_t i = 0;
        if (getsockopt(file, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) who.pid = -1;
        while (i < self->n && atomic_load(&self->heartbeats[i].pid) != (int32_t)who.pid) i++;
        if (i < self->n && self->links[i] < 0 && !weft_ranks_are_over(&self->ranks[i], 1)) {
            self->links[i] = file; /* kept even without epoll: closing it would kill the rank */
            (void)attend_to_file(self, file, i);
        } else (void)close(file);
    }
}

void weft_watchdog_wait(weft_watchdog *self) {
    struct epoll_event events[256];
    const int n = epoll_wait(self->events, events, self->n < 128 ? 2 * self->n : 256, WEFT_WATCHDOG_TICK);
    self->n_woke = 0;
    for (int i = 0; i < n; i++)
        if (events[i].data.u64 < (uint64_t)self->n) self->woke[self->n_woke++] = (int32_t)events[i].data.u64;
    take_links(self);
}

static void read_heartbeat(weft_rank_view *view, const weft_heartbeat *heartbeat) {
    view->rank = atomic_load(&heartbeat->rank);
    view->instruction = atomic_load(&heartbeat->instruction);
    view->evaluates = atomic_load(&heartbeat->evaluates);
    view->step = atomic_load(&heartbeat->step);
    view->progress = atomic_load(&heartbeat->progress);
    memcpy(view->text, heartbeat->texts[atomic_load(&heartbeat->text) & 1], sizeof view->text);
    view->text[sizeof view->text - 1] = '\0';
    view->call = heartbeat->call;
    view->call.who[sizeof view->call.who - 1] = view->call.what[sizeof view->call.what - 1] = '\0';
}

/* Checks a rank, ms after the last check; woken: its process has ended. A rank seen as ended without a wake-up is not
 * necessarily the first. If its wake-up is pending, it is deferred until then to keep the order. */
static void look_at(weft_watchdog *self, int32_t i, int64_t ms, bool woken) {
    weft_rank_view *view = &self->ranks[i];
    const weft_heartbeat *heartbeat = &self->heartbeats[i];
    int *file = &self->files[i];
    const int32_t pid = atomic_load(&heartbeat->pid);
    const int64_t now = now_us(CLOCK_REALTIME);
    char state = ' ';
    bool wakes = false, over = false;
    if (pid == 0 || view->condition == WEFT_RANK_ENDED || view->condition == WEFT_RANK_GONE) return;
    if (*file < 0) *file = (int)syscall(SYS_pidfd_open, pid, 0);
    wakes = *file >= 0 && attend_to_file(self, *file, i);
    state = weft_proc_read(pid).state;
    over = state == ' ' || state == 'Z' || state == 'X';
    read_heartbeat(view, heartbeat);
    view->stopped = state == 'T' ? view->stopped + (int32_t)ms : 0;
    if (atomic_load(&heartbeat->state) == WEFT_HEARTBEAT_ENDED) {
        view->condition = WEFT_RANK_ENDED;
        view->status = atomic_load(&heartbeat->status);
    } else if (over && !woken && wakes) {
        return;
    } else if (over || (woken && has_ended(pid, *file))) {
        view->status = ask_end(heartbeat, *file);
        view->condition = WEFT_RANK_GONE;
        view->followed = (atomic_load(&heartbeat->crash) & WEFT_CRASH_IN_COMM) != 0;
    } else if (state == 'T' || state == 't') view->condition = state == 'T' ? WEFT_RANK_STOPPED : WEFT_RANK_TRACED;
    else
        view->condition = atomic_load(&heartbeat->state) == WEFT_HEARTBEAT_WAITS ? WEFT_RANK_WAITS : WEFT_RANK_COMPUTES;
    if (view->condition != WEFT_RANK_ENDED && view->condition != WEFT_RANK_GONE) return;
    view->over_at = now;
    let_go(self, i);
}

static int64_t patience_of(const weft_watchdog *self) {
    int32_t most = 0;
    for (int32_t i = 0; i < self->n; i++) {
        const int32_t patience = atomic_load(&self->heartbeats[i].patience);
        if (patience > most) most = patience;
    }
    return most == 0 ? WEFT_WATCHDOG_PATIENCE : 1000 * (int64_t)most;
}

/* Returns the time since the last check, limited because ranks did not work while the machine was suspended. */
static int64_t measure_elapsed(weft_watchdog *self) {
    const int64_t now = now_us(CLOCK_MONOTONIC) / 1000, ms = self->last == 0 ? 0 : now - self->last;
    self->last = now;
    return ms > 2 * WEFT_WATCHDOG_TICK ? 2 * WEFT_WATCHDOG_TICK : ms;
}

/* Checks all ranks. A launcher ends the others within milliseconds of the first. Therefore ended ranks are processed in
 * their order, and ranks without a known end are deferred to the next check. */
int64_t weft_watchdog_see(weft_watchdog *self) {
    const int64_t ms = measure_elapsed(self);
    for (int32_t i = 0; i < self->n_woke; i++) look_at(self, self->woke[i], ms, true);
    for (int32_t i = 0; self->n_woke == 0 && i < self->n; i++) look_at(self, i, ms, false);
    return ms;
}

bool weft_watchdog_decide(weft_watchdog *self, char *out, size_t size, int64_t ms) {
    weft_watchdog_times *times = &self->times;
    bool failed = false;
    uint64_t progress = 0;
    for (int32_t i = 0; i < self->total; i++) { /* starts and ends count as progress, too */
        const weft_rank_view *view = &self->ranks[i];
        progress += view->progress + (uint64_t)view->condition;
        failed = failed || weft_rank_has_failed(view);
    }
    times->quiet = progress != self->progress ? 0 : times->quiet + ms;
    times->left = failed ? times->left + ms : 0; /* starts at 0 with the first check */
    times->patience = patience_of(self);
    self->progress = progress;
    return weft_watchdog_assess(out, size, self->ranks, self->total, times);
}

bool weft_watchdog_listens(const weft_watchdog *self) {
    for (int32_t i = 0; i < self->n; i++)
        if (!weft_ranks_are_over(&self->ranks[i], 1) && atomic_load(&self->heartbeats[i].listens) == 0) return false;
    return true;
}

bool weft_ranks_are_over(const weft_rank_view *ranks, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        if (ranks[i].condition != WEFT_RANK_ENDED && ranks[i].condition != WEFT_RANK_GONE) return false;
    return true;
}

void weft_watchdog_stop(const weft_watchdog *self) {
    for (int32_t i = 0; i < self->n; i++) {
        const int32_t pid = atomic_load(&self->heartbeats[i].pid);
        if (self->files[i] >= 0) (void)syscall(SYS_pidfd_send_signal, self->files[i], SIGKILL, NULL, 0);
        else if (pid > 0 && self->ranks[i].condition != WEFT_RANK_GONE && self->ranks[i].condition != WEFT_RANK_ENDED)
            (void)kill(pid, SIGKILL);
    }
}
