/* host/report/world_line.c: see world_line.h. */
#include "report/world_line.h"

#include "base/units.h"
#include "report/precision.h"
#include "report/threads.h"
#include "program/adapters.h"
#include "program/capabilities.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

static const weft_plugin *strategy_of(const weft_run *run) {
    return run->parts[WEFT_PART_STRATEGY].loaded->plugin;
}

static const weft_key *key_at(const weft_plugin *plugin, uint64_t i) {
    return (const weft_key *)((const char *)plugin->keys + i * plugin->key_stride);
}

/* Returns the name of the i-th setting of the strategy, first its own keys, then the host keys that it offers; value
 * NULL: omitted. Returns false past the end. */
static bool setting_at(const weft_run *run, uint64_t i, const char **name, const char **value) {
    const weft_loaded *loaded = run->parts[WEFT_PART_STRATEGY].loaded;
    const uint64_t n = loaded->plugin->n_keys;
    uint32_t flag = ~0u;
    const weft_key *key = i < n ? key_at(loaded->plugin, i)
                                : weft_capability_at(WEFT_PART_STRATEGY, (size_t)(i - n), &flag);
    if (key == NULL) return false;
    *name = key->name;
    *value = i >= n && (weft_capabilities_of(loaded) & flag) == 0 ? NULL
                                                                  : weft_config_shown(run->config, "strategy", *name);
    return true;
}

static void print_settings(const weft_run *run, FILE *to) {
    const char *separator = ": ", *name = NULL, *value = NULL;
    for (uint64_t i = 0; setting_at(run, i, &name, &value); i++) {
        if (value == NULL) continue;
        (void)fprintf(to, "%s%s %s", separator, name, value);
        separator = ", ";
    }
}

/* ---- the run ---- */

static bool lr_of(const weft_session *session, double *out) {
    return weft_engine_lr(session->engine, out);
}

static const char *precision_of(const weft_session *session) {
    return weft_dtype_name(weft_precision_dtype(&session->run->settings.train));
}

void weft_run_print(const weft_session *session, const weft_run_result *result, int width, FILE *to) {
    double lr = 0.0;
    (void)fprintf(to, "%-*sprecision %s", width, "run", precision_of(session));
    if (weft_plan_scales(&session->engine->plan))
        (void)fprintf(to, " with a loss scale of %g at first", session->run->settings.train.loss_scale);
    for (int32_t part = 0; part < WEFT_N_PARTS; part++) {
        const char *id = weft_run_id(session->run, part);
        if (id != NULL) (void)fprintf(to, ", %s %s", weft_part_name(part), id);
        if (part == WEFT_PART_OPTIMIZER && lr_of(session, &lr)) (void)fprintf(to, " lr %g", lr);
    }
    if (result != NULL && result->steps > 0)
        (void)fprintf(to, "; %lld step%s, loss %.4f -> %.4f in training, lr %.3g in the last", (long long)result->steps,
                      result->steps == 1 ? "" : "s", result->first_loss, result->last_loss, result->last_lr);
    (void)fputc('\n', to);
}

static json_t *settings_object(const weft_run *run) {
    const char *name = NULL, *value = NULL;
    json_t *object = json_object();
    for (uint64_t i = 0; setting_at(run, i, &name, &value); i++)
        if (value != NULL) (void)json_object_set_new(object, name, json_string(value));
    return object;
}

static json_t *scale_object(const weft_loss_scale *scale) {
    return json_pack("{s:f, s:I}", "scale", (double)scale->scale, "skipped_steps", (json_int_t)scale->skipped);
}

/* Returns null for a loss that overflowed, which JSON cannot represent. */
static json_t *loss_json(double loss) {
    return isfinite(loss) ? json_real(loss) : json_null();
}

json_t *weft_run_object(const weft_session *session, const weft_run_result *result) {
    const weft_strategy_job *job = &session->engine->plan.train.job->spec.view;
    json_t *plugins = json_object(), *object = NULL;
    char adapters[300];
    double lr = 0.0;
    for (int32_t part = 0; part < WEFT_PART_ADAPTER; part++)
        (void)json_object_set_new(plugins, weft_part_name(part), json_string(weft_run_id(session->run, part)));
    weft_adapters_print(adapters, sizeof adapters, session->run);
    if (adapters[0] != '\0') (void)json_object_set_new(plugins, "adapter", json_string(adapters));
    object = json_pack("{s:i, s:i, s:i, s:i, s:s, s:o, s:o, s:o, s:I, s:o, s:o, s:f}", "world", (int)job->world,
                       "nodes", (int)job->nodes, "replicas", (int)job->replicas, "micro-batches",
                       (int)job->micro_batches, "precision", precision_of(session), "plugins", plugins, "strategy",
                       settings_object(session->run), "lr", lr_of(session, &lr) ? json_real(lr) : json_null(), "steps",
                       (json_int_t)result->steps, "first_loss", loss_json(result->first_loss), "last_loss",
                       loss_json(result->last_loss), "last_lr", result->last_lr);
    if (object != NULL && weft_plan_scales(&session->engine->plan))
        (void)json_object_set_new(object, "loss_scale", scale_object(&session->engine->scale));
    return object;
}

