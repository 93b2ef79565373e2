/* host/plugin/enter.c: see enter.h. The list of owners only grows, and only while plugins are loaded. */
#include "plugin/enter.h"

#include "plugin/process.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static const weft_loaded **owners;
static size_t n_owners;

bool weft_plugin_own(const weft_loaded *loaded) {
    const weft_loaded **grown = realloc((void *)owners, (n_owners + 1) * sizeof *grown);
    if (grown == NULL) return false;
    owners = grown;
    owners[n_owners++] = loaded;
    return true;
}

static _Atomic(const weft_loaded *) called_last; /* by a plugin, in any thread; NULL: no call yet */

const weft_loaded *weft_plugin_called(void) {
    return atomic_exchange(&called_last, NULL);
}

static const weft_loaded *owner_of(const void *table) {
    for (size_t i = n_owners; i > 0; i--) {
        if (owners[i - 1]->plugin->table == table) return owners[i - 1];
    }
    return NULL;
}

weft_doing weft_plugin_enter(const void *table, const char *slot) {
    const weft_loaded *loaded = owner_of(table);
    weft_doing now = {.what = slot, .fp_control = weft_process_begin_call()};
    if (loaded != NULL) {
        now.kind = loaded->plugin->kind;
        now.id = loaded->plugin->id;
        now.sha256 = loaded->sha256;
        now.file = loaded->path;
    }
    if (weft_crash_current().kind != NULL) atomic_store_explicit(&called_last, loaded, memory_order_relaxed);
    return weft_crash_doing(now);
}

const char *weft_plugin_serve(const char *mode) {
    return weft_crash_mode(mode);
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

/* Returns true if the text names a plugin already, possibly after a file and a line: it is the failure of another
 * plugin, which this one had called. */
static bool is_blamed(const char *text) {
    char title[700];
    for (size_t i = 0; i < n_owners; i++) {
        print_title(title, sizeof title, owners[i]);
        if (strstr(text, title) != NULL) return true;
    }
    return false;
}

/* Returns whether the plugin is at fault. Messages about a file, a key or another rank name their cause already. */
static bool is_its_fault(weft_status status) {
    return status == WEFT_E_PLUGIN || status == WEFT_E_DEVICE || status == WEFT_E_UNSUPPORTED;
}

/* Prefixes the plugin's name to the error. */
static weft_status put_title(const weft_loaded *loaded, weft_error *err) {
    const char *const served = weft_crash_current_mode();
    char title[700];
    print_title(title, sizeof title, loaded);
    return weft_error_prefix(err, "%s%s%s: ", title, served != NULL ? ", in " : "", served != NULL ? served : "");
}

weft_status weft_loaded_blame(const weft_loaded *loaded, weft_status status, weft_error *err) {
    if (err == NULL || loaded == NULL || !is_its_fault(status) || is_blamed(err->text)) return status;
    return put_title(loaded, err);
}

weft_status weft_plugin_blame(const void *table, weft_status status, weft_error *err) {
    return weft_loaded_blame(owner_of(table), status, err);
}

/* Returns the called plugin, identified by the string pointers that enter stored. */
static const weft_loaded *owner_called(const weft_doing *called) {
    for (size_t i = n_owners; i > 0; i--)
        if (owners[i - 1]->plugin->kind == called->kind && owners[i - 1]->plugin->id == called->id)
            return owners[i - 1];
    return NULL;
}

/* ---- process state ---- */

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

static void keep_pending(const weft_error *err) {
    (void)pthread_mutex_lock(&pending.lock);
    if (!atomic_load(&pending.is_set)) pending.err = *err; /* the first one is kept */
    atomic_store(&pending.is_set, true);
    (void)pthread_mutex_unlock(&pending.lock);
}

/* Restores host state that the call changed. A failure of the call itself has priority. */
static weft_status restore_state(const weft_doing *called, weft_status status, weft_error *err) {
    weft_error why = WEFT_ERROR_INIT;
    char when[900], title[700];
    (void)snprintf(when, sizeof when, "its %s ran", called->what);
    (void)weft_process_end_call(called->fp_control, when, &why);
    if (status != WEFT_OK) return status;
    print_title(title, sizeof title, owner_called(called));
    (void)weft_error_prefix(&why, "%s ", title);
    if (err == NULL) keep_pending(&why);
    return err == NULL ? WEFT_OK : weft_error_set(err, WEFT_E_PLUGIN, "%s", why.text);
}

weft_status weft_plugin_leave(weft_doing before, weft_status status, weft_error *err) {
    const weft_doing called = weft_crash_doing(before);
    const bool failed = status != WEFT_OK;
    const bool in_guard = before.kind != NULL && before.fp_control == 0; /* inside call.h's guard, which checks the
                                                                          * complete state */
    if (!in_guard && called.fp_control != 0 && !weft_process_is_kept(called.fp_control))
        status = restore_state(&called, status, err);
    if (!failed && status == WEFT_OK && err != NULL && atomic_load_explicit(&pending.is_set, memory_order_relaxed))
        return weft_plugin_take_failure(err);
    if (!failed || err == NULL) return status;
    if (err->text[0] != '\0') return weft_loaded_blame(owner_called(&called), status, err);
    status = weft_error_set(err, WEFT_E_PLUGIN, "%sfailed in its %s and does not say why, which is a defect of it",
                            called.kind == NULL ? "a plugin " : "it ", called.what);
    return called.kind == NULL ? status : put_title(owner_called(&called), err);
}
