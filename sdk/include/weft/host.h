/* weft/host.h: what the host offers to every plugin, in one table.
 *
 * The pointer that a plugin's entry and create functions receive stays valid until the process ends. Process state
 * (floating-point control word, signals, locale, working directory, umask, environment, open descriptors) belongs to
 * the host: a plugin neither changes it nor calls exit, abort or fork.
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
    uint32_t sdk; /* the host's SDK: major * 1000 + minor */
    uint32_t reserved;

    /* One line of text, without its end. [any-thread] */
    void (*log)(const weft_host *host, int32_t level, const char *text);

    /* Memory that the host counts under `libraries`. alignment: a power of two, at least 8. NULL: none left.
     * [any-thread] */
    void *(*alloc)(const weft_host *host, size_t bytes, size_t alignment);
    void (*release)(const weft_host *host, void *memory); /* NULL is fine */

    /* Runs body(i, context) for i in [0, n), on several threads, and returns when all are done. Results must not
     * depend on which thread runs which i. [main] */
    void (*parallel_for)(const weft_host *host, int64_t n, void (*body)(int64_t i, void *context), void *context);

    /* Tells the user how far long work is; done == total ends it. [main] */
    void (*progress)(const weft_host *host, const char *what, double done, double total);

    /* An extension's table by id ("weft.host.<name>/<revision>"), or NULL. [any-thread] */
    const void *(*extension)(const weft_host *host, const char *id);
};

/* The extension WEFT_HOST_WORLD: this process among those that train together. A rank that was not started by `--ranks`
 * is told its local places by the communicator, so a device may count on them in `create`, and an entry function may
 * not. */
#define WEFT_HOST_WORLD "weft.host.world/1"
typedef struct weft_host_world {
    uint32_t struct_size;
    uint32_t flags;
    int32_t rank, size;             /* 0 and 1: alone */
    int32_t local_rank, local_size; /* among the ranks of this machine */
    int32_t processors;             /* of this machine that are this rank's share; 0: not known */
    int32_t planned;                /* ranks of a machine in a plan for ranks that are not there; 0: this is no such */
} weft_host_world;

/* The extension WEFT_HOST_EXCHANGE: small things that ranks tell one another before they can exchange, such as the id
 * by which NCCL's ranks find each other (128 bytes that rank 0 makes up). For a communicator of several ranks, from
 * `create` to the end of `destroy`; ranks and their number are those of WEFT_HOST_WORLD. How ranks reach one another
 * depends on who started them; where there is no way, `put` and `get` say so.
 *
 *     rank 0:  ncclGetUniqueId(&id); exchange->put(host, "nccl", &id, sizeof id, err)
 *     all:     exchange->get(host, "nccl", &id, sizeof id, err)
 */
#define WEFT_HOST_EXCHANGE "weft.host.exchange/1"
#define WEFT_EXCHANGE_MOST 4096 /* bytes of one value */
typedef struct weft_host_exchange {
    uint32_t struct_size;
    uint32_t flags;

    /* Gives a value to all ranks under a key of [a-z0-9._-], at most 60 characters, which no rank has put before. Does
     * not wait. [main] [required] */
    weft_status (*put)(const weft_host *host, const char *key, const void *bytes, size_t n, weft_error *err);
    /* Waits until some rank has put the key, as long as [run] patience says, then WEFT_E_PEER. A value of another size
     * than n is WEFT_E_PEER too: the ranks differ. [main] [required] */
    weft_status (*get)(const weft_host *host, const char *key, void *bytes, size_t n, weft_error *err);
} weft_host_exchange;

/* The extension WEFT_HOST_PLUGINS: another plugin of the run, for one that wraps it: a device that counts what is asked
 * of another, a strategy that changes another's programs. Who wraps it calls its slots, and hands out its handles as
 * they are, so that tables of its extensions work with them. */
#define WEFT_HOST_PLUGINS "weft.host.plugins/1"
struct weft_plugin; /* weft/plugin.h */
typedef struct weft_host_plugins {
    uint32_t struct_size;
    uint32_t flags;

    /* A plugin by kind and id, as the configuration would find it, and the struct that its keys fill: they stand in its
     * own section, [device.cpu]. "mpi" is the communicator of that family by which this process was started. host: the
     * one that `create` received. *plugin lives until the process ends, *config as long as what is created with it.
     * WEFT_E_USER: there is none, or it is the one that asks. [main] [required] */
    weft_status (*get)(const weft_host *host, const char *kind, const char *id, const struct weft_plugin **plugin,
                       const void **config, weft_error *err);
} weft_host_plugins;

/* printf onto the host's log. [any-thread] */
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
