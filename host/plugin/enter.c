/* host/plugin/enter.c: see enter.h. The list of owners only grows, and only while plugins are loaded. */
#include "plugin/enter.h"

#include "base/alloc.h"
#include "base/text.h"
#include "base/timer.h"
#include "plugin/services.h"

#include <locale.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/* ---- process state ---- */

#if defined(__x86_64__)
/* MXCSR without its sticky exception flags in the low word, the x87 control word in the high one. */
#define MXCSR_FLAGS 0x3fu
#define FP_FLUSH    0x8040u /* flush to zero, denormals are zero */

uint64_t weft_process_fp(void) {
    uint16_t x87 = 0;
    __asm__ volatile("fnstcw %0" : "=m"(x87));
    return ((uint64_t)x87 << 32) | (_mm_getcsr() & ~MXCSR_FLAGS);
}

static void fp_write(uint64_t control) {
    const uint16_t x87 = (uint16_t)(control >> 32);
    __asm__ volatile("fldcw %0" : : "m"(x87));
    _mm_setcsr((uint32_t)control | (_mm_getcsr() & MXCSR_FLAGS));
}
#elif defined(__aarch64__)
#define FP_FLUSH (1u << 24)

uint64_t weft_process_fp(void) {
    uint64_t control = 0;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    return control;
}

static void fp_write(uint64_t control) {
    __asm__ volatile("msr fpcr, %0" : : "r"(control));
}
#else
#error "read and write this machine's floating-point control word here"
#endif

/* State of this thread's current call. */
static _Thread_local struct {
    bool moved;
    mode_t before, now;
} mask_of_call;

static mode_t mask_write(mode_t mask) {
    return (mode_t)syscall(SYS_umask, mask);
}

/* Replaces the C library's umask for plugins and their libraries. Reading the mask takes two system calls, and files
 * that other threads create between them would get the wrong mode. A call may change the mask temporarily. */
mode_t umask(mode_t mask) {
    const mode_t before = mask_write(mask);
    if (!mask_of_call.moved) mask_of_call.before = before;
    mask_of_call.moved = true;
    mask_of_call.now = mask & 0777;
    return before;
}

static mode_t mask_read(void) {
    const mode_t mask = mask_write(0);
    (void)mask_write(mask);
    return mask;
}

void weft_process_save(weft_process *out) {
    const char *locale = setlocale(LC_ALL, NULL);
    memset(out, 0, sizeof *out);
    out->fp_control = weft_process_fp();
    out->mask = mask_read();
    if (getcwd(out->directory, sizeof out->directory) == NULL) out->directory[0] = 0;
    (void)snprintf(out->locale, sizeof out->locale, "%s", locale == NULL ? "C" : locale);
    for (int i = 1; i < WEFT_SIGNALS; i++) (void)sigaction(i, NULL, &out->handlers[i]);
}

weft_status weft_process_restore_fp(uint64_t before, const char *when, weft_error *err) {
    const uint64_t now = weft_process_fp();
    if (now == before) return WEFT_OK;
    fp_write(before);
    return weft_error_set(
        err, WEFT_E_PLUGIN,
        "changed the floating-point mode while %s (control word %llx, before %llx%s). The mode is the "
        "host's: link it without -ffast-math, -Ofast and code that sets it.",
        when, (unsigned long long)now, (unsigned long long)before,
        (now & FP_FLUSH) != 0 && (before & FP_FLUSH) == 0 ? ": small numbers become zero" : "");
}

