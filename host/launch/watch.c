/* host/launch/watch.c: see watch.h. What is seen of processes of this machine; what follows from it is judge.c's. */
#include "launch/watch.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SETTLE = 400 }; /* milliseconds in which the watchers of several machines tell one another */

static int64_t now_us(clockid_t clock) {
    struct timespec time;
    (void)clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

/* ---- one process ---- */

/* The letter of its state and, of a dead one that nobody has asked for yet, its exit status. ' ': there is none. */
static char read_state(int32_t pid, int32_t *status) {
    char path[64], text[1024];
    FILE *file = NULL;
    const char *at = NULL, *last = NULL;
    size_t n = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    if (file == NULL) return ' ';
    n = fread(text, 1, sizeof text - 1, file);
    (void)fclose(file);
    while (n > 0 && text[n - 1] == '\n') n--;
    text[n] = '\0';
    at = strrchr(text, ')'); /* the name in front of it may hold anything */
    last = strrchr(text, ' ');
    if (at == NULL || strlen(at) < 3 || last == NULL) return ' ';
    *status = at[2] == 'Z' ? (int32_t)strtol(last, NULL, 10) : -1;
    return at[2];
}

/* Linux 6.15 and later keep the exit status for whoever holds the process's descriptor (PIDFD_GET_INFO). */
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

/* How a process that is gone has ended: its parent takes note first, which takes a moment. A signal that it had noted
 * itself is as good. */
static int32_t ask_end(const weft_pulse *pulse, int file) {
    int32_t status = -1;
    for (int i = 0; i < 40; i++, sleep_ms(5)) {
        if (file >= 0 && read_exit(&status, file)) return status;
        if (read_state(atomic_load(&pulse->pid), &status) == 'Z') return status;
        if (file < 0) break;
    }
    status = atomic_load(&pulse->crash);
    return status > 0 ? status : -1;
}

/* ---- all of them ---- */

weft_status weft_watch_open(weft_watch *self, weft_pulse *pulses, int32_t n, int32_t total, int32_t own,
                            weft_error *err) {
    memset(self, 0, sizeof *self);
    self->pulses = pulses;
    self->n = n;
    self->total = total;
    self->times.settle = total > n ? SETTLE : 0;
    self->ranks = calloc((size_t)total, sizeof *self->ranks);
    self->files = calloc((size_t)n + 1, sizeof *self->files);
    if (self->ranks == NULL || self->files == NULL) {
        weft_watch_close(self);
        return weft_error_set(err, WEFT_E_MEMORY, "no memory to watch %d ranks", (int)n);
    }
    self->files[0].fd = own;
    self->files[0].events = POLLIN;
    for (int32_t i = 0; i < n; i++) {
        self->ranks[i].rank = i;
        self->ranks[i].event = -1;
        self->files[1 + i].fd = -1;
        self->files[1 + i].events = POLLIN;
    }
    for (int32_t i = n; i < total; i++) self->ranks[i].condition = WEFT_RANK_COMPUTES; /* until somebody tells */
    return WEFT_OK;
}

void weft_watch_close(weft_watch *self) {
    for (int32_t i = 0; self->files != NULL && i < self->n; i++)
        if (self->files[1 + i].fd >= 0) (void)close(self->files[1 + i].fd);
    free(self->ranks);
    free(self->files);
    memset(self, 0, sizeof *self);
}

void weft_watch_wait(weft_watch *self) {
    (void)poll(self->files, (nfds_t)self->n + 1, WEFT_WATCH_TICK);
}

static void read_pulse(weft_rank_view *view, const weft_pulse *pulse) {
    view->rank = atomic_load(&pulse->rank);
    view->event = atomic_load(&pulse->event);
    view->evaluates = atomic_load(&pulse->evaluates);
    view->step = atomic_load(&pulse->step);
    view->progress = atomic_load(&pulse->progress);
    memcpy(view->text, pulse->texts[atomic_load(&pulse->text) & 1], sizeof view->text);
    view->text[sizeof view->text - 1] = '\0';
}

/* A rank, ms after the last look. */
static void look_at(weft_watch *self, int32_t i, int64_t ms) {
    weft_rank_view *view = &self->ranks[i];
    const weft_pulse *pulse = &self->pulses[i];
    struct pollfd *file = &self->files[1 + i];
    const int32_t pid = atomic_load(&pulse->pid);
    int32_t status = -1;
    char state = ' ';
    if (pid == 0 || view->condition == WEFT_RANK_ENDED || view->condition == WEFT_RANK_GONE) return;
    if (file->fd < 0) file->fd = (int)syscall(SYS_pidfd_open, pid, 0);
    state = read_state(pid, &status);
    read_pulse(view, pulse);
    view->stopped = state == 'T' ? view->stopped + (int32_t)ms : 0;
    if (atomic_load(&pulse->state) == WEFT_PULSE_ENDED) {
        view->condition = WEFT_RANK_ENDED;
        view->over_at = now_us(CLOCK_REALTIME);
        view->status = atomic_load(&pulse->status);
    } else if (state == ' ' || state == 'Z' || state == 'X' || file->revents != 0) {
        view->condition = WEFT_RANK_GONE;
        view->over_at = now_us(CLOCK_REALTIME);
        view->status = ask_end(pulse, file->fd);
    } else if (state == 'T' || state == 't') view->condition = state == 'T' ? WEFT_RANK_STOPPED : WEFT_RANK_TRACED;
    else view->condition = atomic_load(&pulse->state) == WEFT_PULSE_WAITS ? WEFT_RANK_WAITS : WEFT_RANK_COMPUTES;
    if (view->condition != WEFT_RANK_ENDED && view->condition != WEFT_RANK_GONE) return;
    if (file->fd >= 0) (void)close(file->fd);
    file->fd = -1;
    file->revents = 0;
}

static int64_t patience_of(const weft_watch *self) {
    int32_t most = 0;
    for (int32_t i = 0; i < self->n; i++) {
        const int32_t patience = atomic_load(&self->pulses[i].patience);
        if (patience > most) most = patience;
    }
    return most == 0 ? WEFT_WATCH_PATIENCE : 1000 * (int64_t)most;
}

/* Since the last look, as far as it counts: a machine that slept did not let the ranks work. */
static int64_t elapsed(weft_watch *self) {
    const int64_t now = now_us(CLOCK_MONOTONIC) / 1000, ms = self->last == 0 ? 0 : now - self->last;
    self->last = now;
    return ms > 2 * WEFT_WATCH_TICK ? 2 * WEFT_WATCH_TICK : ms;
}

/* Of those that are gone by now, the ones that woke the watcher went first: a launcher ends the others within
 * milliseconds. */
int64_t weft_watch_see(weft_watch *self) {
    const int64_t ms = elapsed(self);
    bool woken = false;
    for (int32_t i = 0; i < self->n; i++) woken = woken || self->files[1 + i].revents != 0;
    for (int32_t i = 0; i < self->n; i++)
        if (!woken || self->files[1 + i].revents != 0) look_at(self, i, ms);
    return ms;
}

bool weft_watch_decide(weft_watch *self, char *out, size_t size, int64_t ms) {
    weft_watch_times *times = &self->times;
    bool failed = false;
    uint64_t progress = 0;
    for (int32_t i = 0; i < self->total; i++) { /* to begin and to end is progress, too */
        const weft_rank_view *view = &self->ranks[i];
        progress += view->progress + (uint64_t)view->condition;
        failed = failed || weft_rank_has_failed(view);
    }
    times->quiet = progress != self->progress ? 0 : times->quiet + ms;
    times->left = failed ? times->left + ms : 0; /* from 0 on at the first look */
    times->patience = patience_of(self);
    self->progress = progress;
    return weft_watch_judge(out, size, self->ranks, self->total, times);
}

bool weft_ranks_are_over(const weft_rank_view *ranks, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        if (ranks[i].condition != WEFT_RANK_ENDED && ranks[i].condition != WEFT_RANK_GONE) return false;
    return true;
}

void weft_watch_stop(const weft_watch *self) {
    for (int32_t i = 0; i < self->n; i++) {
        const int32_t pid = atomic_load(&self->pulses[i].pid);
        if (self->files[1 + i].fd >= 0) (void)syscall(SYS_pidfd_send_signal, self->files[1 + i].fd, SIGKILL, NULL, 0);
        else if (pid > 0 && self->ranks[i].condition != WEFT_RANK_GONE && self->ranks[i].condition != WEFT_RANK_ENDED)
            (void)kill(pid, SIGKILL);
    }
}
