/* host/tools/plan/rates.c: see rates.h. */
#include "tools/plan/rates.h"

#include "base/alloc.h"
#include "base/text.h"
#include "base/units.h"
#include "launch/heartbeat.h"
#include "plugin/enter.h"
#include "plugin/services.h"
#include "program/budget.h"
#include "run/ranks.h"
#include "tools/common/plan_costs.h"
#include "train/rehearsal.h"

#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

static const char *const rate_names[WEFT_N_RATES] = {"add", "copy", "convert", "squares", "update"};
static const char *const exchange_names[WEFT_N_RATE_EXCHANGES] = {"all_gather", "all_to_all", "reduce_scatter", "send"};

typedef weft_status rated_fn(void *context, weft_error *err);

/* Work to time. */
typedef struct timed {
    weft_engine *engine;
    rated_fn *run;
    void *context;
    bool exchanges; /* runs a collective */
} timed;

enum { LEAST_TIMES = 3, MOST_TIMES = 32 };
static const double enough_seconds = 0.25; /* of one function, after which it is not timed again */

/* Runs the work and synchronizes with the device, which may queue it, as NCCL does with the bytes of a collective. */
static weft_status run_once(const timed *work, double *seconds, weft_error *err) {
    const weft_engine *engine = work->engine;
    const double begin = weft_clock_seconds();
    weft_status status = work->run(work->context, err);
    if (work->exchanges) weft_heartbeat_wait();
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, engine->kernels, synchronize, err, engine->device, NULL);
    if (work->exchanges) weft_heartbeat_go();
    *seconds = weft_clock_seconds() - begin;
    return status;
}

/* Times on this rank; the first call is a warm-up. */
static weft_status time_here(const timed *work, double *out, weft_error *err) {
    double seconds[MOST_TIMES], sum = 0.0;
    int32_t n = 0;
    weft_status status = run_once(work, out, err);
    while (status == WEFT_OK && n < MOST_TIMES && (n < LEAST_TIMES || sum < enough_seconds)) {
        status = run_once(work, &seconds[n], err);
        sum += seconds[n++];
    }
    if (status == WEFT_OK) *out = weft_median(seconds, n);
    return status;
}

static weft_status call_barrier(void *context, weft_error *err) {
    const weft_engine *engine = context;
    const weft_transfer nothing = {.dtype = WEFT_F32};
    return weft_ranks_exchange(&engine->ranks, engine->ranks.plugin->barrier, "barrier", &nothing, err);
}

static weft_status wait_for_ranks(weft_engine *engine, weft_error *err) {
    const timed barrier = {engine, call_barrier, engine, true};
    double unused = 0.0;
    return engine->ranks.world == 1 ? WEFT_OK : run_once(&barrier, &unused, err);
}

/* Combines the results of all ranks. */
static weft_status share_seconds(const weft_engine *engine, double *mean, double *first, double mine, weft_error *err) {
    const int32_t world = engine->ranks.world;
    double *all = weft_alloc(world, sizeof *all);
    const weft_status status =
        weft_process_context_share(engine->ranks.process_context, all, &mine, (int64_t)sizeof mine, err);
    *mean = 0.0;
    *first = all[0];
    for (int32_t rank = 0; rank < world; rank++) *mean += all[rank] / world;
    free(all);
    return status;
}

/* Measures the seconds of one call: on all ranks at once, as the mean over ranks of each median; and on rank 0 only.
 * [collective] */
static weft_status time_work(weft_engine *engine, weft_work *out, rated_fn *run, void *context, weft_error *err) {
    const timed work = {engine, run, context, false};
    double mine = 0.0, unused = 0.0;
    weft_status status = wait_for_ranks(engine, err);
    if (status == WEFT_OK) status = time_here(&work, &mine, err);
    if (status == WEFT_OK) status = share_seconds(engine, &out->together, &unused, mine, err);
    out->alone = out->together;
    if (status != WEFT_OK || engine->ranks.info.local_size <= 1) return status;
    if (engine->ranks.rank == 0) status = time_here(&work, &mine, err);
    return status == WEFT_OK ? share_seconds(engine, &unused, &out->alone, mine, err) : status;
}

