/* weft/plugin.h: the two symbols that a plugin file exports.
 *
 *     weft_plugin_note    text that the host reads from the file before it runs any of its code
 *     weft_plugin_entry   returns the list of plugins in the file
 *
 * All other symbols are hidden (`-fvisibility=hidden` and the SDK's version script). A file usually contains one
 * plugin:
 *
 *     WEFT_PLUGIN(optimizer, 1, "lion", "0.1.0", "Lion (arXiv 2302.06675)", lion_config, NULL, lion_table)
 *
 * The arguments are: kind and interface number, id, the plugin's version, one line of help, the name passed to
 * WEFT_KEYS, a validate function or NULL, and the kind's table. For several plugins in one file, define the list
 * explicitly, and the note with WEFT_NOTE and one WEFT_NOTE_PLUGIN per plugin.
 *
 * With -DWEFT_STATIC=name the two symbols become weft_plugin_note_name and weft_plugin_entry_name, so that several
 * plugins can be linked into one program.
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
    uint32_t key_stride;      /* sizeof(weft_key) in the plugin */
    uint64_t n_keys;
    const weft_key *keys;
    uint64_t config_size; /* size of the struct that the keys fill */

    /* Validates rules that involve several keys; the text of err names the keys. [main] [optional: no such rules] */
    weft_status (*validate)(const void *config, weft_error *err);

    const void *table; /* table of the kind: const weft_optimizer_plugin *, ... */

    /* Checks that the plugin's requirements are available: a driver, a library that it loads itself. `weft plugins
     * list` calls it in a separate process and prints the text of err. An unavailable plugin can therefore still be
     * described, and its keys validated. Starts nothing. If it fails, `create` returns the same error text. [main]
     * [optional: no requirements beyond loading] */
    weft_status (*works)(const weft_host *host, weft_error *err);
} weft_plugin;

typedef struct weft_plugin_list {
    uint32_t struct_size;
    uint32_t flags;
    uint32_t n_plugins;
    uint32_t stride; /* sizeof(weft_plugin) in the plugin */
    const weft_plugin *plugins;
} weft_plugin_list;

/* The list is valid until the process ends. NULL: the plugin cannot run here; err states the reason. [main] */
typedef const weft_plugin_list *weft_plugin_entry_fn(const weft_host *host, weft_error *err);

#ifdef WEFT_STATIC
#define WEFT_PASTE_(a, b) a##b
#define WEFT_PASTE(a, b)  WEFT_PASTE_(a, b)
#define WEFT_SYMBOL(name) WEFT_PASTE(WEFT_PASTE(name, _), WEFT_STATIC)
#else
#define WEFT_SYMBOL(name) name
#endif

/* C linkage for both names in C++. */
#ifdef __cplusplus
#define WEFT_C_NAME extern "C"
#else
#define WEFT_C_NAME extern
#endif

/* The note: key=value lines; the first line contains the format. */
/* Reports a compiler option that permits reordering of sums: the numbers of such a plugin are not guaranteed. */
#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) ||                         \
    (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ > 0)
#define WEFT_NOTE_MATH "math=fast\n"
#else
#define WEFT_NOTE_MATH ""
#endif

#define WEFT_NOTE                                                                                                      \
    "weft-plugin/1\nsdk=" WEFT_STRING(WEFT_SDK_HEADERS) "\nmin_sdk=" WEFT_STRING(WEFT_MIN_SDK) "\n" WEFT_NOTE_MATH

#define WEFT_NOTE_PLUGIN(kind, interface, id, version) "plugin=" #kind "/" #interface " " id " " version "\n"

/* Additional note lines, "key=value\n" each, for kinds that define some (weft/comm.h). Define it before the first
 * include. */
#ifndef WEFT_NOTE_MORE
#define WEFT_NOTE_MORE ""
#endif

#define WEFT_PLUGIN(kind, interface, id, version, help, config, validate, table)                                       \
    WEFT_PLUGIN_THAT(kind, interface, id, version, help, config, validate, table, NULL)

/* WEFT_PLUGIN with the slot `works`. */
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

/* For a plugin without keys: use WEFT_NO_KEYS(block_config) instead of WEFT_KEYS. */
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
