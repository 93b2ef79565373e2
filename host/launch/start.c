/* host/launch/start.c: see start.h. */
#include "launch/start.h"

#include "launch/own_launcher.h"
#include "launch/proc.h"
#include "launch/pipe_copy.h"
#include "launch/signals.h"
#include "launch/log_prefix.h"
#include "launch/watchdog.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORDS_MAX = 4096, PROCESSES_MAX = 8192 };

/* ---- the command ---- */

typedef struct command {
    char launch[1024]; /* with the number inserted, split into words */
    char program[PATH_MAX];
    char *arguments; /* of this process, concatenated strings */
    char *words[WORDS_MAX];
    size_t n;
    int32_t own_ranks; /* > 0: the command is a rank's, started that many times without an external launcher */
} command;

static weft_status add_word(command *self, char *word, weft_error *err) {
    if (self->n + 1 >= WORDS_MAX)
        return weft_error_set(err, WEFT_E_USER, "more than %d words are too many for a launcher", WORDS_MAX);
    self->words[self->n++] = word;
    self->words[self->n] = NULL;
    return WEFT_OK;
}

/* Adds "/usr/bin/mpiexec -n {ranks}": the number, then the words. Adds no words for the built-in launcher. */
static weft_status add_launch(command *self, const weft_launch *ranks, weft_error *err) {
    const char *place = strstr(ranks->launch, "{ranks}");
    char *rest = NULL;
    weft_status status = WEFT_OK;
    if (weft_launch_is_own(ranks->launch)) {
        self->own_ranks = ranks->world.size;
        return WEFT_OK;
    }
    (void)snprintf(self->launch, sizeof self->launch, "%.*s%d%s", (int)(place - ranks->launch), ranks->launch,
                   (int)ranks->world.size, place + strlen("{ranks}"));
    for (char *word = strtok_r(self->launch, " ", &rest); word != NULL && status == WEFT_OK;
         word = strtok_r(NULL, " ", &rest))
        status = add_word(self, word, err);
    return status;
}

/* Reads a file of /proc and appends a 0; the caller frees it. NULL: unreadable. */
static char *read_whole_file(const char *path, size_t *n) {
    FILE *file = fopen(path, "re");
    char *text = NULL;
    size_t room = 0, got = 0;
    *n = 0;
    while (file != NULL) {
        char *grown = realloc(text, room + 4096 + 1);
        if (grown == NULL) break;
        text = grown;
        room += 4096;
        got = fread(text + *n, 1, room - *n, file);
        *n += got;
        if (got == 0) break;
    }
    if (text != NULL) text[*n] = '\0';
    if (file != NULL) (void)fclose(file);
    return text;
}

/* Adds the program by its absolute path and its original arguments. */
static weft_status add_program(command *self, weft_error *err) {
    const ssize_t length = readlink("/proc/self/exe", self->program, sizeof self->program - 1);
    size_t n = 0;
    weft_status status = WEFT_OK;
    self->arguments = read_whole_file("/proc/self/cmdline", &n);
    if (length < 1 || self->arguments == NULL)
        return weft_error_set(err, WEFT_E_SYSTEM, "/proc/self does not say how this program was called");
    self->program[length] = '\0';
    status = add_word(self, self->program, err);
    for (size_t at = strlen(self->arguments) + 1; at < n && status == WEFT_OK; at += strlen(self->arguments + at) + 1)
        status = add_word(self, self->arguments + at, err);
    return status;
}

/* ---- the ranks ---- */

typedef struct process {
    pid_t pid, parent;
} process;

static size_t list_processes(process *all, size_t most) {
    DIR *directory = opendir("/proc");
    const struct dirent *entry = NULL;
    size_t n = 0;
    while (directory != NULL && n < most && (entry = readdir(directory)) != NULL) {
        const long pid = strtol(entry->d_name, NULL, 10);
        if (pid <= 0) continue;
        all[n].pid = (pid_t)pid;
        all[n++].parent = (pid_t)weft_proc_read((int32_t)pid).parent;
    }
    if (directory != NULL) (void)closedir(directory);
    return n;
}

