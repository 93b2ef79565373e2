/* host/launch/heartbeat.c: see heartbeat.h. */
#include "launch/heartbeat.h"

#include "plugin/crash.h"
#include "plugin/exit_guard.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static weft_heartbeat nobodys = {.instruction = -1}; /* the record of an unwatched rank */
static weft_heartbeat *own = &nobodys;
static int parent = -1; /* connection to the watching parent; -1: closed */

static void store_relaxed(_Atomic int32_t *to, int32_t value) {
    atomic_store_explicit(to, value, memory_order_release);
}

static void move_on(void) {
    const uint64_t progress = atomic_load_explicit(&own->progress, memory_order_relaxed);
    atomic_store_explicit(&own->progress, progress + 1, memory_order_release);
}

bool weft_heartbeat_is_watched(void) {
    return own != &nobodys;
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
 * exit_guard.c reports an exit during plugin work, with another status. */
static void tell_end(int status, void *unused) {
    (void)unused;
    if (atomic_load(&own->pid) != (int32_t)getpid() || weft_exit_guard_is_early()) return;
    if (parent >= 0)
        (void)fcntl(parent, F_SETFL, 0); /* the watchdog closes the connection after it has read the
                                                       * record */
    store_relaxed(&own->status, status & 0xFF);
    store_relaxed(&own->state, WEFT_HEARTBEAT_ENDED);
}

/* Ends this process when the parent dies. The parent never writes: its end of the connection only closes, and the
 * kernel signals that immediately. */
static bool die_with(int file) {
    struct pollfd closed = {file, POLLIN, 0};
    return fcntl(file, F_SETSIG, SIGKILL) == 0 && fcntl(file, F_SETOWN, getpid()) == 0 &&
           fcntl(file, F_SETFL, O_ASYNC) == 0 && poll(&closed, 1, 0) == 0; /* it may be closed already */
}

static _Noreturn void end_without_parent(const char *path) {
    (void)fprintf(stderr, "weft: this rank ends: the process that started the ranks (" WEFT_WATCHED "=%s) is gone\n",
                  path);
    _exit(1);
}

void weft_heartbeat_begin(int32_t rank) {
    const char *path = getenv(WEFT_WATCHED);
    weft_heartbeat *records = NULL;
    static bool begun;
    if (!begun) (void)on_exit(tell_end, NULL);
    begun = true;
    if (weft_heartbeat_is_watched()) return;
    store_relaxed(&own->rank, rank);
    if (path != NULL) records = weft_heartbeat_map(path, rank + 1);
    if (path == NULL) return;
    if (records == NULL) end_without_parent(path);
    weft_heartbeat_move(&records[rank]);
    parent = weft_heartbeat_link(path);
    if (parent < 0 || !die_with(parent)) end_without_parent(path);
}

/* Uses the abstract namespace: the name disappears with the watchdog. */
uint32_t weft_heartbeat_address(struct sockaddr_un *out, const char *path) {
    memset(out, 0, sizeof *out);
    out->sun_family = AF_UNIX;
    return (uint32_t)offsetof(struct sockaddr_un, sun_path) + 1 +
           (uint32_t)snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "weft-watch:%.80s", path);
}

/* Moves the descriptor to a high number. The kernel closes a dead process's descriptors from the highest number down.
 * The launcher and other ranks end others as soon as their connections close, so the watchdog must be notified first.
 */
enum { HIGH = 512 };

static int raise_descriptor(int file) {
    const int high = fcntl(file, F_DUPFD_CLOEXEC, HIGH);
    if (high < 0) return file; /* few descriptors are allowed: keep the number */
    (void)close(file);
    return high;
}

/* Connects to the watchdog. Without the connection it detects the end too, a little later. */
int weft_heartbeat_link(const char *path) {
    struct sockaddr_un address;
    const uint32_t size = weft_heartbeat_address(&address, path);
    const int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (file < 0) return -1;
    if (connect(file, (const struct sockaddr *)&address, size) == 0) return raise_descriptor(file);
    (void)close(file);
    return -1;
}

void weft_heartbeat_move(weft_heartbeat *to) {
    weft_heartbeat *from = own;
    atomic_store(&to->rank, atomic_load(&from->rank));
    atomic_store(&to->state, atomic_load(&from->state));
    atomic_store(&to->patience, atomic_load(&from->patience));
    atomic_store(&to->instruction, atomic_load(&from->instruction));
    atomic_store(&to->evaluates, atomic_load(&from->evaluates));
    atomic_store(&to->listens, atomic_load(&from->listens));
    atomic_store(&to->step, atomic_load(&from->step));
    atomic_store(&to->text, atomic_load(&from->text));
    memcpy(to->texts, from->texts, sizeof to->texts);
    own = to;
    weft_crash_note(&to->crash);
    weft_crash_crumb(&to->call);
    store_relaxed(&to->pid, (int32_t)getpid()); /* all other fields are set now */
}

/* Updates the record. The current text stays valid while the other one is written. */
void weft_heartbeat_instruction(uint64_t step, int32_t instruction, const char *text) {
    const int32_t next = 1 - atomic_load_explicit(&own->text, memory_order_relaxed);
    size_t n = strlen(text);
    if (n >= WEFT_HEARTBEAT_TEXT) n = WEFT_HEARTBEAT_TEXT - 1;
    memcpy(own->texts[next], text, n);
    own->texts[next][n] = '\0';
    store_relaxed(&own->text, next);
    store_relaxed(&own->evaluates, step == 0);
    if (step != 0) atomic_store_explicit(&own->step, step, memory_order_release);
    store_relaxed(&own->instruction, instruction);
    move_on();
}

void weft_heartbeat_rest(void) {
    store_relaxed(&own->instruction, -1);
    store_relaxed(&own->evaluates, 0);
    move_on();
}

void weft_heartbeat_wait(void) {
    store_relaxed(&own->state, WEFT_HEARTBEAT_WAITS);
}

void weft_heartbeat_go(void) {
    store_relaxed(&own->state, WEFT_HEARTBEAT_COMPUTES);
    move_on();
}

void weft_heartbeat_patience(int64_t seconds) {
    store_relaxed(&own->patience, seconds > 1000000 ? 1000000 : (int32_t)seconds);
}

void weft_heartbeat_listens(void) {
    store_relaxed(&own->listens, 1);
}

void weft_heartbeat_say_place(char *out, size_t size, bool evaluates, uint64_t step, int32_t instruction,
                              const char *text) {
    char when[64];
    (void)snprintf(when, sizeof when, "%s%s %llu", evaluates ? "in the evaluation " : "",
                   evaluates || instruction < 0 ? "after step" : "in step", (unsigned long long)step);
    if (step == 0)
        (void)snprintf(when, sizeof when, "%s", evaluates ? "in the evaluation at the start" : "before step 1");
    if (instruction < 0) (void)snprintf(out, size, "%s", when);
    else (void)snprintf(out, size, "%s, at instruction %d, %s", when, (int)instruction, text);
}

void weft_heartbeat_place(char *out, size_t size) {
    char text[WEFT_HEARTBEAT_TEXT];
    memcpy(text, own->texts[atomic_load(&own->text) & 1], sizeof text);
    text[sizeof text - 1] = '\0';
    weft_heartbeat_say_place(out, size, atomic_load(&own->evaluates) != 0, atomic_load(&own->step),
                             atomic_load(&own->instruction), text);
}

bool weft_heartbeat_waits(void) {
    return atomic_load(&own->state) == WEFT_HEARTBEAT_WAITS;
}
