/* changed.h: a plugin of this tree with changes, for tests. Include this header, then the plugin's source, and define
 * change(), which replaces slots in a copy of its table. `original` is the unchanged table; ID is the new id. */
#ifndef WEFT_TESTS_CHANGED_H
#define WEFT_TESTS_CHANGED_H

#include <stdlib.h>
#include <unistd.h>
#include <weft/plugin.h>

#undef WEFT_PLUGIN
#define WEFT_PLUGIN(kind, interface, id, version, help, config, validate, table)                                       \
    static weft_##kind##_plugin original, changed;                                                                     \
    static void change(weft_##kind##_plugin *to);                                                                      \
    __attribute__((constructor)) static void copy_table(void) {                                                        \
        original = changed = table;                                                                                    \
        change(&changed);                                                                                              \
    }                                                                                                                  \
    WEFT_PLUGIN_THAT(kind, interface, ID, version, help, config, validate, changed, NULL)

/* Returns the number in a variable of the environment, or `otherwise` without one. */
static inline unsigned long long number_in(const char *name, unsigned long long otherwise) {
    const char *value = getenv(name);
    return value == NULL ? otherwise : strtoull(value, NULL, 10);
}

/* Returns this process's rank, or `otherwise` outside a launcher. */
static inline unsigned long long this_rank(unsigned long long otherwise) {
    return number_in("PMI_RANK", number_in("OMPI_COMM_WORLD_RANK", otherwise));
}

#endif