static bool is_below(const process *all, size_t n, pid_t pid, pid_t ancestor) {
    for (size_t depth = 0; depth < n && pid > 1; depth++) {
        size_t i = 0;
        if (pid == ancestor) return true;
        while (i < n && all[i].pid != pid) i++;
        if (i == n) return false;
        pid = all[i].parent;
    }
    return false;
}

/* Sends a signal to each rank below the launcher, including ranks that have not begun. */
static void signal_ranks(pid_t launcher, int number) {
    process *all = calloc(PROCESSES_MAX, sizeof *all);
    const size_t n = all == NULL ? 0 : list_processes(all, PROCESSES_MAX);
    for (size_t i = 0; i < n; i++) {
        if (all[i].pid == launcher) continue; /* it may run this program, too */
        if (!is_below(all, n, all[i].pid, launcher) || !weft_proc_runs((int32_t)all[i].pid, "/proc/self/exe")) continue;
        (void)kill(all[i].pid, number);
    }
    free(all);
}

/* ---- the launcher ---- */

typedef struct parent {
    pid_t launcher;
    int signals;  /* a signalfd */
    int stops;    /* number of SIGINT and SIGTERM received */
    int ended_by; /* the signal that ends the job immediately; 0: running */
    weft_heartbeat *heartbeats;
    weft_watchdog watch;
    char why[1500];            /* the watchdog's reason to end the job; "": running */
    int64_t stopped_ms;        /* start of ending ranks and launcher; 0: running */
    weft_pipe_copy streams[2]; /* stdout, stderr; if both are one file, the first serves both */
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
    if (self->own_ranks > 0) _exit(weft_own_launcher_run(self->own_ranks, self->program, self->words));
    (void)execv(self->words[0], self->words);
    (void)fprintf(stderr, "weft: %s cannot be started: %s\n", self->words[0], strerror(errno));
    _exit(127);
}