/* Times a collective on all ranks at once, as measured by rank 0. [collective] */
static weft_status time_exchange(weft_engine *engine, double *out, rated_fn *run, void *context, weft_error *err) {
    const timed work = {engine, run, context, true};
    double seconds[MOST_TIMES], mean = 0.0, unused = 0.0;
    int32_t times = 0;
    weft_status status = wait_for_ranks(engine, err);
    if (status == WEFT_OK) status = run_once(&work, &unused, err);
    if (status == WEFT_OK) status = run_once(&work, &seconds[0], err);
    /* Every rank takes part in each collective, so all start the same number, limited by its duration. */
    if (status == WEFT_OK) status = share_seconds(engine, &mean, &unused, seconds[0], err);
    times = mean * MOST_TIMES < enough_seconds ? MOST_TIMES : (int32_t)(enough_seconds / mean);
    if (times < LEAST_TIMES) times = LEAST_TIMES;
    for (int32_t n = 1; n < times && status == WEFT_OK; n++) status = run_once(&work, &seconds[n], err);
    if (status == WEFT_OK) status = weft_ranks_check(&engine->ranks, err);
    return status == WEFT_OK ? share_seconds(engine, &unused, out, weft_median(seconds, times), err) : status;
}

/* Measures FORWARD and BACKWARD of each segment for a micro-batch of the largest shape. Segments with equal work, such
 * as the layers of a model, are measured once. */
static weft_status rate_segments(weft_rates *out, weft_engine *engine, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t segment = 0; segment < out->n_segments && status == WEFT_OK; segment++) {
        const int32_t like = weft_segment_like(engine, segment);
        weft_segment_rate *rate = &out->segments[segment];
        weft_segment_rig rig;
        if (like != segment) {
            rate->forward = out->segments[like].forward;
            rate->backward = out->segments[like].backward;
            continue;
        }
        status = weft_segment_rig_open(&rig, engine, segment, err);
        if (status == WEFT_OK) status = time_work(engine, &rate->forward, weft_segment_rig_forward, &rig, err);
        if (status == WEFT_OK && weft_graph_size(rig.graph)->has_backward)
            status = time_work(engine, &rate->backward, weft_segment_rig_backward, &rig, err);
        weft_segment_rig_close(&rig);
    }
    return status;
}

/* Measures adding, copying, rounding, squaring and updating flat regions. */

/* Regions of n fp32 elements each. */
enum { REGION_WEIGHT, REGION_GRADIENT, REGION_OTHER, REGION_STATES, N_REGIONS = REGION_STATES + WEFT_MAX_STATES };

typedef struct flat {
    const weft_engine *engine;
    weft_buffer *buffer;
    int64_t n;
    weft_ref small; /* hp, coefficient, skip, a row of ranges */
    weft_square_sum square;
    int32_t kind; /* weft_rate_kind being timed */
} flat;

enum { AT_RESULT = 0, AT_COEFFICIENT = 64, AT_SKIP = 128, AT_HP = 192, AT_RANGE = AT_HP + WEFT_MAX_HP };

static weft_ref region_at(const flat *self, int32_t index) {
    const weft_ref out = {self->buffer, weft_f32_bytes(self->n) * index};
    return out;
}

