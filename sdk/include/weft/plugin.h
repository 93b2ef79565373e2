/* weft/plugin.h: the two symbols that a plugin file exports.
 *
 *     weft_plugin_note    text that the host reads from the file before any of its code runs
 *     weft_plugin_entry   gives the list of plugins in the file
 *
 * Everything else stays hidden (`-fvisibility=hidden` and the SDK's version script). A file usually holds one plugin:
 *
 *     WEFT_PLUGIN(optimizer, 1, "lion", "0.1.0", "Lion (arXiv 2302.06675)", lion_config, NULL, lion_table)
 *
 * kind and interface number first, then id, the plugin's own version, one line of help, the name given to WEFT_KEYS,
 * a validate function or NULL, and the kind's table. With several plugins in one file write the list by hand, and
 * the note with WEFT_NOTE and one WEFT_NOTE_PLUGIN per plugin.
 *
 * Compiled with -DWEFT_STATIC=name the two symbols are weft_plugin_note_name and weft_plugin_entry_name, so that
 * several plugins can be linked into one program.
 */
#ifndef WEFT_PLUGIN_H
#define WEFT_PLUGIN_H

#include <weft/base.h>
#include <weft/host.h>
#include <weft/keys.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_plugin {
    uint32_t struct_size;
    uint32_t flags;
    const char *kind; /* "optimizer" */
    const char *id;   /* "lion"; [a-z0-9_-], unique within its kind */
    const char *version;
    const char *help;         /* one line */
    uint32_t interface_major; /* of the kind: 1 for optimizer/1 */
    uint32_t key_stride;      /* sizeof(weft_key) as the plugin was compiled */
    uint64_t n_keys;
    const weft_key *keys;
    uint64_t config_size; /* of the struct that the keys fill */

    /* Rules across keys; the text of err names the keys. [main] [optional: no such rules] */
    weft_status (*validate)(const void *config, weft_error *err);

    const void *table; /* of the kind: const weft_optimizer_plugin *, ... */

    /* Whether what the plugin needs is here: a driver, a library that it looks for itself. `weft plugins list` asks,
     * in a process of its own, and shows the text of err; so a plugin that cannot work here can still be described and
     * its keys be checked. Starts nothing. What is created where this fails gives the same sentence. [main] [optional:
     * it works wherever it can be loaded] */
    weft_status (*works)(const weft_host *host, weft_error *err);
} weft_plugin;

typedef struct weft_plugin_list {
    uint32_t struct_size;
    uint32_t flags;
    uint32_t n_plugins;
    uint32_t stride; /* sizeof(weft_plugin) as the plugin was compiled */
    const weft_plugin *plugins;
} weft_plugin_list;

/* The list lives as long as the process. NULL: the plugin cannot work here; err says why. [main] */
typedef const weft_plugin_list *weft_plugin_entry_fn(const weft_host *host, weft_error *err);

#ifdef WEFT_STATIC
#define WEFT_PASTE_(a, b) a##b
#define WEFT_PASTE(a, b)  WEFT_PASTE_(a, b)
#define WEFT_SYMBOL(name) WEFT_PASTE(WEFT_PASTE(name, _), WEFT_STATIC)
#else
#define WEFT_SYMBOL(name) name
#endif

/* The two names are C names in a C++ file too. */
#ifdef __cplusplus
#define WEFT_C_NAME extern "C"
#else
#define WEFT_C_NAME extern
#endif

/* The note: lines of key=value, the first one naming the format. */
/* Of a compiler that was told to reorder sums: the host says so, for such a plugin's numbers keep no contract. */
#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) ||                         \
    (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ > 0)
#define WEFT_NOTE_MATH "math=fast\n"
#else
#define WEFT_NOTE_MATH ""
#endif

#define WEFT_NOTE                                                                                                      \
    "weft-plugin/1\nsdk=" WEFT_STRING(WEFT_SDK_HEADERS) "\nmin_sdk=" WEFT_STRING(WEFT_MIN_SDK) "\n" WEFT_NOTE_MATH

#define WEFT_NOTE_PLUGIN(kind, interface, id, version) "plugin=" #kind "/" #interface " " id " " version "\n"

/* More lines of the note, "key=value\n" each, for the kinds that have some (weft/comm.h). Define it before the first
 * include. */
#ifndef WEFT_NOTE_MORE
#define WEFT_NOTE_MORE ""
#endif

#define WEFT_PLUGIN(kind, interface, id, version, help, config, validate, table)                                       \
    WEFT_PLUGIN_THAT(kind, interface, id, version, help, config, validate, table, NULL)

/* The same with the slot `works`. */
#define WEFT_PLUGIN_THAT(kind, interface, id, version, help, config, validate, table, works)                           \
    WEFT_C_NAME WEFT_EXPORT const char WEFT_SYMBOL(weft_plugin_note)[];                                                \
    const char WEFT_SYMBOL(weft_plugin_note)[] = WEFT_NOTE WEFT_NOTE_PLUGIN(kind, interface, id, version)              \
        WEFT_NOTE_MORE;                                                                                                \
    WEFT_C_NAME WEFT_EXPORT weft_plugin_entry_fn WEFT_SYMBOL(weft_plugin_entry);                                       \
    const weft_plugin_list *WEFT_SYMBOL(weft_plugin_entry)(const weft_host *host, weft_error *err) {                   \
        static weft_plugin plugin;                                                                                     \
        static const weft_plugin_list list = {(uint32_t)sizeof(weft_plugin_list), 0, 1, (uint32_t)sizeof(weft_plugin), \
                                              &plugin};                                                                \
        const weft_plugin filled = {(uint32_t)sizeof(weft_plugin),                                                     \
                                    0,                                                                                 \
                                    #kind,                                                                             \
                                    id,                                                                                \
                                    version,                                                                           \
                                    help,                                                                              \
                                    interface,                                                                         \
                                    (uint32_t)sizeof(weft_key),                                                        \
                                    config##_n_keys,                                                                   \
                                    config##_keys(),                                                                   \
                                    sizeof(config),                                                                    \
                                    validate,                                                                          \
                                    &(table),                                                                          \
                                    works};                                                                            \
        (void)host;                                                                                                    \
        (void)err;                                                                                                     \
        plugin = filled;                                                                                               \
        return &list;                                                                                                  \
    }

/* For a plugin without keys: WEFT_NO_KEYS(block_config) in place of WEFT_KEYS. */
#define WEFT_NO_KEYS(config)                                                                                           \
    typedef struct config {                                                                                            \
        int64_t unused;                                                                                                \
    } config;                                                                                                          \
    enum { config##_n_keys = 0 };                                                                                      \
    static const weft_key *config##_keys(void) {                                                                       \
        return NULL;                                                                                                   \
    }

#ifdef __cplusplus
}
#endif
#endif