static int64_t now_ms(void) {
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* Ends the job. Signals the launcher, too, because it may not have started all ranks yet. */
static void end_job(parent *self) {
    weft_watchdog_stop(&self->watch);
    signal_ranks(self->launcher, SIGKILL);
    if (self->stopped_ms == 0 && self->ended_by != 0) { /* its report of that is not printed */
        for (int i = 0; i < self->n_streams; i++) weft_pipe_copy_discard(&self->streams[i]);
        (void)kill(self->launcher, SIGTERM);
    }
    if (self->stopped_ms == 0) self->stopped_ms = now_ms();
    else if (now_ms() - self->stopped_ms > WEFT_WATCHDOG_SOON) (void)kill(self->launcher, SIGKILL);
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
    const int64_t ms = weft_watchdog_see(&self->watch);
    if (self->ended_by == 0 && self->why[0] == '\0')
        (void)weft_watchdog_decide(&self->watch, self->why, sizeof self->why, ms);
    if (self->ended_by != 0 || self->why[0] != '\0') end_job(self);
}

/* Checks for a rank that the last check deferred: it may be the cause of the launcher's end. */
static void look_once_more(parent *self) {
    if (self->ended_by != 0 || self->why[0] != '\0') return;
    weft_watchdog_wait(&self->watch);
    watch_once(self);
}

/* Copies the rest of the output. A stream without a reading consumer blocks this process, like it would block a single
 * rank, until a signal ends it. */
static void drain_streams(parent *self) {
    for (int i = 0; i < self->n_streams && self->ended_by == 0; i++) {
        while (self->ended_by == 0 && !weft_pipe_copy_drain(&self->streams[i], WEFT_WATCHDOG_TICK)) {
            struct signalfd_siginfo one;
            while (read(self->signals, &one, sizeof one) == (ssize_t)sizeof one)
                if (one.ssi_signo != SIGCHLD && one.ssi_signo != SIGPIPE) self->ended_by = (int)one.ssi_signo;
        }
    }
}

static weft_status wait_for(parent *self, int *status, weft_error *err) {
    int ended = 0;
    pid_t done = 0;
    char text[1800];
    while (done == 0) {
        weft_watchdog_wait(&self->watch);
        take_signals(self);
        watch_once(self);
        done = waitpid(self->launcher, &ended, WNOHANG);
        if (done < 0 && errno == EINTR) done = 0;
    }
    if (done < 0) return weft_error_set(err, WEFT_E_SYSTEM, "the launcher was lost: %s", strerror(errno));
    if (ended != 0) look_once_more(self);
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

/* ---- the parent ---- */

/* Counts the pipes: if both streams are one file, one pipe keeps the order of their output. */
static int count_streams(void) {
    struct stat out, err;
    if (fstat(STDOUT_FILENO, &out) != 0 || fstat(STDERR_FILENO, &err) != 0) return 2;
    return out.st_dev == err.st_dev && out.st_ino == err.st_ino ? 1 : 2;
}

static bool open_streams(parent *self) {
    static const int numbers[] = {STDOUT_FILENO, STDERR_FILENO};
    const int n = count_streams();
    while (self->n_streams < n && weft_pipe_copy_open(&self->streams[self->n_streams], numbers[self->n_streams]))
        self->n_streams++;
    return self->n_streams == n;
}

static weft_status start_launcher(parent *self, const command *what, const sigset_t *before, weft_error *err) {
    const pid_t pid = getpid();
    bool copies = true;
    if (self->signals >= 0 && weft_watchdog_attend(&self->watch, self->signals) && open_streams(self))
        self->launcher = fork();
    if (self->launcher == 0) become_launcher(what, self, before, pid);
    if (self->launcher < 0)
        return weft_error_set(err, WEFT_E_SYSTEM, "no process for the launcher: %s", strerror(errno));
    for (int i = 0; i < self->n_streams; i++) copies = weft_pipe_copy_start(&self->streams[i]) && copies;
    if (copies) return WEFT_OK;
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
    for (int i = 0; i < self->n_streams; i++) weft_pipe_copy_close(&self->streams[i]);
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    return done;
}

/* Opens the watch; the ranks find their records through the environment. */
static weft_status open_watch(parent *self, int32_t n, weft_error *err) {
    char path[64];
    int32_t file = -1;
    self->heartbeats = weft_heartbeat_create(&file, n);
    if (self->heartbeats == NULL)
        return weft_error_set(err, WEFT_E_SYSTEM, "no memory to share with %d ranks: %s", (int)n, strerror(errno));
    weft_heartbeat_path(path, sizeof path, (int32_t)getpid(), file);
    if (setenv(WEFT_WATCHED, path, 1) != 0)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for an environment variable");
    return weft_watchdog_open(&self->watch, self->heartbeats, path, n, n, err);
}

weft_status weft_launch_start(int *status, const weft_launch *ranks, weft_error *err) {
    command *what = calloc(1, sizeof *what);
    parent *self = calloc(1, sizeof *self);
    char started[64];
    weft_status done = WEFT_OK;
    (void)snprintf(started, sizeof started, "%d/%d", (int)ranks->world.size, (int)weft_world_allowed());
    if (what == NULL || self == NULL) done = weft_error_set(err, WEFT_E_MEMORY, "no memory for the launcher's command");
    if (done == WEFT_OK) done = add_launch(what, ranks, err);
    if (done == WEFT_OK) done = add_program(what, err);
    if (done == WEFT_OK && setenv(WEFT_STARTED, started, 1) != 0)
        done = weft_error_set(err, WEFT_E_MEMORY, "no memory for an environment variable");
    if (done == WEFT_OK) done = weft_log_prefix_offer_terminal(err);
    if (done == WEFT_OK) done = open_watch(self, ranks->world.size, err);
    if (done == WEFT_OK) (void)fflush(NULL);
    if (done == WEFT_OK) done = run_launcher(self, status, what, err);
    if (self != NULL) weft_watchdog_close(&self->watch);
    if (what != NULL) free(what->arguments);
    free(what);
    free(self);
    return done;
}
