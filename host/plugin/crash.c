/* host/plugin/crash.c: see crash.h. The handler uses only async-signal-safe functions and formats its line itself. */
#include "plugin/crash.h"

#include "base/alloc.h"
#include "base/units.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { MOST_FILES = 64, MOST_OTHERS = 256 };

static struct {
    const struct link_map *map;
    const char *sha256;
} files[MOST_FILES]; /* of plugins */
static _Atomic size_t n_files;
static _Thread_local weft_call_record doing;
static weft_call_record last;         /* the last plugin call of the handlers' thread */
static const weft_call_record *first; /* the record of the thread that installed the handlers */

struct weft_crash_where weft_crash_where = {.rank = -1};

static int line_to = STDERR_FILENO;

static unsigned char handler_stack[65536];

/* Finds the file that is mapped at the address; NULL: none. Safe in a signal handler. */
static const struct link_map *map_at(uintptr_t address) {
    struct dl_find_object found;
    return _dl_find_object((void *)address, &found) == 0 ? found.dlfo_link_map : NULL; /* NOLINT */
}

void weft_crash_add(const char *sha256, const void *address) {
    const size_t n = atomic_load(&n_files);
    if (n == MOST_FILES) return;
    files[n].map = map_at((uintptr_t)address);
    files[n].sha256 = sha256;
    atomic_store(&n_files, n + 1);
}

/* ---- the record for another process ---- */

static weft_crumb *_Atomic crumb;

/* Writes the name only if it has changed; both strings are valid at any time. */
static void write_crumb(weft_crumb *out, const weft_call_record *now) {
    static const weft_loaded *written;
    if (now->what == NULL || now->loaded == NULL) {
        out->what[0] = '\0';
        return;
    }
    if (written != now->loaded || out->who[0] == '\0')
        (void)snprintf(out->who, sizeof out->who, "%s:%s", now->loaded->plugin->kind, now->loaded->plugin->id);
    written = now->loaded;
    (void)strncpy(out->what, now->what, sizeof out->what - 1);
}

void weft_crash_crumb(weft_crumb *where) {
    weft_crumb *before = NULL;
    if (where != NULL) memset(where, 0, sizeof *where);
    if (where != NULL && first != NULL) write_crumb(where, first);
    before = atomic_exchange(&crumb, where);
    if (before != NULL) before->what[0] = '\0';
}

static void clear_crumb(void) {
    weft_crash_crumb(NULL);
}

/* ---- the calls of all threads ---- */

/* A thread's current call, for other threads. */
typedef struct shown_call {
    atomic_bool is_taken;
    _Atomic uint64_t changes; /* odd while the other fields change */
    _Atomic(const weft_loaded *) loaded;
    _Atomic(const char *) what; /* NULL: no call */
    _Atomic uint64_t number;
    _Atomic double since;
} shown_call;

static shown_call first_call;           /* of the thread that installed the handlers; its `since` is unused */
static shown_call others[MOST_OTHERS];  /* each is of one thread during a call; calls beyond the last are not shown */
static _Thread_local shown_call *taken; /* of this thread; NULL: none */

static void write_call(shown_call *out, const weft_call_record *now, double since) {
    const uint64_t n = atomic_load_explicit(&out->changes, memory_order_relaxed);
    atomic_store_explicit(&out->changes, n + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&out->loaded, now->loaded, memory_order_relaxed);
    atomic_store_explicit(&out->what, now->what, memory_order_relaxed);
    atomic_store_explicit(&out->number, now->number, memory_order_relaxed);
    atomic_store_explicit(&out->since, since, memory_order_relaxed);
    atomic_store_explicit(&out->changes, n + 2, memory_order_release);
}

static bool read_call(shown_call *from, weft_call_record *out, double *since, uint64_t *version) {
    *version = atomic_load_explicit(&from->changes, memory_order_acquire);
    out->loaded = atomic_load_explicit(&from->loaded, memory_order_relaxed);
    out->what = atomic_load_explicit(&from->what, memory_order_relaxed);
    out->number = atomic_load_explicit(&from->number, memory_order_relaxed);
    *since = atomic_load_explicit(&from->since, memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire);
    return *version % 2 == 0 && atomic_load_explicit(&from->changes, memory_order_relaxed) == *version;
}

static void show_other(const weft_call_record *now) {
    for (size_t i = 0; taken == NULL && now->what != NULL && i < MOST_OTHERS; i++)
        if (!atomic_exchange(&others[i].is_taken, true)) taken = &others[i];
    if (taken == NULL) return;
    write_call(taken, now, weft_clock_seconds());
    if (now->what != NULL) return;
    atomic_store(&taken->is_taken, false);
    taken = NULL;
}

