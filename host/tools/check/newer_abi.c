/* host/tools/check/newer_abi.c: see newer_abi.h. */
#include "tools/check/newer_abi.h"

#include "tools/check/newer_abi_struct.h"
#include "tools/check/newer_abi_tables.h"
#include "tools/check/rule.h"
#include "plugin/enter.h"

const weft_loaded *weft_newer_abi_loaded(const weft_loaded *loaded) {
    static weft_plugin plugin;
    static weft_loaded later;
    if (later.plugin != NULL) return &later;
    plugin = *loaded->plugin;
    plugin.table = weft_newer_abi_table(plugin.kind, plugin.table);
    later = *loaded;
    later.plugin = &plugin;
    return plugin.table != NULL && weft_plugin_own(&later) ? &later : NULL;
}

const weft_plugin_under_test *weft_newer_abi(const weft_plugin_under_test *tested) {
    static weft_plugin_under_test later;
    const weft_loaded *loaded = weft_newer_abi_loaded(tested->loaded);
    if (loaded == NULL) return NULL;
    if (later.loaded == NULL) later = *tested;
    later.loaded = loaded;
    return &later;
}

weft_status weft_newer_abi_check(weft_status status, bool is_same, const char *what, weft_error *err) {
    if (weft_newer_abi_error()[0] != '\0') return WEFT_BROKEN(err, "%s", weft_newer_abi_error());
    if (status == WEFT_E_MEMORY) return status;
    if (status != WEFT_OK) {
        err->code = WEFT_E_PLUGIN;
        return weft_error_prefix(err, "in a later host, whose structs are longer, it fails: ");
    }
    if (is_same) return WEFT_OK;
    return WEFT_BROKEN(err,
                       "in a later host, whose structs are longer, it gives other %s: it indexes an array at its own "
                       "sizeof and not by the stride, or copies a struct at the size that stands in it",
                       what);
}
