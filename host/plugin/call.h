/* host/plugin/call.h: guard for calls that may start a library: each create and validate of a plugin.
 *
 *     weft_plugin_call call;
 *     weft_plugin_call_begin(&call, loaded, "create");
 *     status = table->create(&optimizer, host, config, &err);
 *     status = weft_plugin_call_made(&call, status, optimizer, &err);
 *
 * A crash during the call is reported with the plugin's name. A call that does not return is reported too
 * (slow_warning.h). After the call the host's process state (process.h) is restored. A plugin that changed more of
 * it than signal handlers is rejected. */
#ifndef WEFT_HOST_PLUGIN_CALL_H
#define WEFT_HOST_PLUGIN_CALL_H

#include "plugin/crash.h"
#include "plugin/plugin.h"
#include "plugin/process.h"
#include "plugin/slow_warning.h"

typedef struct weft_plugin_call {
    const weft_loaded *loaded;
    const char *what;
    weft_doing before;
    weft_process saved;
    weft_slow_warning slow;
} weft_plugin_call;

/* Begins a call. what: the slot's name, a string with process lifetime. [main] */
void weft_plugin_call_begin(weft_plugin_call *call, const weft_loaded *loaded, const char *what);

/* Ends a call. status, err: the result of the call. Returns the failure, with WEFT_E_PLUGIN if the call set no message
 * or changed the host's process state. The caller owns the created object in any case. [main] */
weft_status weft_plugin_call_end(weft_plugin_call *call, weft_status status, weft_error *err);

/* Ends a create. WEFT_OK without an object is a failure. [main] */
weft_status weft_plugin_call_made(weft_plugin_call *call, weft_status status, const void *made, weft_error *err);

#endif