bool weft_crash_other_call(weft_call_record *out, double *seconds, uint64_t number) {
    const double now = weft_clock_seconds();
    bool is_found = false;
    for (size_t i = 0; i < MOST_OTHERS; i++) {
        weft_call_record call = {0};
        double since = 0;
        uint64_t version = 0;
        if (!read_call(&others[i], &call, &since, &version) || call.loaded == NULL || call.what == NULL ||
            call.number < number || (is_found && now - since <= *seconds))
            continue;
        *out = call;
        *seconds = now - since;
        is_found = true;
    }
    return is_found;
}

bool weft_crash_main_call(weft_call_record *out, uint64_t *version) {
    double since = 0;
    *out = (weft_call_record){0};
    return first != NULL && read_call(&first_call, out, &since, version);
}

weft_call_record weft_crash_set_call(weft_call_record now) {
    const weft_call_record before = doing;
    const uint64_t n = atomic_load_explicit(&first_call.changes, memory_order_acquire);
    const bool is_first = first == &doing;
    weft_crumb *shared = NULL;
    if (now.number == 0) now.number = is_first ? n + 2 : n;
    doing = now;
    if (is_first) write_call(&first_call, &now, 0);
    else if (first != NULL) show_other(&now);
    if (!is_first) return before;
    if (now.loaded != NULL) last = now;
    shared = atomic_load_explicit(&crumb, memory_order_relaxed);
    if (shared != NULL) write_crumb(shared, &now);
    return before;
}

weft_call_record weft_crash_current(void) {
    return doing.what != NULL || first == NULL ? doing : *first;
}

/* ---- lines ---- */

typedef struct line {
    char text[PATH_MAX + 1024];
    size_t n;
} line;

/* Appends texts up to a NULL. */
static void put(line *out, ...) __attribute__((sentinel));
static void put(line *out, ...) {
    const char *text = NULL;
    va_list texts;
    va_start(texts, out);
    while ((text = va_arg(texts, const char *)) != NULL)
        while (*text != 0 && out->n < sizeof out->text - 1) out->text[out->n++] = *text++;
    va_end(texts);
}

static void put_number(line *out, uint64_t number) {
    char digits[21];
    size_t at = sizeof digits - 1;
    digits[at] = 0;
    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number != 0);
    put(out, digits + at, NULL);
}

static void put_hash(line *out, const char *sha256, const char *file) {
    char digits[13] = "";
    memcpy(digits, sha256, strnlen(sha256, sizeof digits - 1));
    put(out, " (sha256 ", digits, file != NULL ? " of " : "", file != NULL ? file : "", ")", NULL);
}

/* Writes "KIND:ID SLOT", or the description of other work. */
static void put_call(line *out, const weft_call_record *call) {
    if (call->loaded != NULL) put(out, call->loaded->plugin->kind, ":", call->loaded->plugin->id, " ", NULL);
    put(out, call->what, NULL);
}

static void put_call_hash(line *out, const weft_call_record *call) {
    if (call->loaded != NULL) put_hash(out, call->loaded->sha256, call->loaded->path);
    else if (call->sha256 != NULL) put_hash(out, call->sha256, NULL);
}

static void put_mode(line *out, const weft_call_record *call) {
    const char *mode = atomic_load(&weft_crash_where.mode);
    if (mode != NULL && call->loaded != NULL) put(out, ", in ", mode, NULL);
}

static void put_arm(line *out) {
    const char *arm = atomic_load(&weft_crash_where.arm);
    if (arm != NULL) put(out, ", in arm ", arm, NULL);
}

static void put_step(line *out, const char *words) {
    if (atomic_load(&weft_crash_where.step) == 0) return;
    put(out, words, NULL);
    put_number(out, atomic_load(&weft_crash_where.step));
}

static void write_line(const line *out) {
    if (write(line_to, out->text, out->n) < 0) { /* no other output is possible */
    }
}

/* ---- crash handler ---- */

static uintptr_t program_counter(const void *context) {
    const ucontext_t *state = context;
#if defined(__x86_64__)
    return (uintptr_t)state->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (uintptr_t)state->uc_mcontext.pc;
#endif
}

static const char *signal_name(int number) {
    switch (number) {
    case SIGSEGV: return "segmentation fault";
    case SIGBUS: return "bus error";
    case SIGFPE: return "arithmetic fault";
    case SIGILL: return "illegal instruction";
    case SIGABRT: return "abort";
    default: return "crash";
    }
}

/* Writes "in FILE (sha256 ...), in KIND:ID SLOT". The plugin's hash is written once, after its file if the crash is in
 * it. A file that is being loaded is not registered yet, so the current call has its hash. For a crash between two
 * calls, in which this program or a library has found corrupt memory, the last plugin may be the cause. */
