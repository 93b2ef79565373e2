/* host/train/rehearsal.c: see rehearsal.h. */
#include "train/rehearsal.h"

#include "base/alloc.h"
#include "base/units.h"
#include "plugin/enter.h"
#include "program/budget.h"
#include "run/stepper.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>
#include <weft/dry_run.h>
#include <weft/team.h>

/* ---- launches ---- */

/* The communicator handles communication itself, so collectives have no effect here. */
static weft_status exchange_nothing(weft_comm *comm, weft_comm_handle **out, const weft_exchange *args,
                                    weft_error *err) {
    (void)comm;
    (void)args;
    (void)err;
    *out = NULL;
    return WEFT_OK;
}

static const weft_comm_plugin no_exchanges = {.struct_size = (uint32_t)sizeof no_exchanges,
                                              .all_gather = exchange_nothing,
                                              .reduce_scatter = exchange_nothing,
                                              .all_to_all = exchange_nothing,
                                              .send = exchange_nothing,
                                              .recv = exchange_nothing};

/* Copies the engine's plan, without memory and without a communicator. */
static weft_engine engine_without_memory(const weft_engine *of) {
    weft_engine out = {.plan = of->plan,
                       .kernels = of->kernels,
                       .device = of->device,
                       .device_info = of->device_info,
                       .optimizer_plugin = of->optimizer_plugin,
                       .optimizer = of->optimizer};
    out.account.kernels = of->kernels;
    out.account.device = of->device;
    out.ranks.rank = of->ranks.rank;
    out.ranks.world = of->ranks.world;
    out.ranks.info.progress = WEFT_PROGRESS_OWN;
    if (of->ranks.world > 1) out.ranks.plugin = &no_exchanges;
    return out;
}

/* Runs a step while the device counts. */
static weft_status count_step(weft_launches *out, const weft_device_dry_run *dry, weft_engine *engine,
                              weft_error *err) {
    weft_dry_counts before = {.struct_size = (uint32_t)sizeof before}, after = before;
    weft_stepper *stepper = NULL;
    weft_status status = weft_engine_take_memory(engine, err);
    if (status == WEFT_OK) status = weft_stepper_create(&stepper, engine, NULL, NULL, err);
    dry->counts(engine->device, &before);
    if (status == WEFT_OK && weft_stepper_rehearse(stepper, err) != WEFT_OK)
        status = weft_error_prefix(err, "a rehearsal of a step: ");
    dry->counts(engine->device, &after);
    weft_stepper_destroy(stepper);
    weft_engine_release(engine);
    out->kernels = after.kernels - before.kernels;
    out->products = after.products - before.products;
    out->copies = after.copies - before.copies;
    out->known = status == WEFT_OK;
    return status;
}

weft_status weft_launches_count(weft_launches *out, const weft_engine *engine, weft_error *err) {
    const weft_launches unknown = {0};
    const weft_device_dry_run *dry = NULL;
    weft_engine counted = engine_without_memory(engine);
    weft_status status = weft_device_dry_run_find(&dry, engine->kernels, engine->device, err);
    *out = unknown;
    if (status != WEFT_OK || dry == NULL || !engine->plan.spec.training) return status;
    status = dry->begin(engine->device, err);
    if (status != WEFT_OK) return status;
    status = count_step(out, dry, &counted, err);
    dry->end(engine->device);
    return status;
}

/* ---- a segment in isolation ---- */

weft_status weft_scratch_allocate(const weft_engine *engine, weft_buffer **out, int64_t bytes, weft_error *err) {
    enum { WORDS = 1 << 16 };
    const int64_t most = (int64_t)sizeof(uint32_t) * WORDS;
    uint32_t *words = weft_alloc(WORDS, sizeof *words);
    uint64_t state = 1;
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < WORDS; i++) { /* two bf16 halves of about a hundredth, with either sign */
        state = state * 6364136223846793005u + 1442695040888963407u;
        words[i] = 0x3C003C00u | ((uint32_t)(state >> 32) & 0x807F807Fu);
    }
    WEFT_PLUGIN_CALL(status, engine->kernels, alloc, err, engine->device, out, bytes);
    for (int64_t at = 0; at < bytes && status == WEFT_OK; at += most)
        WEFT_PLUGIN_CALL(status, engine->kernels, write, err, engine->device, NULL, ((weft_ref){*out, at}), words,
                         bytes - at < most ? bytes - at : most);
    free(words);
    return status;
}

void weft_scratch_release(const weft_engine *engine, weft_buffer *buffer) {
    if (buffer != NULL) WEFT_PLUGIN_NOTIFY(engine->kernels, release, engine->device, buffer);
}

static weft_slot_ref take_slot(weft_segment_rig *self, int64_t bytes) {
    weft_slot_ref out = {.bytes = bytes};
    if (bytes == 0) return out;
    out.ref = (weft_ref){self->buffer, self->at};
    self->at += weft_cache_lines(bytes);
    return out;
}

