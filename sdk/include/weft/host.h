/* weft/host.h: the host's services for plugins, in one table.
 *
 * The host pointer that a plugin's entry and create functions receive stays valid until the process ends. Process state
 * (floating-point control word, signals, locale, working directory, umask, environment, open descriptors) belongs to
 * the host: a plugin must not change it and must not call exit, abort or fork.
 */
#ifndef WEFT_HOST_H
#define WEFT_HOST_H

#include <weft/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weft_log_level {
    WEFT_LOG_ERROR = 0,
    WEFT_LOG_WARN = 1,
    WEFT_LOG_INFO = 2,
    WEFT_LOG_DEBUG = 3
} weft_log_level;

typedef struct weft_host weft_host;
struct weft_host {
    uint32_t struct_size;
    uint32_t flags;
    uint32_t sdk; /* SDK version of the host: major * 1000 + minor */
    uint32_t reserved;

    /* Logs one line of text, without a line end. [any-thread] */
    void (*log)(const weft_host *host, int32_t level, const char *text);

    /* Allocates memory that the host accounts under `libraries`. alignment: a power of two, at least 8. NULL: out of
     * memory. [any-thread] */
    void *(*alloc)(const weft_host *host, size_t bytes, size_t alignment);
    void (*release)(const weft_host *host, void *memory); /* NULL is allowed */

    /* Runs body(i, context) for i in [0, n) on several threads and returns when all have finished. Results must not
     * depend on the thread that runs an i. [main] */
    void (*parallel_for)(const weft_host *host, int64_t n, void (*body)(int64_t i, void *context), void *context);

    /* Reports the progress of a long operation; done == total ends it. [main] */
    void (*progress)(const weft_host *host, const char *what, double done, double total);

    /* Returns an extension's table by id ("weft.host.<name>/<revision>"), or NULL. [any-thread] */
    const void *(*extension)(const weft_host *host, const char *id);
};

/* The extension WEFT_HOST_WORLD: this process's rank in the training run. Ranks not started by `--ranks` get their
 * local ranks from the communicator, so a device may use them in `create`, but an entry function may not. */
#define WEFT_HOST_WORLD "weft.host.world/1"
typedef struct weft_host_world {
    uint32_t struct_size;
    uint32_t flags;
    int32_t rank, size;             /* 0 and 1 in a single process */
    int32_t local_rank, local_size; /* among the ranks of this machine */
    int32_t processors;             /* this rank's share of this machine's processors; 0: unknown */
    int32_t planned;                /* in a plan for ranks that do not exist: ranks per machine; otherwise 0 */
} weft_host_world;

/* The extension WEFT_HOST_EXCHANGE: a key-value store for small values before communication exists, such as NCCL's
 * unique id (128 bytes created by rank 0). It is available to a communicator of several ranks, from `create` to the end
 * of `destroy`. Rank and number of ranks are those of WEFT_HOST_WORLD. The transport depends on the launcher; without
 * one, `put` and `get` return an error.
 *
 *     rank 0:  ncclGetUniqueId(&id); exchange->put(host, "nccl", &id, sizeof id, err)
 *     all:     exchange->get(host, "nccl", &id, sizeof id, err)
 */
#define WEFT_HOST_EXCHANGE "weft.host.exchange/1"
#define WEFT_EXCHANGE_MOST 4096 /* maximum bytes per value */
typedef struct weft_host_exchange {
    uint32_t struct_size;
    uint32_t flags;

    /* Publishes a value to all ranks under a key of [a-z0-9._-], at most 60 characters. No rank may have put the key
     * before. Does not block. [main] [required] */
    weft_status (*put)(const weft_host *host, const char *key, const void *bytes, size_t n, weft_error *err);
    /* Waits for a rank to put the key, at most the time of [run] patience, then fails with WEFT_E_PEER. A value whose
     * size is not n is also WEFT_E_PEER: the ranks differ. [main] [required] */
    weft_status (*get)(const weft_host *host, const char *key, void *bytes, size_t n, weft_error *err);
} weft_host_exchange;

/* The extension WEFT_HOST_PLUGINS: access to another plugin, for wrappers: a device that counts another device's calls,
 * or a strategy that modifies another's programs. A wrapper calls the wrapped plugin's slots and returns its handles
 * unchanged, so that the tables of its extensions accept them. */
#define WEFT_HOST_PLUGINS "weft.host.plugins/1"
struct weft_plugin; /* weft/plugin.h */
typedef struct weft_host_plugins {
    uint32_t struct_size;
    uint32_t flags;

    /* Finds a plugin by kind and id as the configuration does, and the struct of its keys, which the user sets in a
     * separate section, [device.cpu]. "mpi" selects the communicator of that family that launched this process. host:
     * the one that `create` received. *plugin lives until the process ends, *config as long as the object created with
     * it. WEFT_E_USER: not found, or it is the calling plugin. [main] [required] */
    weft_status (*get)(const weft_host *host, const char *kind, const char *id, const struct weft_plugin **plugin,
                       const void **config, weft_error *err);
} weft_host_plugins;

/* Logs a printf-formatted line. [any-thread] */
static inline void weft_log(const weft_host *host, int32_t level, const char *format, ...) WEFT_PRINTF(3, 4);
static inline void weft_log(const weft_host *host, int32_t level, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    host->log(host, level, text);
}

#ifdef __cplusplus
}
#endif
#endif