static weft_status run_update(const flat *self, weft_error *err) {
    const weft_engine *engine = self->engine;
    weft_update_region region = {.struct_size = (uint32_t)sizeof region,
                                 .weight = region_at(self, REGION_WEIGHT),
                                 .gradient = region_at(self, REGION_GRADIENT),
                                 .ranges = weft_ref_at(self->small, AT_RANGE),
                                 .n = self->n,
                                 .n_ranges = 1,
                                 .range_stride = (uint32_t)sizeof(weft_range)};
    weft_update args = {.struct_size = (uint32_t)sizeof args,
                        .hp = weft_ref_at(self->small, AT_HP),
                        .coefficient = weft_ref_at(self->small, AT_COEFFICIENT),
                        .skip = weft_ref_at(self->small, AT_SKIP),
                        .regions = &region,
                        .n_regions = 1,
                        .region_stride = (uint32_t)sizeof region};
    weft_status status = WEFT_OK;
    for (int64_t i = 0; i < engine->plan.n_states; i++) {
        region.states[i] = region_at(self, REGION_STATES + (int32_t)i);
        region.state_dtypes[i] = engine->plan.states[i].dtype;
    }
    if (weft_copies_elements(&engine->plan, true) > 0)
        region.copy = region_at(self, REGION_OTHER), region.copy_dtype = engine->plan.dtype;
    WEFT_PLUGIN_QUERY(args.kernel, engine->optimizer_plugin, update, engine->optimizer);
    WEFT_PLUGIN_CALL(status, engine->kernels, update, err, engine->device, NULL, &args);
    return status;
}

static weft_status run_elements(void *context, weft_error *err) {
    const flat *self = context;
    const weft_engine *engine = self->engine;
    const weft_ref a = region_at(self, REGION_WEIGHT), b = region_at(self, REGION_OTHER);
    const weft_add sum = {.struct_size = (uint32_t)sizeof sum, .a = a, .b = b, .y = a, .n = self->n, .dtype = WEFT_F32};
    weft_status status = WEFT_OK;
    switch (self->kind) {
    case WEFT_RATE_ADD: WEFT_PLUGIN_CALL(status, engine->kernels, add, err, engine->device, NULL, &sum); break;
    case WEFT_RATE_COPY:
        WEFT_PLUGIN_CALL(status, engine->kernels, copy, err, engine->device, NULL, a, b, weft_f32_bytes(self->n));
        break;
    case WEFT_RATE_CONVERT:
        WEFT_PLUGIN_CALL(status, engine->kernels, convert, err, engine->device, NULL, a, WEFT_BF16, b, WEFT_F32,
                         self->n);
        break;
    case WEFT_RATE_SQUARES:
        WEFT_PLUGIN_CALL(status, engine->kernels, square_sum, err, engine->device, NULL, &self->square);
        break;
    default: status = run_update(self, err); break;
    }
    return status;
}

/* Prepares the optimizer's first step with zeroed states. */
static weft_status set_up_update(const flat *self, int64_t small_bytes, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_range range = {(uint32_t)sizeof range, 0, 0, self->n, 1.0f, 1.0f};
    const weft_step_info info = {(uint32_t)sizeof info, 0, 1, 1e-6};
    const float coefficient = 1e-3f;
    char *small = weft_alloc(small_bytes, 1); /* skip is 0 */
    weft_status status = WEFT_OK;
    memcpy(small + AT_COEFFICIENT, &coefficient, sizeof coefficient);
    memcpy(small + AT_RANGE, &range, sizeof range);
    WEFT_PLUGIN_CALL(status, engine->optimizer_plugin, prepare, err, engine->optimizer, small + AT_HP, &info);
    if (status == WEFT_OK)
        WEFT_PLUGIN_CALL(status, engine->kernels, write, err, engine->device, NULL, self->small, small, small_bytes);
    free(small);
    if (status == WEFT_OK)
        WEFT_PLUGIN_CALL(status, engine->kernels, fill, err, engine->device, NULL, region_at(self, REGION_STATES), 0,
                         self->n * WEFT_MAX_STATES);
    return status;
}

