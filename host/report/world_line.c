/* host/report/world_line.c: see world_line.h. */
#include "report/world_line.h"

#include "base/alloc.h"
#include "base/units.h"
#include "plugin/enter.h"
#include "program/sections.h"
#include "report/rates.h"
#include "run/engine.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>
#include <weft/team.h>

enum { LEAST_ROUNDS = 3, MOST_ROUNDS = 15 };

/* ---- threads ---- */

/* One thread trains faster than the device's team if kernels are shorter than the team's synchronization (a small
 * model), or if threads are not scheduled while others wait for them (a busy machine). Segments run in isolation,
 * alternately on several threads and on one, so that both run under the same load. Segments with equal work are
 * measured once and weighted by their number. */

enum { MOST_PARAMETERS = 1 << 25 };
static const double most_flops = 1e9;      /* of the measured segments, once each; with more work any team pays off */
static const double enough_seconds = 0.02; /* of one segment, after which it is not timed again */
static const double clearly = 1.15;        /* beyond the measurement error */

typedef struct comparison {
    weft_segment_rig rig;
    const weft_device_team *team;
    int32_t n;           /* threads of the team */
    double several, one; /* seconds of FORWARD and BACKWARD of a micro-batch; 0: unmeasured */
} comparison;

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

static weft_status resize_team(const comparison *self, int32_t threads, weft_error *err) {
    const weft_engine *engine = self->rig.engine;
    const weft_call_record before = weft_plugin_enter(engine->kernels, "resize");
    return weft_plugin_leave(before, self->team->resize(engine->device, threads, err), err);
}

static weft_status time_segment(comparison *self, double *out, int32_t threads, weft_error *err) {
    const weft_engine *engine = self->rig.engine;
    weft_status status = resize_team(self, threads, err);
    const double begin = weft_clock_seconds();
    self->rig.back = false;
    if (status == WEFT_OK) status = weft_segment_rig_run(&self->rig, err);
    self->rig.back = true;
    if (status == WEFT_OK && weft_graph_size(self->rig.graph)->has_backward)
        status = weft_segment_rig_run(&self->rig, err);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, engine->kernels, synchronize, err, engine->device, NULL);
    *out = weft_clock_seconds() - begin;
    return status;
}

/* Compares one segment; the first call of each is a warm-up. Weights the result by `times`. */
static weft_status compare_segment(comparison *self, int32_t segment, int32_t times, weft_error *err) {
    double several[MOST_ROUNDS], one[MOST_ROUNDS], spent = 0.0;
    int32_t n = 0;
    weft_status status = weft_segment_rig_take(&self->rig, segment, err);
    if (status == WEFT_OK) status = time_segment(self, several, self->n, err);
    if (status == WEFT_OK) status = time_segment(self, one, 1, err);
    while (status == WEFT_OK && n < MOST_ROUNDS && (n < LEAST_ROUNDS || spent < enough_seconds)) {
        status = time_segment(self, &several[n], self->n, err);
        if (status == WEFT_OK) status = time_segment(self, &one[n], 1, err);
        if (status == WEFT_OK) spent += several[n] + one[n];
        n++;
    }
    if (status != WEFT_OK) return status;
    self->several += times * weft_rates_median(several, n);
    self->one += times * weft_rates_median(one, n);
    return WEFT_OK;
}

/* Measures for about a tenth of a second. Returns false without a measurement: the device has one thread, cannot use
 * fewer (weft/team.h), or fails, which the run then reports; or the work is so large that any team pays off. The engine
 * is prepared for training and not allocated. */
static bool compare_threads(comparison *self, weft_engine *engine) {
    const weft_plan_spec *spec = &engine->plan.spec;
    const int32_t places = spec->lengths[spec->n_lengths - 1], n_segments = engine->plan.declared->n_segments;
    int32_t *times = NULL;
    weft_status status = WEFT_OK;
    *self = (comparison){.team = find_team(engine), .n = engine->device_info.threads};
    if (self->n < 2 || self->team == NULL || weft_declared_numel(engine->plan.declared, false) > MOST_PARAMETERS)
        return false;
    times = weft_alloc(n_segments, sizeof *times);
    if (count_segments(times, engine, places)) {
        self->rig = weft_segment_rig_open(engine, spec->rows, places);
        for (int32_t segment = 0; segment < n_segments && status == WEFT_OK; segment++)
            if (times[segment] > 0) status = compare_segment(self, segment, times[segment], NULL);
        if (resize_team(self, self->n, NULL) != WEFT_OK || status != WEFT_OK) self->one = 0.0;
        weft_segment_rig_close(&self->rig);
    }
    free(times);
    return self->one > 0.0;
}

/* ---- precision ---- */

