/* host/launch/heartbeat.c: see heartbeat.h. */
#include "launch/heartbeat.h"

#include "base/text.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static weft_heartbeat unwatched = {.instruction = -1}; /* the record of an unwatched rank */
static weft_heartbeat *own = &unwatched;
static int parent = -1; /* connection to the watching parent; -1: closed */

static void store(_Atomic int32_t *to, int32_t value) {
    atomic_store_explicit(to, value, memory_order_release);
}

static void count_progress(void) {
    const uint64_t progress = atomic_load_explicit(&own->progress, memory_order_relaxed);
    atomic_store_explicit(&own->progress, progress + 1, memory_order_release);
}

bool weft_heartbeat_is_watched(void) {
    return own != &unwatched;
}

weft_heartbeat *weft_heartbeat_create(int32_t *file, int32_t n) {
    const size_t bytes = (size_t)n * sizeof(weft_heartbeat);
    void *records = MAP_FAILED;
    *file = memfd_create("weft-heartbeat", MFD_CLOEXEC);
    if (*file < 0) return NULL;
    if (ftruncate(*file, (off_t)bytes) == 0) records = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *file, 0);
    if (records != MAP_FAILED) return records;
    (void)close(*file);
    *file = -1;
    return NULL;
}

void weft_heartbeat_path(char *out, size_t size, int32_t pid, int32_t file) {
    (void)snprintf(out, size, "/proc/%d/fd/%d", (int)pid, (int)file);
}

weft_heartbeat *weft_heartbeat_map(const char *path, int32_t n) {
    const size_t bytes = (size_t)n * sizeof(weft_heartbeat);
    const int file = open(path, O_RDWR | O_CLOEXEC);
    struct stat info;
    void *records = MAP_FAILED;
    if (file < 0) return NULL;
    if (fstat(file, &info) == 0 && S_ISREG(info.st_mode) && (uint64_t)info.st_size >= bytes)
        records = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    (void)close(file);
    return records == MAP_FAILED ? NULL : records;
}

/* Records the end, through on_exit, so that no command needs to call it. A child of the rank may exit, too.
 * The exit guard (plugin/crash.h) reports an exit during plugin work, with another status. */
static void record_end(int status, void *unused) {
    (void)unused;
    if (atomic_load(&own->pid) != (int32_t)getpid() || weft_exit_guard_is_early()) return;
    if (parent >= 0)
        (void)fcntl(parent, F_SETFL, 0); /* the watchdog closes the connection when it has read the record */
    store(&own->status, status & 0xFF);
    store(&own->state, WEFT_HEARTBEAT_ENDED);
}

void weft_heartbeat_begin(int32_t rank) {
    const char *path = getenv(WEFT_WATCHED);
    weft_heartbeat *records = NULL;
    struct pollfd closed = {-1, POLLIN, 0};
    static bool begun;
    if (!begun) (void)on_exit(record_end, NULL);
    begun = true;
    if (weft_heartbeat_is_watched()) return;
    store(&own->rank, rank);
    if (path == NULL) return;
    records = weft_heartbeat_map(path, rank + 1);
    if (records != NULL) {
        weft_heartbeat_move(&records[rank]);
        parent = weft_heartbeat_link(path);
    }
    /* The kernel signals a closed connection immediately, and the watchdog never writes. It may be closed already. */
    closed.fd = parent;
    if (parent >= 0 && fcntl(parent, F_SETSIG, SIGKILL) == 0 && fcntl(parent, F_SETOWN, getpid()) == 0 &&
        fcntl(parent, F_SETFL, O_ASYNC) == 0 && poll(&closed, 1, 0) == 0)
        return;
    (void)fprintf(stderr, "weft: this rank ends: the process that started the ranks (" WEFT_WATCHED "=%s) is gone\n",
                  path);
    _exit(1);
}