static weft_status rate_elements(weft_rates *out, weft_engine *engine, weft_error *err) {
    enum { LEAST = 1024, MOST = 1 << 22, GRAIN = 256 }; /* grain: whole blocks of any state */
    const weft_layout *layout = engine->plan.layout;
    int64_t n = LEAST, regions = 0; /* elements of the largest group, up to a length that shows the memory speed */
    const int64_t small = weft_cache_lines(AT_RANGE + (int64_t)sizeof(weft_range));
    flat self = {.engine = engine, .square = {.struct_size = (uint32_t)sizeof self.square, .dtype = WEFT_F32}};
    int64_t scratch = 0;
    weft_status status = WEFT_OK;
    for (int32_t g = 0; g < layout->n_trainable_groups; g++)
        if (layout->groups[g].numel > n) n = layout->groups[g].numel;
    self.n = self.square.n = n = n > MOST ? MOST : n / GRAIN * GRAIN;
    regions = weft_f32_bytes(n) * N_REGIONS;
    scratch = engine->kernels->square_sum_workspace(engine->device, &self.square);
    status = weft_scratch_allocate(engine, &self.buffer, regions + small + scratch, err);
    self.small = region_at(&self, N_REGIONS);
    self.square.x = region_at(&self, REGION_GRADIENT);
    self.square.out = weft_ref_at(self.small, AT_RESULT);
    self.square.workspace = weft_ref_at(self.small, small);
    if (status == WEFT_OK) status = set_up_update(&self, small, err);
    for (self.kind = 0; self.kind < WEFT_N_RATES && status == WEFT_OK; self.kind++) {
        weft_work *rate = &out->elements[self.kind];
        status = time_work(engine, rate, run_elements, &self, err);
        rate->alone /= (double)n;
        rate->together /= (double)n;
    }
    weft_scratch_release(engine, self.buffer);
    return status;
}

/* Measures collectives of a few sizes among the measuring ranks. */

typedef struct exchanging {
    weft_engine *engine;
    weft_buffer *to, *from;
    int32_t kind;
    int64_t n; /* elements of a row */
} exchanging;

static weft_status exchange_all(const exchanging *self, weft_exchange_fn *how, int32_t peer, weft_error *err) {
    const weft_transfer what = {
        .to = {self->to, 0}, .from = {self->from, 0}, .n = self->n, .dtype = WEFT_F32, .peer = peer};
    return weft_ranks_exchange(&self->engine->ranks, how, exchange_names[self->kind], &what, err);
}

/* Returns the peer: ranks 0 and 1, 2 and 3, ... send to each other. -1: an odd last rank has no peer. */
static int32_t neighbour_of(const weft_ranks *ranks) {
    const int32_t peer = ranks->rank ^ 1;
    return peer < ranks->world ? peer : -1;
}

static weft_status run_rated_exchange(void *context, weft_error *err) {
    const exchanging *self = context;
    const weft_ranks *ranks = &self->engine->ranks;
    const weft_comm_plugin *plugin = ranks->plugin;
    const int32_t peer = neighbour_of(ranks);
    const bool first = ranks->rank % 2 == 0;
    weft_status status = WEFT_OK;
    switch (self->kind) {
    case WEFT_RATE_ALL_GATHER: return exchange_all(self, plugin->all_gather, 0, err);
    case WEFT_RATE_ALL_TO_ALL: return exchange_all(self, plugin->all_to_all, 0, err);
    case WEFT_RATE_REDUCE_SCATTER: return exchange_all(self, plugin->reduce_scatter, 0, err);
    default: break; /* sends in both directions: twice the timed work */
    }
    if (peer >= 0) status = exchange_all(self, first ? plugin->send : plugin->recv, peer, err);
    if (peer >= 0 && status == WEFT_OK) status = exchange_all(self, first ? plugin->recv : plugin->send, peer, err);
    return status;
}

/* Times one size: the bytes that a rank sends to the others. Buffers also have the rank's own row. */
static weft_status time_size(weft_rates *out, weft_engine *engine, int32_t size, weft_error *err) {
    exchanging self = {.engine = engine};
    const int32_t world = engine->ranks.world;
    const int64_t most = 2 * (int64_t)out->bytes[size] + weft_f32_bytes(world);
    weft_status status = weft_scratch_allocate(engine, &self.to, most, err);
    if (status == WEFT_OK) status = weft_scratch_allocate(engine, &self.from, most, err);
    for (self.kind = 0; self.kind < WEFT_N_RATE_EXCHANGES && status == WEFT_OK; self.kind++) {
        double *seconds = &out->exchanges[self.kind][size];
        const bool pair = self.kind == WEFT_RATE_SEND;
        self.n = (int64_t)out->bytes[size] / weft_f32_bytes(1) / (pair ? 1 : world - 1);
        if (self.n < 1) self.n = 1;
        status = time_exchange(engine, seconds, run_rated_exchange, &self, err);
        if (pair) *seconds /= 2.0;
    }
    weft_scratch_release(engine, self.to);
    weft_scratch_release(engine, self.from);
    return status;
}

