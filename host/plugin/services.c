/* host/plugin/services.c: see services.h. Allocated memory has a short header. */
#include "plugin/services.h"

#include "base/message.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST_THREADS = 256 };

typedef struct loop {
    atomic_llong next;
    int64_t n;
    void (*body)(int64_t i, void *context);
    void *context;
} loop;

static void *worker_main(void *argument) {
    loop *l = argument;
    for (;;) {
        const int64_t i = atomic_fetch_add(&l->next, 1);
        if (i >= l->n) return NULL;
        l->body(i, l->context);
    }
}

typedef struct record {
    void *start; /* the pointer for free */
    size_t counted;
} record;

static int32_t most_verbose = WEFT_LOG_INFO;
static _Atomic int64_t bytes_now;

static void services_log(const weft_host *host, int32_t level, const char *text) {
    (void)host;
    if (level <= most_verbose) weft_services_print(level, text);
}

void weft_services_print(int32_t level, const char *text) {
    static const char *const prefixes[] = {"weft: error", "weft: warning", "weft", "weft"};
    if (level < WEFT_LOG_ERROR || level > WEFT_LOG_DEBUG) return;
    if (level > WEFT_LOG_WARN && getenv(WEFT_NO_NEWS) != NULL) return;
    weft_message_print((weft_log_level)level, prefixes[level], text);
}

static void *services_alloc(const weft_host *host, size_t bytes, size_t alignment) {
    const size_t before = sizeof(record) + (alignment < 16 ? 16 : alignment);
    unsigned char *start = NULL, *memory = NULL;
    record *header = NULL;
    (void)host;
    if (alignment == 0 || (alignment & (alignment - 1)) != 0 || before < alignment || bytes > SIZE_MAX / 4 - before)
        return NULL;
    start = malloc(before + bytes);
    if (start == NULL) return NULL;
    if (alignment < 16) alignment = 16;
    memory = start + sizeof(record);
    memory += (alignment - (uintptr_t)memory % alignment) % alignment;
    header = (record *)(void *)(memory - sizeof(record));
    header->start = start;
    header->counted = before + bytes;
    (void)atomic_fetch_add(&bytes_now, (int64_t)header->counted);
    return memory;
}

static void services_release(const weft_host *host, void *memory) {
    record *header = memory == NULL ? NULL : (record *)(void *)((unsigned char *)memory - sizeof(record));
    (void)host;
    if (header == NULL) return;
    (void)atomic_fetch_sub(&bytes_now, (int64_t)header->counted);
    free(header->start);
}

int32_t weft_services_processors(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1; /* more processors than cpu_set_t supports */
    return CPU_COUNT(&set) > 0 ? CPU_COUNT(&set) : 1;
}

/* Runs body(i, context) for each i in [0, n), in any order, on as many threads as this process may run on. If no thread
 * can be created, the caller's thread runs the loop. */
static void services_parallel_for(const weft_host *host, int64_t n, void (*body)(int64_t i, void *context),
                                  void *context) {
    pthread_t others[MOST_THREADS];
    loop l = {.n = n, .body = body, .context = context};
    int64_t threads = weft_services_processors(), started = 0;
    (void)host;
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    if (threads > n) threads = n;
    while (started < threads - 1 && pthread_create(&others[started], NULL, worker_main, &l) == 0) started++;
    (void)worker_main(&l);
    for (int64_t i = 0; i < started; i++) (void)pthread_join(others[i], NULL);
}

/* A terminal shows one line that is overwritten; a file receives no output. */
static void services_progress(const weft_host *host, const char *what, double done, double total) {
    (void)host;
    if (most_verbose < WEFT_LOG_INFO || isatty(STDERR_FILENO) != 1) return;
    if (done >= total) (void)fprintf(stderr, "\r\033[K");
    else (void)fprintf(stderr, "\r\033[K%s %.0f %%", what, total > 0 ? 100 * done / total : 0);
    (void)fflush(stderr);
}

static weft_host_world world = {(uint32_t)sizeof(weft_host_world), 0, 0, 1, 0, 1, 0, 0};

weft_host_world *weft_services_world(void) {
    return &world;
}

static const weft_host_exchange *exchange;

void weft_services_offer_exchange(const weft_host_exchange *offered) {
    exchange = offered;
}

static const void *services_extension(const weft_host *host, const char *id) {
    (void)host;
    if (strcmp(id, WEFT_HOST_WORLD) == 0) return &world;
    return strcmp(id, WEFT_HOST_EXCHANGE) == 0 ? exchange : NULL;
}

const weft_host *weft_services(void) {
    static const weft_host host = {(uint32_t)sizeof(weft_host),
                                   0,
                                   WEFT_SDK_HEADERS,
                                   0,
                                   services_log,
                                   services_alloc,
                                   services_release,
                                   services_parallel_for,
                                   services_progress,
                                   services_extension};
    return &host;
}

int32_t weft_services_log_level(int32_t level) {
    const int32_t before = most_verbose;
    most_verbose = level;
    return before;
}

int64_t weft_services_bytes(void) {
    return atomic_load(&bytes_now);
}
