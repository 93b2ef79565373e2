/* host/launch/own_launcher.c: see own_launcher.h. */
#include "launch/own_launcher.h"

#include "launch/table_server.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TICK = 50, CANNOT_START = 127 }; /* milliseconds; the exit status of shells */

bool weft_launch_is_own(const char *launch) {
    return strcmp(launch, WEFT_LAUNCH_BY_HOST) == 0;
}

static bool set_number(const char *name, int32_t value) {
    char text[16];
    (void)snprintf(text, sizeof text, "%d", (int)value);
    return setenv(name, text, 1) == 0;
}

/* Runs in the child. A rank ends with its launcher. */
static void become_rank(int32_t rank, int32_t n, int store, const char *program, char *const *words, pid_t launcher) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(1);
    if (set_number(WEFT_OWN_RANK, rank) && set_number(WEFT_OWN_SIZE, n) && set_number(WEFT_OWN_STORE, store))
        (void)execv(program, words);
    (void)fprintf(stderr, "weft: rank %d cannot be started: %s\n", (int)rank, strerror(errno));
    _exit(CANNOT_START);
}

/* Starts one rank. Only the rank keeps its end of the connection, and only this process the store's end. */
static bool start_rank(weft_store *store, int32_t rank, int32_t n, const char *program, char *const *words) {
    int ends[2];
    const pid_t launcher = getpid();
    pid_t pid = -1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
    pid = fork();
    if (pid == 0) {
        (void)fcntl(ends[1], F_SETFD, 0); /* inherited by the program */
        become_rank(rank, n, ends[1], program, words, launcher);
    }
    (void)close(ends[1]);
    weft_store_admit(store, rank, ends[0]);
    return pid > 0;
}

static int status_of(int ended) {
    return WIFSIGNALED(ended) ? 128 + WTERMSIG(ended) : WEXITSTATUS(ended);
}

/* Serves the store until all ranks have ended. */
static int wait_for_ranks(weft_store *store, int32_t n) {
    int first = 0, ended = 0;
    while (n > 0) {
        const pid_t pid = waitpid(-1, &ended, WNOHANG);
        if (pid < 0 && errno != EINTR) break;
        if (pid <= 0) {
            weft_store_serve(store, TICK);
            continue;
        }
        n--;
        if (first == 0) first = status_of(ended);
    }
    return first;
}

int weft_own_launcher_run(int32_t n, const char *program, char *const *words) {
    weft_store *store = weft_store_create(n);
    int32_t started = 0;
    int status = CANNOT_START;
    (void)signal(SIGCHLD, SIG_DFL);
    while (store != NULL && started < n && start_rank(store, started, n, program, words)) started++;
    if (started == n) status = wait_for_ranks(store, n);
    else
        (void)fprintf(stderr, "weft: only %d of %d ranks could be started: %s\n", (int)started, (int)n,
                      strerror(errno));
    weft_store_destroy(store);
    return status; /* remaining ranks end with this process */
}