/* Restores everything; with several changes the error describes the last one. */
weft_status weft_process_restore(const weft_process *saved, const char *when, weft_error *err) {
    char directory[sizeof saved->directory] = "";
    const char *locale = setlocale(LC_ALL, NULL);
    weft_status status = WEFT_OK;
    if (getcwd(directory, sizeof directory) == NULL) directory[0] = 0;
    if (strcmp(directory, saved->directory) != 0 && saved->directory[0] != 0) {
        const bool is_gone = chdir(saved->directory) != 0;
        status = weft_error_set(err, WEFT_E_PLUGIN, "changed the working directory while %s%s%.1000s%s.", when,
                                is_gone ? ", and " : "", is_gone ? saved->directory : "", is_gone ? " is gone" : "");
    }
    if (mask_read() != saved->mask) {
        (void)mask_write(saved->mask);
        status = weft_error_set(err, WEFT_E_PLUGIN, "changed the umask while %s.", when);
    }
    if (locale != NULL && strcmp(locale, saved->locale) != 0) {
        (void)setlocale(LC_ALL, saved->locale);
        status = weft_error_set(err, WEFT_E_PLUGIN, "changed the locale while %s.", when);
    }
    for (int i = 1; i < WEFT_SIGNALS; i++) { /* a handler and a sigaction share a union: one comparison for both */
        struct sigaction now;
        if (sigaction(i, NULL, &now) != 0) continue;
        if (now.sa_handler != saved->handlers[i].sa_handler || now.sa_flags != saved->handlers[i].sa_flags)
            (void)sigaction(i, &saved->handlers[i], NULL);
    }
    if (weft_process_restore_fp(saved->fp_control, when, err) != WEFT_OK) status = WEFT_E_PLUGIN;
    return status;
}

weft_status weft_process_end_call(uint64_t fp_control, const char *when, weft_error *err) {
    weft_status status = WEFT_OK;
    if (mask_of_call.moved && mask_of_call.now != mask_of_call.before) {
        (void)mask_write(mask_of_call.before);
        mask_of_call.moved = false;
        status = weft_error_set(err, WEFT_E_PLUGIN, "changed the umask while %s.", when);
    }
    if (weft_process_restore_fp(fp_control, when, err) != WEFT_OK) status = WEFT_E_PLUGIN;
    return status;
}

/* ---- owners of tables ---- */

static const weft_loaded **owners;
static size_t n_owners;

void weft_plugin_own(const weft_loaded *loaded) {
    owners = weft_realloc((void *)owners, n_owners + 1, sizeof *owners);
    owners[n_owners++] = loaded;
}

static const weft_loaded *owner_of(const void *table) {
    for (size_t i = n_owners; i > 0; i--)
        if (owners[i - 1]->plugin->table == table) return owners[i - 1];
    return NULL;
}

static void print_title(char *out, size_t size, const weft_loaded *loaded) {
    if (loaded == NULL) (void)snprintf(out, size, "a plugin");
    else (void)snprintf(out, size, "%s:%s (%s)", loaded->plugin->kind, loaded->plugin->id, loaded->path);
}

void weft_plugin_title(char *out, size_t size, const void *table) {
    print_title(out, size, owner_of(table));
}

const char *weft_plugin_id(const void *table) {
    const weft_loaded *loaded = owner_of(table);
    return loaded == NULL ? "" : loaded->plugin->id;
}

/* Prefixes the plugin's name to the error. */
static weft_status put_title(const weft_loaded *loaded, weft_error *err) {
    const char *const mode = atomic_load(&weft_crash_where.mode);
    char title[700];
    print_title(title, sizeof title, loaded);
    return weft_error_prefix(err, "%s%s%s: ", title, mode != NULL ? ", in " : "", mode != NULL ? mode : "");
}

/* Messages about a file, a key or another rank name their cause already, and so does one that names a plugin, possibly
 * after a file and a line: it is the failure of another plugin, which this one had called. */
static weft_status blame(const weft_loaded *loaded, weft_status status, weft_error *err) {
    const bool is_its_fault = status == WEFT_E_PLUGIN || status == WEFT_E_DEVICE || status == WEFT_E_UNSUPPORTED;
    char title[700];
    if (err == NULL || loaded == NULL || !is_its_fault) return status;
    for (size_t i = 0; i < n_owners; i++) {
        print_title(title, sizeof title, owners[i]);
        if (strstr(err->text, title) != NULL) return status;
    }
    return put_title(loaded, err);
}

weft_status weft_plugin_blame(const void *table, weft_status status, weft_error *err) {
    return blame(owner_of(table), status, err);
}

/* ---- slow-call warning ---- */

