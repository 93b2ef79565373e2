/* host/plugin/call.h: the guard around a call that may start a library: each create and validate of a plugin.
 *
 *     weft_plugin_call call;
 *     weft_plugin_call_begin(&call, loaded, "create");
 *     status = table->create(&optimizer, host, config, &err);
 *     status = weft_plugin_call_made(&call, status, optimizer, &err);
 *
 * A crash in between is told with the plugin's name, and so is a call that does not come back (slow.h). After it, the
 * process state that is the host's (process.h) is as it was, and a plugin that changed more of it than signal handlers
 * is refused. */
#ifndef WEFT_HOST_PLUGIN_CALL_H
#define WEFT_HOST_PLUGIN_CALL_H

#include "plugin/crash.h"
#include "plugin/plugin.h"
#include "plugin/process.h"
#include "plugin/slow.h"

typedef struct weft_plugin_call {
    const weft_loaded *loaded;
    const char *what;
    weft_doing before;
    weft_process saved;
    weft_slow slow;
} weft_plugin_call;

/* what: the slot's name, a text that lives as long as the process. [main] */
void weft_plugin_call_begin(weft_plugin_call *call, const weft_loaded *loaded, const char *what);

/* status, err: the call's own; err is empty or has the sentence of its failure. Gives the failure; WEFT_E_PLUGIN where
 * it brought no sentence, or where the call changed what is the host's. What it made is the caller's in any case.
 * [main] */
weft_status weft_plugin_call_end(weft_plugin_call *call, weft_status status, weft_error *err);

/* The same after a create: WEFT_OK with nothing made is a failure. [main] */
weft_status weft_plugin_call_made(weft_plugin_call *call, weft_status status, const void *made, weft_error *err);

#endif
