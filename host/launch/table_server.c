/* host/launch/table_server.c: see table_server.h. */
#include "launch/table_server.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { PUT = 1, GET = 2, MAGIC = 0x57656674, GONE = -1 };
enum { TAKEN = 0, TWICE = 1, FULL = 2 };
enum { WELCOME = 0, WRONG_KEY = 1, NO_PLACE = 2 };
enum { STRANGERS = 32 }; /* unauthenticated connections; one more closes the oldest of them */

/* A rank's request; the bytes of a PUT follow. Both ends have the same byte order. */
typedef struct request {
    uint32_t magic, what, n;
    char key[WEFT_STORE_KEY];
} request;

/* The server's reply; the bytes of a GET follow. */
typedef struct answer {
    uint32_t code, n;
} answer;

/* The server's first bytes on a connection that it has accepted. */
typedef struct challenge {
    uint32_t magic;
    unsigned char random[WEFT_HASH_BYTES];
} challenge;

/* A rank's reply. */
typedef struct greeting {
    uint32_t magic;
    int32_t rank;
    unsigned char random[WEFT_HASH_BYTES], proof[WEFT_HASH_BYTES];
} greeting;

typedef struct verdict {
    uint32_t code;
    unsigned char proof[WEFT_HASH_BYTES]; /* of WELCOME */
} verdict;

bool weft_store_takes_key(const char *key) {
    const size_t n = strspn(key, "abcdefghijklmnopqrstuvwxyz0123456789._-");
    return n > 0 && key[n] == '\0' && n < WEFT_STORE_KEY;
}

/* ---- complete messages ---- */

/* Sends bytes. more: further data follows immediately and is sent together. */
static bool send_part(int file, const void *bytes, size_t n, bool more) {
    const char *at = bytes;
    while (n > 0) {
        const ssize_t sent = send(file, at, n, MSG_NOSIGNAL | (more ? MSG_MORE : 0));
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return false;
        at += sent;
        n -= (size_t)sent;
    }
    return true;
}

/* Receives n bytes. errno 0: the peer has closed the connection. */
static bool receive_whole(int file, void *bytes, size_t n) {
    char *at = bytes;
    while (n > 0) {
        const ssize_t got = recv(file, at, n, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got == 0) errno = 0;
        if (got <= 0) return false;
        at += got;
        n -= (size_t)got;
    }
    return true;
}

static bool set_patience(int file, int32_t seconds) {
    const struct timeval time = {seconds, 0};
    return setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0;
}

/* ---- a rank's side ---- */

static weft_status lost_store(weft_store_line line, weft_error *err) {
    return weft_error_set(err, WEFT_E_PEER, "%s, which keeps what ranks tell one another, is gone: %s", line.keeper,
                          errno == 0 ? "it has ended" : strerror(errno));
}

static bool ask(int file, uint32_t what, const char *key, const void *bytes, size_t n) {
    request r = {.magic = MAGIC, .what = what, .n = (uint32_t)n};
    (void)snprintf(r.key, sizeof r.key, "%s", key);
    return send_part(file, &r, sizeof r, bytes != NULL && n > 0) && (bytes == NULL || send_part(file, bytes, n, false));
}

/* *again: see weft_store_greet. */
static weft_status check_verdict(const verdict *v, const weft_job_key *key, const weft_job_words *words,
                                 weft_error *err) {
    unsigned char expected[WEFT_HASH_BYTES];
    weft_status status = weft_job_prove(expected, key, "keeper", words, err);
    if (status != WEFT_OK) return status;
    if (v->code == NO_PLACE)
        return weft_error_set(err, WEFT_E_PEER, "another process has the place of rank %d, or there is no such rank",
                              (int)words->rank);
    if (v->code == WELCOME && weft_job_proof_equals(v->proof, expected)) return WEFT_OK;
    return weft_error_set(err, WEFT_E_PEER,
                          "rank 0 and rank %d have different secrets of the job. Fix: set " WEFT_JOB_SECRET
                          " to the same for all ranks, or copy the file weft/job-secret of ~/.local/share to all "
                          "machines",
                          (int)words->rank);
}