/* GEMMs in 16 bits are slower than in fp32 if the processor widens the operands or has slow instructions for them. The
 * result is only reported: bits depend on the instruction set, so a measurement must not select it. */

/* c (ROWS, COLUMNS) = x w^T, as in a linear layer: 0.1 GFLOP with operands in the cache. */
enum { ROWS = 256, COLUMNS = 384, INNER = 512 };
static const double matmul_seconds = 0.01;
static const double clearly_faster = 1.05; /* beyond the measurement error */

/* Describes the GEMM: operands at the offsets of fp32, followed by the workspace. */
static weft_matmul product_of(weft_buffer *buffer, int32_t dtype) {
    const int64_t x = weft_f32_bytes((int64_t)ROWS * INNER), w = weft_f32_bytes((int64_t)COLUMNS * INNER);
    const int64_t c = weft_f32_bytes((int64_t)ROWS * COLUMNS);
    return (weft_matmul){.struct_size = (uint32_t)sizeof(weft_matmul),
                         .a = {buffer, 0},
                         .b = {buffer, x},
                         .c = {buffer, x + w},
                         .workspace = {buffer, x + w + c},
                         .m = ROWS,
                         .n = COLUMNS,
                         .k = INNER,
                         .lda = INNER,
                         .ldb = INNER,
                         .ldc = COLUMNS,
                         .dtype_a = dtype,
                         .dtype_b = dtype,
                         .dtype_c = dtype,
                         .transpose_b = 1};
}

static weft_status time_product(const weft_engine *engine, double *least, const weft_matmul *args) {
    const double begin = weft_clock_seconds();
    double seconds = 0.0;
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, engine->kernels, matmul, NULL, engine->device, NULL, args);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, engine->kernels, synchronize, NULL, engine->device, NULL);
    seconds = weft_clock_seconds() - begin;
    if (seconds < *least) *least = seconds;
    return status;
}

/* Measures the best seconds of one GEMM in fp32 and in the run's type for some milliseconds with 3 MB. Alternates
 * between them, so that both run under the same load; the first run of each is a warm-up. Returns false without a
 * measurement: the run is in fp32, or the device is not a processor of this machine, or fails, which the run then
 * reports. The engine is prepared for training and not allocated. */
static bool compare_precisions(double least[2], const weft_engine *engine) {
    const int32_t dtypes[2] = {WEFT_F32, engine->plan.dtype};
    const double begin = weft_clock_seconds();
    weft_matmul products[2];
    weft_buffer *buffer = NULL;
    int64_t workspace = 0;
    weft_status status = WEFT_OK;
    if (engine->plan.dtype == WEFT_F32 || (engine->device_info.flags & WEFT_DEVICE_SHARES_MACHINE) == 0) return false;
    for (int i = 0; i < 2; i++) {
        const weft_matmul args = product_of(NULL, dtypes[i]);
        const int64_t bytes = engine->kernels->matmul_workspace(engine->device, &args);
        if (bytes > workspace) workspace = bytes;
        products[i] = args;
    }
    status = weft_rates_allocate(engine, &buffer, products[0].workspace.offset + weft_cache_lines(workspace), NULL);
    for (int i = 0; i < 2; i++) products[i] = product_of(buffer, dtypes[i]);
    for (int i = 0; status == WEFT_OK && i < MOST_ROUNDS; i++) {
        if (i > LEAST_ROUNDS && weft_clock_seconds() - begin > matmul_seconds) break;
        if (i < 2) least[0] = least[1] = 1e300;
        status = time_product(engine, &least[0], &products[0]);
        if (status == WEFT_OK) status = time_product(engine, &least[1], &products[1]);
    }
    weft_rates_release(engine, buffer);
    return status == WEFT_OK;
}

/* ---- lines ---- */

void weft_device_line_print(const weft_device_info *info, FILE *to) {
    char threads[WEFT_UNIT_SIZE];
    (void)fprintf(to, "device     %s, %s, %s", info->name, info->isa, info->backend);
    if (info->threads > 0) (void)fprintf(to, ", %s", weft_unit_counted(threads, info->threads, "thread"));
    (void)fputc('\n', to);
}

static const weft_plugin *strategy_of(const weft_run *run) {
    return run->parts[WEFT_PART_STRATEGY].loaded->plugin;
}

