/* host/tools/check/data_threads.c: data that several threads ask at once. */
#include "base/clock.h"
#include "tools/check/data_trial.h"

#include <pthread.h>

enum { THREADS = 4 };

/* All threads go on for so long: a thread that had done its requests before the next one started would meet no other,
 * and memory that calls share shows only where one call begins within another. */
#define SECONDS 0.5

typedef struct worker {
    pthread_t thread;
    const weft_data_instance *self;
    const weft_micro_batch *wanted; /* [REQUESTS] */
    weft_micro_batch got;
    uint32_t first;
    double until; /* by weft_clock_seconds */
    int differs;  /* a request's number + 1; 0: none */
    bool is_done;
} worker;

static void *take_all(void *context) {
    worker *w = context;
    for (uint32_t i = 0; w->differs == 0 && (i < 20 * WEFT_DATA_REQUESTS || weft_clock_seconds() < w->until); i++) {
        const uint32_t number = (i + w->first) % WEFT_DATA_REQUESTS;
        const weft_micro_batch_request request = weft_data_draw_request(w->self, number);
        weft_error err = WEFT_ERROR_INIT;
        if (weft_data_take(&w->got, w->self, &request, &err) != WEFT_OK ||
            !weft_data_same_micro_batch(&w->got, &w->wanted[number]))
            w->differs = (int)number + 1;
    }
    w->is_done = true;
    return NULL;
}

static weft_status run_workers(const weft_data_instance *self, const weft_micro_batch *wanted, weft_error *err) {
    worker workers[THREADS];
    weft_status status = WEFT_OK;
    const double until = weft_clock_seconds() + SECONDS;
    uint32_t n = 0;
    memset(workers, 0, sizeof workers);
    for (; n < THREADS && status == WEFT_OK; n++) {
        workers[n].self = self;
        workers[n].wanted = wanted;
        workers[n].first = n * 17;
        workers[n].until = until;
        status = weft_data_micro_batch_make(&workers[n].got, self, err);
        if (status != WEFT_OK || pthread_create(&workers[n].thread, NULL, take_all, &workers[n]) != 0) break;
    }
    for (uint32_t i = 0; i < n; i++) {
        (void)pthread_join(workers[i].thread, NULL);
        if (!workers[i].is_done && status == WEFT_OK) status = WEFT_LOST_THREAD(err, "shape or micro-batch");
        if (workers[i].differs != 0 && status == WEFT_OK)
            status =
                WEFT_BROKEN(err, "micro-batch %d is another one while %d threads ask", workers[i].differs - 1, THREADS);
    }
    for (uint32_t i = 0; i < THREADS; i++) weft_data_micro_batch_free(&workers[i].got);
    return status;
}

weft_status weft_data_threads_alike(weft_plugin_under_test *tested, weft_error *err) {
    weft_micro_batch wanted[WEFT_DATA_REQUESTS];
    weft_data_instance self;
    weft_status status = weft_data_open(&self, tested, WEFT_POISON_ONE, err);
    memset(wanted, 0, sizeof wanted);
    for (uint32_t i = 0; i < WEFT_DATA_REQUESTS && status == WEFT_OK; i++) {
        const weft_micro_batch_request request = weft_data_draw_request(&self, i);
        status = weft_data_micro_batch_make(&wanted[i], &self, err);
        if (status == WEFT_OK) status = weft_data_take(&wanted[i], &self, &request, err);
    }
    weft_plugin_under_test_asks("by %d threads at once", THREADS);
    if (status == WEFT_OK) status = run_workers(&self, wanted, err);
    for (uint32_t i = 0; i < WEFT_DATA_REQUESTS; i++) weft_data_micro_batch_free(&wanted[i]);
    weft_data_close(&self);
    return status;
}