weft_status weft_store_greet(int file, const weft_job_key *key, int32_t rank, int32_t patience, bool *again,
                             weft_error *err) {
    challenge asked;
    verdict v;
    greeting mine = {.magic = MAGIC, .rank = rank};
    weft_job_words words = {.rank = rank};
    weft_status status = WEFT_OK;
    *again = !set_patience(file, patience) || !receive_whole(file, &asked, sizeof asked) || asked.magic != MAGIC;
    if (*again) return weft_error_set(err, WEFT_E_PEER, "the connection was refused");
    if (!weft_job_random(words.client)) return weft_error_set(err, WEFT_E_SYSTEM, "getrandom: %s", strerror(errno));
    memcpy(words.server, asked.random, sizeof words.server);
    memcpy(mine.random, words.client, sizeof mine.random);
    status = weft_job_prove(mine.proof, key, "rank", &words, err);
    if (status != WEFT_OK) return status;
    *again = !send_part(file, &mine, sizeof mine, false) || !receive_whole(file, &v, sizeof v);
    if (*again) return weft_error_set(err, WEFT_E_PEER, "the connection was refused");
    return check_verdict(&v, key, &words, err);
}

static weft_status judge_request(const char *key, size_t n, weft_error *err) {
    if (!weft_store_takes_key(key))
        return weft_error_set(err, WEFT_E_HOST, "\"%.80s\" is no key of an exchange: 1 to %d of [a-z0-9._-]", key,
                              WEFT_STORE_KEY - 4);
    if (n > WEFT_EXCHANGE_MOST)
        return weft_error_set(err, WEFT_E_HOST, "a value of %zu bytes under \"%s\": an exchange takes %d at most", n,
                              key, WEFT_EXCHANGE_MOST);
    return WEFT_OK;
}

