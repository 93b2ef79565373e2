/* host/plugin/crash.c: see crash.h. The handler uses only async-signal-safe functions. It finds the file of an address
 * in a list of mapped libraries, which is made when a plugin is loaded, and formats its line itself. */
#include "plugin/crash.h"

#include "base/alloc.h"
#include "base/units.h"

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

#define MOST_OBJECTS 256
#define MOST_FILES   64

typedef struct object {
    uintptr_t from, to;
    char name[64];
    char sha256[13]; /* the first twelve digits; empty: no plugin */
} object;

typedef struct added {
    uintptr_t address;
    char sha256[13];
} added;

static object objects[MOST_OBJECTS];
static _Atomic size_t n_objects;
static added files[MOST_FILES];
static size_t n_files;
static _Thread_local weft_call_record doing;
static weft_call_record last;         /* the last plugin call of the handlers' thread */
static const weft_call_record *first; /* the record of the thread that installed the handlers */
static const char *_Atomic current_mode;
static const char *_Atomic current_arm;
static _Atomic uint64_t current_step;
static _Atomic int32_t current_rank = -1;
static _Atomic int32_t nowhere;
static _Atomic int32_t *_Atomic noted = &nowhere;

static int line_to = STDERR_FILENO;

static unsigned char handler_stack[65536];

/* --- the list of mapped libraries --- */

static int add_object(struct dl_phdr_info *info, size_t size, void *context) {
    size_t *n = context;
    const char *slash = strrchr(info->dlpi_name, '/');
    object *out = &objects[*n];
    (void)size;
    if (*n == MOST_OBJECTS) return 1;
    memset(out, 0, sizeof *out);
    out->from = UINTPTR_MAX;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        const uintptr_t from = info->dlpi_addr + header->p_vaddr;
        if (header->p_type != PT_LOAD) continue;
        if (from < out->from) out->from = from;
        if (from + header->p_memsz > out->to) out->to = from + header->p_memsz;
    }
    (void)snprintf(out->name, sizeof out->name, "%s",
                   slash != NULL                ? slash + 1
                   : info->dlpi_name[0] != '\0' ? info->dlpi_name
                                                : "weft");
    for (size_t i = 0; i < n_files; i++)
        if (files[i].address >= out->from && files[i].address < out->to) memcpy(out->sha256, files[i].sha256, 13);
    (*n)++;
    return 0;
}

static void list_objects(void) {
    size_t n = 0;
    atomic_store(&n_objects, 0);
    (void)dl_iterate_phdr(add_object, &n);
    atomic_store(&n_objects, n);
}

