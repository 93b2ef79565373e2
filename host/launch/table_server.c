/* host/launch/table_server.c: see rendezvous.h. */
#include "launch/rendezvous.h"

#include "base/alloc.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#define NAME "/job-secret"
enum { LEAST = 16, MOST = 256 }; /* characters of a secret */

enum { RANDOM = WEFT_HASH_BYTES, PROOF = 65 }; /* bytes */

/* Fills out with random bytes; false: the system call failed. */
static bool fill_random(unsigned char out[RANDOM]) {
    return getrandom(out, RANDOM, 0) == RANDOM;
}

/* Computes a proof from the random bytes of both sides. role: "rank" or "keeper", so that one side's proof is invalid
 * for the other. */
static weft_status make_proof(char out[PROOF], const weft_job_key *key, const char *role,
                              const unsigned char server[RANDOM], const unsigned char client[RANDOM], int32_t rank,
                              weft_error *err) {
    struct {
        char key[sizeof key->hash], role[7];
        unsigned char server[RANDOM], client[RANDOM];
        int32_t rank;
    } all;
    memset(&all, 0, sizeof all);
    memcpy(all.key, key->hash, sizeof all.key);
    (void)snprintf(all.role, sizeof all.role, "%s", role);
    memcpy(all.server, server, RANDOM);
    memcpy(all.client, client, RANDOM);
    all.rank = rank;
    return weft_hash_text(out, &all, sizeof all, err);
}

/* Compares in constant time. */
static bool proofs_are_equal(const char a[PROOF], const char b[PROOF]) {
    int differ = 0;
    for (int i = 0; i < PROOF; i++) differ |= a[i] ^ b[i];
    return differ == 0;
}

static weft_status make_key(weft_job_key *out, const char *secret, const char *source, weft_error *err) {
    const size_t n = strlen(secret);
    if (n >= LEAST && n <= MOST) return weft_hash_text(out->hash, secret, n, err);
    return weft_error_set(err, WEFT_E_USER, "%s has %zu characters: a secret of a job has %d to %d", source, n, LEAST,
                          MOST);
}

/* ---- the file ---- */

static weft_status file_fails(const char *path, const char *what, weft_error *err) {
    return weft_error_set(err, WEFT_E_SYSTEM,
                          "%s, by which ranks recognize one another, %s: %s. Fix: set " WEFT_JOB_SECRET
                          " to the same %d characters or more for all ranks",
                          path, what, strerror(errno), LEAST);
}

/* Creates the file atomically: ranks of several machines may create it at once, and the first one wins. */
static bool create_file(const char *path) {
    unsigned char random[RANDOM];
    char text[65], hidden[PATH_MAX + 8];
    int file = -1;
    bool made = false;
    if (!fill_random(random)) return false;
    weft_hash_hex(text, random);
    (void)snprintf(hidden, sizeof hidden, "%s.XXXXXX", path);
    file = mkostemp(hidden, O_CLOEXEC); /* mode 0600 */
    if (file < 0) return false;
    made = write(file, text, 64) == 64 && fsync(file) == 0;
    made = close(file) == 0 && made && (link(hidden, path) == 0 || errno == EEXIST);
    (void)unlink(hidden);
    return made;
}

static weft_status read_secret(char text[MOST + 2], char path[PATH_MAX], weft_error *err) {
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    const bool has_data = data != NULL && data[0] == '/';
    weft_status status = WEFT_OK;
    struct stat info;
    ssize_t n = -1;
    int file = -1;
    if (!has_data && (home == NULL || home[0] != '/'))
        return weft_error_set(err, WEFT_E_USER,
                              "ranks that meet at a port need a secret, and there is no HOME for its file. Fix: set "
                              "" WEFT_JOB_SECRET " to the same %d characters or more for all ranks",
                              LEAST);
    (void)snprintf(path, PATH_MAX, "%s%s/weft" NAME, has_data ? data : home, has_data ? "" : "/.local/share");
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 && errno == ENOENT) {
        path[strlen(path) - strlen(NAME)] = '\0';
        status = weft_tree_make(path, err);
        path[strlen(path)] = NAME[0];
        if (status != WEFT_OK) return status;
        if (!create_file(path)) return file_fails(path, "cannot be created", err);
        file = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (file < 0) return file_fails(path, "cannot be opened", err);
    if (fstat(file, &info) != 0) status = file_fails(path, "cannot be examined", err);
    else if (info.st_uid != geteuid() || (info.st_mode & 077) != 0)
        status = weft_error_set(err, WEFT_E_USER,
                                "%s can be read or changed by others than its user. Fix: remove it, or chmod 600",
                                path);
    else if ((n = read(file, text, MOST + 1)) < 0) status = file_fails(path, "cannot be read", err);
    (void)close(file);
    text[n < 0 ? 0 : n] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return status;
}