/* Lays out all operands in the buffer; without a buffer, counts its size. */
static void place_operands(weft_segment_rig *self, int32_t segment) {
    const weft_plan *plan = &self->engine->plan;
    const weft_graph_sizes *sizes = weft_graph_size(self->graph);
    const int64_t below = segment > 0 ? plan->train.job->spec.segments[segment - 1].carry : 0;
    const int64_t part = weft_micro_batch_part_bytes(self->rows, self->places);
    weft_graph_binding *b = &self->binding;
    int32_t n = 0;
    const weft_graph_read *reads = weft_graph_reads((weft_graph *)self->graph, &n);
    self->at = 0;
    for (int32_t i = 0; i < n; i++) {
        const weft_parameter *p = &plan->declared->parameters[reads[i].parameter];
        self->parameters[reads[i].parameter] = take_slot(self, weft_f32_bytes(p->numel)).ref;
        if (p->trainable) self->gradients[reads[i].parameter] = take_slot(self, weft_f32_bytes(p->numel));
    }
    for (int32_t i = 0; i < plan->declared->n_tables; i++)
        self->tables[i] = take_slot(self, weft_budget_table(plan, i));
    *b = (weft_graph_binding){.parameters = self->parameters, .gradients = self->gradients, .tables = self->tables};
    b->ids = take_slot(self, part);
    b->targets = take_slot(self, part);
    b->weights = take_slot(self, part);
    b->starts = take_slot(self, part);
    b->positions = take_slot(self, part);
    b->carry_in = take_slot(self, below);
    b->carry_out = take_slot(self, sizes->carry);
    b->d_carry_out = take_slot(self, sizes->carry);
    b->d_carry_in = take_slot(self, below);
    b->tape = take_slot(self, sizes->tape);
    b->work = take_slot(self, weft_larger(sizes->forward_work, sizes->backward_work));
    if (sizes->draws) b->first = take_slot(self, weft_dtype_bytes(WEFT_I64));
    b->loss = take_slot(self, weft_f64_bytes(1)).ref;
    b->seed = take_slot(self, weft_dtype_bytes(WEFT_F32));
}

/* Writes a micro-batch: ids spread over the vocabulary; every position has a target and attends to its sequence from
 * the start. */
static weft_status write_micro_batch(const weft_segment_rig *self, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_graph_binding *b = &self->binding;
    const int32_t n = self->rows * self->places;
    const int64_t vocabulary = engine->plan.declared->info.vocab_size;
    int32_t *ids = weft_alloc(3 * (int64_t)n, sizeof *ids), *starts = ids + n, *positions = starts + n;
    float *weights = weft_alloc(n, sizeof *weights);
    const weft_slot_ref slots[] = {b->ids, b->targets, b->weights, b->starts, b->positions};
    const void *const parts[] = {ids, ids, weights, starts, positions};
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < n; i++) {
        ids[i] = (int32_t)((int64_t)((uint32_t)i * 2654435761u >> 1) % vocabulary);
        positions[i] = i % self->places;
        weights[i] = 1.0f;
    }
    for (size_t i = 0; i < sizeof slots / sizeof *slots && status == WEFT_OK; i++)
        WEFT_PLUGIN_CALL(status, engine->kernels, write, err, engine->device, NULL, slots[i].ref, parts[i],
                         slots[i].bytes);
    free(ids);
    free(weights);
    return status;
}

weft_status weft_segment_rig_open(weft_segment_rig *self, weft_engine *engine, int32_t segment, weft_error *err) {
    const weft_declared *declared = engine->plan.declared;
    const weft_plan_spec *spec = &engine->plan.spec;
    weft_status status = WEFT_OK;
    *self = (weft_segment_rig){.engine = engine,
                               .rows = spec->rows,
                               .places = spec->lengths[spec->n_lengths - 1],
                               .parameters = weft_alloc(declared->n_parameters, sizeof *self->parameters),
                               .gradients = weft_alloc(declared->n_parameters, sizeof *self->gradients),
                               .tables = weft_alloc(declared->n_tables, sizeof *self->tables)};
    self->graph = weft_graph_set_at(engine->plan.train.graphs, self->places, segment);
    place_operands(self, segment);
    status = weft_scratch_allocate(engine, &self->buffer, self->at, err);
    place_operands(self, segment);
    return status == WEFT_OK ? write_micro_batch(self, err) : status;
}

void weft_segment_rig_close(weft_segment_rig *self) {
    weft_scratch_release(self->engine, self->buffer);
    free(self->parameters);
    free(self->gradients);
    free(self->tables);
}

weft_status weft_segment_rig_forward(void *context, weft_error *err) {
    const weft_segment_rig *self = context;
    return weft_graph_forward(self->graph, &self->binding, false, err);
}

