/* host/launch/rendezvous.c: see rendezvous.h. */
#include "launch/rendezvous.h"

#include "base/units.h"
#include "launch/heartbeat.h"
#include "plugin/services.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Seconds for which rank 0 serves the store after a failure. */
#define FAREWELL 1.0

enum { CLOSED = -1, RETRY_MS = 20, FIRST_PORT = 20000, N_PORTS = 20000 };

/* Address of the store: a machine and a port, or a name on this machine. */
typedef struct store_address {
    char host[256], port[16];
    char name[64]; /* "": by host and port */
    char source[96];
} store_address;

static struct {
    weft_host_exchange table;
    int32_t patience;
    int file; /* this rank's connection */
    /* the server's side, on rank 0 */
    int listener;
    weft_store *store;
    pthread_t thread;
    bool serves;
    atomic_bool ends;
} own = {.file = CLOSED, .listener = CLOSED};

/* ---- the address ---- */

bool weft_rendezvous_first_host(char *out, size_t size, const char *list) {
    const size_t plain = strcspn(list, "[,");
    size_t digits = 0;
    if (list[plain] != '[') {
        (void)snprintf(out, size, "%.*s", (int)plain, list);
        return plain > 0 && plain < size;
    }
    digits = strspn(list + plain + 1, "0123456789");
    (void)snprintf(out, size, "%.*s%.*s", (int)plain, list, (int)digits, list + plain + 1);
    return digits > 0 && plain + digits < size;
}

/* Returns whether all ranks are on one machine, from the launcher's local rank count. */
static bool is_one_machine(int32_t ranks) {
    static const char *const names[] = {"MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_WORLD_SIZE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        if (text != NULL) return strtol(text, NULL, 10) == ranks;
    }
    return false;
}

/* Names the address after the launcher's process, the parent of all of its ranks on this machine. */
static weft_status meet_by_parent(store_address *out) {
    (void)snprintf(out->name, sizeof out->name, "weft-rendezvous-%d-%d", (int)getuid(), (int)getppid());
    (void)snprintf(out->source, sizeof out->source, "the process %d that started this one", (int)getppid());
    return WEFT_OK;
}

static weft_status find_address(store_address *out, weft_error *err) {
    const char *given = getenv(WEFT_RENDEZVOUS), *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT"),
               *nodes = getenv("SLURM_STEP_NODELIST"), *job = getenv("SLURM_JOB_ID");
    memset(out, 0, sizeof *out);
    if (given != NULL && strcmp(given, WEFT_RENDEZVOUS_PARENT) == 0) return meet_by_parent(out);
    if (given != NULL) {
        const char *colon = strrchr(given, ':');
        (void)snprintf(out->source, sizeof out->source, WEFT_RENDEZVOUS);
        (void)snprintf(out->host, sizeof out->host, "%.*s", colon == NULL ? 0 : (int)(colon - given), given);
        (void)snprintf(out->port, sizeof out->port, "%.15s", colon == NULL ? "" : colon + 1);
        if (out->host[0] != '\0' && colon[1] != '\0' && colon[1 + strspn(colon + 1, "0123456789")] == '\0')
            return WEFT_OK;
        return weft_error_set(err, WEFT_E_USER, WEFT_RENDEZVOUS "=%.200s is no host:port, such as node1:29400", given);
    }
    if (host != NULL && port != NULL) {
        (void)snprintf(out->source, sizeof out->source, "MASTER_ADDR and the port after MASTER_PORT");
        (void)snprintf(out->host, sizeof out->host, "%s", host);
        (void)snprintf(out->port, sizeof out->port, "%d", (int)strtol(port, NULL, 10) + 1);
        return WEFT_OK;
    }
    if (nodes != NULL && job != NULL && weft_rendezvous_first_host(out->host, sizeof out->host, nodes)) {
        (void)snprintf(out->source, sizeof out->source, "the first machine of SLURM_STEP_NODELIST");
        (void)snprintf(out->port, sizeof out->port, "%d", FIRST_PORT + (int)(strtol(job, NULL, 10) % N_PORTS));
        return WEFT_OK;
    }
    if (is_one_machine(weft_services_world()->size)) return meet_by_parent(out);
    return weft_error_set(
        err, WEFT_E_USER,
        "the launcher sets no address at which the ranks of several machines meet: set " WEFT_RENDEZVOUS
        "=host:port for all of them, the machine of rank 0 and a free port there");
}

/* ---- rank 0 serves ---- */

static void *serve_store(void *unused) {
    double end = 0.0;
    (void)unused;
    while (!weft_store_is_over(own.store) && (end == 0.0 || weft_clock_seconds() < end)) {
        weft_store_serve(own.store, RETRY_MS);
        if (end == 0.0 && atomic_load(&own.ends)) end = weft_clock_seconds() + FAREWELL;
    }
    return NULL;
}

