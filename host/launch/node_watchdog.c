/* host/launch/node_watchdog.c: see node_watchdog.h. */
#include "launch/node_watchdog.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SILENCE = 5000, CONNECT = 2000, WHY = 1500, NEVER = -1 }; /* milliseconds; bytes */

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

static bool send_all(int file, const void *bytes, size_t n) {
    const char *at = bytes;
    while (n > 0) {
        const ssize_t sent = send(file, at, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return false;
        at += sent;
        n -= (size_t)sent;
    }
    return true;
}

int weft_node_watchdog_reach(const weft_node_watchdog_address *to, int32_t n) {
    const hello first = {{to->word[0], to->word[1]}, sizeof(weft_rank_view), n};
    for (int32_t i = 0; i < to->n_hosts; i++) {
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)to->port)};
        const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        address.sin_addr.s_addr = to->hosts[i];
        if (file < 0) return -1;
        limit_time(file, CONNECT);
        if (connect(file, (const struct sockaddr *)&address, sizeof address) == 0 &&
            send_all(file, &first, sizeof first)) {
            limit_time(file, SILENCE);
            return file;
        }
        (void)close(file);
    }
    return -1;
}

/* ---- a following watchdog ---- */

/* Receives the chief's command. Returns 1 for stop, 0 for no command yet, -1 if the chief is unreachable. A command is
 * complete or ignored. */
static int hear_chief(int file, char *why, size_t *got) {
    const ssize_t n = recv(file, why + *got, WHY - *got, MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
    if (n == 0) return -1;
    *got += (size_t)n;
    return *got == WHY ? 1 : 0;
}

bool weft_node_watchdog_follow(weft_watchdog *watch, char *why, size_t size, int socket) {
    static char told[WHY];
    size_t got = 0;
    int heard = 0;
    (void)weft_watchdog_attend(watch, socket);
    while (heard == 0 && !weft_ranks_are_over(watch->ranks, watch->n)) {
        weft_watchdog_wait(watch);
        (void)weft_watchdog_see(watch);
        if (!send_all(socket, watch->ranks, (size_t)watch->n * sizeof *watch->ranks)) heard = -1;
        if (heard == 0) heard = hear_chief(socket, told, &got);
    }
    (void)snprintf(why, size, "%s", heard == 1 ? "" : "the watcher beside rank 0 is out of reach");
    if (heard != 0) weft_watchdog_stop(watch);
    (void)close(socket);
    return heard != 0;
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

typedef struct chief {
    weft_watchdog *watch;
    const weft_node_watchdog_address *address;
    int listener;
    follower *followers; /* [n]: at most one machine per rank */
    int32_t n, used;     /* used: of watch->ranks */
} chief;

static void drop_follower(chief *self, follower *one, bool lost) {
    weft_rank_view *ranks = &self->watch->ranks[one->at];
    for (int32_t i = 0; lost && one->in != NULL && i < one->first.n; i++) /* without a greeting it has no ranks */
        if (!weft_ranks_are_over(&ranks[i], 1)) ranks[i].condition = WEFT_RANK_LOST;
    (void)close(one->file);
    free(one->in);
    memset(one, 0, sizeof *one);
    one->file = NEVER;
}

static void admit_follower(chief *self) {
    const int file = accept4(self->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int32_t i = 0;
    while (i < self->n && self->followers[i].file != NEVER) i++;
    if (file < 0) return;
    if (i == self->n || !weft_watchdog_attend(self->watch, file)) {
        (void)close(file);
        return;
    }
    limit_time(file, SILENCE);
    self->followers[i].file = file;
}

/* Rejects a connection without the secret. */
static bool check_greeting(chief *self, follower *one) {
    const hello *first = &one->first;
    const uint64_t *word = self->address->word;
    if (first->word[0] != word[0] || first->word[1] != word[1] || first->view_size != sizeof(weft_rank_view) ||
        first->n < 1 || first->n > self->watch->total - self->used)
        return false;
    one->in = calloc((size_t)first->n, sizeof *one->in);
    if (one->in == NULL) return false;
    one->at = self->used;
    self->used += first->n;
    return true;
}

/* Copies received states and terminates their strings: data of other machines is not trusted. */
static void take_views(const chief *self, const follower *one) {
    weft_rank_view *ranks = &self->watch->ranks[one->at];
    memcpy(ranks, one->in, (size_t)one->first.n * sizeof *ranks);
    for (int32_t i = 0; i < one->first.n; i++) {
        weft_rank_view *rank = &ranks[i];
        rank->text[sizeof rank->text - 1] = '\0';
        rank->call.who[sizeof rank->call.who - 1] = rank->call.what[sizeof rank->call.what - 1] = '\0';
    }
}

/* Receives one part of a message; false: no data for now. */
static bool take_message(chief *self, follower *one) {
    const bool greeted = one->in != NULL;
    char *to = greeted ? (char *)one->in : (char *)&one->first;
    const size_t all = greeted ? (size_t)one->first.n * sizeof *one->in : sizeof one->first;
    const ssize_t n = recv(one->file, to + one->got, all - one->got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
    if (n <= 0) {
        drop_follower(self, one, true);
        return false;
    }
    one->silent = 0;
    one->got += (size_t)n;
    if (one->got < all) return true;
    one->got = 0;
    if (greeted) take_views(self, one);
    else if (!check_greeting(self, one)) {
        drop_follower(self, one, false);
        return false;
    }
    return true;
}

static void listen_to_all(chief *self, int64_t ms) {
    admit_follower(self);
    for (int32_t i = 0; i < self->n; i++) {
        follower *one = &self->followers[i];
        if (one->file == NEVER) continue;
        while (take_message(self, one)) {
        }
        if (one->file == NEVER) continue;
        one->silent += ms;
        if (one->silent > SILENCE) drop_follower(self, one, true);
    }
}

static void tell_all(const chief *self, const char *why) {
    static char told[WHY];
    (void)snprintf(told, sizeof told, "%s", why);
    for (int32_t i = 0; i < self->n; i++)
        if (self->followers[i].file != NEVER) (void)send_all(self->followers[i].file, told, sizeof told);
}

static bool open_chief(chief *self) {
    self->used = self->watch->n;
    self->followers = calloc((size_t)self->watch->total, sizeof *self->followers);
    self->n = self->followers != NULL ? self->watch->total : 0;
    for (int32_t i = 0; i < self->n; i++) self->followers[i].file = NEVER;
    return self->followers != NULL && weft_watchdog_attend(self->watch, self->listener);
}

bool weft_node_watchdog_lead(weft_watchdog *watch, char *why, size_t size, int socket,
                             const weft_node_watchdog_address *address) {
    chief self = {.watch = watch, .address = address, .listener = socket};
    bool stop = false;
    (void)snprintf(why, size, "no memory to watch the ranks of other machines");
    stop = !open_chief(&self); /* the other watchdogs detect the closed connection and stop their ranks */
    while (!stop && !weft_ranks_are_over(watch->ranks, self.used)) {
        int64_t ms = 0;
        weft_watchdog_wait(watch);
        ms = weft_watchdog_see(watch);
        listen_to_all(&self, ms);
        stop = weft_watchdog_decide(watch, why, size, ms);
    }
    if (!stop) stop = weft_watchdog_decide(watch, why, size, 0);
    if (stop) tell_all(&self, why);
    if (stop) weft_watchdog_stop(watch);
    for (int32_t i = 0; i < self.n; i++)
        if (self.followers[i].file != NEVER) drop_follower(&self, &self.followers[i], false);
    free(self.followers);
    (void)close(socket);
    return stop;
}
