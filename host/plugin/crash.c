/* host/plugin/crash.c: see crash.h.
 *
 * The handler uses only async-signal-safe functions. It looks addresses up in a list of mapped libraries that was made
 * when the last plugin was loaded, formats the line itself and writes it. */
#include "plugin/crash.h"

#include <link.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
static _Thread_local weft_doing doing;
static weft_doing last;         /* the last plugin call of the handlers' thread */
static const weft_doing *first; /* the record of the thread that installed the handlers */
static const char *_Atomic current_mode;
static const char *_Atomic current_arm;
static _Atomic uint64_t current_step;
static _Atomic int32_t current_rank = -1;
static _Atomic int32_t nowhere;
static _Atomic int32_t *_Atomic noted = &nowhere;
static int line_to = STDERR_FILENO;
static unsigned char handler_stack[65536];

/* --- the list of mapped libraries --- */

static void copy_name(char *out, size_t n, const char *path) {
    const char *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;
    size_t length = strlen(name);
    if (length >= n) length = n - 1;
    memcpy(out, name, length);
    out[length] = 0;
}

static int add_object(struct dl_phdr_info *info, size_t size, void *context) {
    size_t *n = context;
    object *out = &objects[*n];
    size_t i;
    (void)size;
    if (*n == MOST_OBJECTS) return 1;
    memset(out, 0, sizeof *out);
    out->from = UINTPTR_MAX;
    for (i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type != PT_LOAD) continue;
        if (info->dlpi_addr + header->p_vaddr < out->from) out->from = info->dlpi_addr + header->p_vaddr;
        if (info->dlpi_addr + header->p_vaddr + header->p_memsz > out->to) {
            out->to = info->dlpi_addr + header->p_vaddr + header->p_memsz;
        }
    }
    copy_name(out->name, sizeof out->name, info->dlpi_name[0] == 0 ? "weft" : info->dlpi_name);
    for (i = 0; i < n_files; i++) {
        if (files[i].address >= out->from && files[i].address < out->to) memcpy(out->sha256, files[i].sha256, 13);
    }
    (*n)++;
    return 0;
}

static void take_picture(void) {
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
    take_picture();
}

/* ---- the record for another process ---- */

static weft_crumb *_Atomic crumb;

/* Writes the name only if it has changed; both strings are valid at any time. */
static void drop_crumb(weft_crumb *out, const weft_doing *now) {
    static const char *kind, *id;
    if (now->what == NULL || now->kind == NULL) {
        out->what[0] = '\0';
        return;
    }
    if (kind != now->kind || id != now->id || out->who[0] == '\0')
        (void)snprintf(out->who, sizeof out->who, "%s:%s", now->kind, now->id);
    kind = now->kind;
    id = now->id;
    (void)strncpy(out->what, now->what, sizeof out->what - 1);
}

void weft_crash_crumb(weft_crumb *where) {
    weft_crumb *before = NULL;
    if (where != NULL) memset(where, 0, sizeof *where);
    if (where != NULL && first != NULL) drop_crumb(where, first);
    before = atomic_exchange(&crumb, where);
    if (before != NULL) before->what[0] = '\0';
}

/* Odd while the first thread's record changes. */
static _Atomic uint64_t changes;

static void note_change(void) {
    const uint64_t n = atomic_load_explicit(&changes, memory_order_relaxed);
    if (first == &doing) atomic_store_explicit(&changes, n + 1, memory_order_release);
}

weft_doing weft_crash_doing(weft_doing now) {
    const weft_doing before = doing;
    weft_crumb *shared = NULL;
    note_change();
    doing = now;
    if (first == &doing && now.kind != NULL) last = now;
    note_change();
    if (first == &doing) shared = atomic_load_explicit(&crumb, memory_order_relaxed);
    if (shared != NULL) drop_crumb(shared, &now);
    return before;
}

bool weft_crash_main_call(weft_doing *out, uint64_t *number) {
    const uint64_t before = atomic_load_explicit(&changes, memory_order_acquire);
    if (first == NULL || before % 2 != 0) return false;
    *out = *first;
    atomic_thread_fence(memory_order_acquire);
    *number = before;
    return atomic_load_explicit(&changes, memory_order_relaxed) == before;
}