static struct {
    const void *table;
    const char *slot;
    weft_timer timer;
    int32_t depth;
} slow;

static bool warn_of_slow_call(void *unused) {
    char title[700], line[2000], nested[700] = "";
    weft_call_record call = {0};
    uint64_t version = 0;
    double seconds = 0;
    bool is_nested = weft_crash_main_call(&call, &version) && call.loaded != NULL;
    weft_plugin_title(title, sizeof title, slow.table);
    /* The main thread may wait for another thread, for example for a tokenizer's. */
    if (is_nested && strcmp(call.what, slow.slot) == 0)
        is_nested = weft_crash_other_call(&call, &seconds, call.number) && seconds >= 1;
    if (is_nested)
        (void)snprintf(nested, sizeof nested, ", now in %s of %s:%s (%s),", call.what, call.loaded->plugin->kind,
                       call.loaded->plugin->id, call.loaded->path);
    (void)snprintf(line, sizeof line, "%s has been in its %s for %d s%s and goes on", title, slow.slot,
                   (int)WEFT_SLOW_WARNING_SECONDS, nested);
    (void)unused;
    weft_services_print(WEFT_LOG_WARN, line); /* printed even in trial runs, which suppress other output */
    return false;
}

void weft_slow_warning_begin(const void *table, const char *slot) {
    if (slow.depth++ > 0) return;
    slow.table = table;
    slow.slot = slot;
    weft_timer_begin(&slow.timer, WEFT_SLOW_WARNING_SECONDS, warn_of_slow_call, NULL);
}

void weft_slow_warning_end(void) {
    if (--slow.depth == 0) weft_timer_end(&slow.timer);
}

/* ---- guarded calls ---- */

static _Atomic(const weft_loaded *) called_last; /* by a plugin, in any thread; NULL: no call yet */

void weft_plugin_call_begin(weft_plugin_call *call, const weft_loaded *loaded, const char *what) {
    const weft_call_record now = {.loaded = loaded, .what = what};
    call->loaded = loaded;
    call->what = what;
    weft_slow_warning_begin(loaded->plugin->table, what);
    weft_process_save(&call->saved);
    atomic_store(&called_last, NULL);
    call->before = weft_crash_set_call(now);
}

weft_status weft_plugin_call_end(weft_plugin_call *call, weft_status status, weft_error *err) {
    const weft_plugin *plugin = call->loaded->plugin;
    const weft_loaded *other = atomic_exchange(&called_last, NULL);
    const bool failed = status != WEFT_OK; /* then only this failure is reported, and the process state is restored
                                            * silently */
    char when[64];
    weft_status changed = WEFT_OK;
    weft_slow_warning_end();
    (void)weft_crash_set_call(call->before);
    (void)snprintf(when, sizeof when, "its %s ran", call->what);
    changed = weft_process_restore(&call->saved, when, failed ? NULL : err);
    if (failed && err != NULL && err->text[0] == '\0')
        status = weft_error_set(err, WEFT_E_PLUGIN,
                                "it failed in its %s without an error message, which is a defect of it", call->what);
    if (failed) return blame(call->loaded, status, err);
    if (changed == WEFT_OK) return WEFT_OK;
    if (err != NULL && other != NULL && other != call->loaded)
        weft_words_append(err->text, sizeof err->text, " It called %s:%s (%s), which may have done it.",
                          other->plugin->kind, other->plugin->id, other->path);
    (void)weft_error_prefix(err, "%s:%s (%s) ", plugin->kind, plugin->id, call->loaded->path);
    return changed;
}

weft_status weft_plugin_call_made(weft_plugin_call *call, weft_status status, const void *made, weft_error *err) {
    if (status == WEFT_OK && made == NULL)
        status = weft_error_set(err, WEFT_E_PLUGIN, "it returned WEFT_OK from its %s without an object", call->what);
    return weft_plugin_call_end(call, status, err);
}

void *weft_device_view(const weft_device_plugin *kernels, weft_device *device, weft_ref ref) {
    void *view = NULL;
    if (kernels->host_view != NULL) WEFT_PLUGIN_QUERY(view, kernels, host_view, device, ref);
    return view;
}

