/* host/launch/sidecar.c: see watchdog.h. */
#include "launch/watchdog.h"

#include "base/alloc.h"
#include "launch/signals.h"
#include "launch/rendezvous.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the launcher that started this process ---- */

typedef struct ancestor {
    int process; /* its pidfd; -1: not on this machine, or it cannot be opened */
    int errors;  /* its stderr, opened again: writable even after the launcher has released its ranks */
} ancestor;

static void close_ancestor(ancestor *self) {
    if (self->process >= 0) (void)close(self->process);
    if (self->errors >= 0) (void)close(self->errors);
    self->process = self->errors = -1;
}

/* Finds the process of the launcher whose path the note has: "...\nlaunch=/usr/bin/mpiexec -n {ranks}\n...". */
static ancestor find_ancestor(const char *note) {
    ancestor out = {-1, -1};
    const char *line = strncmp(note, "launch=", 7) == 0 ? note : strstr(note, "\nlaunch=");
    char launcher[PATH_MAX], path[64];
    int pid = (int)getppid();
    if (line == NULL) return out;
    line = strchr(line, '=') + 1;
    (void)snprintf(launcher, sizeof launcher, "%.*s", (int)strcspn(line, " \n"), line);
    while (pid > 1 && !weft_proc_runs(pid, launcher)) pid = weft_proc_read(pid).parent;
    if (pid <= 1) return out;
    (void)snprintf(path, sizeof path, "/proc/%d/fd/2", pid);
    out.process = (int)syscall(SYS_pidfd_open, pid, 0);
    out.errors = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY);
    if (out.process < 0 || out.errors < 0) close_ancestor(&out);
    return out;
}

enum { SILENCE = 5000, CONNECT = 2000, NEVER = -1 }; /* milliseconds */

/* First message of a watchdog; its rank states follow repeatedly. Both sides run the same program. */
typedef struct hello {
    uint64_t word[2];
    uint32_t view_size;
    int32_t n;
} hello;

/* ---- sockets ---- */

static void list_hosts(weft_node_watchdog_address *out) {
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0) return;
    for (const struct ifaddrs *one = all; one != NULL && out->n_hosts < WEFT_NODE_WATCHDOG_HOSTS; one = one->ifa_next) {
        struct sockaddr_in address;
        if (one->ifa_addr == NULL || one->ifa_addr->sa_family != AF_INET || (one->ifa_flags & IFF_UP) == 0 ||
            (one->ifa_flags & IFF_LOOPBACK) != 0)
            continue;
        memcpy(&address, one->ifa_addr, sizeof address);
        out->hosts[out->n_hosts++] = address.sin_addr.s_addr;
    }
    freeifaddrs(all);
}

int weft_node_watchdog_listen(weft_node_watchdog_address *out) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    memset(out, 0, sizeof *out);
    if (file >= 0 && bind(file, (const struct sockaddr *)&address, sizeof address) == 0 && listen(file, 128) == 0 &&
        getsockname(file, (struct sockaddr *)&address, &size) == 0 &&
        getrandom(out->word, sizeof out->word, 0) == (ssize_t)sizeof out->word) {
        out->port = ntohs(address.sin_port);
        list_hosts(out);
        if (out->n_hosts > 0) return file;
    }
    if (file >= 0) (void)close(file);
    out->n_hosts = 0;
    return -1;
}

/* Limits the time for sending and receiving, so that a dead peer is detected. */
static void limit_time(int file, int ms) {
    const struct timeval time = {ms / 1000, ms % 1000 * 1000};
    const unsigned unanswered = (unsigned)ms;
    (void)setsockopt(file, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
    (void)setsockopt(file, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered, sizeof unanswered);
}

/* Connects to the chief, for a watchdog of n ranks; -1: unreachable. */
static int connect_to_chief(const weft_node_watchdog_address *to, int32_t n) {
    const hello first = {{to->word[0], to->word[1]}, sizeof(weft_rank_view), n};
    for (int32_t i = 0; i < to->n_hosts; i++) {
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)to->port)};
        const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        address.sin_addr.s_addr = to->hosts[i];
        if (file < 0) return -1;
        limit_time(file, CONNECT);
        if (connect(file, (const struct sockaddr *)&address, sizeof address) == 0 &&
            weft_send_all(file, &first, sizeof first)) {
            limit_time(file, SILENCE);
            return file;
        }
        (void)close(file);
    }
    return -1;
}

/* ---- a following watchdog ---- */

bool weft_node_watchdog_follow(weft_watchdog *watch, char *why, size_t size, int socket) {
    int command = 0; /* 1: stop; -1: the chief is unreachable */
    (void)weft_watchdog_add(watch, socket, watch->n);
    while (command == 0 && !weft_ranks_are_over(watch->ranks, watch->n)) {
        char stop = 0;
        ssize_t n = 0;
        (void)weft_watchdog_check(watch);
        n = recv(socket, &stop, 1, MSG_DONTWAIT);
        if (n == 1) command = 1;
        else if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) command = -1;
        else if (!weft_send_all(socket, watch->ranks, (size_t)watch->n * sizeof *watch->ranks)) command = -1;
    }
    (void)snprintf(why, size, "%s", command == 1 ? "" : "the watchdog of rank 0 is out of reach");
    if (command != 0) weft_watchdog_stop(watch);
    (void)close(socket);
    return command != 0;
}

