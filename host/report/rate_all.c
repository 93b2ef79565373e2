/* host/report/rate_all.c: see rates.h. */
#include "report/rates.h"

#include "launch/find.h"
#include "report/rater.h"

#include <stdlib.h>
#include <unistd.h>

const char *weft_rate_name(int32_t kind) {
    static const char *const names[WEFT_N_RATES] = {"add", "copy", "convert", "squares", "update"};
    return names[kind];
}

const char *weft_rate_exchange_name(int32_t kind) {
    static const char *const names[WEFT_N_RATE_EXCHANGES] = {"all_gather", "all_to_all", "reduce_scatter", "send"};
    return names[kind];
}

int32_t weft_rates_room(const weft_rates *self) {
    const int32_t room = self->processors / (self->threads > 0 ? self->threads : 1);
    if (self->own_processors) return INT32_MAX;
    return room > 0 ? room : 1;
}

double weft_rates_exchange(const weft_rates *self, int32_t kind, double bytes) {
    const double *at = self->bytes, *seconds = self->exchanges[kind];
    const int32_t last = WEFT_RATE_SIZES - 1;
    int32_t i = 0;
    if (bytes <= at[0]) return seconds[0];
    if (bytes >= at[last]) return at[last] > 0.0 ? seconds[last] * bytes / at[last] : 0.0;
    while (bytes > at[i + 1]) i++;
    return seconds[i] + (seconds[i + 1] - seconds[i]) * (bytes - at[i]) / (at[i + 1] - at[i]);
}

bool weft_rates_own_processors(const weft_engine *engine) {
    return (engine->device_info.flags & WEFT_DEVICE_SHARES_MACHINE) == 0;
}

/* Returns the machine's processors. A launcher that binds its ranks restricts each to its own. */
static int32_t count_processors(const weft_engine *engine) {
    const int64_t seen = weft_world_allowed(),
                  ranks = engine->ranks.info.local_size > 0 ? engine->ranks.info.local_size : 1;
    const long all = sysconf(_SC_NPROCESSORS_ONLN);
    return (int32_t)(seen < all && seen * ranks <= all ? seen * ranks : seen);
}

static weft_status describe_machine(weft_rates *out, const weft_engine *engine, weft_error *err) {
    const weft_ranks *ranks = &engine->ranks;
    const weft_declared *declared = engine->plan.declared;
    out->ranks = ranks->world;
    out->ranks_per_node = ranks->info.local_size > 0 ? ranks->info.local_size : 1;
    out->processors = count_processors(engine);
    out->threads = engine->device_info.threads;
    out->own_processors = weft_rates_own_processors(engine);
    out->rows = engine->plan.spec.rows;
    out->places = engine->plan.spec.lengths[engine->plan.spec.n_lengths - 1];
    (void)snprintf(out->device, sizeof out->device, "%s, %s", engine->device_info.name, engine->device_info.isa);
    if (ranks->world > 1) (void)snprintf(out->comm, sizeof out->comm, "%s", ranks->info.backend);
    (void)snprintf(out->precision, sizeof out->precision, "%s", weft_dtype_name(engine->plan.dtype));
    (void)snprintf(out->optimizer, sizeof out->optimizer, "%s", weft_run_id(engine->plan.run, WEFT_PART_OPTIMIZER));
    out->trainable = strdup(engine->plan.run->settings.train.trainable);
    out->own_progress = ranks->info.progress == WEFT_PROGRESS_OWN;
    out->n_segments = declared->n_segments;
    out->segments = calloc((size_t)out->n_segments, sizeof *out->segments);
    if (out->segments == NULL || out->trainable == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for the rates of %d segments", (int)out->n_segments);
    for (int32_t s = 0; s < out->n_segments; s++)
        (void)snprintf(out->segments[s].name, sizeof out->segments[s].name, "%s",
                       engine->plan.train.job->spec.view.segments[s].name);
    return WEFT_OK;
}

weft_status weft_rates_measure(weft_rates *out, weft_engine *engine, weft_error *err) {
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    status = describe_machine(out, engine, err);
    if (status == WEFT_OK) status = weft_rate_segments(out, engine, err);
    if (status == WEFT_OK) status = weft_rate_elements(out, engine, err);
    if (status == WEFT_OK) status = weft_rate_exchanges(out, engine, err);
    if (status != WEFT_OK) engine->failed = true; /* other ranks wait, or will wait */
    return status;
}

void weft_rates_free(weft_rates *self) {
    free(self->segments);
    free(self->trainable);
    memset(self, 0, sizeof *self);
}