weft_status weft_segment_rig_backward(void *context, weft_error *err) {
    const weft_segment_rig *self = context;
    return weft_graph_size(self->graph)->has_backward ? weft_graph_backward(self->graph, &self->binding, err) : WEFT_OK;
}

int32_t weft_segment_like(const weft_engine *engine, int32_t segment) {
    const weft_graph_set *graphs = engine->plan.train.graphs;
    const int32_t places = engine->plan.spec.lengths[engine->plan.spec.n_lengths - 1];
    const weft_graph_sizes *own = weft_graph_size(weft_graph_set_at(graphs, places, segment));
    int32_t like = 0;
    while (memcmp(weft_graph_size(weft_graph_set_at(graphs, places, like)), own, sizeof *own) != 0) like++;
    return like;
}

/* ---- threads ---- */

/* One thread trains faster than the device's team if kernels are shorter than the team's synchronization (a small
 * model), or if threads are not scheduled while others wait for them (a busy machine). Segments run in isolation,
 * alternately on several threads and on one, so that both run under the same load. Segments with equal work are
 * measured once and weighted by their number. */

enum { LEAST_ROUNDS = 3, MOST_ROUNDS = 15, MOST_PARAMETERS = 1 << 25 };
static const double most_flops = 1e9;      /* of the measured segments, once each; with more work any team pays off */
static const double enough_seconds = 0.02; /* of one segment, after which it is not timed again */
static const double clearly = 1.15;        /* beyond the measurement error */

typedef struct comparison {
    weft_engine *engine;
    const weft_device_team *team;
    double seconds[2]; /* of FORWARD and BACKWARD of a micro-batch: on the team, and on one thread */
} comparison;

static weft_status resize_team(const comparison *self, int32_t threads, weft_error *err) {
    const weft_call_record before = weft_plugin_enter(self->engine->kernels, "resize");
    return weft_plugin_leave(before, self->team->resize(self->engine->device, threads, err), err);
}

static weft_status time_segment(const comparison *self, weft_segment_rig *rig, double *out, int32_t threads) {
    const weft_engine *engine = self->engine;
    weft_status status = resize_team(self, threads, NULL);
    const double begin = weft_clock_seconds();
    if (status == WEFT_OK) status = weft_segment_rig_forward(rig, NULL);
    if (status == WEFT_OK) status = weft_segment_rig_backward(rig, NULL);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, engine->kernels, synchronize, NULL, engine->device, NULL);
    *out = weft_clock_seconds() - begin;
    return status;
}

static int by_seconds(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double weft_median(double *seconds, int32_t n) {
    qsort(seconds, (size_t)n, sizeof *seconds, by_seconds);
    return 0.5 * (seconds[n / 2] + seconds[(n - 1) / 2]);
}

/* Compares one segment; the first call of each is a warm-up. Weights the result by `times`. */
static weft_status compare_segment(comparison *self, int32_t segment, int32_t times) {
    const int32_t threads[2] = {self->engine->device_info.threads, 1};
    double seconds[2][MOST_ROUNDS + 1], spent = 0.0;
    int32_t n = 0;
    weft_segment_rig rig;
    weft_status status = weft_segment_rig_open(&rig, self->engine, segment, NULL);
    for (; status == WEFT_OK && n <= MOST_ROUNDS && (n <= LEAST_ROUNDS || spent < enough_seconds); n++)
        for (int i = 0; i < 2 && status == WEFT_OK; i++) {
            status = time_segment(self, &rig, &seconds[i][n], threads[i]);
            spent += n > 0 ? seconds[i][n] : 0.0;
        }
    weft_segment_rig_close(&rig);
    for (int i = 0; i < 2 && status == WEFT_OK; i++) self->seconds[i] += times * weft_median(seconds[i] + 1, n - 1);
    return status;
}

/* Measures for about a tenth of a second. Returns false without a measurement: the device has one thread, cannot use
 * fewer (weft/team.h), or fails, which the run then reports; or the work is so large that any team pays off. The engine
 * is prepared for training and not allocated. */
static bool compare_threads(comparison *self, weft_engine *engine) {
    const weft_plan *plan = &engine->plan;
    const int32_t n = plan->declared->n_segments, places = plan->spec.lengths[plan->spec.n_lengths - 1];
    double flops = 0.0;
    int32_t *times = NULL; /* [n] equal segments, at the first of them */
    weft_status status = WEFT_OK;
    *self = (comparison){.engine = engine, .team = weft_device_find(engine->kernels, engine->device, WEFT_DEVICE_TEAM)};
    if (engine->device_info.threads < 2 || self->team == NULL || !WEFT_WHOLE(self->team, weft_device_team) ||
        self->team->resize == NULL || weft_declared_numel(plan->declared, false) > MOST_PARAMETERS)
        return false;
    times = weft_alloc(n, sizeof *times);
    for (int32_t segment = 0; segment < n; segment++) {
        const weft_graph_sizes *sizes = weft_graph_size(weft_graph_set_at(plan->train.graphs, places, segment));
        if (times[weft_segment_like(engine, segment)]++ == 0) flops += sizes->forward_flops + sizes->backward_flops;
    }
    for (int32_t segment = 0; segment < n && status == WEFT_OK && flops <= most_flops; segment++)
        if (times[segment] > 0) status = compare_segment(self, segment, times[segment]);
    free(times);
    return flops <= most_flops && resize_team(self, engine->device_info.threads, NULL) == WEFT_OK && status == WEFT_OK;
}

/* ---- precision ---- */

/* GEMMs in 16 bits are slower than in fp32 if the processor widens the operands or has slow instructions for them. The
 * result is only reported: bits depend on the instruction set, so a measurement must not select it. */

/* c (ROWS, COLUMNS) = x w^T, as in a linear layer: 0.1 GFLOP with operands in the cache. */
enum { ROWS = 256, COLUMNS = 384, INNER = 512 };
static const double matmul_seconds = 0.01;
static const double clearly_faster = 1.05; /* beyond the measurement error */

static weft_status time_product(const weft_engine *engine, double *least, const weft_matmul *args) {
    const double begin = weft_clock_seconds();
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, engine->kernels, matmul, NULL, engine->device, NULL, args);
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, engine->kernels, synchronize, NULL, engine->device, NULL);
    *least = fmin(*least, weft_clock_seconds() - begin);
    return status;
}