/* Binds a socket to the port and listens, or connects to it; CLOSED: not possible. */
static int open_by_port(const store_address *at, bool listens) {
    const struct addrinfo hints = {.ai_family = AF_INET,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = listens ? AI_PASSIVE : 0};
    const char *host = listens ? NULL : own.serves ? "127.0.0.1" : at->host;
    struct addrinfo *found = NULL;
    const int yes = 1;
    int file = CLOSED;
    if (getaddrinfo(host, at->port, &hints, &found) != 0) return CLOSED;
    for (const struct addrinfo *one = found; one != NULL && file == CLOSED; one = one->ai_next) {
        file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (file < 0) continue;
        if (listens) (void)setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        if (listens ? bind(file, one->ai_addr, one->ai_addrlen) == 0 && listen(file, 128) == 0
                    : connect(file, one->ai_addr, one->ai_addrlen) == 0)
            continue;
        (void)close(file);
        file = CLOSED;
    }
    freeaddrinfo(found);
    return file;
}

static int open_address(const store_address *at, bool listens) {
    return at->name[0] != '\0' ? weft_local_socket(at->name, listens) : open_by_port(at, listens);
}

static weft_status start_serving(const store_address *at, const weft_job_key *key, weft_error *err) {
    own.listener = open_address(at, true);
    if (own.listener < 0)
        return weft_error_set(err, WEFT_E_SYSTEM,
                              "rank 0 cannot listen at port %s (from %s), where ranks are to meet: %s; set "
                              "" WEFT_RENDEZVOUS "=host:port to another one",
                              at->port, at->source, strerror(errno));
    own.store = weft_store_create(weft_services_world()->size);
    weft_store_listen(own.store, own.listener, key);
    atomic_store(&own.ends, false);
    own.serves = pthread_create(&own.thread, NULL, serve_store, NULL) == 0;
    if (!own.serves) return weft_error_set(err, WEFT_E_SYSTEM, "no thread for the key-value store of the ranks");
    return WEFT_OK;
}

/* ---- a rank connects ---- */

/* Connects and authenticates in both directions. *again: the server is not ready yet. */
static weft_status connect_and_greet(const store_address *at, const weft_job_key *key, bool *again, weft_error *err) {
    const int file = open_address(at, false);
    weft_status status = WEFT_OK;
    *again = file == CLOSED;
    if (file == CLOSED) return WEFT_OK;
    if (!weft_store_is_own_user(file))
        status = weft_error_set(err, WEFT_E_PEER,
                                "the socket %s belongs to another user. Fix: set " WEFT_RENDEZVOUS "=host:port",
                                at->name);
    else status = weft_store_greet(file, key, weft_services_world()->rank, own.patience, again, err);
    if (status == WEFT_OK) own.file = file;
    else (void)close(file);
    return status;
}

/* Retries until rank 0 serves, which may start later. */
static weft_status reach_store(const store_address *at, const weft_job_key *key, weft_error *err) {
    const struct timespec pause = {0, RETRY_MS * 1000000L};
    const double until = weft_clock_seconds() + own.patience;
    while (own.file == CLOSED) {
        bool again = false;
        const weft_status status = connect_and_greet(at, key, &again, err);
        if (!again) return status;
        if (weft_clock_seconds() > until)
            return weft_error_set(err, WEFT_E_PEER,
                                  "rank 0 cannot be reached within %d s ([run] patience) at %s%s%s (from %s)",
                                  (int)own.patience, at->name[0] != '\0' ? at->name : at->host,
                                  at->name[0] != '\0' ? "" : ":", at->port, at->source);
        (void)nanosleep(&pause, NULL);
    }
    return WEFT_OK;
}

static weft_status connect_once(weft_error *err) {
    store_address at;
    weft_job_key key = {""}; /* on this machine the socket's user is sufficient proof */
    weft_status status = WEFT_OK;
    if (own.file != CLOSED) return WEFT_OK;
    status = find_address(&at, err);
    if (status == WEFT_OK && at.name[0] == '\0') status = weft_job_key_read(&key, err);
    if (status == WEFT_OK && weft_services_world()->rank == 0) status = start_serving(&at, &key, err);
    return status == WEFT_OK ? reach_store(&at, &key, err) : status;
}

/* ---- the exchange for plugins ---- */

static weft_status put_value(const weft_host *host, const char *key, const void *bytes, size_t n, weft_error *err) {
    const weft_status status = connect_once(err);
    (void)host;
    return status == WEFT_OK ? weft_store_put(own.file, key, bytes, n, err) : status;
}

static weft_status get_value(const weft_host *host, const char *key, void *bytes, size_t n, weft_error *err) {
    const weft_status status = connect_once(err);
    (void)host;
    return status == WEFT_OK ? weft_store_get(own.file, key, bytes, n, own.patience, err) : status;
}

void weft_rendezvous_offer(int32_t patience) {
    own.table = (weft_host_exchange){(uint32_t)sizeof own.table, 0, put_value, get_value};
    own.patience = patience;
    weft_services_offer_exchange(&own.table);
}

void weft_rendezvous_end(bool failed) {
    weft_services_offer_exchange(NULL);
    if (own.file != CLOSED) (void)close(own.file);
    own.file = CLOSED;
    if (failed) atomic_store(&own.ends, true);
    if (own.serves) (void)pthread_join(own.thread, NULL);
    own.serves = false;
    if (own.listener != CLOSED) (void)close(own.listener);
    own.listener = CLOSED;
    weft_store_destroy(own.store);
    own.store = NULL;
}