static void put_position(line *out, const void *context) {
    const struct link_map *where = map_at(program_counter(context));
    const char *name = where == NULL ? NULL : where->l_name, *sha256 = NULL;
    const weft_call_record now = weft_crash_current();
    for (size_t i = 0; where != NULL && i < atomic_load(&n_files); i++)
        if (files[i].map == where) sha256 = files[i].sha256;
    if (name != NULL && strrchr(name, '/') != NULL) name = strrchr(name, '/') + 1;
    put(out, "in ", NULL);
    if (name != NULL) put(out, name[0] != '\0' ? name : "weft", NULL);
    else if (now.what == NULL || now.loaded != NULL) put(out, "code of no known file", NULL);
    if (sha256 != NULL) put_hash(out, sha256, NULL);
    if (now.what != NULL) {
        if (name != NULL || now.loaded != NULL) put(out, ", in ", NULL);
        put_call(out, &now);
        if (sha256 == NULL) put_call_hash(out, &now);
        put_mode(out, &now);
    }
    if (now.loaded != NULL || last.loaded == NULL) return;
    put(out, ", after ", NULL);
    put_call(out, &last);
    put_call_hash(out, &last);
    put(out, ", the last plugin's call, which may have broken this process's memory", NULL);
}

static bool in_comm(void) {
    const weft_call_record now = weft_crash_current();
    return now.loaded != NULL && strcmp(now.loaded->plugin->kind, "comm") == 0;
}

static void crash_handler(int number, siginfo_t *info, void *context) {
    const int32_t rank = atomic_load(&weft_crash_where.rank);
    weft_crumb *shared = atomic_load(&crumb);
    line out;
    out.n = 0;
    if (shared != NULL) atomic_store(&shared->signal, number | (in_comm() ? WEFT_CRASH_IN_COMM : 0));
    put(&out, "weft: signal ", NULL);
    put_number(&out, (uint64_t)number);
    put(&out, " (", signal_name(number), ") ", NULL);
    put_position(&out, context);
    put_arm(&out);
    if (rank >= 0) {
        put(&out, ", rank ", NULL);
        put_number(&out, (uint64_t)rank);
    }
    put_step(&out, ", step ");
    put(&out, "\n", NULL);
    write_line(&out);
    /* A communicator's library aborts when a peer has died. On a busy machine that peer may end later than this process
     * and those that a launcher ends as a result, which would be reported as the first failure: wait for it. */
    if (in_comm() && rank >= 0) (void)nanosleep(&(const struct timespec){2, 0}, NULL);
    /* The default action is restored (SA_RESETHAND). A fault repeats by itself, with its own registers in the core
     * file; a sent signal is raised again. */
    if (info->si_code <= 0) (void)raise(number);
}

void weft_crash_install(int descriptor) {
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    const stack_t stack = {.ss_sp = handler_stack, .ss_flags = 0, .ss_size = sizeof handler_stack};
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = crash_handler;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | (int)SA_RESETHAND;
    (void)sigemptyset(&action.sa_mask);
    (void)sigaltstack(&stack, NULL);
    line_to = descriptor;
    memset(others, 0, sizeof others); /* a child process has none of its parent's threads, */
    taken = NULL;                     /* and its own may have been any of them */
    first = &doing;
    atomic_store(&first_call.changes, (atomic_load(&first_call.changes) + 1) / 2 * 2);
    write_call(&first_call, &doing, 0);
    weft_alloc_on_failure(clear_crumb);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) (void)sigaction(numbers[i], &action, NULL);
}

/* ---- exit guard ---- */

static pid_t guarded; /* the guarded process; 0: none */

bool weft_exit_guard_is_early(void) {
    return getpid() == guarded;
}

/* Prints the message and ends the process. what: "the process". */
static void end_with_message(const weft_call_record *call, const char *what) {
    line out;
    out.n = 0;
    (void)fflush(stdout);
    put(&out, "weft: ", NULL);
    if (call->loaded == NULL) {
        put(&out, call->what != NULL ? call->what : "something", " ended ", what, NULL);
    } else {
        const weft_plugin *plugin = call->loaded->plugin;
        put(&out, plugin->kind, ":", plugin->id, " (", call->loaded->path, ") ended ", what, " in its ", call->what,
            NULL);
    }
    put_mode(&out, call);
    put_arm(&out);
    put_step(&out, ", at step ");
    put(&out, ": its work is not done\n", NULL);
    write_line(&out);
    _exit(1);
}

static void at_exit(void) {
    const weft_call_record now = weft_crash_current();
    if (weft_exit_guard_is_early()) end_with_message(&now, "the process");
}

void weft_exit_guard_end_main(const weft_call_record *call) {
    if (weft_exit_guard_is_early()) end_with_message(call, "the main thread");
}

/* Runs when the thread of weft_exit_guard_install calls pthread_exit, but not on exit or the end of main. */
static void at_thread_end(void *unused) {
    const weft_call_record now = weft_crash_current();
    (void)unused;
    weft_exit_guard_end_main(&now);
}

void weft_exit_guard_install(void) {
    static pthread_key_t key;
    static bool has_key;
    if (guarded == 0) (void)atexit(at_exit);
    if (!has_key) has_key = pthread_key_create(&key, at_thread_end) == 0;
    if (has_key) (void)pthread_setspecific(key, &guarded);
    guarded = getpid();
}

void weft_exit_guard_reached(void) {
    guarded = 0;
}
