/* host/launch/signals.c: see signals.h. */
#include "launch/signals.h"

#include "launch/heartbeat.h"
#include "plugin/crash.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

weft_proc weft_proc_read(int32_t pid) {
    weft_proc out = {0, -1, ' '};
    char path[64], text[1024];
    const char *at = NULL, *last = NULL;
    FILE *file = NULL;
    size_t n = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    if (file == NULL) return out;
    n = fread(text, 1, sizeof text - 1, file);
    (void)fclose(file);
    while (n > 0 && text[n - 1] == '\n') n--;
    text[n] = '\0';
    at = strrchr(text, ')'); /* the preceding name may contain any character */
    last = strrchr(text, ' ');
    if (at == NULL || strlen(at) < 4 || last == NULL) return out;
    out.state = at[2];
    out.parent = (int32_t)strtol(at + 3, NULL, 10);
    if (out.state == 'Z') out.status = (int32_t)strtol(last, NULL, 10);
    return out;
}

bool weft_proc_runs(int32_t pid, const char *program) {
    struct stat wanted, running;
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
    return stat(program, &wanted) == 0 && stat(path, &running) == 0 && wanted.st_dev == running.st_dev &&
           wanted.st_ino == running.st_ino;
}

static volatile sig_atomic_t requested;

/* Notices by reason, formatted when the handlers are installed, because handlers must not format text. */
enum { BY_STOP, BY_PIPE, BY_TERMINAL, BY_LIMIT, REASONS };
static char notices[REASONS][2][160]; /* of a single process, and of rank 0: other ranks print none */

/* Requests a stop. Uses only async-signal-safe calls and restores errno, which the interrupted code may read next. */
static void request_stop(int why) {
    const int32_t rank = atomic_load(&weft_crash_where.rank);
    const char *text = notices[why][rank == 0];
    const int before = errno;
    if (rank <= 0 && write(STDERR_FILENO, text, strlen(text)) < 0) { /* no reader */
    }
    requested = 1;
    errno = before;
}

/* Handles SIGINT and SIGTERM. SA_RESETHAND restores the default action, which ends the process, for the next signal of
 * the same kind; this function resets the other kind. */
static void on_stop(int number) {
    request_stop(BY_STOP);
    (void)signal(number == SIGINT ? SIGTERM : SIGINT, SIG_DFL);
}

/* Slurm's --signal=USR1, `ulimit -t` and `timeout -s ALRM` announce a time limit; on_repeated explains the others. */
static const int repeated[] = {SIGHUP, SIGPIPE, SIGUSR1, SIGALRM, SIGXCPU};
enum { N_REPEATED = sizeof repeated / sizeof *repeated };

/* Handles repeatable signals. A closing terminal sends SIGHUP more than once, the kernel sends SIGXCPU each second, and
 * each line printed to a closed pipe raises SIGPIPE. A second one must not end the process before it has saved. */
static void on_repeated(int number) {
    if (requested != 0) return;
    request_stop(number == SIGPIPE ? BY_PIPE : number == SIGHUP ? BY_TERMINAL : BY_LIMIT);
}

/* Installs a handler on the stack of weft_crash_install, never on the current one. oneDNN 2.6's GEMMs keep a pointer
 * into their panels in the stack pointer, so a signal frame would corrupt the heap. */
static void set_handler(int number, void (*handler)(int), int flags) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = (int)(SA_RESTART | SA_ONSTACK) | flags;
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(number, &action, NULL);
}

/* Returns whether nohup or similar ignores the signal: then the run continues. */
static bool is_ignored(int number) {
    struct sigaction action;
    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

void weft_signals_list(sigset_t *out) {
    (void)sigemptyset(out);
    (void)sigaddset(out, SIGINT);
    (void)sigaddset(out, SIGTERM);
    for (size_t i = 0; i < N_REPEATED; i++)
        if (!is_ignored(repeated[i])) (void)sigaddset(out, repeated[i]);
}

/* Writes a notice; a single process starts with a newline, after a progress line or the ^C of a terminal. */
static void write_notice(int why, const char *head, const char *what, const char *tail) {
    static const char *const begins[] = {"\n", "[0] "};
    for (int i = 0; i < 2; i++)
        (void)snprintf(notices[why][i], sizeof notices[why][i], "%sweft: %sstopping after this %s%s\n", begins[i], head,
                       what, tail);
}

void weft_signals_install(const char *what) {
    write_notice(BY_STOP, "", what, "; again to stop at once");
    write_notice(BY_PIPE, "the output has no reader: ", what, "");
    write_notice(BY_TERMINAL, "hung up: ", what, "");
    write_notice(BY_LIMIT, "time limit: ", what, "");
    set_handler(SIGINT, on_stop, (int)SA_RESETHAND);
    set_handler(SIGTERM, on_stop, (int)SA_RESETHAND);
    for (size_t i = 0; i < N_REPEATED; i++)
        if (!is_ignored(repeated[i])) set_handler(repeated[i], on_repeated, 0);
    weft_heartbeat_listens();
}

bool weft_signals_stop(void) {
    return requested != 0;
}