void weft_crash_add(const char *sha256, const void *address) {
    if (n_files < MOST_FILES) {
        files[n_files].address = (uintptr_t)address;
        memcpy(files[n_files].sha256, sha256, 12);
        n_files++;
    }
    list_objects();
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

/* Odd while the first thread's record changes. */
static _Atomic uint64_t changes;

/* The current call of a thread other than the first one. Each thread holds an entry until it ends; threads beyond the
 * last entry are not recorded. */
typedef struct other {
    atomic_bool is_taken;
    _Atomic uint64_t changes; /* odd while the other fields change */
    _Atomic(const weft_loaded *) loaded;
    _Atomic(const char *) what; /* NULL: no call */
    _Atomic uint64_t number;
    _Atomic double since;
} other;

enum { MOST_OTHERS = 256 };

static other others[MOST_OTHERS];
static pthread_key_t entry_key;
static bool has_entry_key;
static _Thread_local other *entry;
static _Thread_local bool has_no_entry;

static void write_other(other *out, const weft_call_record *now) {
    const uint64_t n = atomic_load_explicit(&out->changes, memory_order_relaxed);
    atomic_store_explicit(&out->changes, n + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&out->loaded, now->loaded, memory_order_relaxed);
    atomic_store_explicit(&out->what, now->what, memory_order_relaxed);
    atomic_store_explicit(&out->number, now->number, memory_order_relaxed);
    atomic_store_explicit(&out->since, weft_clock_seconds(), memory_order_relaxed);
    atomic_store_explicit(&out->changes, n + 2, memory_order_release);
}

static void release_entry(void *taken) {
    write_other(taken, &(const weft_call_record){0});
    entry = NULL;
    atomic_store(&((other *)taken)->is_taken, false);
}

static other *take_entry(void) {
    for (size_t i = 0; has_entry_key && i < MOST_OTHERS; i++) {
        if (atomic_exchange(&others[i].is_taken, true)) continue;
        (void)pthread_setspecific(entry_key, &others[i]);
        return &others[i];
    }
    return NULL;
}

static void note_other(const weft_call_record *now) {
    if (entry == NULL && !has_no_entry) entry = take_entry();
    has_no_entry = entry == NULL;
    if (entry != NULL) write_other(entry, now);
}

static bool read_other(other *from, weft_call_record *out, double *since) {
    const uint64_t before = atomic_load_explicit(&from->changes, memory_order_acquire);
    out->loaded = atomic_load_explicit(&from->loaded, memory_order_relaxed);
    out->what = atomic_load_explicit(&from->what, memory_order_relaxed);
    out->number = atomic_load_explicit(&from->number, memory_order_relaxed);
    *since = atomic_load_explicit(&from->since, memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire);
    return before % 2 == 0 && atomic_load_explicit(&from->changes, memory_order_relaxed) == before &&
           out->loaded != NULL && out->what != NULL;
}

bool weft_crash_other_call(weft_call_record *out, double *seconds, uint64_t number) {
    const double now = weft_clock_seconds();
    bool is_found = false;
    for (size_t i = 0; i < MOST_OTHERS; i++) {
        weft_call_record call = {0};
        double since = 0;
        if (!read_other(&others[i], &call, &since) || call.number < number || (is_found && now - since <= *seconds))
            continue;
        *out = call;
        *seconds = now - since;
        is_found = true;
    }
    return is_found;
}

/* Forgets the threads of the parent process: this one may have been one of them. */
static void reset_threads(void) {
    if (!has_entry_key) has_entry_key = pthread_key_create(&entry_key, release_entry) == 0;
    if (has_entry_key) (void)pthread_setspecific(entry_key, NULL);
    memset(others, 0, sizeof others);
    entry = NULL;
    has_no_entry = false;
    atomic_store(&changes, (atomic_load(&changes) + 1) / 2 * 2);
    first = &doing;
}

weft_call_record weft_crash_set_call(weft_call_record now) {
    const weft_call_record before = doing;
    const uint64_t n = atomic_load_explicit(&changes, memory_order_acquire);
    const bool is_first = first == &doing;
    weft_crumb *shared = NULL;
    if (now.number == 0) now.number = is_first ? n + 2 : n;
    if (!is_first && first != NULL) note_other(&now);
    if (is_first) atomic_store_explicit(&changes, n + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    doing = now;
    if (!is_first) return before;
    if (now.loaded != NULL) last = now;
    atomic_store_explicit(&changes, n + 2, memory_order_release);
    shared = atomic_load_explicit(&crumb, memory_order_relaxed);
    if (shared != NULL) write_crumb(shared, &now);
    return before;
}

bool weft_crash_main_call(weft_call_record *out, uint64_t *version) {
    const uint64_t before = atomic_load_explicit(&changes, memory_order_acquire);
    if (first == NULL || before % 2 != 0) return false;
    *out = *first;
    atomic_thread_fence(memory_order_acquire);
    *version = before;
    return atomic_load_explicit(&changes, memory_order_relaxed) == before;
}

weft_call_record weft_crash_current(void) {
    return doing.what != NULL || first == NULL ? doing : *first;
}

const char *weft_crash_mode(const char *mode) {
    return atomic_exchange(&current_mode, mode);
}

const char *weft_crash_current_mode(void) {
    return atomic_load(&current_mode);
}

const char *weft_crash_arm(const char *arm) {
    return atomic_exchange(&current_arm, arm);
}

const char *weft_crash_current_arm(void) {
    return atomic_load(&current_arm);
}

void weft_crash_step(uint64_t step) {
    atomic_store(&current_step, step);
}

void weft_crash_rank(int32_t rank) {
    atomic_store(&current_rank, rank);
}

void weft_crash_note(_Atomic int32_t *where) {
    atomic_store(&noted, where);
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
    const char *mode = atomic_load(&current_mode);
    if (mode != NULL && call->loaded != NULL) put(out, ", in ", mode, NULL);
}

static void put_arm(line *out) {
    const char *arm = atomic_load(&current_arm);
    if (arm != NULL) put(out, ", in arm ", arm, NULL);
}

static void put_step(line *out, const char *words) {
    if (atomic_load(&current_step) == 0) return;
    put(out, words, NULL);
    put_number(out, atomic_load(&current_step));
}

static void write_line(const line *out) {
    if (write(line_to, out->text, out->n) < 0) { /* no other output is possible */
    }
}

/* ---- crash handler ---- */

static const object *object_at(uintptr_t address) {
    const size_t n = atomic_load(&n_objects);
    for (size_t i = 0; i < n; i++)
        if (address >= objects[i].from && address < objects[i].to) return &objects[i];
    return NULL;
}

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
 * it. A file that is being loaded is not in the list yet, so the current call names it. For a crash between two calls,
 * in which this program or a library has found corrupt memory, the last plugin may be the cause. */
static void put_position(line *out, const void *context) {
    const object *where = object_at(program_counter(context));
    const weft_call_record now = weft_crash_current();
    const bool is_plugin = where != NULL && where->sha256[0] != 0;
    put(out, "in ", NULL);
    if (where != NULL) put(out, where->name, NULL);
    else if (now.what == NULL || now.loaded != NULL) put(out, "code of no known file", NULL);
    if (is_plugin) put_hash(out, where->sha256, NULL);
    if (now.what != NULL) {
        if (where != NULL || now.loaded != NULL) put(out, ", in ", NULL);
        put_call(out, &now);
        if (!is_plugin) put_call_hash(out, &now);
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
    const int32_t rank = atomic_load(&current_rank);
    line out;
    out.n = 0;
    atomic_store(atomic_load(&noted), number | (in_comm() ? WEFT_CRASH_IN_COMM : 0));
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

void weft_crash_install(void) {
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    const stack_t stack = {.ss_sp = handler_stack, .ss_flags = 0, .ss_size = sizeof handler_stack};
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = crash_handler;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | (int)SA_RESETHAND;
    (void)sigemptyset(&action.sa_mask);
    (void)sigaltstack(&stack, NULL);
    reset_threads();
    weft_alloc_on_failure(clear_crumb);
    list_objects();
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) (void)sigaction(numbers[i], &action, NULL);
}

void weft_crash_to(int descriptor) {
    line_to = descriptor;
    weft_crash_install();
}

/* ---- exit guard ---- */

static pid_t guarded; /* the guarded process; 0: unguarded */
static bool reached;

bool weft_exit_guard_is_early(void) {
    return getpid() == guarded && !reached;
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
    reached = false;
}

void weft_exit_guard_reached(void) {
    reached = true;
}
