/* fault.h: a copy of another plugin with a planted error. The build defines FAULT_OF, the original file; its table is
 * copied, and the including file modifies the copy. */
#ifndef WEFT_TESTS_RANKS_FAULT_H
#define WEFT_TESTS_RANKS_FAULT_H

#include <dlfcn.h>
#include <weft/plugin.h>

/* Returns the original plugin, with its table copied to `table` of `size` bytes; NULL: failed, with err set. */
static const weft_plugin *fault_copy(void *table, size_t size, const weft_host *host, weft_error *err) {
    void *handle = dlopen(FAULT_OF, RTLD_NOW | RTLD_LOCAL);
    void *symbol = handle == NULL ? NULL : dlsym(handle, "weft_plugin_entry");
    weft_plugin_entry_fn *entry = NULL;
    const weft_plugin_list *list = NULL;
    if (symbol == NULL) {
        (void)weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be loaded: %s", FAULT_OF, dlerror());
        return NULL;
    }
    memcpy(&entry, &symbol, sizeof entry);
    list = entry(host, err);
    if (list == NULL) return NULL;
    memcpy(table, list->plugins[0].table, size);
    return &list->plugins[0];
}

/* Returns the file's list, with `id` instead of the original. */
static const weft_plugin_list *fault_list(const weft_plugin *real, const char *id, const void *table) {
    static weft_plugin plugin;
    static const weft_plugin_list list = {(uint32_t)sizeof list, 0, 1, (uint32_t)sizeof plugin, &plugin};
    plugin = *real;
    plugin.id = id;
    plugin.version = "0.1.0";
    plugin.table = table;
    return &list;
}

#define FAULT_NOTE(kind, id)                                                                                           \
    extern WEFT_EXPORT const char weft_plugin_note[];                                                                  \
    const char weft_plugin_note[] = WEFT_NOTE WEFT_NOTE_PLUGIN(kind, 1, id, "0.1.0") WEFT_NOTE_MORE;                   \
    extern WEFT_EXPORT weft_plugin_entry_fn weft_plugin_entry;

#endif