/* Returns the strategy's settings with their values: its own keys, then the host keys that it offers. */
static json_t *settings_object(const weft_run *run) {
    const weft_loaded *loaded = run->parts[WEFT_PART_STRATEGY].loaded;
    const uint64_t n = loaded->plugin->n_keys;
    json_t *object = json_object();
    for (uint64_t i = 0;; i++) {
        uint32_t flag = 0;
        const weft_key *key =
            i < n ? (const weft_key *)((const char *)loaded->plugin->keys + i * loaded->plugin->key_stride)
                  : weft_capability_at(WEFT_PART_STRATEGY, (size_t)(i - n), &flag);
        const char *value = key == NULL ? NULL : weft_config_shown(run->config, "strategy", key->name);
        if (key == NULL) return object;
        if (value != NULL && (i < n || (weft_capabilities_of(loaded) & flag) != 0))
            (void)json_object_set_new(object, key->name, json_string(value));
    }
}

/* ---- the run ---- */

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
        if (part == WEFT_PART_OPTIMIZER && weft_engine_lr(session->engine, &lr)) (void)fprintf(to, " lr %g", lr);
    }
    if (result != NULL && result->steps > 0)
        (void)fprintf(to, "; %lld step%s, loss %.4f -> %.4f in training, lr %.3g in the last", (long long)result->steps,
                      result->steps == 1 ? "" : "s", result->first_loss, result->last_loss, result->last_lr);
    (void)fputc('\n', to);
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
                       "nodes", (int)job->nodes, "replicas", (int)job->replicas, "micro_batches",
                       (int)job->micro_batches, "precision", precision_of(session), "plugins", plugins, "strategy",
                       settings_object(session->run), "lr",
                       weft_engine_lr(session->engine, &lr) ? json_real(lr) : json_null(), "steps",
                       (json_int_t)result->steps, "first_loss", loss_json(result->first_loss), "last_loss",
                       loss_json(result->last_loss), "last_lr", result->last_lr);
    if (object != NULL && weft_plan_scales(&session->engine->plan))
        (void)json_object_set_new(object, "loss_scale",
                                  json_pack("{s:f, s:I}", "scale", (double)session->engine->scale.scale,
                                            "skipped_steps", (json_int_t)session->engine->scale.skipped));
    return object;
}

/* ---- the world ---- */

void weft_world_print(const weft_session *session, int width, FILE *to) {
    const weft_strategy_job *job = &session->engine->plan.train.job->spec.view;
    json_t *settings = settings_object(session->run), *value = NULL;
    const char *separator = ": ", *name = NULL;
    (void)fprintf(to, "%-*s%d rank%s", width, "world", (int)job->world, job->world == 1 ? "" : "s");
    if (job->world > 1) (void)fprintf(to, " on %d node%s", (int)job->nodes, job->nodes == 1 ? "" : "s");
    (void)fprintf(to, ", %d replica%s of %d %s; strategy %s", (int)job->replicas, job->replicas == 1 ? "" : "s",
                  (int)job->micro_batches, job->micro_batches == 1 ? "micro-batch" : "micro-batches",
                  strategy_of(session->run)->id);
    json_object_foreach(settings, name, value) {
        (void)fprintf(to, "%s%s %s", separator, name, json_string_value(value));
        separator = ", ";
    }
    json_decref(settings);
    (void)fputc('\n', to);
}

void weft_world_log_single_rank(const weft_session *session) {
    const char *id = strategy_of(session->run)->id, *usual = weft_part_fallback(WEFT_PART_STRATEGY);
    if (session->engine->ranks.world > 1 || strcmp(id, usual) == 0) return;
    weft_log(
        session->run->host, WEFT_LOG_INFO,
        "strategy %s is for several ranks, and this run has one. Fix: --ranks N for N ranks, or strategy.plugin=%s", id,
        usual);
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

void weft_world_log_threads(const weft_session *session) {
    comparison found;
    char a[WEFT_UNIT_SIZE], b[WEFT_UNIT_SIZE], busy[120];
    if (!compare_threads(&found, session->engine) || found.several <= clearly * found.one) return;
    describe_load(busy, sizeof busy);
    weft_log(session->run->host, WEFT_LOG_INFO,
             "one thread is faster than %d here: %s against %s for a micro-batch, forward and backward, with the same "
             "results: device.threads=1%s",
             (int)found.n, weft_unit_seconds(a, found.one), weft_unit_seconds(b, found.several), busy);
}

void weft_world_log_precision(const weft_session *session) {
    const double operations = 2.0 * ROWS * COLUMNS * INNER;
    double least[2];
    char busy[120];
    if (!compare_precisions(least, session->engine) || least[1] <= clearly_faster * least[0]) return;
    describe_load(busy, sizeof busy);
    weft_log(session->run->host, WEFT_LOG_INFO,
             "%s is slower than fp32 here: %.3g GFLOP/s in a product against %.3g: train.precision=fp32 takes less "
             "time, and more memory%s",
             weft_dtype_name(session->engine->plan.dtype), operations / least[1] / 1e9, operations / least[0] / 1e9,
             busy);
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
