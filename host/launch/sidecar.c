/* host/launch/sidecar.c: see sidecar.h. */
#include "launch/sidecar.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct order {
    char path[64];
    int32_t n;
} order;

static int orders = -1; /* where the process is told; -1: there is none */

/* ---- the watcher ---- */

/* A launcher takes note of descriptors that its ranks leave open, and ends what is in their session. */
static void stand_apart(int keep) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};
    const int nothing = open("/dev/null", O_RDWR);
    (void)setsid();
    (void)prctl(PR_SET_NAME, "weft-watch");
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) (void)signal(numbers[i], SIG_IGN);
    (void)dup2(nothing, STDIN_FILENO);
    (void)dup2(nothing, STDOUT_FILENO);
    if (keep > STDERR_FILENO + 1) (void)close_range(STDERR_FILENO + 1, (unsigned)keep - 1, 0);
    (void)close_range((unsigned)keep + 1, ~0u, 0);
}

static void say(const char *why) {
    char line[2000];
    const int n = snprintf(line, sizeof line, "weft: %s: the other ranks are stopped\n", why);
    if (write(STDERR_FILENO, line, (size_t)n) < 0) { /* nobody is there to read it */
    }
}

static void watch(const order *what) {
    weft_pulse *pulses = weft_pulse_map(what->path, what->n);
    weft_watch self;
    char why[1500];
    bool stop = false;
    if (pulses == NULL || weft_watch_open(&self, pulses, what->n, -1, NULL) != WEFT_OK) {
        say("the ranks of this machine are not watched: no memory");
        return;
    }
    while (!stop && !weft_watch_is_over(&self)) {
        weft_watch_wait(&self);
        stop = weft_watch_look(&self, why, sizeof why);
    }
    if (stop) say(why);
    if (stop) weft_watch_stop(&self);
}

/* In the new process. An end without an order: the rank has gone, or needs none. */
static _Noreturn void be_watcher(int from) {
    order what;
    stand_apart(from);
    if (read(from, &what, sizeof what) == (ssize_t)sizeof what) {
        (void)close(from);
        watch(&what);
    }
    _exit(0);
}

/* ---- the rank ---- */

/* By a child that ends at once, so that the watcher is no child of the rank: whoever waits for children meets none. */
weft_status weft_sidecar_start(weft_error *err) {
    int ends[2] = {-1, -1};
    pid_t child = -1;
    if (orders >= 0 || weft_pulse_is_watched()) return WEFT_OK;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0) child = fork();
    if (child == 0) {
        if (fork() == 0) be_watcher(ends[1]);
        _exit(0);
    }
    if (ends[1] >= 0) (void)close(ends[1]);
    if (child < 0) {
        if (ends[0] >= 0) (void)close(ends[0]);
        return weft_error_set(err, WEFT_E_SYSTEM, "no process to watch the ranks: %s", strerror(errno));
    }
    (void)waitpid(child, NULL, 0);
    orders = ends[0];
    return WEFT_OK;
}

bool weft_sidecar_waits(void) {
    return orders >= 0;
}

weft_status weft_sidecar_watch(const char *path, int32_t n, weft_error *err) {
    order what = {.n = n};
    ssize_t told = 0;
    (void)snprintf(what.path, sizeof what.path, "%s", path);
    told = send(orders, &what, sizeof what, MSG_NOSIGNAL);
    weft_sidecar_dismiss();
    if (told == (ssize_t)sizeof what) return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM, "the process that watches the ranks is gone");
}

void weft_sidecar_dismiss(void) {
    if (orders >= 0) (void)close(orders);
    orders = -1;
}