int weft_local_socket(const char *name, bool listens) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int n = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "%s", name);
    const socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1) + (socklen_t)n;
    const struct sockaddr *to = (const struct sockaddr *)&address;
    const int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | (listens ? SOCK_NONBLOCK : 0), 0);
    if (file < 0) return -1;
    if (listens ? bind(file, to, size) == 0 && listen(file, 4096) == 0 : connect(file, to, size) == 0) return file;
    (void)close(file);
    return -1;
}

enum { HIGH = 512 };

/* Connects to the watchdog. Without the connection it detects the end too, a little later. The descriptor gets a high
 * number: the kernel closes a dead process's descriptors from the highest down. The launcher and other ranks end others
 * as soon as their connections close, so the watchdog must be notified first. */
int weft_heartbeat_link(const char *path) {
    char name[WEFT_LOCAL_NAME];
    int file = -1, high = -1;
    (void)snprintf(name, sizeof name, WEFT_WATCH_NAME, path);
    file = weft_local_socket(name, false);
    if (file >= 0) high = fcntl(file, F_DUPFD_CLOEXEC, HIGH);
    if (high < 0) return file; /* few descriptors are allowed: keep the number */
    (void)close(file);
    return high;
}

void weft_heartbeat_move(weft_heartbeat *to) {
    memcpy(to, own, sizeof *to); /* its pid is 0 until all other fields are set */
    own = to;
    weft_crash_crumb(&to->call);
    store(&to->pid, (int32_t)getpid());
}

/* Updates the record. The current text stays valid while the other one is written. */
void weft_heartbeat_instruction(uint64_t step, int32_t instruction, const char *text) {
    const int32_t next = 1 - atomic_load_explicit(&own->text, memory_order_relaxed);
    size_t n = strlen(text);
    if (n >= WEFT_HEARTBEAT_TEXT) n = WEFT_HEARTBEAT_TEXT - 1;
    memcpy(own->texts[next], text, n);
    own->texts[next][n] = '\0';
    store(&own->text, next);
    store(&own->evaluates, step == 0);
    if (step != 0) atomic_store_explicit(&own->step, step, memory_order_release);
    store(&own->instruction, instruction);
    count_progress();
}

void weft_heartbeat_rest(void) {
    store(&own->instruction, -1);
    store(&own->evaluates, 0);
    count_progress();
}

void weft_heartbeat_wait(void) {
    store(&own->state, WEFT_HEARTBEAT_WAITS);
}

void weft_heartbeat_go(void) {
    store(&own->state, WEFT_HEARTBEAT_COMPUTES);
    count_progress();
}

void weft_heartbeat_patience(int64_t seconds) {
    store(&own->patience, seconds > 1000000 ? 1000000 : (int32_t)seconds);
}

void weft_heartbeat_listens(void) {
    store(&own->listens, 1);
}

void weft_position_format(char *out, size_t size, bool evaluates, uint64_t step, int32_t instruction,
                          const char *text) {
    if (step == 0) (void)snprintf(out, size, "%s", evaluates ? "in the evaluation at the start" : "before step 1");
    else
        (void)snprintf(out, size, "%s%s %llu", evaluates ? "in the evaluation " : "",
                       evaluates || instruction < 0 ? "after step" : "in step", (unsigned long long)step);
    if (instruction >= 0) weft_words_append(out, size, ", at instruction %d, %s", (int)instruction, text);
}

void weft_heartbeat_position(char *out, size_t size) {
    char text[WEFT_HEARTBEAT_TEXT];
    memcpy(text, own->texts[atomic_load(&own->text) & 1], sizeof text);
    text[sizeof text - 1] = '\0';
    weft_position_format(out, size, atomic_load(&own->evaluates) != 0, atomic_load(&own->step),
                         atomic_load(&own->instruction), text);
}

bool weft_heartbeat_waits(void) {
    return atomic_load(&own->state) == WEFT_HEARTBEAT_WAITS;
}