/* ---- the chief ---- */

typedef struct follower {
    int file;           /* NEVER: unused slot */
    hello first;        /* valid once `in` is set */
    int32_t at;         /* index of its ranks in watch->ranks */
    weft_rank_view *in; /* [first.n] received states; NULL: no greeting yet */
    size_t got;         /* bytes, of first or of in */
    int64_t silent;     /* milliseconds */
} follower;

typedef struct chief_state {
    weft_watchdog *watch;
    const weft_node_watchdog_address *address;
    int listener;
    follower *followers; /* [total]: at most one machine per rank */
    int32_t used;        /* of watch->ranks */
} chief_state;

/* Closes a connection; its ranks are lost unless they have ended. */
static void drop_follower(chief_state *self, follower *one) {
    weft_rank_view *ranks = &self->watch->ranks[one->at];
    for (int32_t i = 0; one->in != NULL && i < one->first.n; i++)
        if (!weft_ranks_are_over(&ranks[i], 1)) ranks[i].condition = WEFT_RANK_LOST;
    (void)close(one->file);
    free(one->in);
    *one = (follower){.file = NEVER};
}

/* Receives one part of a message; false: no data for now. Data of other machines is not trusted. */
static bool receive_message(chief_state *self, follower *one) {
    const hello *first = &one->first;
    const bool greeted = one->in != NULL;
    char *to = greeted ? (char *)one->in : (char *)&one->first;
    const size_t all = greeted ? (size_t)first->n * sizeof *one->in : sizeof *first;
    const ssize_t n = recv(one->file, to + one->got, all - one->got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
    one->got += n > 0 ? (size_t)n : 0;
    one->silent = 0;
    if (n <= 0 || (!greeted && one->got == all &&
                   (memcmp(first->word, self->address->word, sizeof first->word) != 0 || first->n < 1 ||
                    first->view_size != sizeof(weft_rank_view) || first->n > self->watch->total - self->used))) {
        drop_follower(self, one);
        return false;
    }
    if (one->got < all) return true;
    one->got = 0;
    for (int32_t i = 0; greeted && i < first->n; i++) {
        weft_rank_view_end_texts(&one->in[i]);
        self->watch->ranks[one->at + i] = one->in[i];
    }
    if (greeted) return true;
    one->in = weft_alloc(first->n, sizeof *one->in);
    one->at = self->used;
    self->used += first->n;
    return true;
}

static void receive_from_all(chief_state *self, int64_t ms) {
    const int file = accept4(self->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int32_t unused = 0;
    while (unused < self->watch->total && self->followers[unused].file != NEVER) unused++;
    if (file >= 0 && unused < self->watch->total && weft_watchdog_add(self->watch, file, self->watch->n)) {
        limit_time(file, SILENCE);
        self->followers[unused] = (follower){.file = file};
    } else if (file >= 0) {
        (void)close(file);
    }
    for (int32_t i = 0; i < self->watch->total; i++) {
        follower *one = &self->followers[i];
        while (one->file != NEVER && receive_message(self, one)) {
        }
        one->silent += ms;
        if (one->file != NEVER && one->silent > SILENCE) drop_follower(self, one);
    }
}

bool weft_node_watchdog_lead(weft_watchdog *watch, char *why, size_t size, int socket,
                             const weft_node_watchdog_address *address) {
    chief_state self = {watch, address, socket, weft_alloc(watch->total, sizeof(follower)), watch->n};
    bool stop = false;
    for (int32_t i = 0; i < watch->total; i++) self.followers[i].file = NEVER;
    (void)weft_watchdog_add(watch, socket, watch->n);
    while (!stop && !weft_ranks_are_over(watch->ranks, self.used)) {
        const int64_t ms = weft_watchdog_check(watch);
        receive_from_all(&self, ms);
        stop = weft_watchdog_decide(watch, why, size, ms);
    }
    if (!stop) stop = weft_watchdog_decide(watch, why, size, 0);
    for (int32_t i = 0; i < watch->total; i++) {
        const int file = self.followers[i].file;
        if (file == NEVER) continue;
        if (stop) (void)weft_send_all(file, "", 1); /* the command to stop */
        (void)close(file);
        free(self.followers[i].in);
    }
    if (stop) weft_watchdog_stop(watch);
    free(self.followers);
    (void)close(socket);
    return stop;
}

/* ---- the order of a rank to its sidecar ---- */

typedef struct order {
    char path[64];
    int32_t n, total;
    weft_node_watchdog_address chief; /* address to connect to; without hosts: none */
} order;

static int orders = -1; /* socket to the sidecar; -1: closed */

/* ---- the sidecar ---- */

enum { ORDERS = 10, LAUNCHER = 11, LAST_OUTPUT = 3000 }; /* descriptors of the new process; milliseconds */

/* Detaches from the launcher, which tracks inherited descriptors and ends all processes of the ranks' group. */
static void detach(int from, const ancestor *launcher) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};
    const int nothing = open("/dev/null", O_RDWR);
    const int high[] = {fcntl(from, F_DUPFD, 20), fcntl(launcher->process, F_DUPFD, 20)}; /* numbers that do not
                                                                                           * collide */
    (void)setsid();
    (void)prctl(PR_SET_NAME, "weft-watch");
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) (void)signal(numbers[i], SIG_IGN);
    if (launcher->errors >= 0) (void)dup2(launcher->errors, STDERR_FILENO);
    (void)dup2(nothing, STDIN_FILENO);
    (void)dup2(nothing, STDOUT_FILENO);
    (void)dup2(high[0], ORDERS);
    (void)close(LAUNCHER);
    (void)dup2(high[1], LAUNCHER);
    (void)close_range(STDERR_FILENO + 1, ORDERS - 1, 0);
    (void)close_range(LAUNCHER + 1, ~0u, 0);
}