static weft_status rate_exchanges(weft_rates *out, weft_engine *engine, weft_error *err) {
    static const double sizes[WEFT_RATE_SIZES] = {4096.0, 262144.0, 2097152.0, 8388608.0, 33554432.0};
    const weft_ranks *ranks = &engine->ranks;
    const int32_t peer = neighbour_of(ranks);
    weft_status status = WEFT_OK;
    if (ranks->world == 1) return WEFT_OK;
    if (weft_ranks_need_connecting(ranks)) { /* the strategy's programs may not have connected these peers */
        weft_p2p_channels *lanes = weft_alloc(ranks->world, sizeof *lanes);
        if (peer >= 0) lanes[peer].sends[0] = lanes[peer].receives[0] = true;
        status = weft_ranks_connect(ranks, lanes, err);
        free(lanes);
    }
    for (int32_t i = 0; i < WEFT_RATE_SIZES && status == WEFT_OK; i++) {
        out->bytes[i] = sizes[i];
        status = time_size(out, engine, i, err);
    }
    return status;
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

static void describe_machine(weft_rates *out, const weft_engine *engine) {
    const weft_ranks *ranks = &engine->ranks;
    const weft_plan *plan = &engine->plan;
    const int64_t processors = weft_services_processors();
    out->ranks = ranks->world;
    out->ranks_per_node = ranks->info.local_size > 0 ? ranks->info.local_size : 1;
    /* a launcher that binds its ranks restricts each to its own processors */
    out->processors = (int32_t)(processors * out->ranks_per_node <= sysconf(_SC_NPROCESSORS_ONLN)
                                    ? processors * out->ranks_per_node
                                    : processors);
    out->threads = engine->device_info.threads;
    out->own_processors = (engine->device_info.flags & WEFT_DEVICE_SHARES_MACHINE) == 0;
    out->rows = plan->spec.rows;
    out->places = plan->spec.lengths[plan->spec.n_lengths - 1];
    (void)snprintf(out->device, sizeof out->device, "%s, %s", engine->device_info.name, engine->device_info.isa);
    if (ranks->world > 1) (void)snprintf(out->comm, sizeof out->comm, "%s", ranks->info.backend);
    (void)snprintf(out->precision, sizeof out->precision, "%s", weft_dtype_name(plan->dtype));
    (void)snprintf(out->optimizer, sizeof out->optimizer, "%s", weft_run_id(plan->run, WEFT_PART_OPTIMIZER));
    out->trainable = weft_strdup(plan->run->settings.train.trainable);
    out->own_progress = ranks->info.progress == WEFT_PROGRESS_OWN;
    out->n_segments = plan->declared->n_segments;
    out->segments = weft_alloc(out->n_segments, sizeof *out->segments);
    for (int32_t s = 0; s < out->n_segments; s++)
        (void)snprintf(out->segments[s].name, sizeof out->segments[s].name, "%s",
                       plan->train.job->spec.view.segments[s].name);
}

weft_status weft_rates_measure(weft_rates *out, weft_engine *engine, weft_error *err) {
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    describe_machine(out, engine);
    status = rate_segments(out, engine, err);
    if (status == WEFT_OK) status = rate_elements(out, engine, err);
    if (status == WEFT_OK) status = rate_exchanges(out, engine, err);
    if (status != WEFT_OK) engine->failed = true; /* other ranks wait, or will wait */
    return status;
}

void weft_rates_free(weft_rates *self) {
    free(self->segments);
    free(self->trainable);
    memset(self, 0, sizeof *self);
}

/* ---- output ---- */

static json_t *work_array(const weft_work *work) {
    return json_pack("[f, f]", work->alone, work->together);
}

json_t *weft_rates_object(const weft_rates *rates) {
    json_t *segments = json_array(), *elements = json_object(), *exchanges = json_object();
    for (int32_t s = 0; s < rates->n_segments; s++) {
        const weft_segment_rate *segment = &rates->segments[s];
        (void)json_array_append_new(segments, json_pack("{s:s, s:o, s:o}", "name", segment->name, "forward",
                                                        work_array(&segment->forward), "backward",
                                                        work_array(&segment->backward)));
    }
    for (int32_t kind = 0; kind < WEFT_N_RATES; kind++)
        (void)json_object_set_new(elements, rate_names[kind], work_array(&rates->elements[kind]));
    for (int32_t kind = 0; kind < WEFT_N_RATE_EXCHANGES && rates->ranks > 1; kind++) {
        json_t *sizes = json_array(); /* of pairs of bytes and seconds */
        for (int32_t i = 0; i < WEFT_RATE_SIZES; i++)
            (void)json_array_append_new(sizes, json_pack("[f, f]", rates->bytes[i], rates->exchanges[kind][i]));
        (void)json_object_set_new(exchanges, exchange_names[kind], sizes);
    }
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:s, s:s, s:s, s:s, s:b, s:b, s:o, s:o, s:o}", "ranks",
                     (int)rates->ranks, "ranks_per_node", (int)rates->ranks_per_node, "processors",
                     (int)rates->processors, "threads", (int)rates->threads, "rows", (int)rates->rows, "places",
                     (int)rates->places, "device", rates->device, "comm", rates->comm, "precision", rates->precision,
                     "optimizer", rates->optimizer, "trainable", rates->trainable, "own_progress",
                     (int)rates->own_progress, "own_processors", (int)rates->own_processors, "segments", segments,
                     "seconds_per_element", elements, "exchanges", exchanges);
}

