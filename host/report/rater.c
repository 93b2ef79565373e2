/* host/report/rater.c: see rater.h. */
#include "report/rater.h"

#include "base/clock.h"
#include "launch/heartbeat.h"
#include "plugin/enter.h"

#include <stdlib.h>

enum { LEAST_TIMES = 3, MOST_TIMES = 32 };
static const double enough_seconds = 0.25; /* of one function, after which it is not timed again */

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Runs the function and synchronizes with the device, which may queue work. */
static weft_status run_work(const weft_engine *engine, weft_rated_fn *work, void *context, weft_error *err) {
    weft_status status = work(context, err);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, engine->kernels, synchronize, err, engine->device, NULL);
    return status;
}

/* Times on this rank; the first call is a warm-up. */
static weft_status time_here(const weft_engine *engine, double *out, weft_rated_fn *work, void *context, int32_t least,
                             weft_error *err) {
    double seconds[MOST_TIMES], sum = 0.0;
    int32_t n = 0;
    weft_status status = run_work(engine, work, context, err);
    while (status == WEFT_OK && n < MOST_TIMES && (n < least || sum < enough_seconds)) {
        const double begin = weft_clock_seconds();
        status = run_work(engine, work, context, err);
        seconds[n] = weft_clock_seconds() - begin;
        sum += seconds[n++];
    }
    if (status != WEFT_OK) return status;
    qsort(seconds, (size_t)n, sizeof *seconds, by_size);
    *out = n % 2 == 1 ? seconds[n / 2] : 0.5 * (seconds[n / 2 - 1] + seconds[n / 2]);
    return WEFT_OK;
}

/* Runs a collective. If a communicator queues (NCCL), the bytes move until the device is synchronized. Without
 * synchronization a rank would time only the queueing, and run ahead of the others. */
static weft_status run_exchange(const weft_engine *engine, weft_rated_fn *work, void *context, weft_error *err) {
    weft_status status = work(context, err);
    weft_heartbeat_wait();
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, engine->kernels, synchronize, err, engine->device, NULL);
    weft_heartbeat_go();
    return status;
}

static weft_status pass_barrier(void *context, weft_error *err) {
    const weft_engine *engine = context;
    const weft_transfer nothing = {.dtype = WEFT_F32};
    return weft_ranks_exchange(&engine->ranks, engine->ranks.plugin->barrier, "barrier", &nothing, err);
}

static weft_status meet_ranks(weft_engine *engine, weft_error *err) {
    return engine->ranks.world == 1 ? WEFT_OK : run_exchange(engine, pass_barrier, engine, err);
}

