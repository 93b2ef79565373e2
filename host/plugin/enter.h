/* host/plugin/enter.h: records the called plugin, around every plugin call that call.h does not guard.
 *
 *     WEFT_PLUGIN_CALL(status, table, prepare, err, optimizer, hp, &info);
 *         status = table->prepare(optimizer, hp, &info, err)
 *     WEFT_PLUGIN_TELL(table, destroy, optimizer);
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
#include <stdbool.h>

/* Registers the owner of plugin->table; the loader registers every plugin. *loaded must live as long as the process.
 * Returns false without memory. [main] */
bool weft_plugin_own(const weft_loaded *loaded);

/* Begins a call. table: of the called plugin; an unregistered table counts as an unknown plugin. slot: a string with
 * process lifetime. Returns the previous record for weft_plugin_leave. [any-thread] [hot] */
weft_doing weft_plugin_enter(const void *table, const char *slot);

/* Ends a call. status, err: the result of the call; err was empty before it. Returns the status, or WEFT_E_PLUGIN if a
 * failure has no message; adds the plugin's name. err may be NULL. [any-thread] [hot] */
weft_status weft_plugin_leave(weft_doing before, weft_status status, weft_error *err);

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

weft_status weft_loaded_blame(const weft_loaded *loaded, weft_status status, weft_error *err);

/* Writes "strategy:mine (/home/you/weft-strategy-mine.so)". [any-thread] */
void weft_plugin_title(char *out, size_t size, const void *table);

/* Returns the id of the plugin that owns the table; "": unregistered. [any-thread] */
const char *weft_plugin_id(const void *table);

/* Returns the plugin that another plugin, or a thread of its call, called last, and resets it. NULL: no such call.
 * [main] */
const weft_loaded *weft_plugin_called(void);

/* Sets the mode of the following calls: "training", "evaluation", "generation", or NULL, the default. Returns the
 * previous mode. [main] [hot] */
const char *weft_plugin_serve(const char *mode);

#define WEFT_PLUGIN_CALL(status, table, slot, err, ...)                                                                \
    do {                                                                                                               \
        const weft_doing before_ = weft_plugin_enter((table), #slot);                                                  \
        (status) = weft_plugin_leave(before_, (table)->slot(__VA_ARGS__, (err)), (err));                               \
    } while (0)

#define WEFT_PLUGIN_TELL(table, slot, ...)                                                                             \
    do {                                                                                                               \
        const weft_doing before_ = weft_plugin_enter((table), #slot);                                                  \
        (table)->slot(__VA_ARGS__);                                                                                    \
        (void)weft_plugin_leave(before_, WEFT_OK, NULL);                                                               \
    } while (0)

/* Calls a slot that returns a value instead of a status. */
#define WEFT_PLUGIN_ASK(answer, table, slot, ...)                                                                      \
    do {                                                                                                               \
        const weft_doing before_ = weft_plugin_enter((table), #slot);                                                  \
        (answer) = (table)->slot(__VA_ARGS__);                                                                         \
        (void)weft_plugin_leave(before_, WEFT_OK, NULL);                                                               \
    } while (0)

#endif