weft_doing weft_crash_current(void) {
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

uint64_t weft_crash_current_step(void) {
    return atomic_load(&current_step);
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

/* --- in the handler --- */

typedef struct line {
    char text[1024];
    size_t n;
} line;

static void put_text(line *out, const char *text) {
    while (*text != 0 && out->n < sizeof out->text - 1) out->text[out->n++] = *text++;
}

static void put_number(line *out, uint64_t number) {
    char digits[21];
    size_t at = sizeof digits - 1;
    digits[at] = 0;
    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number != 0);
    put_text(out, digits + at);
}

static void put_hash(line *out, const char *sha256, const char *file) {
    char digits[13] = "";
    memcpy(digits, sha256, strnlen(sha256, sizeof digits - 1));
    put_text(out, " (sha256 ");
    put_text(out, digits);
    if (file != NULL) put_text(out, " of ");
    if (file != NULL) put_text(out, file);
    put_text(out, ")");
}

static const object *object_at(uintptr_t address) {
    const size_t n = atomic_load(&n_objects);
    size_t i;
    for (i = 0; i < n; i++) {
        if (address >= objects[i].from && address < objects[i].to) return &objects[i];
    }
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
 * it. A file that is being loaded is not in the list yet, so the current call names it. */
static void put_place(line *out, const void *context) {
    const object *where = object_at(program_counter(context));
    const weft_doing now = weft_crash_current();
    put_text(out, "in ");
    if (where != NULL) put_text(out, where->name);
    else if (now.what == NULL || now.kind != NULL) put_text(out, "code of no known file");
    if (where != NULL && where->sha256[0] != 0) put_hash(out, where->sha256, NULL);
    if (now.what == NULL) return;
    if (where != NULL || now.kind != NULL) put_text(out, ", in ");
    if (now.kind != NULL) {
        put_text(out, now.kind);
        put_text(out, ":");
        put_text(out, now.id);
        put_text(out, " ");
    }
    put_text(out, now.what);
    if (now.sha256 != NULL && (where == NULL || where->sha256[0] == 0)) put_hash(out, now.sha256, now.file);
    if (now.kind != NULL && atomic_load(&current_mode) != NULL) {
        put_text(out, ", in ");
        put_text(out, atomic_load(&current_mode));
    }
}

/* Writes the last plugin call if the crash is between two calls. Then this program or a library has found corrupt
 * memory, and the last plugin may be the cause. */
static void put_last(line *out) {
    if (weft_crash_current().kind != NULL || last.kind == NULL) return;
    put_text(out, ", after ");
    put_text(out, last.kind);
    put_text(out, ":");
    put_text(out, last.id);
    put_text(out, " ");
    put_text(out, last.what);
    if (last.sha256 != NULL) put_hash(out, last.sha256, last.file);
    put_text(out, ", the last plugin's call, which may have broken this process's memory");
}

static int in_comm(void) {
    const weft_doing now = weft_crash_current();
    return now.kind != NULL && strcmp(now.kind, "comm") == 0;
}

/* Waits for failing peers to end first. A communicator's library aborts when a peer has died. On a busy machine that
 * peer may end later than this process and those that a launcher ends as a result: they would be reported as the first
 * failure. */
static void let_peers_go_first(void) {
    const struct timespec time = {2, 0};
    (void)nanosleep(&time, NULL);
}

static void crash_handler(int number, siginfo_t *info, void *context) {
    line out = {{0}, 0};
    atomic_store(atomic_load(&noted), number | (in_comm() ? WEFT_CRASH_IN_COMM : 0));
    put_text(&out, "weft: signal ");
    put_number(&out, (uint64_t)number);
    put_text(&out, " (");
    put_text(&out, signal_name(number));
    put_text(&out, ") ");
    put_place(&out, context);
    put_last(&out);
    if (atomic_load(&current_arm) != NULL) {
        put_text(&out, ", in arm ");
        put_text(&out, atomic_load(&current_arm));
    }
    if (atomic_load(&current_rank) >= 0) {
        put_text(&out, ", rank ");
        put_number(&out, (uint64_t)atomic_load(&current_rank));
    }
    if (atomic_load(&current_step) != 0) {
        put_text(&out, ", step ");
        put_number(&out, atomic_load(&current_step));
    }
    put_text(&out, "\n");
    if (write(line_to, out.text, out.n) < 0) { /* no other output is possible */
    }
    if (in_comm() && atomic_load(&current_rank) >= 0) let_peers_go_first();
    /* The default action is restored (SA_RESETHAND). A fault repeats by itself, with its own registers in the core
     * file; a sent signal is raised again. */
    if (info->si_code <= 0) (void)raise(number);
}

void weft_crash_install(void) {
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    const stack_t stack = {.ss_sp = handler_stack, .ss_flags = 0, .ss_size = sizeof handler_stack};
    struct sigaction action;
    size_t i;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = crash_handler;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | (int)SA_RESETHAND;
    (void)sigemptyset(&action.sa_mask);
    (void)sigaltstack(&stack, NULL);
    first = &doing;
    take_picture();
    for (i = 0; i < sizeof numbers / sizeof numbers[0]; i++) (void)sigaction(numbers[i], &action, NULL);
}

void weft_crash_to(int descriptor) {
    line_to = descriptor;
    weft_crash_install();
}