/* ---- input ---- */

static bool read_pair(double *a, double *b, json_t *pair) {
    return json_unpack(pair, "[F, F!]", a, b) == 0 && *a >= 0.0 && *b >= 0.0;
}

static bool read_segments(weft_rates *out, const json_t *list) {
    json_t *one = NULL;
    size_t i = 0;
    out->n_segments = (int32_t)json_array_size(list);
    out->segments = weft_alloc(out->n_segments, sizeof *out->segments);
    json_array_foreach(list, i, one) {
        weft_segment_rate *to = &out->segments[i];
        json_t *forward = NULL, *backward = NULL;
        const char *name = NULL;
        if (json_unpack(one, "{s:s, s:o, s:o}", "name", &name, "forward", &forward, "backward", &backward) != 0 ||
            !read_pair(&to->forward.alone, &to->forward.together, forward) ||
            !read_pair(&to->backward.alone, &to->backward.together, backward))
            return false;
        (void)snprintf(to->name, sizeof to->name, "%s", name);
    }
    return out->n_segments > 0;
}

static bool read_exchanges(weft_rates *out, const json_t *exchanges) {
    for (int32_t kind = 0; kind < WEFT_N_RATE_EXCHANGES && out->ranks > 1; kind++) {
        const json_t *sizes = json_object_get(exchanges, exchange_names[kind]);
        if (json_array_size(sizes) != WEFT_RATE_SIZES) return false;
        for (int32_t i = 0; i < WEFT_RATE_SIZES; i++)
            if (!read_pair(&out->bytes[i], &out->exchanges[kind][i], json_array_get(sizes, (size_t)i)) ||
                (i > 0 && out->bytes[i] <= out->bytes[i - 1]))
                return false;
    }
    return true;
}

