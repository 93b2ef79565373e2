/* host/measure/rater.c: see rater.h. */
#include "measure/rater.h"

#include "base/clock.h"
#include "plugin/enter.h"

#include <stdlib.h>

enum { LEAST_TIMES = 3, MOST_TIMES = 32 };
static const double enough_seconds = 0.25; /* of one piece of work, beyond which it is not timed again */

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The first call warms up what the others find. */
static weft_status time_here(const weft_engine *engine, double *out, weft_rated_fn *work, void *context, int32_t least,
                             weft_error *err) {
    double seconds[MOST_TIMES], sum = 0.0;
    int32_t n = 0;
    weft_status status = work(context, err);
    while (status == WEFT_OK && n < MOST_TIMES && (n < least || sum < enough_seconds)) {
        const double begin = weft_clock_seconds();
        status = work(context, err);
        if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, engine->kernels, synchronize, err, engine->device, NULL);
        seconds[n] = weft_clock_seconds() - begin;
        sum += seconds[n++];
    }
    if (status != WEFT_OK) return status;
    qsort(seconds, (size_t)n, sizeof *seconds, by_size);
    *out = n % 2 == 1 ? seconds[n / 2] : 0.5 * (seconds[n / 2 - 1] + seconds[n / 2]);
    return WEFT_OK;
}

static weft_status meet_ranks(const weft_engine *engine, weft_error *err) {
    const weft_transfer nothing = {.dtype = WEFT_F32};
    if (engine->ranks.world == 1) return WEFT_OK;
    return weft_ranks_exchange(&engine->ranks, engine->ranks.plugin->barrier, "barrier", &nothing, err);
}

/* What every rank has found. */
static weft_status share_seconds(weft_engine *engine, double *mean, double *first, double mine, weft_error *err) {
    const int32_t world = engine->ranks.world;
    double *all = calloc((size_t)world, sizeof *all);
    weft_status status = WEFT_OK;
    if (all == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the rates of %d ranks", (int)world);
    status = weft_platform_share(engine->ranks.platform, all, &mine, (int64_t)sizeof mine, err);
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

/* Every rank takes part in each exchange, so all start as many. */
weft_status weft_rater_time_exchange(weft_engine *engine, double *out, weft_rated_fn *work, void *context,
                                     weft_error *err) {
    double seconds[MOST_TIMES], mean = 0.0;
    weft_status status = meet_ranks(engine, err);
    if (status == WEFT_OK) status = work(context, err);
    for (int32_t n = 0; n < MOST_TIMES && status == WEFT_OK; n++) {
        const double begin = weft_clock_seconds();
        status = work(context, err);
        seconds[n] = weft_clock_seconds() - begin;
    }
    if (status != WEFT_OK) return status;
    qsort(seconds, MOST_TIMES, sizeof *seconds, by_size);
    return share_seconds(engine, &mean, out, seconds[MOST_TIMES / 2], err);
}

/* ---- memory ---- */

/* A word whose halves are bf16 of about a hundredth, either sign. */
static uint32_t small_numbers(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return 0x3C003C00u | ((uint32_t)(*state >> 32) & 0x807F807Fu);
}

static weft_status fill_buffer(const weft_engine *engine, weft_buffer *buffer, int64_t bytes, weft_error *err) {
    enum { WORDS = 1 << 16 };
    uint32_t *words = malloc(WORDS * sizeof *words);
    uint64_t state = 1;
    weft_status status = WEFT_OK;
    if (words == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for numbers to measure with");
    for (int32_t i = 0; i < WORDS; i++) words[i] = small_numbers(&state);
    for (int64_t at = 0; at < bytes && status == WEFT_OK; at += (int64_t)sizeof *words * WORDS) {
        const int64_t left = bytes - at, all = (int64_t)sizeof *words * WORDS;
        const weft_ref to = {buffer, at};
        WEFT_PLUGIN_CALL(status, engine->kernels, write, err, engine->device, NULL, to, words, left < all ? left : all);
    }
    free(words);
    return status;
}

weft_status weft_rater_take(const weft_engine *engine, weft_buffer **out, int64_t bytes, weft_error *err) {
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, engine->kernels, alloc, err, engine->device, out, bytes);
    return status == WEFT_OK ? fill_buffer(engine, *out, bytes, err) : status;
}

void weft_rater_give(const weft_engine *engine, weft_buffer *buffer) {
    if (buffer != NULL) WEFT_PLUGIN_TELL(engine->kernels, release, engine->device, buffer);
}
