/* host/plugin/enter.h: records the called plugin around every call, and guards the calls that may start a library.
 *
 *     WEFT_PLUGIN_CALL(status, table, prepare, err, optimizer, hp, &info);
 *         status = table->prepare(optimizer, hp, &info, err)
 *     WEFT_PLUGIN_NOTIFY(table, destroy, optimizer);
 *         table->destroy(optimizer)
 *
 * A crash during the call is reported with the plugin's and the slot's name. A failure without a message gets one that
 * names both, because it is the plugin's defect. If the call changed the floating-point mode or the umask, the host
 * restores it and the call fails. For a slot that cannot fail, the next call that can returns the failure. The plugin
 * is identified by its table. Cheap enough for each kernel of a step. */
#ifndef WEFT_HOST_PLUGIN_ENTER_H
#define WEFT_HOST_PLUGIN_ENTER_H

#include "plugin/crash.h"
#include "plugin/plugin.h"

#include <signal.h>
#include <sys/types.h>
#include <weft/device.h>

/* ---- process state: saved and restored around a plugin's code ----
 *
 * A library that was linked with -Ofast flushes denormals in the thread that loads it. An MPI replaces signal handlers.
 * The state is saved before foreign code runs, and compared after it:
 *   floating-point control word, locale, working directory, umask: restored, and a change is the plugin's error
 *   signal handlers: restored
 * Used around each load, entry, create and validate. After every other call the host checks the calling thread's
 * floating-point control word and the umask, which is cheap enough for each kernel of a step. */

enum { WEFT_SIGNALS = 65 }; /* their numbers are 1 to 64 */

typedef struct weft_process {
    uint64_t fp_control; /* of the calling thread */
    mode_t mask;
    char directory[4096];
    char locale[512];
    struct sigaction handlers[WEFT_SIGNALS];
} weft_process;

/* Return and restore the floating-point control word of this thread. Restoring fails with WEFT_E_PLUGIN, "changed the
 * floating-point mode while WHEN", if it differs. For calls of one plugin by another. [any-thread] [hot] */
uint64_t weft_process_fp(void);
weft_status weft_process_restore_fp(uint64_t before, const char *when, weft_error *err);

/* [main] */
void weft_process_save(weft_process *out);

/* Restores all changed state. WEFT_E_PLUGIN with "it changed the ... while WHEN" for any change other than a handler.
 * [main] */
weft_status weft_process_restore(const weft_process *saved, const char *when, weft_error *err);

/* Ends a call on this thread that began with this control word: restores it and the umask, if the call changed them.
 * WEFT_E_PLUGIN with "changed the ... while WHEN". [any-thread] */
weft_status weft_process_end_call(uint64_t fp_control, const char *when, weft_error *err);

/* ---- slow-call warning: printed once while a call is running, because a call that never returns would hang a run
 * without a message ---- */

enum { WEFT_SLOW_WARNING_SECONDS = 10 };

/* Starts the timer. table, slot: the called plugin. Of nested calls only the outer one has a timer. [main] */
void weft_slow_warning_begin(const void *table, const char *slot);
void weft_slow_warning_end(void);

/* ---- guard for calls that may start a library: each create and validate of a plugin ----
 *
 *     weft_plugin_call call;
 *     weft_plugin_call_begin(&call, loaded, "create");
 *     status = table->create(&optimizer, host, config, &err);
 *     status = weft_plugin_call_made(&call, status, optimizer, &err);
 *
 * A crash during the call is reported with the plugin's name, and a slow call is reported too. After the call the
 * host's process state is restored. A plugin that changed more of it than signal handlers is rejected. */

typedef struct weft_plugin_call {
    const weft_loaded *loaded;
    const char *what;
    weft_call_record before;
    weft_process saved;
} weft_plugin_call;

/* Begins a call. what: the slot's name, a string with process lifetime. [main] */
void weft_plugin_call_begin(weft_plugin_call *call, const weft_loaded *loaded, const char *what);

/* Ends a call. status, err: the result of the call. Returns the failure, with WEFT_E_PLUGIN if the call set no message
 * or changed the host's process state. The caller owns the created object in any case. [main] */
weft_status weft_plugin_call_end(weft_plugin_call *call, weft_status status, weft_error *err);

/* Ends a create. WEFT_OK without an object is a failure. [main] */
weft_status weft_plugin_call_made(weft_plugin_call *call, weft_status status, const void *made, weft_error *err);

