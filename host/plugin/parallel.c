/* host/plugin/parallel.c: see parallel.h. */
#include "plugin/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

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

static int32_t available_threads(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    return CPU_COUNT(&set);
}

void weft_parallel_for(int64_t n, int32_t threads, void (*body)(int64_t i, void *context), void *context) {
    pthread_t others[MOST_THREADS];
    loop l = {.n = n, .body = body, .context = context};
    int32_t wanted = threads > 0 ? threads : available_threads(), started = 0;
    if (wanted > MOST_THREADS) wanted = MOST_THREADS;
    if (wanted > n) wanted = (int32_t)n;
    while (started < wanted - 1 && pthread_create(&others[started], NULL, worker_main, &l) == 0) started++;
    (void)worker_main(&l);
    for (int32_t i = 0; i < started; i++) (void)pthread_join(others[i], NULL);
}
