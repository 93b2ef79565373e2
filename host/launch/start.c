/* host/launch/start.c: see find.h. */
#include "launch/find.h"

#include "base/alloc.h"
#include "base/units.h"
#include "launch/world.h"
#include "launch/signals.h"
#include "launch/watchdog.h"
#include "plugin/services.h"

#include <argz.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- output ----
 *
 * A launcher that writes directly to the caller's stdout ends its ranks when that write fails. Therefore it writes to a
 * pipe, which a thread of the parent copies to the stream. After a failed write the thread discards the rest. */

typedef struct pipe_copy {
    int to;      /* the stream's descriptor */
    int ends[2]; /* of the pipe; -1: closed */
    bool copies; /* the thread was started */
    pthread_t thread;
    atomic_bool over; /* the launcher has ended: the data in the pipe is the rest */
    atomic_int lost;  /* errno of the failed write; 0: no failure */
} pipe_copy;

enum { CLOSED = -1, TICK = 100, MOMENT = 2 /* milliseconds */ };

/* Copies until the end. A process that a rank has left running may keep the pipe open for ever: after the launcher's
 * end, an empty pipe is the end, too. */
static void *copy_all(void *argument) {
    pipe_copy *self = argument;
    struct pollfd pipe = {self->ends[0], POLLIN, 0};
    char bytes[4096];
    ssize_t n = 1;
    while (n > 0) {
        const bool over = atomic_load(&self->over);
        if (poll(&pipe, 1, TICK) < 1) {
            if (over) break;
            continue;
        }
        n = read(self->ends[0], bytes, sizeof bytes);
        for (ssize_t at = 0; at < n && atomic_load(&self->lost) == 0;) {
            const ssize_t written = write(self->to, bytes + at, (size_t)(n - at));
            if (written >= 0) at += written;
            else if (errno != EINTR) atomic_store(&self->lost, errno);
            if (atomic_load(&self->lost) == EPIPE) (void)kill(getpid(), SIGPIPE); /* in the thread it is blocked */
        }
    }
    return NULL;
}

static void close_end(pipe_copy *self, int end) {
    if (self->ends[end] != CLOSED) (void)close(self->ends[end]);
    self->ends[end] = CLOSED;
}

/* Starts the copy thread, after the launcher has received its end. Signals are blocked in the thread: a write without a
 * reader raises SIGPIPE in the process, as if this process had written itself. */
static bool start_copy(pipe_copy *self) {
    sigset_t all, before;
    close_end(self, 1);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    self->copies = pthread_create(&self->thread, NULL, copy_all, self) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return self->copies;
}

/* ---- the command ---- */

typedef struct command {
    char *text; /* the words, each with its end (argz) */
    size_t n;   /* bytes */
    char **words;
    int32_t own_ranks; /* > 0: the words are a rank's, started that many times without an external launcher */
} command;

/* Makes "/usr/bin/mpiexec -n 4", or no words for the built-in launcher, then the program by its absolute path and its
 * original arguments. */
static weft_status make_command(command *out, const weft_launch *ranks, weft_error *err) {
    const char *number = strstr(ranks->launch, "{ranks}");
    char launch[sizeof ranks->launch + 16], program[PATH_MAX] = "", *word = NULL;
    FILE *file = fopen("/proc/self/cmdline", "re");
    size_t capacity = 0;
    bool is_made = file != NULL && readlink("/proc/self/exe", program, sizeof program - 1) > 0 &&
                   getdelim(&word, &capacity, '\0', file) > 0;
    if (strcmp(ranks->launch, WEFT_LAUNCH_BY_HOST) == 0) {
        out->own_ranks = ranks->world.size;
    } else if (is_made) {
        (void)snprintf(launch, sizeof launch, "%.*s%d%s", (int)(number - ranks->launch), ranks->launch,
                       (int)ranks->world.size, number + strlen("{ranks}"));
        is_made = argz_create_sep(launch, ' ', &out->text, &out->n) == 0;
    }
    is_made = is_made && argz_add(&out->text, &out->n, program) == 0;
    while (is_made && getdelim(&word, &capacity, '\0', file) > 0) is_made = argz_add(&out->text, &out->n, word) == 0;
    free(word);
    if (file != NULL) (void)fclose(file);
    if (!is_made) return weft_error_set(err, WEFT_E_SYSTEM, "/proc/self does not have the arguments of this program");
    out->words = weft_alloc(argz_count(out->text, out->n) + 1, sizeof *out->words);
    argz_extract(out->text, out->n, out->words);
    return WEFT_OK;
}

/* ---- the ranks ---- */

/* Sends a signal to each rank below the launcher, including ranks that have not begun. */
static void signal_ranks(pid_t launcher, int number) {
    DIR *directory = opendir("/proc");
    const struct dirent *entry = NULL;
    pid_t *ranks = NULL;
    size_t n = 0;
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        const pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        pid_t ancestor = pid;
        if (pid <= 0 || pid == launcher) continue; /* the launcher may run this program, too */
        if (!weft_proc_runs((int32_t)pid, "/proc/self/exe")) continue;
        while (ancestor > 1 && ancestor != launcher) ancestor = (pid_t)weft_proc_read((int32_t)ancestor).parent;
        if (ancestor != launcher) continue;
        ranks = weft_realloc(ranks, n + 1, sizeof *ranks);
        ranks[n++] = pid;
    }
    if (directory != NULL) (void)closedir(directory);
    for (size_t i = 0; i < n; i++)
        (void)kill(ranks[i], number); /* after the search: a child of a rank loses its parent */
    free(ranks);
}

