/* host/plugin/enter.c: see enter.h. The list of owners grows only, and only while plugins are loaded. */
#include "plugin/enter.h"

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

static const weft_loaded *owner_of(const void *table) {
    for (size_t i = n_owners; i > 0; i--) {
        if (owners[i - 1]->plugin->table == table) return owners[i - 1];
    }
    return NULL;
}

weft_doing weft_plugin_enter(const void *table, const char *slot) {
    const weft_loaded *loaded = owner_of(table);
    weft_doing now = {NULL, NULL, NULL, slot};
    if (loaded != NULL) {
        now.kind = loaded->plugin->kind;
        now.id = loaded->plugin->id;
        now.sha256 = loaded->sha256;
    }
    return weft_crash_doing(now);
}

weft_status weft_plugin_leave(weft_doing before, weft_status status, weft_error *err) {
    const weft_doing called = weft_crash_doing(before);
    const bool known = called.kind != NULL;
    if (status == WEFT_OK || err == NULL || err->text[0] != '\0') return status;
    return weft_error_set(err, WEFT_E_PLUGIN, "%s%s%s failed in its %s and does not say why, which is a defect of it",
                          known ? called.kind : "a plugin", known ? ":" : "", known ? called.id : "", called.what);
}
