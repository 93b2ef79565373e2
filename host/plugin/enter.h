/* host/plugin/enter.h: who is called, around every call into a plugin that call.h does not guard.
 *
 *     WEFT_PLUGIN_CALL(status, table, prepare, err, optimizer, hp, &info);
 *         status = table->prepare(optimizer, hp, &info, err)
 *     WEFT_PLUGIN_TELL(table, destroy, optimizer);
 *         table->destroy(optimizer)
 *
 * A crash in between is told with the plugin's name and the slot's, and a failure without a sentence gets one that
 * names them: it is the plugin's defect. A floating-point mode or umask that the call changed is put back, and is the
 * call's failure; that of a call which cannot fail is returned by the next call that can. The plugin is known by the
 * table that is called through. Cheap enough for each kernel of a step.
 */
#ifndef WEFT_HOST_PLUGIN_ENTER_H
#define WEFT_HOST_PLUGIN_ENTER_H

#include "plugin/crash.h"
#include "plugin/plugin.h"
#include <stdbool.h>

/* Notes whose table it is that plugin->table points to; the loader does so for all that it loads. *loaded must live as
 * long as the process. False: no memory. [main] */
bool weft_plugin_own(const weft_loaded *loaded);

/* table: of the plugin that is called; one that nobody owns is an unknown plugin's. slot: a text that lives as long as
 * the process. Gives what was being done before, for leave. [any-thread] [hot] */
weft_doing weft_plugin_enter(const void *table, const char *slot);

/* status, err: the call's own; err was empty before it. Gives the status; WEFT_E_PLUGIN where a failure brought no
 * sentence; blames the plugin. err may be NULL. [any-thread] [hot] */
weft_status weft_plugin_leave(weft_doing before, weft_status status, weft_error *err);

/* The failure of an earlier call that cannot fail, once; WEFT_OK: there is none. After such calls, where the next call
 * would add a context of its own to the sentence. [any-thread] */
weft_status weft_plugin_take_failure(weft_error *err);

/* Who is to mend it, in front of a failure that is the plugin's fault (WEFT_E_PLUGIN, WEFT_E_DEVICE,
 * WEFT_E_UNSUPPORTED), once; also where the host has judged what a plugin answered. Gives the status.
 *
 *     strategy:mine (/home/you/weft-strategy-mine.so), in evaluation: rank 0, event 3, FORWARD ...
 *
 * [any-thread] */
weft_status weft_plugin_blame(const void *table, weft_status status, weft_error *err);

weft_status weft_loaded_blame(const weft_loaded *loaded, weft_status status, weft_error *err);

/* "strategy:mine (/home/you/weft-strategy-mine.so)". [any-thread] */
void weft_plugin_title(char *out, size_t size, const void *table);

/* The id of the plugin whose table it is; "": nobody owns it. [any-thread] */
const char *weft_plugin_id(const void *table);

/* The plugin that another plugin, or a thread of its call, has called last, and none from now on; NULL: none. [main] */
const weft_loaded *weft_plugin_called(void);

/* What the calls that follow are for: "training", "evaluation", "generation", or NULL, as at first: for all. Gives what
 * it was, to put it back. [main] [hot] */
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

/* A slot that answers with what it returns. */
#define WEFT_PLUGIN_ASK(answer, table, slot, ...)                                                                      \
    do {                                                                                                               \
        const weft_doing before_ = weft_plugin_enter((table), #slot);                                                  \
        (answer) = (table)->slot(__VA_ARGS__);                                                                         \
        (void)weft_plugin_leave(before_, WEFT_OK, NULL);                                                               \
    } while (0)

#endif