/* ---- the launcher ---- */

typedef struct parent {
    pid_t launcher;
    int signals;  /* a signalfd */
    int stops;    /* number of SIGINT and SIGTERM received */
    int ended_by; /* the signal that ends the job immediately; 0: running */
    weft_watchdog watch;
    char why[1500];       /* the watchdog's reason to end the job; "": running */
    double stopped;       /* time at which ranks and launcher were ended; 0: running */
    pipe_copy streams[2]; /* stdout, stderr; if both are one file, the first serves both */
    int n_streams;
} parent;

/* Runs in the child: its own group, so that a terminal's Ctrl-C only reaches the parent, no input, and the parent's
 * pipes as output. */
static void become_launcher(const command *self, const parent *from, const sigset_t *mask, pid_t pid) {
    const int input = open("/dev/null", O_RDONLY | O_CLOEXEC);
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* Open MPI's launcher may miss a SIGTERM; ranks end by heartbeat.h */
    if (getppid() != pid) _exit(1);
    if (input >= 0) (void)dup2(input, STDIN_FILENO);
    (void)dup2(from->streams[0].ends[1], STDOUT_FILENO);
    (void)dup2(from->streams[from->n_streams - 1].ends[1], STDERR_FILENO);
    (void)sigprocmask(SIG_SETMASK, mask, NULL);
    if (self->own_ranks > 0) _exit(weft_own_launcher_run(self->own_ranks, self->words[0], self->words));
    (void)execv(self->words[0], self->words);
    (void)fprintf(stderr, "weft: %s cannot be started: %s\n", self->words[0], strerror(errno));
    _exit(127);
}

/* Ends the job. Signals the launcher, too, because it may not have started all ranks yet. */
static void end_job(parent *self) {
    weft_watchdog_stop(&self->watch);
    signal_ranks(self->launcher, SIGKILL);
    if (self->stopped == 0 && self->ended_by != 0) { /* its report of that is not printed */
        for (int i = 0; i < self->n_streams; i++) atomic_store(&self->streams[i].lost, ECANCELED);
        (void)kill(self->launcher, SIGTERM);
    }
    if (self->stopped == 0) self->stopped = weft_clock_seconds();
    else if (1000 * (weft_clock_seconds() - self->stopped) > WEFT_WATCHDOG_SOON) (void)kill(self->launcher, SIGKILL);
}

/* Handles signals like a single process. A signal before the ranks have their handlers, and the second SIGINT or
 * SIGTERM, end the job immediately. Any other signal is forwarded to the ranks, which save and stop. */
static void take_signals(parent *self) {
    struct signalfd_siginfo one;
    while (read(self->signals, &one, sizeof one) == (ssize_t)sizeof one) {
        const int number = (int)one.ssi_signo;
        if (number == SIGCHLD) continue;
        self->stops += number == SIGINT || number == SIGTERM;
        if (self->stops < 2 && weft_watchdog_listens(&self->watch)) signal_ranks(self->launcher, number);
        else if (self->ended_by == 0) self->ended_by = number;
    }
}

static void watch_once(parent *self) {
    const int64_t ms = weft_watchdog_check(&self->watch);
    take_signals(self);
    if (self->ended_by == 0 && self->why[0] == '\0')
        (void)weft_watchdog_decide(&self->watch, self->why, sizeof self->why, ms);
    if (self->ended_by != 0 || self->why[0] != '\0') end_job(self);
}

/* Copies the rest of the output. A stream without a reading consumer blocks this process, like it would block a single
 * rank, until a signal ends it. */
static void drain_streams(parent *self) {
    for (int i = 0; i < self->n_streams && self->ended_by == 0; i++) {
        pipe_copy *copy = &self->streams[i];
        atomic_store(&copy->over, true);
        while (copy->copies && self->ended_by == 0) {
            struct pollfd signals = {self->signals, POLLIN, 0};
            struct signalfd_siginfo one;
            copy->copies = pthread_tryjoin_np(copy->thread, NULL) != 0;
            if (copy->copies) (void)poll(&signals, 1, MOMENT);
            while (copy->copies && read(self->signals, &one, sizeof one) == (ssize_t)sizeof one)
                if (one.ssi_signo != SIGCHLD && one.ssi_signo != SIGPIPE) self->ended_by = (int)one.ssi_signo;
        }
    }
}

