/* host/plugin/call.c: see call.h. */
#include "plugin/call.h"

#include "base/words.h"
#include "plugin/enter.h"

#include <stdbool.h>

void weft_plugin_call_begin(weft_plugin_call *call, const weft_loaded *loaded, const char *what) {
    const weft_doing now = {loaded->plugin->kind, loaded->plugin->id, loaded->sha256, loaded->path, what, 0};
    call->loaded = loaded;
    call->what = what;
    weft_slow_warning_begin(&call->slow, loaded->plugin->table, what);
    weft_process_save(&call->saved);
    (void)weft_plugin_called();
    call->before = weft_crash_doing(now);
}

weft_status weft_plugin_call_end(weft_plugin_call *call, weft_status status, weft_error *err) {
    const weft_plugin *plugin = call->loaded->plugin;
    const weft_loaded *other = weft_plugin_called();
    const bool failed = status != WEFT_OK; /* then only this failure is reported, and the process state is restored
                                            * silently */
    char when[64];
    weft_status changed = WEFT_OK;
    weft_slow_warning_end(&call->slow);
    (void)weft_crash_doing(call->before);
    (void)snprintf(when, sizeof when, "its %s ran", call->what);
    changed = weft_process_restore(&call->saved, when, failed ? NULL : err);
    if (failed && err != NULL && err->text[0] == '\0')
        status = weft_error_set(err, WEFT_E_PLUGIN, "it failed in its %s and does not say why, which is a defect of it",
                                call->what);
    if (failed) return weft_loaded_blame(call->loaded, status, err);
    if (changed == WEFT_OK) return WEFT_OK;
    if (err != NULL && other != NULL && other != call->loaded)
        weft_words_append(err->text, sizeof err->text, " It called %s:%s (%s), which may have done it.",
                          other->plugin->kind, other->plugin->id, other->path);
    (void)weft_error_prefix(err, "%s:%s (%s) ", plugin->kind, plugin->id, call->loaded->path);
    return changed;
}

weft_status weft_plugin_call_made(weft_plugin_call *call, weft_status status, const void *made, weft_error *err) {
    if (status == WEFT_OK && made == NULL)
        status = weft_error_set(err, WEFT_E_PLUGIN, "it answers WEFT_OK in its %s and has made nothing", call->what);
    return weft_plugin_call_end(call, status, err);
}
