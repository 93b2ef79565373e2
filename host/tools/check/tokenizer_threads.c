/* host/tools/check/tokenizer_threads.c: a tokenizer that several threads ask at once. */
#include "tools/check/tokenizer_trial.h"

#include <pthread.h>
#include <stdlib.h>

enum { THREADS = 4 };

typedef struct worker {
    pthread_t thread;
    const weft_tokenizer_instance *self;
    const weft_trial_ids *wanted; /* [TEXTS] */
    uint32_t first;
    int differs; /* a text's number + 1; 0: none */
    bool is_done;
} worker;

static void *encode_all(void *context) {
    worker *w = context;
    weft_trial_ids *got = malloc(sizeof *got);
    char from[WEFT_TRIAL_TEXT];
    for (uint32_t i = 0; i < 3 * WEFT_TRIAL_TEXTS && got != NULL && w->differs == 0; i++) {
        const uint32_t t = (i + w->first) % WEFT_TRIAL_TEXTS;
        weft_error err = WEFT_ERROR_INIT;
        const size_t n = weft_text_draw(from, t);
        if (weft_tokenizer_encode(w->self, got, from, n, WEFT_ENCODE_PLAIN, &err) != WEFT_OK ||
            got->n != w->wanted[t].n || memcmp(got->id, w->wanted[t].id, got->n * sizeof got->id[0]) != 0)
            w->differs = (int)t + 1;
    }
    free(got);
    w->is_done = true;
    return NULL;
}

static weft_status run_workers(const weft_tokenizer_instance *self, const weft_trial_ids *wanted, weft_error *err) {
    worker workers[THREADS];
    weft_status status = WEFT_OK;
    uint32_t n = 0;
    for (; n < THREADS; n++) {
        workers[n] = (worker){.self = self, .wanted = wanted, .first = n * 17};
        if (pthread_create(&workers[n].thread, NULL, encode_all, &workers[n]) != 0) break;
    }
    for (uint32_t i = 0; i < n; i++) {
        (void)pthread_join(workers[i].thread, NULL);
        if (!workers[i].is_done && status == WEFT_OK) status = WEFT_LOST_THREAD(err, "encode");
        if (workers[i].differs != 0 && status == WEFT_OK)
            status = WEFT_BROKEN(err, "text %d has other ids while %d threads encode", workers[i].differs - 1, THREADS);
    }
    return status;
}

weft_status weft_tokenizer_threads_alike(weft_plugin_under_test *tested, weft_error *err) {
    weft_trial_ids *wanted = calloc(WEFT_TRIAL_TEXTS, sizeof *wanted);
    char from[WEFT_TRIAL_TEXT];
    weft_tokenizer_instance self;
    weft_status status = weft_tokenizer_open(&self, tested, err);
    if (wanted == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "no memory for ids");
    for (uint32_t t = 0; t < WEFT_TRIAL_TEXTS && status == WEFT_OK; t++) {
        const size_t n = weft_text_draw(from, t);
        status = weft_tokenizer_encode(&self, &wanted[t], from, n, WEFT_ENCODE_PLAIN, err);
    }
    if (status == WEFT_OK) status = run_workers(&self, wanted, err);
    weft_tokenizer_close(&self);
    free(wanted);
    return status;
}