/* ---- the world ---- */

void weft_world_print(const weft_session *session, int width, FILE *to) {
    const weft_engine *engine = session->engine;
    const weft_strategy_job *job = &engine->plan.train.job->spec.view;
    (void)fprintf(to, "%-*s%d rank%s", width, "world", (int)job->world, job->world == 1 ? "" : "s");
    if (job->world > 1) (void)fprintf(to, " on %d node%s", (int)job->nodes, job->nodes == 1 ? "" : "s");
    (void)fprintf(to, ", %d replica%s of %d %s; strategy %s", (int)job->replicas, job->replicas == 1 ? "" : "s",
                  (int)job->micro_batches, job->micro_batches == 1 ? "micro-batch" : "micro-batches",
                  strategy_of(session->run)->id);
    print_settings(session->run, to);
    (void)fputc('\n', to);
}

void weft_world_tell_alone(const weft_session *session) {
    const char *id = strategy_of(session->run)->id, *usual = weft_part_fallback(WEFT_PART_STRATEGY);
    if (session->engine->ranks.world > 1 || strcmp(id, usual) == 0) return;
    weft_log(session->run->host, WEFT_LOG_INFO,
             "strategy %s has one rank here, so nothing is shared or divided: --ranks N gives it N, strategy.plugin=%s "
             "is what one rank needs",
             id, usual);
}

/* Formats "; the machine is busy: 9.1 processes want its 2 processors", if it is. */
static void describe_load(char *out, size_t size) {
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    double load = 0.0;
    *out = '\0';
    if (getloadavg(&load, 1) == 1 && load > (double)processors + 1.0)
        (void)snprintf(out, size, "; the machine is busy: %.1f processes want its %ld processor%s", load, processors,
                       processors == 1 ? "" : "s");
}

void weft_world_tell_threads(const weft_session *session) {
    weft_threads found;
    char a[WEFT_UNIT_SIZE], b[WEFT_UNIT_SIZE], busy[120];
    if (weft_threads_compare(&found, session->engine, NULL) != WEFT_OK)
        return; /* the run hits the same error and
                                                                                 * reports it */
    if (!weft_threads_one_is_faster(&found)) return;
    describe_load(busy, sizeof busy);
    weft_log(session->run->host, WEFT_LOG_INFO,
             "one thread is faster than %d here: %s against %s for a micro-batch, forward and backward, with the same "
             "results: "
             "device.threads=1%s",
             (int)found.n, weft_unit_seconds(a, found.one), weft_unit_seconds(b, found.several), busy);
}

void weft_world_tell_precision(const weft_session *session) {
    const char *name = weft_dtype_name(session->engine->plan.dtype);
    weft_precision_speeds found;
    char busy[120];
    if (weft_precision_compare(&found, session->engine, NULL) != WEFT_OK) return; /* as above */
    if (!weft_precision_is_slower(&found)) return;
    describe_load(busy, sizeof busy);
    weft_log(session->run->host, WEFT_LOG_INFO,
             "%s is slower than fp32 here: %.3g GFLOP/s in a product against %.3g: train.precision=fp32 takes less "
             "time, and more memory%s",
             name, found.half / 1e9, found.f32 / 1e9, busy);
}

void weft_sums_print(const weft_session *session, int width, FILE *to) {
    static const char *const names[] = {"ordered", "tree", "fast"};
    const weft_mode_plan *mode_plan = &session->engine->plan.train;
    const weft_strategy_job *job = &mode_plan->job->spec.view;
    (void)fprintf(to, "%-*sof micro-batch gradients: %s, %s%s; ", width, "sums", names[job->reduce],
                  job->reduce_dtype == WEFT_F32 ? "" : "each micro-batch rounded to ",
                  weft_dtype_name(job->reduce_dtype));
    if (mode_plan->coverage.covered) (void)fprintf(to, "covered by the contract of equal bits\n");
    else (void)fprintf(to, "not covered by the contract of equal bits: %s\n", mode_plan->coverage.why);
}
