/* host/launch/sidecar.c: see sidecar.h. */
#include "launch/sidecar.h"

#include "launch/ancestor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct order {
    char path[64];
    int32_t n; /* 0: listen, and return the address; another order follows */
    int32_t total;
    bool follow;
    weft_node_watchdog_address chief; /* address to connect to */
} order;

static int orders = -1; /* socket to the sidecar; -1: closed */

/* ---- the watchdog ---- */

enum { ORDERS = 10, LAUNCHER = 11, GIVEN = 3000 }; /* descriptors of the new process; milliseconds */

/* Detaches from the launcher, which tracks inherited descriptors and ends all processes of the ranks' group. */
static void stand_apart(int from, const weft_ancestor *launcher) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};
    const int nothing = open("/dev/null", O_RDWR);
    const int high[] = {fcntl(from, F_DUPFD, 20), fcntl(launcher->process, F_DUPFD, 20)}; /* numbers that do not
                                                                                           * collide */
    (void)setsid();
    (void)prctl(PR_SET_NAME, "weft-watch");
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) (void)signal(numbers[i], SIG_IGN);
    if (launcher->voice >= 0) (void)dup2(launcher->voice, STDERR_FILENO);
    (void)dup2(nothing, STDIN_FILENO);
    (void)dup2(nothing, STDOUT_FILENO);
    (void)dup2(high[0], ORDERS);
    (void)close(LAUNCHER);
    (void)dup2(high[1], LAUNCHER);
    (void)close_range(STDERR_FILENO + 1, ORDERS - 1, 0);
    (void)close_range(LAUNCHER + 1, ~0u, 0);
}

static void say_to_starter(const char *what) {
    char line[2000];
    const int n = snprintf(line, sizeof line, "weft: %s\n", what);
    if (write(STDERR_FILENO, line, (size_t)n) < 0) { /* no reader */
    }
}

/* Prints the reason after the launcher's own last output, which in a file would overwrite it. */
static void say_stop(const char *why) {
    struct pollfd launcher = {LAUNCHER, POLLIN, 0};
    char text[1800];
    (void)poll(&launcher, 1, GIVEN);
    weft_watchdog_explain(text, sizeof text, why);
    say_to_starter(text);
}

static bool watch_here(weft_watchdog *self, char *why, size_t size) {
    bool stop = false;
    while (!stop && !weft_ranks_are_over(self->ranks, self->n)) {
        weft_watchdog_wait(self);
        stop = weft_watchdog_decide(self, why, size, weft_watchdog_see(self));
    }
    if (stop) weft_watchdog_stop(self);
    return stop;
}

/* Runs the watchdog. own: the chief's address, for its listening socket; NULL: not the chief. */
static void watch_machine(const order *what, int socket, const weft_node_watchdog_address *own) {
    weft_heartbeat *heartbeats = weft_heartbeat_map(what->path, what->n);
    weft_watchdog self;
    char why[1500];
    bool stop = false;
    if (heartbeats == NULL || weft_watchdog_open(&self, heartbeats, what->path, what->n,
                                                 own != NULL ? what->total : what->n, NULL) != WEFT_OK) {
        say_to_starter("the ranks of this machine cannot be watched");
        return;
    }
    if (send(ORDERS, "", 1, MSG_NOSIGNAL) != 1) return; /* the rank has ended already, and its world with it */
    (void)close(ORDERS);
    if (what->follow) socket = weft_node_watchdog_reach(&what->chief, what->n);
    if (what->follow && socket < 0)
        say_to_starter(
            "the watcher beside rank 0 cannot be reached from here: the ranks of this machine are watched alone");
    if (own != NULL) stop = weft_node_watchdog_lead(&self, why, sizeof why, socket, own);
    else if (socket >= 0) stop = weft_node_watchdog_follow(&self, why, sizeof why, socket);
    else stop = watch_here(&self, why, sizeof why);
    if (stop && why[0] != '\0') say_stop(why);
}

/* Runs in the new process. Without an order the rank has ended, or needs no watchdog. */
static _Noreturn void be_watcher(int from, const weft_ancestor *launcher) {
    weft_node_watchdog_address own;
    order what;
    int socket = -1;
    bool told = false;
    stand_apart(from, launcher);
    told = read(ORDERS, &what, sizeof what) == (ssize_t)sizeof what;
    if (told && what.n == 0) {
        socket = weft_node_watchdog_listen(&own);
        told = write(ORDERS, &own, sizeof own) == (ssize_t)sizeof own &&
               read(ORDERS, &what, sizeof what) == (ssize_t)sizeof what;
    }
    if (told) watch_machine(&what, socket, socket >= 0 ? &own : NULL);
    _exit(0);
}

/* ---- the rank ---- */

/* Starts the watchdog through a short-lived child, so that it is not a child of the rank: a wait for any child never
 * sees it. */
weft_status weft_sidecar_start(const char *note, weft_error *err) {
    int ends[2] = {-1, -1};
    weft_ancestor launcher = {-1, -1};
    pid_t child = -1;
    if (orders >= 0 || weft_heartbeat_is_watched()) return WEFT_OK;
    launcher = weft_ancestor_find(note);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0) child = fork();
    if (child == 0) {
        if (fork() == 0) be_watcher(ends[1], &launcher);
        _exit(0);
    }
    weft_ancestor_close(&launcher);
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

static weft_status tell_order(const order *what, weft_error *err) {
    if (send(orders, what, sizeof *what, MSG_NOSIGNAL) == (ssize_t)sizeof *what) return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM, "the process that watches the ranks is gone");
}

weft_status weft_sidecar_listen(weft_node_watchdog_address *out, weft_error *err) {
    const order what = {.n = 0};
    const weft_status status = tell_order(&what, err);
    if (status != WEFT_OK || recv(orders, out, sizeof *out, MSG_WAITALL) == (ssize_t)sizeof *out) return status;
    return weft_error_set(err, WEFT_E_SYSTEM, "the process that watches the ranks is gone");
}

weft_status weft_sidecar_watch(const char *path, int32_t n, int32_t total, const weft_node_watchdog_address *chief,
                               weft_error *err) {
    order what = {.n = n, .total = total, .follow = chief != NULL};
    weft_status status = WEFT_OK;
    (void)snprintf(what.path, sizeof what.path, "%s", path);
    if (chief != NULL) what.chief = *chief;
    status = tell_order(&what, err);
    if (status == WEFT_OK && recv(orders, what.path, 1, MSG_WAITALL) != 1)
        status = weft_error_set(err, WEFT_E_SYSTEM, "the process that watches the ranks is gone");
    weft_sidecar_dismiss();
    return status;
}

void weft_sidecar_dismiss(void) {
    if (orders >= 0) (void)close(orders);
    orders = -1;
}