weft_status weft_job_key_read(weft_job_key *out, weft_error *err) {
    const char *given = getenv(WEFT_JOB_SECRET);
    char text[MOST + 2], path[PATH_MAX];
    weft_status status = WEFT_OK;
    if (given != NULL) return make_key(out, given, WEFT_JOB_SECRET, err);
    status = read_secret(text, path, err);
    return status == WEFT_OK ? make_key(out, text, path, err) : status;
}

/* ---- messages: both ends have the same byte order ---- */

enum { MAGIC = 0x57656676 /* another value if the messages change */, GONE = -1 };
enum { PUT = 1, GET = 2 };
enum { TAKEN = 0, TWICE = 1, WRONG_KEY = 2, NO_PLACE = 3 };
enum { STRANGERS = 32 }; /* unauthenticated connections; one more closes the oldest of them */

/* The server's first bytes on a connection that it has accepted. */
typedef struct challenge {
    uint32_t magic;
    unsigned char random[RANDOM];
} challenge;

/* A rank's reply to it, with rank, random and proof; after that a request, with the other fields. */
typedef struct message {
    uint32_t magic, what, n;
    int32_t rank;
    unsigned char random[RANDOM];
    char proof[PROOF];
    char key[WEFT_STORE_KEY];
    char bytes[WEFT_EXCHANGE_MOST]; /* n of a PUT */
} message;

typedef struct answer {
    uint32_t code, n;
    char proof[PROOF];              /* of the server, to a rank that it has admitted */
    char bytes[WEFT_EXCHANGE_MOST]; /* n of a GET */
} answer;

/* Returns true for a valid key: words of [a-z0-9._-]. */
static bool is_key(const char *key) {
    const size_t n = strspn(key, "abcdefghijklmnopqrstuvwxyz0123456789._-");
    return n > 0 && key[n] == '\0' && n < WEFT_STORE_KEY;
}