weft_status weft_store_put(weft_store_line to, const char *key, const void *bytes, size_t n, weft_error *err) {
    answer a = {0, 0};
    weft_status status = judge_request(key, n, err);
    if (status != WEFT_OK) return status;
    if (!set_patience(to.file, 0) || !ask(to.file, PUT, key, bytes, n) || !receive_whole(to.file, &a, sizeof a))
        return lost_store(to, err);
    if (a.code == TWICE)
        return weft_error_set(err, WEFT_E_HOST, "\"%s\" has been put before, by this rank or another", key);
    if (a.code == FULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for what ranks tell one another");
    return WEFT_OK;
}

weft_status weft_store_get(weft_store_line from, const char *key, void *bytes, size_t n, int32_t patience,
                           weft_error *err) {
    char value[WEFT_EXCHANGE_MOST];
    answer a = {0, 0};
    weft_status status = judge_request(key, n, err);
    if (status != WEFT_OK) return status;
    if (!set_patience(from.file, patience) || !ask(from.file, GET, key, NULL, n)) return lost_store(from, err);
    if (!receive_whole(from.file, &a, sizeof a)) {
        if (errno != EAGAIN && errno != EWOULDBLOCK) return lost_store(from, err);
        return weft_error_set(err, WEFT_E_PEER,
                              "no rank has told it within %d s ([run] patience): one has not started, or has failed "
                              "before (the key of the exchange is \"%s\")",
                              (int)patience, key);
    }
    if (a.n > sizeof value) errno = EMSGSIZE;
    if (a.n > sizeof value || !receive_whole(from.file, value, a.n)) return lost_store(from, err);
    if (a.n != n)
        return weft_error_set(err, WEFT_E_PEER,
                              "\"%s\" is %u bytes where the rank that put it has another version, and %zu here: start "
                              "the same program on all ranks",
                              key, (unsigned)a.n, n);
    memcpy(bytes, value, n);
    return WEFT_OK;
}

/* ---- the server ---- */

typedef struct entry {
    struct entry *next;
    char key[WEFT_STORE_KEY];
    size_t n;
    char bytes[];
} entry;

typedef struct client {
    int file;      /* GONE: closed */
    request first; /* its request; complete once got >= sizeof first */
    size_t got;    /* received bytes of the request and its data */
    char bytes[WEFT_EXCHANGE_MOST];
    bool waits;                            /* for the key of its request */
    bool has_begun;                        /* the rank has been connected */
    unsigned char random[WEFT_HASH_BYTES]; /* sent to an unauthenticated client */
} client;

struct weft_store {
    entry *entries;
    client *clients;           /* [n + STRANGERS] */
    struct pollfd *files;      /* [1 + n + STRANGERS] */
    int32_t n, next, listener; /* next: the unauthenticated slot that is used next */
    weft_job_key key;
};

static int32_t count_clients(const weft_store *self) {
    return self->n + STRANGERS;
}

weft_store *weft_store_create(int32_t n) {
    weft_store *self = calloc(1, sizeof *self);
    if (self == NULL) return NULL;
    self->n = n;
    self->listener = GONE;
    self->clients = calloc((size_t)n + STRANGERS, sizeof *self->clients);
    self->files = calloc((size_t)n + STRANGERS + 1, sizeof *self->files);
    for (int32_t i = 0; self->clients != NULL && i < count_clients(self); i++) self->clients[i].file = GONE;
    if (self->clients != NULL && self->files != NULL) return self;
    weft_store_destroy(self);
    return NULL;
}

static void drop_client(client *one) {
    (void)close(one->file);
    one->file = GONE;
    one->waits = false;
}

void weft_store_destroy(weft_store *self) {
    if (self == NULL) return;
    for (int32_t i = 0; self->clients != NULL && i < count_clients(self); i++)
        if (self->clients[i].file != GONE) drop_client(&self->clients[i]);
    while (self->entries != NULL) {
        entry *one = self->entries;
        self->entries = one->next;
        free(one);
    }
    free(self->clients);
    free(self->files);
    free(self);
}

void weft_store_admit(weft_store *self, int32_t rank, int file) {
    self->clients[rank].file = file;
    self->clients[rank].got = 0;
    self->clients[rank].waits = false;
    self->clients[rank].has_begun = true;
}

void weft_store_listen(weft_store *self, int file, const weft_job_key *key) {
    self->listener = file;
    self->key = *key;
}

static entry *find_entry(const weft_store *self, const char *key) {
    entry *one = self->entries;
    while (one != NULL && strcmp(one->key, key) != 0) one = one->next;
    return one;
}

/* Sends a reply to a client that is listening; drops any other. */
static void tell_client(client *to, uint32_t code, const void *bytes, size_t n) {
    const answer a = {code, (uint32_t)n};
    to->waits = false;
    to->got = 0;
    if (!send_part(to->file, &a, sizeof a, n > 0) || !send_part(to->file, bytes, n, false)) drop_client(to);
}

static void tell_those_that_wait(weft_store *self, const entry *of) {
    for (int32_t i = 0; i < self->n; i++)
        if (self->clients[i].waits && strcmp(self->clients[i].first.key, of->key) == 0)
            tell_client(&self->clients[i], TAKEN, of->bytes, of->n);
}

static void take_entry(weft_store *self, client *from) {
    entry *one = NULL;
    if (find_entry(self, from->first.key) != NULL) {
        tell_client(from, TWICE, NULL, 0);
        return;
    }
    one = malloc(sizeof *one + from->first.n);
    if (one == NULL) {
        tell_client(from, FULL, NULL, 0);
        return;
    }
    memcpy(one->key, from->first.key, sizeof one->key);
    memcpy(one->bytes, from->bytes, from->first.n);
    one->n = from->first.n;
    one->next = self->entries;
    self->entries = one;
    tell_client(from, TAKEN, NULL, 0);
    tell_those_that_wait(self, one);
}

static bool is_request(const request *r) {
    return r->magic == MAGIC && (r->what == PUT || r->what == GET) && r->n <= WEFT_EXCHANGE_MOST &&
           memchr(r->key, '\0', sizeof r->key) != NULL && weft_store_takes_key(r->key);
}

static void answer_request(weft_store *self, client *one) {
    const entry *found = NULL;
    if (one->first.what == PUT) {
        take_entry(self, one);
        return;
    }
    found = find_entry(self, one->first.key);
    if (found != NULL) tell_client(one, TAKEN, found->bytes, found->n);
    else one->waits = true;
}

/* Returns the missing bytes of a client's message. */
static size_t bytes_missing(const client *one) {
    const size_t head = sizeof one->first;
    if (one->got < head) return head - one->got;
    return head + (one->first.what == PUT ? one->first.n : 0) - one->got;
}

/* Receives data; drops a client with an invalid request, or one that sends while it waits. */
static void hear_client(weft_store *self, client *one) {
    const size_t head = sizeof one->first;
    char *to = one->got < head ? (char *)&one->first + one->got : one->bytes + (one->got - head);
    const ssize_t n = one->waits ? 0 : recv(one->file, to, bytes_missing(one), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    if (n <= 0) {
        drop_client(one);
        return;
    }
    one->got += (size_t)n;
    if (one->got == head && !is_request(&one->first)) drop_client(one);
    else if (bytes_missing(one) == 0) answer_request(self, one);
}

/* ---- unauthenticated connections ---- */

/* Sends the verdict. A connection with the key becomes the rank's; every other one is closed. */
static void judge_greeting(weft_store *self, client *one) {
    greeting from;
    verdict v = {.code = WRONG_KEY};
    weft_job_words words;
    unsigned char expected[WEFT_HASH_BYTES];
    memcpy(&from, one->bytes, sizeof from);
    memcpy(words.server, one->random, sizeof words.server);
    memcpy(words.client, from.random, sizeof words.client);
    words.rank = from.rank;
    if (from.magic != MAGIC || weft_job_prove(expected, &self->key, "rank", &words, NULL) != WEFT_OK) {
        drop_client(one);
        return;
    }
    if (weft_job_proof_equals(from.proof, expected))
        v.code = from.rank < 0 || from.rank >= self->n || self->clients[from.rank].file != GONE ? NO_PLACE : WELCOME;
    if (v.code == WELCOME && weft_job_prove(v.proof, &self->key, "keeper", &words, NULL) != WEFT_OK) v.code = WRONG_KEY;
    if (!send_part(one->file, &v, sizeof v, false) || v.code != WELCOME) {
        drop_client(one);
        return;
    }
    weft_store_admit(self, from.rank, one->file);
    one->file = GONE;
}

static void hear_stranger(weft_store *self, client *one) {
    const ssize_t n = recv(one->file, one->bytes + one->got, sizeof(greeting) - one->got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    if (n <= 0) {
        drop_client(one);
        return;
    }
    one->got += (size_t)n;
    if (one->got == sizeof(greeting)) judge_greeting(self, one);
}

bool weft_store_is_own_user(int file) {
    struct ucred who;
    socklen_t size = sizeof who;
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    if (getsockname(file, (struct sockaddr *)&address, &length) != 0) return false;
    if (address.ss_family != AF_UNIX) return true; /* no user information */
    return getsockopt(file, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.uid == geteuid();
}

static void meet_stranger(weft_store *self) {
    const int file = accept4(self->listener, NULL, NULL, SOCK_CLOEXEC);
    client *one = &self->clients[self->n + self->next];
    challenge first = {.magic = MAGIC};
    if (file < 0) return;
    if (!weft_store_is_own_user(file) || !weft_job_random(first.random) ||
        !send_part(file, &first, sizeof first, false)) {
        (void)close(file);
        return;
    }
    if (one->file != GONE) drop_client(one);
    self->next = (self->next + 1) % STRANGERS;
    one->file = file;
    one->got = 0;
    memcpy(one->random, first.random, sizeof one->random);
}

void weft_store_serve(weft_store *self, int ms) {
    const int32_t n = count_clients(self);
    self->files[0] = (struct pollfd){self->listener, POLLIN, 0}; /* negative: ignored */
    for (int32_t i = 0; i < n; i++) self->files[1 + i] = (struct pollfd){self->clients[i].file, POLLIN, 0};
    if (poll(self->files, (nfds_t)n + 1, ms) <= 0) return;
    for (int32_t i = 0; i < n; i++)
        if (self->clients[i].file != GONE && self->clients[i].file == self->files[1 + i].fd &&
            self->files[1 + i].revents != 0)
            (i < self->n ? hear_client : hear_stranger)(self, &self->clients[i]);
    if (self->files[0].revents != 0) meet_stranger(self);
}

bool weft_store_is_over(const weft_store *self) {
    for (int32_t i = 0; i < self->n; i++)
        if (!self->clients[i].has_begun || self->clients[i].file != GONE) return false;
    return true;
}