/* ---- guarded calls ---- */

/* Returns the host's view of the buffer; NULL: the host cannot access it. [main] */
void *weft_device_view(const weft_device_plugin *kernels, weft_device *device, weft_ref ref);

/* Returns the device's extension of that name; NULL: missing. [any-thread] */
const void *weft_device_find(const weft_device_plugin *kernels, const weft_device *device, const char *id);

/* ---- sticky error for plugin callbacks that cannot return a failure ----
 *
 * The first error is stored and all later calls have no effect, so that the plugin's code needs no checks. A stored
 * error is a weft_error with a code other than WEFT_OK; it begins as WEFT_ERROR_INIT. */

/* Stores an error, unless one is stored already. */
void weft_sticky_error_keep(weft_error *first, weft_status code, const char *format, ...) WEFT_PRINTF(3, 4);

static inline bool weft_sticky_error_is_set(const weft_error *first) {
    return first->code != WEFT_OK;
}

/* Returns the stored error, or status if there is no error. */
weft_status weft_sticky_error_report(const weft_error *first, weft_status status, weft_error *err);

/* ---- records ---- */

/* Registers the owner of plugin->table; the loader registers every plugin. *loaded must live as long as the process.
 * [main] */
void weft_plugin_own(const weft_loaded *loaded);

/* Begins a call. table: of the called plugin; an unregistered table counts as an unknown plugin. slot: a string with
 * process lifetime. Returns the previous record for weft_plugin_leave. [any-thread] [hot] */
weft_call_record weft_plugin_enter(const void *table, const char *slot);

/* Ends a call. status, err: the result of the call; err was empty before it. Returns the status, or WEFT_E_PLUGIN if a
 * failure has no message; adds the plugin's name. err may be NULL. [any-thread] [hot] */
weft_status weft_plugin_leave(weft_call_record before, weft_status status, weft_error *err);

/* Returns the pending failure of an earlier call that cannot fail, once; WEFT_OK if there is no failure. Use it after
 * such calls if the next call would add its own context to the message. [any-thread] */
weft_status weft_plugin_take_failure(weft_error *err);

/* Prefixes the responsible plugin to a failure that is the plugin's fault (WEFT_E_PLUGIN, WEFT_E_DEVICE,
 * WEFT_E_UNSUPPORTED), once. Also for failed checks of a plugin's results. Returns the status.
 *
 *     strategy:mine (/home/you/weft-strategy-mine.so), in evaluation: rank 0, instruction 3, FORWARD ...
 *
 * [any-thread] */
weft_status weft_plugin_blame(const void *table, weft_status status, weft_error *err);

/* Writes "strategy:mine (/home/you/weft-strategy-mine.so)". [any-thread] */
void weft_plugin_title(char *out, size_t size, const void *table);

/* Returns the id of the plugin that owns the table; "": unregistered. [any-thread] */
const char *weft_plugin_id(const void *table);

/* Calls a slot of an extension, whose plugin has the table `owner`. */
#define WEFT_PLUGIN_CALL_OF(status, owner, table, slot, err, ...)                                                      \
    do {                                                                                                               \
        const weft_call_record before_ = weft_plugin_enter((owner), #slot);                                            \
        (status) = weft_plugin_leave(before_, (table)->slot(__VA_ARGS__, (err)), (err));                               \
    } while (0)

#define WEFT_PLUGIN_CALL(status, table, slot, err, ...)                                                                \
    WEFT_PLUGIN_CALL_OF((status), (table), (table), slot, (err), __VA_ARGS__)

#define WEFT_PLUGIN_NOTIFY(table, slot, ...)                                                                           \
    do {                                                                                                               \
        const weft_call_record before_ = weft_plugin_enter((table), #slot);                                            \
        (table)->slot(__VA_ARGS__);                                                                                    \
        (void)weft_plugin_leave(before_, WEFT_OK, NULL);                                                               \
    } while (0)

/* Calls a slot that returns a value instead of a status. */
#define WEFT_PLUGIN_QUERY(answer, table, slot, ...)                                                                    \
    do {                                                                                                               \
        const weft_call_record before_ = weft_plugin_enter((table), #slot);                                            \
        (answer) = (table)->slot(__VA_ARGS__);                                                                         \
        (void)weft_plugin_leave(before_, WEFT_OK, NULL);                                                               \
    } while (0)

#endif
