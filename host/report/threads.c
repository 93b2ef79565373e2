/* host/report/threads.c: see threads.h. Segments run in isolation, alternately on several threads and on one, so that
 * both run under the same load. Segments with equal work are measured once and weighted by their number. */
#include "report/threads.h"

#include "base/clock.h"
#include "report/segment_rig.h"
#include "plugin/device_queries.h"
#include "plugin/enter.h"

#include <stdlib.h>
#include <weft/team.h>

enum { LEAST_ROUNDS = 3, MOST_ROUNDS = 15, MOST_PARAMETERS = 1 << 25 };
static const double most_flops = 1e9;      /* of the measured segments, once each; with more work any team pays off */
static const double enough_seconds = 0.02; /* of one segment, after which it is not timed again */
static const double clearly = 1.15;

typedef struct duel {
    weft_segment_rig rig;
    const weft_device_team *team;
    int32_t n; /* threads */
} duel;

static const weft_device_team *find_team(const weft_engine *engine) {
    const weft_device_team *team = weft_device_find(engine->kernels, engine->device, WEFT_DEVICE_TEAM);
    return team != NULL && WEFT_WHOLE(team, weft_device_team) && team->resize != NULL ? team : NULL;
}

/* Counts equal segments under the first of them; false: the work is large. */
static bool count_segments(int32_t *times, const weft_engine *engine, int32_t places) {
    double flops = 0.0;
    for (int32_t segment = 0; segment < engine->plan.declared->n_segments; segment++) {
        const weft_graph_sizes *sizes = weft_graph_size(weft_graph_set_at(engine->plan.train.graphs, places, segment));
        if (times[weft_segment_like(engine, places, segment)]++ == 0)
            flops += sizes->forward_flops + sizes->backward_flops;
    }
    return flops <= most_flops;
}

static weft_status resize_team(const duel *self, int32_t threads, weft_error *err) {
    const weft_engine *engine = self->rig.engine;
    const weft_doing before = weft_plugin_enter(engine->kernels, "resize");
    return weft_plugin_leave(before, self->team->resize(engine->device, threads, err), err);
}

static weft_status run_segment(duel *self, weft_error *err) {
    const weft_engine *engine = self->rig.engine;
    weft_status status = WEFT_OK;
    self->rig.back = false;
    status = weft_segment_rig_run(&self->rig, err);
    self->rig.back = true;
    if (status == WEFT_OK && weft_segment_rig_has_backward(&self->rig)) status = weft_segment_rig_run(&self->rig, err);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, engine->kernels, synchronize, err, engine->device, NULL);
    return status;
}

static weft_status time_segment(duel *self, double *out, int32_t threads, weft_error *err) {
    weft_status status = resize_team(self, threads, err);
    const double begin = weft_clock_seconds();
    if (status == WEFT_OK) status = run_segment(self, err);
    *out = weft_clock_seconds() - begin;
    return status;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double middle_of(double *seconds, int32_t n) {
    qsort(seconds, (size_t)n, sizeof *seconds, by_size);
    return seconds[n / 2];
}

/* Compares one segment; the first call of each is a warm-up. Weights the result by `times`. */
static weft_status compare_segment(duel *self, weft_threads *out, int32_t segment, int32_t times, weft_error *err) {
    double several[MOST_ROUNDS], one[MOST_ROUNDS], spent = 0.0, unused = 0.0;
    int32_t n = 0;
    weft_status status = weft_segment_rig_take(&self->rig, segment, err);
    if (status == WEFT_OK) status = time_segment(self, &unused, self->n, err);
    if (status == WEFT_OK) status = time_segment(self, &unused, 1, err);
    while (status == WEFT_OK && n < MOST_ROUNDS && (n < LEAST_ROUNDS || spent < enough_seconds)) {
        status = time_segment(self, &several[n], self->n, err);
        if (status == WEFT_OK) status = time_segment(self, &one[n], 1, err);
        if (status == WEFT_OK) spent += several[n] + one[n];
        n++;
    }
    if (status != WEFT_OK) return status;
    out->several += times * middle_of(several, n);
    out->one += times * middle_of(one, n);
    return WEFT_OK;
}

static weft_status compare_segments(duel *self, weft_threads *out, const int32_t *times, weft_error *err) {
    weft_engine *engine = self->rig.engine;
    weft_status status = WEFT_OK, restored = WEFT_OK;
    for (int32_t segment = 0; segment < engine->plan.declared->n_segments && status == WEFT_OK; segment++)
        if (times[segment] > 0) status = compare_segment(self, out, segment, times[segment], err);
    restored = resize_team(self, self->n, status == WEFT_OK ? err : NULL);
    return status == WEFT_OK ? restored : status;
}

weft_status weft_threads_compare(weft_threads *out, weft_engine *engine, weft_error *err) {
    const weft_plan_spec *spec = &engine->plan.spec;
    const int32_t places = spec->lengths[spec->n_lengths - 1];
    const weft_threads none = {.n = engine->device_info.threads};
    duel self = {.team = find_team(engine), .n = none.n};
    int32_t *times = NULL;
    weft_status status = WEFT_OK;
    *out = none;
    if (none.n < 2 || self.team == NULL || weft_declared_numel(engine->plan.declared, false) > MOST_PARAMETERS)
        return WEFT_OK;
    times = calloc((size_t)engine->plan.declared->n_segments, sizeof *times);
    status = weft_segment_rig_open(&self.rig, engine, spec->rows, places, err);
    if (times == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "no memory to compare numbers of threads");
    if (status == WEFT_OK && count_segments(times, engine, places)) status = compare_segments(&self, out, times, err);
    weft_segment_rig_close(&self.rig);
    free(times);
    if (status != WEFT_OK) *out = none;
    return status;
}

bool weft_threads_one_is_faster(const weft_threads *self) {
    return self->one > 0.0 && self->several > clearly * self->one;
}