const void *weft_device_find(const weft_device_plugin *kernels, const weft_device *device, const char *id) {
    const void *table = NULL;
    if (kernels->extension != NULL) WEFT_PLUGIN_QUERY(table, kernels, extension, device, id);
    return table;
}

void weft_sticky_error_keep(weft_error *first, weft_status code, const char *format, ...) {
    va_list args;
    if (weft_sticky_error_is_set(first)) return;
    first->code = (int32_t)code;
    va_start(args, format);
    (void)vsnprintf(first->text, sizeof first->text, format, args);
    va_end(args);
}

weft_status weft_sticky_error_report(const weft_error *first, weft_status status, weft_error *err) {
    return weft_sticky_error_is_set(first) ? weft_error_set(err, (weft_status)first->code, "%s", first->text) : status;
}

/* ---- records ---- */

weft_call_record weft_plugin_enter(const void *table, const char *slot) {
    const weft_call_record now = {.loaded = owner_of(table), .what = slot, .fp_control = weft_process_fp()};
    mask_of_call.moved = false;
    if (weft_crash_current().loaded != NULL) atomic_store_explicit(&called_last, now.loaded, memory_order_relaxed);
    return weft_crash_set_call(now);
}

/* The pending failure of a call that cannot fail: the next call that can returns it. */
static struct {
    pthread_mutex_t lock;
    atomic_bool is_set;
    weft_error err;
} pending = {.lock = PTHREAD_MUTEX_INITIALIZER, .err = WEFT_ERROR_INIT};

weft_status weft_plugin_take_failure(weft_error *err) {
    weft_status status = WEFT_OK;
    (void)pthread_mutex_lock(&pending.lock);
    if (atomic_load(&pending.is_set)) status = weft_error_set(err, WEFT_E_PLUGIN, "%s", pending.err.text);
    atomic_store(&pending.is_set, false);
    (void)pthread_mutex_unlock(&pending.lock);
    return status;
}

/* Restores host state that the call changed. A failure of the call itself has priority. */
static weft_status restore_state(const weft_call_record *called, weft_status status, weft_error *err) {
    weft_error why = WEFT_ERROR_INIT;
    char when[900], title[700];
    (void)snprintf(when, sizeof when, "its %s ran", called->what);
    (void)weft_process_end_call(called->fp_control, when, &why);
    if (status != WEFT_OK) return status;
    print_title(title, sizeof title, called->loaded);
    (void)weft_error_prefix(&why, "%s ", title);
    if (err != NULL) return weft_error_set(err, WEFT_E_PLUGIN, "%s", why.text);
    (void)pthread_mutex_lock(&pending.lock);
    if (!atomic_load(&pending.is_set)) pending.err = why; /* the first one is kept */
    atomic_store(&pending.is_set, true);
    (void)pthread_mutex_unlock(&pending.lock);
    return WEFT_OK;
}

weft_status weft_plugin_leave(weft_call_record before, weft_status status, weft_error *err) {
    const weft_call_record called = weft_crash_set_call(before);
    const bool failed = status != WEFT_OK;
    /* inside a weft_plugin_call, which checks the complete state at its end */
    const bool in_guard = before.loaded != NULL && before.fp_control == 0;
    const bool is_kept = weft_process_fp() == called.fp_control &&
                         (!mask_of_call.moved || mask_of_call.now == mask_of_call.before);
    if (!in_guard && called.fp_control != 0 && !is_kept) status = restore_state(&called, status, err);
    if (!failed && status == WEFT_OK && err != NULL && atomic_load_explicit(&pending.is_set, memory_order_relaxed))
        return weft_plugin_take_failure(err);
    if (!failed || err == NULL) return status;
    if (err->text[0] != '\0') return blame(called.loaded, status, err);
    status = weft_error_set(err, WEFT_E_PLUGIN, "%sfailed in its %s without an error message, which is a defect of it",
                            called.loaded == NULL ? "a plugin " : "it ", called.what);
    return called.loaded == NULL ? status : put_title(called.loaded, err);
}