/* Measures the best seconds of one GEMM in fp32 and in the run's type for some milliseconds with 3 MB. Alternates
 * between them, so that both run under the same load; the first run of each is a warm-up. Returns false without a
 * measurement: the run is in fp32, or the device is not a processor of this machine, or fails, which the run then
 * reports. The engine is prepared for training and not allocated. */
static bool compare_precisions(double least[2], const weft_engine *engine) {
    const int64_t b = weft_f32_bytes((int64_t)ROWS * INNER), c = b + weft_f32_bytes((int64_t)COLUMNS * INNER);
    const int64_t end = c + weft_f32_bytes((int64_t)ROWS * COLUMNS); /* of the operands; the workspace follows */
    const int32_t dtypes[2] = {WEFT_F32, engine->plan.dtype};
    const double begin = weft_clock_seconds();
    weft_matmul products[2];
    weft_buffer *buffer = NULL;
    int64_t workspace = 0;
    weft_status status = WEFT_OK;
    if (engine->plan.dtype == WEFT_F32 || (engine->device_info.flags & WEFT_DEVICE_SHARES_MACHINE) == 0) return false;
    for (int i = 0; i < 2; i++) {
        products[i] = (weft_matmul){.struct_size = (uint32_t)sizeof *products,
                                    .m = ROWS,
                                    .n = COLUMNS,
                                    .k = INNER,
                                    .lda = INNER,
                                    .ldb = INNER,
                                    .ldc = COLUMNS,
                                    .dtype_a = dtypes[i],
                                    .dtype_b = dtypes[i],
                                    .dtype_c = dtypes[i],
                                    .transpose_b = 1};
        workspace = weft_larger(workspace, engine->kernels->matmul_workspace(engine->device, &products[i]));
    }
    status = weft_scratch_allocate(engine, &buffer, end + weft_cache_lines(workspace), NULL);
    for (int i = 0; i < 2; i++) {
        products[i].a = (weft_ref){buffer, 0};
        products[i].b = (weft_ref){buffer, b};
        products[i].c = (weft_ref){buffer, c};
        products[i].workspace = (weft_ref){buffer, end};
    }
    for (int i = 0; status == WEFT_OK && i < MOST_ROUNDS; i++) {
        if (i > LEAST_ROUNDS && weft_clock_seconds() - begin > matmul_seconds) break;
        if (i < 2) least[0] = least[1] = 1e300;
        status = time_product(engine, &least[0], &products[0]);
        if (status == WEFT_OK) status = time_product(engine, &least[1], &products[1]);
    }
    weft_scratch_release(engine, buffer);
    return status == WEFT_OK;
}

/* ---- notices ---- */

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
    if (!compare_threads(&found, session->engine) || found.seconds[0] <= clearly * found.seconds[1]) return;
    describe_load(busy, sizeof busy);
    weft_log(session->run->host, WEFT_LOG_INFO,
             "one thread is faster than %d here: %s against %s for a micro-batch, forward and backward, with the same "
             "results: device.threads=1%s",
             (int)session->engine->device_info.threads, weft_unit_seconds(a, found.seconds[1]),
             weft_unit_seconds(b, found.seconds[0]), busy);
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