static void write_error(const char *what) {
    char line[2000];
    const int n = snprintf(line, sizeof line, "weft: %s\n", what);
    if (write(STDERR_FILENO, line, (size_t)n) < 0) { /* no reader */
    }
}

/* Runs the watchdog. Answers with its own address if it is the chief of other machines. */
static void watch_machine(const order *what) {
    const bool follows = what->chief.n_hosts > 0;
    struct pollfd launcher = {LAUNCHER, POLLIN, 0};
    weft_heartbeat *heartbeats = weft_heartbeat_map(what->path, what->n);
    weft_node_watchdog_address own = {0};
    int socket = what->total > what->n && !follows ? weft_node_watchdog_listen(&own) : -1;
    weft_watchdog self;
    char why[1500] = "", text[1800];
    bool stop = false;
    if (heartbeats == NULL || weft_watchdog_open(&self, heartbeats, what->path, what->n,
                                                 socket >= 0 ? what->total : what->n, NULL) != WEFT_OK) {
        write_error("the ranks of this machine cannot be watched");
        return;
    }
    if (send(ORDERS, &own, sizeof own, MSG_NOSIGNAL) != (ssize_t)sizeof own)
        return; /* the rank has ended already, and its world with it */
    (void)close(ORDERS);
    if (follows) socket = connect_to_chief(&what->chief, what->n);
    if (follows && socket < 0)
        write_error("the watchdog of rank 0 cannot be reached from here: it does not know the ranks of this machine");
    if (follows && socket >= 0) stop = weft_node_watchdog_follow(&self, why, sizeof why, socket);
    else stop = weft_node_watchdog_lead(&self, why, sizeof why, socket, &own); /* also of one machine, without socket */
    if (!stop || why[0] == '\0') return;
    (void)poll(&launcher, 1, LAST_OUTPUT); /* the launcher's own last output comes first; in a file it would overwrite
                                            * this line */
    weft_watchdog_explain(text, sizeof text, why);
    write_error(text);
}

/* Runs in the new process. Without an order the rank has ended, or needs no watchdog. */
static _Noreturn void run_sidecar(int from, const ancestor *launcher) {
    order what;
    detach(from, launcher);
    if (read(ORDERS, &what, sizeof what) == (ssize_t)sizeof what) watch_machine(&what);
    _exit(0);
}

/* ---- the rank ---- */

/* Starts the watchdog through a short-lived child, so that it is not a child of the rank: a wait for any child never
 * sees it. */
weft_status weft_sidecar_start(const char *note, weft_error *err) {
    int ends[2] = {-1, -1};
    ancestor launcher = {-1, -1};
    pid_t child = -1;
    if (orders >= 0 || weft_heartbeat_is_watched()) return WEFT_OK;
    launcher = find_ancestor(note);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0) child = fork();
    if (child == 0) {
        if (fork() == 0) run_sidecar(ends[1], &launcher);
        _exit(0);
    }
    close_ancestor(&launcher);
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

weft_status weft_sidecar_watch(const char *path, int32_t n, int32_t total, weft_node_watchdog_address *chief,
                               weft_error *err) {
    order what = {.n = n, .total = total, .chief = *chief};
    bool is_done = false;
    (void)snprintf(what.path, sizeof what.path, "%s", path);
    is_done = send(orders, &what, sizeof what, MSG_NOSIGNAL) == (ssize_t)sizeof what &&
              recv(orders, &what.chief, sizeof what.chief, MSG_WAITALL) == (ssize_t)sizeof what.chief;
    weft_sidecar_dismiss();
    if (!is_done) return weft_error_set(err, WEFT_E_SYSTEM, "the process that watches the ranks is gone");
    *chief = what.chief;
    return WEFT_OK;
}

void weft_sidecar_dismiss(void) {
    if (orders >= 0) (void)close(orders);
    orders = -1;
}
