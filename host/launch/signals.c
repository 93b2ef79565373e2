/* host/launch/signals.c: see signals.h. */
#include "launch/signals.h"

#include "launch/heartbeat.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t asked;

enum { ALONE, FIRST, OTHER }; /* single process, rank 0, other rank */
static volatile sig_atomic_t speaker = ALONE;

/* Notices by reason, formatted when the handlers are installed, because handlers must not format text. */
enum { BY_STOP, BY_PIPE, BY_TERMINAL, BY_LIMIT, REASONS };
static char notices[REASONS][2][160]; /* for ALONE and for FIRST */

/* Requests a stop. Uses only async-signal-safe calls and restores errno, which the interrupted code may read next. */
static void ask_to_stop(int why) {
    const char *text = notices[why][speaker == FIRST];
    const int before = errno;
    if (speaker != OTHER && write(STDERR_FILENO, text, strlen(text)) < 0) { /* no reader */
    }
    asked = 1;
    errno = before;
}

/* Handles SIGINT and SIGTERM. SA_RESETHAND restores the default action, which ends the process, for the next signal of
 * the same kind; this function resets the other kind. */
static void on_stop(int number) {
    ask_to_stop(BY_STOP);
    (void)signal(number == SIGINT ? SIGTERM : SIGINT, SIG_DFL);
}

/* Slurm's --signal=USR1, `ulimit -t` and `timeout -s ALRM` announce a time limit; on_repeated explains the others. */
static const int repeated[] = {SIGHUP, SIGPIPE, SIGUSR1, SIGALRM, SIGXCPU};
enum { N_REPEATED = sizeof repeated / sizeof *repeated };

/* Handles repeatable signals. A closing terminal sends SIGHUP more than once, the kernel sends SIGXCPU each second, and
 * each line printed to a closed pipe raises SIGPIPE. A second one must not end the process before it has saved. */
static void on_repeated(int number) {
    if (asked != 0) return;
    ask_to_stop(number == SIGPIPE ? BY_PIPE : number == SIGHUP ? BY_TERMINAL : BY_LIMIT);
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
    write_notice(BY_PIPE, "nobody reads what is printed: ", what, "");
    write_notice(BY_TERMINAL, "hung up: ", what, "");
    write_notice(BY_LIMIT, "time limit: ", what, "");
    set_handler(SIGINT, on_stop, (int)SA_RESETHAND);
    set_handler(SIGTERM, on_stop, (int)SA_RESETHAND);
    for (size_t i = 0; i < N_REPEATED; i++)
        if (!is_ignored(repeated[i])) set_handler(repeated[i], on_repeated, 0);
    weft_heartbeat_listens();
}

void weft_signals_rank(int32_t rank) {
    speaker = rank == 0 ? FIRST : OTHER;
}

bool weft_signals_stop(void) {
    return asked != 0;
}