static bool read_rates(weft_rates *out, json_t *in) {
    int own_progress = 0, own_processors = 0;
    const char *device = NULL, *comm = NULL, *precision = NULL, *optimizer = NULL, *trainable = NULL;
    json_t *segments = NULL, *elements = NULL, *exchanges = NULL;
    if (json_unpack(in, "{s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:s, s:s, s:s, s:s, s:b, s:b, s:o, s:o, s:o}", "ranks",
                    &out->ranks, "ranks_per_node", &out->ranks_per_node, "processors", &out->processors, "threads",
                    &out->threads, "rows", &out->rows, "places", &out->places, "device", &device, "comm", &comm,
                    "precision", &precision, "optimizer", &optimizer, "trainable", &trainable, "own_progress",
                    &own_progress, "own_processors", &own_processors, "segments", &segments, "seconds_per_element",
                    &elements, "exchanges", &exchanges) != 0)
        return false;
    out->own_progress = own_progress != 0;
    out->own_processors = own_processors != 0;
    (void)snprintf(out->device, sizeof out->device, "%s", device);
    (void)snprintf(out->comm, sizeof out->comm, "%s", comm);
    (void)snprintf(out->precision, sizeof out->precision, "%s", precision);
    (void)snprintf(out->optimizer, sizeof out->optimizer, "%s", optimizer);
    out->trainable = weft_strdup(trainable);
    for (int32_t kind = 0; kind < WEFT_N_RATES; kind++)
        if (!read_pair(&out->elements[kind].alone, &out->elements[kind].together,
                       json_object_get(elements, rate_names[kind])))
            return false;
    return out->ranks > 0 && out->ranks_per_node > 0 && out->processors > 0 && out->threads >= 0 && out->rows > 0 &&
           out->places > 0 && read_segments(out, segments) && read_exchanges(out, exchanges);
}

/* Describes the conditions of a measurement. */
static void describe_conditions(char *out, size_t size, const weft_rates *rates) {
    (void)snprintf(out, size,
                   "micro-batches of %d x %d places in %s, optimizer %s, trainable = %s, [device] threads = %d, "
                   "computing on %s",
                   (int)rates->rows, (int)rates->places, rates->precision, rates->optimizer, rates->trainable,
                   (int)rates->threads, rates->own_processors ? "a device of its own" : "the machine's processors");
}

/* Checks that the rates were measured for this engine's model and settings, and include collectives if it needs them.
 */
static weft_status check_rates(const weft_rates *rates, const char *path, const weft_engine *engine, weft_error *err) {
    const weft_strategy_job *job = &engine->plan.train.job->spec.view;
    bool same = rates->n_segments == job->n_segments;
    char measured[1000], wanted[1000];
    weft_rates own = {0};
    for (int32_t s = 0; s < job->n_segments && same; s++)
        same = strcmp(rates->segments[s].name, job->segments[s].name) == 0;
    if (!same)
        return weft_error_set(err, WEFT_E_USER,
                              "%s has the rates of a model with other segments. Fix: measure this one with weft plan "
                              "--time --json",
                              path);
    describe_machine(&own, engine);
    describe_conditions(measured, sizeof measured, rates);
    describe_conditions(wanted, sizeof wanted, &own);
    weft_rates_free(&own);
    if (strcmp(measured, wanted) != 0)
        return weft_error_set(err, WEFT_E_USER,
                              "%s has the rates of %s; this run has %s. Fix: measure it with weft plan --time --json",
                              path, measured, wanted);
    if (job->world > 1 && rates->ranks == 1)
        return weft_error_set(err, WEFT_E_USER,
                              "%s has the rates of one rank, without exchanges. Fix: measure at least 2 ranks with "
                              "weft plan --ranks 2 --time --json",
                              path);
    return WEFT_OK;
}

weft_status weft_rates_read(weft_rates *out, const char *path, const weft_engine *engine, weft_error *err) {
    json_t *file = NULL;
    weft_error why = WEFT_ERROR_INIT;
    weft_status status = weft_json_read(&file, path, 0, &why);
    memset(out, 0, sizeof *out);
    if (status != WEFT_OK)
        return weft_error_set(err, WEFT_E_USER, "--rates %s. Allowed: the output of weft plan --time --json", why.text);
    if (!read_rates(out, json_object_get(file, "rates")))
        status = weft_error_set(err, WEFT_E_USER,
                                "--rates %s has no complete `rates`. Allowed: the output of weft plan --time --json",
                                path);
    json_decref(file);
    return status == WEFT_OK ? check_rates(out, path, engine, err) : status;
}