/* Combines the results of all ranks. */
static weft_status share_seconds(weft_engine *engine, double *mean, double *first, double mine, weft_error *err) {
    const int32_t world = engine->ranks.world;
    double *all = calloc((size_t)world, sizeof *all);
    weft_status status = WEFT_OK;
    if (all == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the rates of %d ranks", (int)world);
    status = weft_process_context_share(engine->ranks.process_context, all, &mine, (int64_t)sizeof mine, err);
    *mean = 0.0;
    *first = all[0];
    for (int32_t rank = 0; rank < world; rank++) *mean += all[rank] / world;
    free(all);
    return status;
}

weft_status weft_rater_time(weft_engine *engine, weft_work *out, weft_rated_fn *work, void *context, weft_error *err) {
    double mine = 0.0, unused = 0.0;
    weft_status status = meet_ranks(engine, err);
    if (status == WEFT_OK) status = time_here(engine, &mine, work, context, LEAST_TIMES, err);
    if (status == WEFT_OK) status = share_seconds(engine, &out->together, &unused, mine, err);
    out->alone = out->together;
    if (status != WEFT_OK || engine->ranks.info.local_size <= 1) return status;
    if (engine->ranks.rank == 0) status = time_here(engine, &mine, work, context, LEAST_TIMES, err);
    return status == WEFT_OK ? share_seconds(engine, &unused, &out->alone, mine, err) : status;
}

static weft_status time_exchange(const weft_engine *engine, double *out, weft_rated_fn *work, void *context,
                                 weft_error *err) {
    const double begin = weft_clock_seconds();
    const weft_status status = run_exchange(engine, work, context, err);
    *out = weft_clock_seconds() - begin;
    return status;
}

/* Agrees on the repetitions. Every rank takes part in each collective, so all start the same number, limited by its
 * duration. */
static weft_status agree_on_times(weft_engine *engine, int32_t *out, double seconds, weft_error *err) {
    double mean = 0.0, unused = 0.0;
    const weft_status status = share_seconds(engine, &mean, &unused, seconds, err);
    *out = mean * MOST_TIMES < enough_seconds ? MOST_TIMES : (int32_t)(enough_seconds / mean);
    if (*out < LEAST_TIMES) *out = LEAST_TIMES;
    return status;
}

weft_status weft_rater_time_exchange(weft_engine *engine, double *out, weft_rated_fn *work, void *context,
                                     weft_error *err) {
    double seconds[MOST_TIMES], unused = 0.0;
    int32_t times = 0;
    weft_status status = meet_ranks(engine, err);
    if (status == WEFT_OK) status = run_exchange(engine, work, context, err);
    if (status == WEFT_OK) status = time_exchange(engine, &seconds[0], work, context, err);
    if (status == WEFT_OK) status = agree_on_times(engine, &times, seconds[0], err);
    for (int32_t n = 1; n < times && status == WEFT_OK; n++)
        status = time_exchange(engine, &seconds[n], work, context, err);
    if (status == WEFT_OK) status = weft_ranks_check(&engine->ranks, err);
    if (status != WEFT_OK) return status;
    qsort(seconds, (size_t)times, sizeof *seconds, by_size);
    return share_seconds(engine, &unused, out, seconds[times / 2], err);
}

/* ---- memory ---- */

/* Returns a word of two bf16 halves of about a hundredth, with either sign. */
static uint32_t small_numbers(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return 0x3C003C00u | ((uint32_t)(*state >> 32) & 0x807F807Fu);
}

/* Repeats the start of the buffer until it is full. */
static weft_status repeat_words(const weft_engine *engine, weft_buffer *buffer, int64_t n, int64_t bytes,
                                weft_error *err) {
    const weft_ref from = {buffer, 0};
    weft_status status = WEFT_OK;
    for (int64_t at = n; at < bytes && status == WEFT_OK; at += n) {
        const weft_ref to = {buffer, at};
        n = at < bytes - at ? at : bytes - at;
        WEFT_PLUGIN_CALL(status, engine->kernels, copy, err, engine->device, NULL, to, from, n);
    }
    return status;
}

static weft_status fill_buffer(const weft_engine *engine, weft_buffer *buffer, int64_t bytes, weft_error *err) {
    enum { WORDS = 1 << 16 };
    const int64_t all = (int64_t)sizeof(uint32_t) * WORDS, n = bytes < all ? bytes : all;
    const weft_ref to = {buffer, 0};
    uint32_t *words = malloc(WORDS * sizeof *words);
    uint64_t state = 1;
    weft_status status = WEFT_OK;
    if (words == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for numbers to measure with");
    for (int32_t i = 0; i < WORDS; i++) words[i] = small_numbers(&state);
    WEFT_PLUGIN_CALL(status, engine->kernels, write, err, engine->device, NULL, to, words, n);
    free(words);
    return status == WEFT_OK ? repeat_words(engine, buffer, n, bytes, err) : status;
}

weft_status weft_rater_take(const weft_engine *engine, weft_buffer **out, int64_t bytes, weft_error *err) {
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, engine->kernels, alloc, err, engine->device, out, bytes);
    return status == WEFT_OK ? fill_buffer(engine, *out, bytes, err) : status;
}

void weft_rater_give(const weft_engine *engine, weft_buffer *buffer) {
    if (buffer != NULL) WEFT_PLUGIN_TELL(engine->kernels, release, engine->device, buffer);
}