bool weft_send_all(int file, const void *bytes, size_t n) {
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

/* Receives n bytes. errno 0: the peer has closed the connection. */
static bool receive_all(int file, void *bytes, size_t n) {
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

/* ---- a rank's side ---- */

/* Limits the time of each receive; 0: no limit. */
static bool set_timeout(int file, int32_t seconds) {
    const struct timeval time = {seconds, 0};
    return setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0;
}

static bool ask(int file, const message *sent, answer *out) {
    return weft_send_all(file, sent, sizeof *sent) && receive_all(file, out, sizeof *out);
}

static weft_status lost_store(weft_error *err) {
    return weft_error_set(err, WEFT_E_PEER, "rank 0, which keeps the key-value store of the ranks, is gone: %s",
                          errno == 0 ? "it has ended" : strerror(errno));
}

weft_status weft_store_greet(int file, const weft_job_key *key, int32_t rank, int32_t patience, bool *again,
                             weft_error *err) {
    challenge asked;
    answer a;
    message mine = {.magic = MAGIC, .rank = rank};
    char expected[PROOF];
    weft_status status = WEFT_OK;
    *again = !set_timeout(file, patience) || !receive_all(file, &asked, sizeof asked) || asked.magic != MAGIC;
    if (*again) return weft_error_set(err, WEFT_E_PEER, "the connection was refused");
    if (!fill_random(mine.random)) return weft_error_set(err, WEFT_E_SYSTEM, "getrandom: %s", strerror(errno));
    status = make_proof(mine.proof, key, "rank", asked.random, mine.random, rank, err);
    if (status == WEFT_OK) status = make_proof(expected, key, "keeper", asked.random, mine.random, rank, err);
    if (status != WEFT_OK) return status;
    *again = !ask(file, &mine, &a);
    if (*again) return weft_error_set(err, WEFT_E_PEER, "the connection was refused");
    if (a.code == NO_PLACE)
        return weft_error_set(err, WEFT_E_PEER, "another process is rank %d already, or there is no such rank",
                              (int)rank);
    if (a.code == TAKEN && proofs_are_equal(a.proof, expected)) return WEFT_OK;
    return weft_error_set(err, WEFT_E_PEER,
                          "rank 0 and rank %d have different secrets of the job. Fix: set " WEFT_JOB_SECRET
                          " to the same for all ranks, or copy the file weft/job-secret of ~/.local/share to all "
                          "machines",
                          (int)rank);
}

static weft_status make_request(message *out, uint32_t what, const char *key, size_t n, weft_error *err) {
    if (!is_key(key))
        return weft_error_set(err, WEFT_E_HOST, "\"%.80s\" is no key of an exchange: 1 to %d of [a-z0-9._-]", key,
                              WEFT_STORE_KEY - 4);
    if (n > WEFT_EXCHANGE_MOST)
        return weft_error_set(err, WEFT_E_HOST, "a value of %zu bytes under \"%s\": an exchange takes %d at most", n,
                              key, WEFT_EXCHANGE_MOST);
    *out = (message){.magic = MAGIC, .what = what, .n = (uint32_t)n};
    memcpy(out->key, key, strlen(key));
    return WEFT_OK;
}

weft_status weft_store_put(int file, const char *key, const void *bytes, size_t n, weft_error *err) {
    message request;
    answer a;
    const weft_status status = make_request(&request, PUT, key, n, err);
    if (status != WEFT_OK) return status;
    if (n > 0) memcpy(request.bytes, bytes, n);
    if (!set_timeout(file, 0) || !ask(file, &request, &a)) return lost_store(err);
    if (a.code == TWICE)
        return weft_error_set(err, WEFT_E_HOST, "\"%s\" has been put before, by this rank or another", key);
    return WEFT_OK;
}

weft_status weft_store_get(int file, const char *key, void *bytes, size_t n, int32_t patience, weft_error *err) {
    message request;
    answer a;
    const weft_status status = make_request(&request, GET, key, n, err);
    if (status != WEFT_OK) return status;
    if (!set_timeout(file, patience) || !ask(file, &request, &a)) {
        if (errno != EAGAIN && errno != EWOULDBLOCK) return lost_store(err);
        return weft_error_set(err, WEFT_E_PEER,
                              "no rank has put it within %d s ([run] patience): one has not started, or has failed "
                              "before (the key of the exchange is \"%s\")",
                              (int)patience, key);
    }
    if (a.n != n)
        return weft_error_set(err, WEFT_E_PEER,
                              "\"%s\" is %u bytes where the rank that put it has another version, and %zu here: start "
                              "the same program on all ranks",
                              key, (unsigned)a.n, n);
    memcpy(bytes, a.bytes, n);
    return WEFT_OK;
}

/* ---- the server ---- */

typedef struct entry {
    struct entry *next;
    char key[WEFT_STORE_KEY];
    answer value;
} entry;

typedef struct client {
    int file;                     /* GONE: closed */
    message in;                   /* its message; complete once got is its size */
    size_t got;                   /* bytes */
    bool waits;                   /* for the key of its message */
    bool has_begun;               /* the rank has been connected */
    unsigned char random[RANDOM]; /* sent to an unauthenticated client */
} client;

struct weft_store {
    entry *entries;
    client *clients;                      /* [n + STRANGERS] */
    struct pollfd *files;                 /* [1 + n + STRANGERS] */
    int32_t n, n_clients, next, listener; /* next: the unauthenticated slot that is used next */
    weft_job_key key;
};

weft_store *weft_store_create(int32_t n) {
    weft_store *self = weft_alloc(1, sizeof *self);
    self->n = n;
    self->n_clients = n + STRANGERS;
    self->listener = GONE;
    self->clients = weft_alloc(self->n_clients, sizeof *self->clients);
    self->files = weft_alloc(self->n_clients + 1, sizeof *self->files);
    for (int32_t i = 0; i < self->n_clients; i++) self->clients[i].file = GONE;
    return self;
}

static void drop_client(client *one) {
    (void)close(one->file);
    one->file = GONE;
    one->waits = false;
}

void weft_store_destroy(weft_store *self) {
    if (self == NULL) return;
    for (int32_t i = 0; i < self->n_clients; i++)
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
    client *one = &self->clients[rank];
    one->file = file;
    one->got = 0;
    one->waits = false;
    one->has_begun = true;
}

void weft_store_listen(weft_store *self, int file, const weft_job_key *key) {
    self->listener = file;
    self->key = *key;
}

/* Answers a client's request; drops a client that does not listen. */
static void reply(client *to, const answer *what) {
    to->waits = false;
    to->got = 0;
    if (!weft_send_all(to->file, what, sizeof *what)) drop_client(to);
}

static void handle_request(weft_store *self, client *from) {
    const message *in = &from->in;
    entry *one = self->entries;
    while (one != NULL && strcmp(one->key, in->key) != 0) one = one->next;
    if (in->what == GET) {
        from->waits = one == NULL;
        if (one != NULL) reply(from, &one->value);
        return;
    }
    reply(from, &(const answer){.code = one != NULL ? TWICE : TAKEN});
    if (one != NULL) return;
    one = weft_alloc(1, sizeof *one);
    memcpy(one->key, in->key, sizeof one->key);
    memcpy(one->value.bytes, in->bytes, in->n);
    one->value.n = in->n;
    one->next = self->entries;
    self->entries = one;
    for (int32_t i = 0; i < self->n; i++)
        if (self->clients[i].waits && strcmp(self->clients[i].in.key, one->key) == 0)
            reply(&self->clients[i], &one->value);
}

/* Judges an unauthenticated client. A connection with the key becomes the rank's; every other one is closed. */
static void check_greeting(weft_store *self, client *one) {
    const message *from = &one->in;
    answer a = {.code = WRONG_KEY};
    char expected[PROOF];
    if (make_proof(expected, &self->key, "rank", one->random, from->random, from->rank, NULL) == WEFT_OK &&
        proofs_are_equal(from->proof, expected))
        a.code = from->rank < 0 || from->rank >= self->n || self->clients[from->rank].file != GONE ? NO_PLACE : TAKEN;
    if (a.code == TAKEN &&
        make_proof(a.proof, &self->key, "keeper", one->random, from->random, from->rank, NULL) != WEFT_OK)
        a.code = WRONG_KEY;
    if (!weft_send_all(one->file, &a, sizeof a) || a.code != TAKEN) {
        drop_client(one);
        return;
    }
    weft_store_admit(self, from->rank, one->file);
    one->file = GONE;
}

/* Receives a part of a message. Drops a client that has ended, sends while it waits, or sends no valid message. */
static void receive_message(weft_store *self, client *one) {
    const message *in = &one->in;
    const bool is_rank = one < self->clients + self->n;
    const ssize_t n = one->waits ? 0
                                 : recv(one->file, (char *)&one->in + one->got, sizeof *in - one->got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    one->got += n > 0 ? (size_t)n : 0;
    if (n <= 0 || (one->got >= sizeof in->magic && in->magic != MAGIC)) drop_client(one);
    else if (one->got < sizeof *in) return;
    else if (!is_rank) check_greeting(self, one);
    else if ((in->what == PUT || in->what == GET) && in->n <= WEFT_EXCHANGE_MOST &&
             memchr(in->key, '\0', sizeof in->key) != NULL && is_key(in->key))
        handle_request(self, one);
    else drop_client(one);
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

static void accept_stranger(weft_store *self) {
    const int file = accept4(self->listener, NULL, NULL, SOCK_CLOEXEC);
    client *one = &self->clients[self->n + self->next];
    challenge first = {.magic = MAGIC};
    if (file < 0) return;
    if (!weft_store_is_own_user(file) || !fill_random(first.random) || !weft_send_all(file, &first, sizeof first)) {
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
    const int32_t n = self->n_clients;
    self->files[0] = (struct pollfd){self->listener, POLLIN, 0}; /* negative: ignored */
    for (int32_t i = 0; i < n; i++) self->files[1 + i] = (struct pollfd){self->clients[i].file, POLLIN, 0};
    if (poll(self->files, (nfds_t)n + 1, ms) <= 0) return;
    for (int32_t i = 0; i < n; i++)
        if (self->clients[i].file != GONE && self->clients[i].file == self->files[1 + i].fd &&
            self->files[1 + i].revents != 0)
            receive_message(self, &self->clients[i]);
    if (self->files[0].revents != 0) accept_stranger(self);
}

bool weft_store_is_over(const weft_store *self) {
    for (int32_t i = 0; i < self->n; i++)
        if (!self->clients[i].has_begun || self->clients[i].file != GONE) return false;
    return true;
}