static weft_status wait_for(parent *self, int *status, weft_error *err) {
    int ended = 0;
    pid_t done = 0;
    char text[1800];
    while (done == 0) {
        watch_once(self);
        done = waitpid(self->launcher, &ended, WNOHANG);
        if (done < 0 && errno == EINTR) done = 0;
    }
    if (done < 0) return weft_error_set(err, WEFT_E_SYSTEM, "the launcher was lost: %s", strerror(errno));
    if (ended != 0 && self->ended_by == 0 && self->why[0] == '\0')
        watch_once(self); /* for a rank that the last check deferred: it may be the cause */
    drain_streams(self);
    *status = 128 + self->ended_by;
    if (self->ended_by != 0) return WEFT_OK;
    if (self->why[0] != '\0') {
        weft_watchdog_explain(text, sizeof text, self->why);
        return weft_error_set(err, WEFT_E_PEER, "%s", text);
    }
    if (WIFSIGNALED(ended))
        return weft_error_set(err, WEFT_E_SYSTEM, "the launcher was ended by signal %d (%s)", WTERMSIG(ended),
                              strsignal(WTERMSIG(ended)));
    *status = WEXITSTATUS(ended);
    if (*status == 0 && atomic_load(&self->streams[0].lost) != 0)
        return weft_error_set(err, WEFT_E_SYSTEM, "the output cannot be written: %s",
                              strerror(atomic_load(&self->streams[0].lost)));
    return WEFT_OK;
}

/* Starts the launcher with a pipe for each stream. If both streams are one file, one pipe keeps the order of their
 * output. */
static weft_status start_launcher(parent *self, const command *what, const sigset_t *before, weft_error *err) {
    const pid_t pid = getpid();
    struct stat out, errors;
    const bool is_one = fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &errors) == 0 &&
                        out.st_dev == errors.st_dev && out.st_ino == errors.st_ino;
    bool is_ready = self->signals >= 0 && weft_watchdog_add(&self->watch, self->signals, self->watch.n);
    for (int i = 0; is_ready && i < (is_one ? 1 : 2); i++) {
        self->streams[i] = (pipe_copy){.to = i == 0 ? STDOUT_FILENO : STDERR_FILENO, .ends = {CLOSED, CLOSED}};
        is_ready = pipe2(self->streams[i].ends, O_CLOEXEC) == 0;
        self->n_streams += is_ready;
    }
    if (is_ready) self->launcher = fork();
    if (self->launcher == 0) become_launcher(what, self, before, pid);
    if (self->launcher < 0)
        return weft_error_set(err, WEFT_E_SYSTEM, "no process for the launcher: %s", strerror(errno));
    for (int i = 0; i < self->n_streams; i++) is_ready = start_copy(&self->streams[i]) && is_ready;
    if (is_ready) return WEFT_OK;
    (void)kill(self->launcher, SIGKILL);
    (void)waitpid(self->launcher, NULL, 0);
    return weft_error_set(err, WEFT_E_SYSTEM, "no thread for the output of the launcher");
}

static weft_status run_launcher(parent *self, int *status, const command *what, weft_error *err) {
    sigset_t signals, before;
    weft_status done = WEFT_OK;
    weft_signals_list(&signals);
    (void)sigaddset(&signals, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &signals, &before);
    self->launcher = -1;
    self->signals = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
    done = start_launcher(self, what, &before, err);
    if (done == WEFT_OK) done = wait_for(self, status, err);
    if (self->ended_by != 0) { /* as it would have ended this process */
        (void)signal(self->ended_by, SIG_DFL);
        (void)raise(self->ended_by);
    } else { /* the ranks have saved: neither a pending SIGPIPE nor a later message may replace their status */
        (void)signal(SIGPIPE, SIG_IGN);
    }
    if (self->signals >= 0) (void)close(self->signals);
    for (int i = 0; i < self->n_streams; i++) {
        close_end(&self->streams[i], 1);
        if (!self->streams[i].copies) close_end(&self->streams[i], 0); /* a blocked thread keeps its end */
    }
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    return done;
}

weft_status weft_launch_start(int *status, const weft_launch *ranks, weft_error *err) {
    command what = {0};
    parent *self = weft_alloc(1, sizeof *self);
    const int32_t n = ranks->world.size;
    char started[64], path[64];
    int32_t file = -1;
    weft_heartbeat *heartbeats = weft_heartbeat_create(&file, n);
    weft_status done = WEFT_OK;
    if (heartbeats == NULL)
        done = weft_error_set(err, WEFT_E_SYSTEM, "no memory to share with %d ranks: %s", (int)n, strerror(errno));
    (void)snprintf(started, sizeof started, "%d/%d", (int)n, (int)weft_services_processors());
    (void)setenv(WEFT_STARTED, started, 1);
    weft_log_prefix_offer_terminal();
    weft_heartbeat_path(path, sizeof path, (int32_t)getpid(), file);
    (void)setenv(WEFT_WATCHED, path, 1); /* the ranks find their records there */
    if (done == WEFT_OK) done = make_command(&what, ranks, err);
    if (done == WEFT_OK) done = weft_watchdog_open(&self->watch, heartbeats, path, n, n, err);
    if (done == WEFT_OK) (void)fflush(NULL);
    if (done == WEFT_OK) done = run_launcher(self, status, &what, err);
    weft_watchdog_close(&self->watch);
    free(what.words);
    free(what.text);
    free(self);
    return done;
}
