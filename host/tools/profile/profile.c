/* host/tools/profile/profile.c: see profile.h. */
#include "tools/profile/profile.h"

#include "base/alloc.h"
#include "base/units.h"
#include "graph/record.h"
#include "plugin/enter.h"
#include "program/budget.h"
#include "program/job.h"
#include "tools/common/plan_costs.h"
#include "train/summary.h"
#include "run/engine.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <weft/roofline.h>

static weft_profile_step *running_step(weft_profile *self) {
    return &self->steps[self->n_steps];
}

enum { OWN_ROWS = 5 }; /* reduce, norm, optimizer, data, rest: reserved rows */
static const char whole[] = "";

/* Returns the row of a kind of work. Names are compared as pointers, because each is a unique string of the program or
 * a plugin. NULL: there are already `room` other kinds. */
static weft_profile_row *row_of(weft_profile_step *step, const char *operation, const char *part, int32_t room) {
    weft_profile_row *row = step->rows;
    const weft_profile_row empty = {.operation = operation, .part = part};
    for (; row < step->rows + step->n_rows; row++)
        if (row->operation == operation && row->part == part) return row;
    if (step->n_rows >= room) return NULL;
    *row = empty;
    step->n_rows++;
    return row;
}

static void add_to_row(weft_profile_row *row, double seconds, double flops, double bytes) {
    if (row == NULL) return;
    row->calls++;
    row->seconds += seconds;
    row->flops += flops;
    row->bytes += bytes;
}

static bool same_shape(const weft_product_shape *a, const weft_product_shape *b) {
    return a->m == b->m && a->n == b->n && a->k == b->k && a->transpose_a == b->transpose_a &&
           a->transpose_b == b->transpose_b;
}

/* Returns the call's share of its operator's work: "input gradient"; for a complete operator the name of the pass. */
static const char *part_name(const weft_kernel *kernel, int32_t pass) {
    if (kernel == &weft_kernel_matmul_dx) return "input gradient";
    if (kernel == &weft_kernel_matmul_dw) return "weight gradient";
    if (kernel == &weft_kernel_sum_rows) return "bias gradient";
    if (kernel == &weft_kernel_row_norms) return "row norms";
    if (kernel == &weft_kernel_prefix) return "prefix";
    if (kernel == &weft_kernel_prefix_backward) return "prefix backward";
    if (pass == WEFT_PASS_BACKWARD) return "backward";
    return pass == WEFT_PASS_RECOMPUTE ? "recompute" : "forward";
}

void weft_call_describe(weft_call_info *out, const weft_graph *graph, const weft_call *call) {
    const weft_node *node = call->node < 0 ? NULL : &graph->nodes[call->node];
    const weft_kernel *kernel = call->kernel;
    /* Copies and sums of operators' results are counted under their own names. */
    const bool glue = kernel == &weft_kernel_add || kernel == &weft_kernel_copy || kernel == &weft_kernel_zero;
    weft_call_info info = {.flops = call->flops, .bytes = call->bytes};
    info.operation = node == NULL || glue ? kernel->name : node->op->name;
    if (node != NULL && node->custom != NULL && !glue) info.operation = node->custom->name;
    info.part = part_name(kernel, call->pass);
    info.label = node == NULL ? "" : node->label;
    info.recompute = call->pass == WEFT_PASS_RECOMPUTE;
    info.n_products = weft_kernel_products(kernel, &call->args, info.products);
    *out = info;
}

static void note_product(weft_profile *self, const weft_call_info *info, const weft_product_shape *shape) {
    weft_profile_product *product = self->products;
    const weft_profile_product *end = product + self->n_products;
    while (product < end && (product->operation != info->operation || product->part != info->part ||
                             !same_shape(&product->shape, shape)))
        product++;
    if (product == self->products + WEFT_PROFILE_PRODUCTS) return;
    if (product == end) self->n_products++;
    product->operation = info->operation;
    product->part = info->part;
    product->shape = *shape;
    product->calls++;
}

static void on_call(void *context, const weft_graph *graph, const weft_call *call, double seconds) {
    weft_profile *self = context;
    weft_profile_step *step = running_step(self);
    weft_profile_row *row = NULL;
    weft_call_info info;
    weft_call_describe(&info, graph, call);
    row = row_of(step, info.operation, info.part, WEFT_PROFILE_ROWS - OWN_ROWS);
    add_to_row(row, seconds, info.flops, info.bytes);
    if (row != NULL) row->recompute = info.recompute;
    if (info.recompute) step->recompute_flops += info.flops;
    else step->flops += info.flops;
    for (int32_t i = 0; i < info.n_products && self->keep && !info.recompute; i++)
        note_product(self, &info, &info.products[i]);
}

static weft_profile_row *own_row(weft_profile_step *step, const char *operation) {
    return row_of(step, operation, whole, WEFT_PROFILE_ROWS);
}

/* ---- instructions without a segment ---- */

/* Returns the bytes moved by gradient accumulation: a micro-batch's gradient is copied into the sum or added to it.
 * With one micro-batch it is already in the sum. A REDUCE across ranks has no micro-batch's gradient; with one rank its
 * sum is already the total. */
static double reduce_bytes(const weft_stepper *stepper, int32_t index) {
    const weft_program *program = stepper->engine->plan.train.program;
    const weft_instruction *reduce = &program->instructions[index];
    const weft_layout *layout = stepper->engine->plan.layout;
    const int32_t slot = program->instruction_slots[index].gradients[reduce->unit];
    const int64_t elements = layout->groups[layout->units[reduce->unit].trained].numel;
    if (slot < 0 || program->slots[slot].offset < 0) return 0.0;
    return (reduce->micro_batch == 0 ? 2.0 : 3.0) * (double)weft_f32_bytes(elements);
}

/* Returns the bytes of an update: weights and states read and written, gradient read, compute copy written. */
static double update_bytes(const weft_engine *engine) {
    const weft_plan *plan = &engine->plan;
    const int64_t n = plan->layout->trainable_numel;
    const int32_t stored = n > 0 ? plan->layout->groups[0].dtype : WEFT_F32;
    const int32_t copy = stored == WEFT_F32 ? plan->dtype : WEFT_F32;
    return 2.0 * (double)(weft_dtype_span(stored, n) + weft_states_bytes(plan->states, plan->n_states, n)) +
           (double)(weft_f32_bytes(n) + weft_dtype_span(copy, weft_copies_elements(plan, true)));
}

static void add_instruction(weft_profile_step *step, const weft_stepper *stepper, const weft_trace_entry *entry) {
    const double seconds = weft_trace_seconds(entry);
    switch (stepper->engine->plan.train.program->instructions[entry->instruction].kind) {
    case WEFT_INSTRUCTION_REDUCE:
        add_to_row(own_row(step, "reduce"), seconds, 0.0, reduce_bytes(stepper, entry->instruction));
        break;
    case WEFT_INSTRUCTION_NORM:
        add_to_row(own_row(step, "norm"), seconds, 0.0,
                   (double)weft_f32_bytes(weft_declared_numel(stepper->engine->plan.declared, true)));
        break;
    case WEFT_INSTRUCTION_STEP:
        add_to_row(own_row(step, "optimizer"), seconds, 0.0, update_bytes(stepper->engine));
        break;
    default: break;
    }
}

/* Adds the newest entries of the trace, which are the step's instructions. */
static void add_instructions(weft_profile_step *step, const weft_stepper *stepper) {
    const int32_t held = weft_trace_count(stepper->trace),
                  instructions = stepper->engine->plan.train.program->n_instructions;
    for (int32_t i = held - instructions; i < held; i++)
        add_instruction(step, stepper, weft_trace_entry_at(stepper->trace, i));
}

/* Adds the last rows: time in the data plugin, and the remaining time. */
static void close_step(weft_profile_step *step) {
    double named = 0.0;
    add_to_row(own_row(step, "data"), step->result.data_seconds, 0.0, 0.0);
    for (int32_t i = 0; i < step->n_rows; i++) named += step->rows[i].seconds;
    add_to_row(own_row(step, "rest"), step->seconds - named, 0.0, 0.0);
}

weft_status weft_profile_train(weft_profile *self, uint64_t step, double lr, double clip, bool keep, weft_error *err) {
    weft_profile_step *now = running_step(self);
    const double begin = weft_clock_seconds();
    weft_status status = WEFT_OK;
    if (keep && self->n_steps == self->capacity)
        return weft_error_set(err, WEFT_E_HOST, "a profile of %lld steps cannot keep another",
                              (long long)self->capacity);
    memset(now, 0, sizeof *now);
    self->keep = keep;
    status = weft_stepper_train(self->stepper, &now->result, step, lr, clip, err);
    if (status != WEFT_OK) return status;
    now->seconds = weft_clock_seconds() - begin;
    add_instructions(now, self->stepper);
    close_step(now);
    if (keep) self->n_steps++;
    return WEFT_OK;
}

weft_profile *weft_profile_create(weft_stepper *stepper, int64_t keep) {
    weft_profile *self = weft_alloc(1, sizeof *self);
    self->steps = weft_alloc(keep + 1, sizeof *self->steps);
    self->stepper = stepper;
    self->capacity = keep;
    self->sink.context = self;
    self->sink.ran = on_call;
    stepper->sink = &self->sink;
    return self;
}

void weft_profile_destroy(weft_profile *self) {
    if (self == NULL) return;
    self->stepper->sink = NULL;
    free(self->steps);
    free(self);
}

/* Returns the rank of step i by time. */
static int64_t rank_of(const weft_profile *self, int64_t i) {
    const double seconds = self->steps[i].seconds;
    int64_t rank = 0;
    for (int64_t j = 0; j < self->n_steps; j++)
        rank += self->steps[j].seconds < seconds || (self->steps[j].seconds <= seconds && j < i);
    return rank;
}

const weft_profile_step *weft_profile_median(const weft_profile *self) {
    int64_t i = 0;
    while (rank_of(self, i) != (self->n_steps - 1) / 2) i++;
    return &self->steps[i];
}

/* Adds the page counts of a buffer. */
static weft_status add_pages(int64_t *pages, int64_t *absent, const weft_engine *engine, const weft_slot_ref *slot,
                             weft_error *err) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = 0, bytes = 0;
    unsigned char *there = NULL;
    weft_status status = WEFT_OK;
    if (slot->bytes == 0) return WEFT_OK;
    from = (uintptr_t)weft_device_view(engine->kernels, engine->device, slot->ref);
    if (from == 0) return WEFT_OK;
    bytes = from % page + (uintptr_t)slot->bytes;
    there = malloc(bytes / page + 1);
    if (there == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the list of pages of the weights");
    if (mincore((void *)(from - from % page), bytes, there) != 0)
        status = weft_error_set(err, WEFT_E_SYSTEM, "the pages of the weights cannot be counted: %s", strerror(errno));
    for (uintptr_t i = 0; i * page < bytes && status == WEFT_OK; i++) {
        *pages += 1;
        *absent += (there[i] & 1) == 0;
    }
    free(there);
    return status;
}

weft_status weft_weight_pages(int64_t *pages, int64_t *absent, const weft_engine *engine, weft_error *err) {
    weft_status status = WEFT_OK;
    *pages = *absent = 0;
    status = add_pages(pages, absent, engine, &engine->parameters, err);
    return status == WEFT_OK ? add_pages(pages, absent, engine, &engine->compute, err) : status;
}

weft_status weft_arrival_measure(weft_arrival *out, weft_session *session, double begin, weft_error *err) {
    double loading = 0.0, end = 0.0;
    weft_status status = weft_session_start(session, err);
    loading = weft_clock_seconds();
    if (status == WEFT_OK) status = weft_engine_load(session->engine, err);
    end = weft_clock_seconds();
    if (status == WEFT_OK) status = weft_weight_pages(&out->pages, &out->absent, session->engine, err);
    out->seconds = end - begin;
    out->load_seconds = end - loading;
    return status;
}

/* The device's roofline extension takes the measurements. */

static weft_status find_roofline(const weft_device_roofline **out, const weft_engine *engine, weft_error *err) {
    *out = weft_device_find(engine->kernels, engine->device, WEFT_DEVICE_ROOFLINE);
    if (*out != NULL && WEFT_WHOLE(*out, weft_device_roofline) && (*out)->peak != NULL && (*out)->bandwidth != NULL)
        return WEFT_OK;
    return weft_error_set(
        err, WEFT_E_UNSUPPORTED,
        "device %s has no extension %s, with which it would measure its roofline: leave --roofline out",
        engine->plan.run->parts[WEFT_PART_DEVICE].loaded->plugin->id, WEFT_DEVICE_ROOFLINE);
}

static weft_status measure_row(weft_roofline_row *row, const weft_engine *engine, const weft_device_roofline *device,
                               const weft_profile_product *product, weft_error *err) {
    const weft_product_shape *shape = &product->shape;
    const weft_roofline_product args = {.struct_size = (uint32_t)sizeof args,
                                        .m = shape->m,
                                        .n = shape->n,
                                        .k = shape->k,
                                        .transpose_a = shape->transpose_a,
                                        .transpose_b = shape->transpose_b,
                                        .dtype = engine->plan.dtype};
    row->operation = product->operation;
    row->part = product->part;
    row->shape = *shape;
    row->calls = product->calls;
    row->flops = 2.0 * (double)shape->m * (double)shape->n * (double)shape->k;
    return device->product(engine->device, &row->seconds, &args, err);
}

static weft_status measure_products(weft_roofline *out, const weft_engine *engine, const weft_device_roofline *device,
                                    const weft_profile *profile, weft_error *err) {
    double flops = 0.0, seconds = 0.0;
    weft_status status = WEFT_OK;
    out->n_rows = profile->n_products;
    for (int32_t i = 0; i < out->n_rows && status == WEFT_OK; i++) {
        status = measure_row(&out->rows[i], engine, device, &profile->products[i], err);
        flops += (double)out->rows[i].calls * out->rows[i].flops;
        seconds += (double)out->rows[i].calls * out->rows[i].seconds;
    }
    out->products = seconds > 0.0 ? flops / seconds : 0.0;
    return status;
}

weft_status weft_roofline_measure(weft_roofline *out, const weft_engine *engine, const weft_profile *profile,
                                  weft_error *err) {
    const weft_device_roofline *device = NULL;
    weft_call_record before;
    weft_status status = find_roofline(&device, engine, err);
    memset(out, 0, sizeof *out);
    if (status != WEFT_OK) return status;
    before = weft_plugin_enter(engine->kernels, WEFT_DEVICE_ROOFLINE);
    status = device->peak(engine->device, &out->peak, engine->plan.dtype, err);
    if (status == WEFT_OK) status = device->bandwidth(engine->device, &out->bandwidth, err);
    if (status == WEFT_OK && device->product != NULL) status = measure_products(out, engine, device, profile, err);
    return weft_plugin_leave(before, status, err);
}

/* Returns the least time of a row: of its FLOPs at the library's rate for its matmuls (attention: for all matmuls of
 * the step), or at the peak; of its bytes at the memory's bandwidth. The longer one counts. */
static double least_seconds(const weft_roofline *roofline, const weft_profile_row *row) {
    double flops = 0.0, seconds = 0.0, rate = roofline->products > 0.0 ? roofline->products : roofline->peak;
    for (int32_t i = 0; i < roofline->n_rows; i++) {
        const weft_roofline_row *product = &roofline->rows[i];
        if (product->operation != row->operation || product->part != row->part) continue;
        flops += (double)product->calls * product->flops;
        seconds += (double)product->calls * product->seconds;
    }
    if (seconds > 0.0) rate = flops / seconds;
    return fmax(row->flops / rate, row->bytes / roofline->bandwidth);
}

static int64_t extreme(const weft_profile *profile, bool largest) {
    int64_t at = 0;
    for (int64_t i = 1; i < profile->n_steps; i++) {
        const bool more = profile->steps[i].seconds > profile->steps[at].seconds;
        if (more == largest) at = i;
    }
    return at;
}

/* ---- table ---- */

enum { SCALED = 32 };

/* "15.943 TFLOP": the value in thousands of the unit's prefix. */
static const char *scaled(char text[SCALED], double value, const char *unit) {
    const char *prefix = " kMGTPE";
    for (; value >= 999.9995 && prefix[1] != '\0'; prefix++) value /= 1000.0;
    (void)snprintf(text, SCALED, "%.3f %c%s", value, *prefix, unit);
    return text;
}

static void print_start(const weft_arrival *start, FILE *to) {
    char a[WEFT_UNIT_SIZE], b[WEFT_UNIT_SIZE];
    (void)fprintf(to, "start      %.2f ms until the weights were loaded, %.2f ms of them loading", 1e3 * start->seconds,
                  1e3 * start->load_seconds);
    if (start->pages > 0)
        (void)fprintf(to, "; %s of their %s pages were absent then", weft_unit_count(a, start->absent),
                      weft_unit_count(b, start->pages));
    (void)fputc('\n', to);
}

static void print_head(const weft_profile_report *self, const weft_profile_step *step, FILE *to) {
    const weft_engine *engine = self->session->engine;
    const int64_t held = weft_account_held(&engine->account);
    char a[WEFT_UNIT_SIZE], b[WEFT_UNIT_SIZE];
    weft_device_line_print(&engine->device_info, 11, to);
    print_start(self->start, to);
    (void)fprintf(to, "step       %.2f ms, the median of %lld steps of %.2f to %.2f ms\n", 1e3 * step->seconds,
                  (long long)self->profile->n_steps, 1e3 * self->profile->steps[extreme(self->profile, false)].seconds,
                  1e3 * self->profile->steps[extreme(self->profile, true)].seconds);
    (void)fprintf(to, "speed      %.1f places/s, %.1f targets/s\n", (double)step->result.n_places / step->seconds,
                  (double)step->result.n_targets / step->seconds);
    (void)fprintf(to, "memory     %s are planned", weft_unit_bytes(a, engine->plan.bytes.total));
    if (held > 0) (void)fprintf(to, ", the device's context and libraries use %s more", weft_unit_bytes(a, held));
    (void)fprintf(to, "; the process's peak%s was %s\n", held > 0 ? " on the host" : "",
                  weft_unit_bytes(a, self->resident_peak));
    (void)fprintf(to, "matrix     %s a step, %s", scaled(a, step->flops, "FLOP"),
                  scaled(b, step->flops / step->seconds, "FLOP/s"));
    if (step->recompute_flops > 0.0)
        (void)fprintf(to, "; %s more are recomputed", scaled(a, step->recompute_flops, "FLOP"));
    (void)fputc('\n', to);
}

static void print_roofline_head(const weft_roofline *roofline, const weft_profile_step *step, FILE *to) {
    char a[SCALED], b[SCALED];
    (void)fprintf(to, "peak       %s, memory %s; the step reaches %.1f %% of the FLOP/s\n",
                  scaled(a, roofline->peak, "FLOP/s"), scaled(b, roofline->bandwidth, "B/s"),
                  100.0 * step->flops / step->seconds / roofline->peak);
    if (roofline->products > 0.0)
        (void)fprintf(to, "roofline   %s by the matrix library at this step's matmuls; the step reaches %.1f %%\n",
                      scaled(a, roofline->products, "FLOP/s"),
                      100.0 * step->flops / step->seconds / roofline->products);
}

static void print_row(const weft_profile_row *row, const weft_profile_step *step, const weft_roofline *roofline,
                      FILE *to) {
    const bool matrix = row->flops > 0.0;
    const double work = matrix ? row->flops : row->bytes;
    char name[64], a[SCALED], b[SCALED];
    (void)snprintf(name, sizeof name, "%s %s", row->operation, row->part);
    (void)fprintf(to, "%-26s %6lld %11.3f %6.1f %%", name, (long long)row->calls, 1e3 * row->seconds,
                  100.0 * row->seconds / step->seconds);
    if (work > 0.0 && row->seconds > 0.0) {
        (void)fprintf(to, " %15s %17s", scaled(a, work, matrix ? "FLOP" : "B   "),
                      scaled(b, work / row->seconds, matrix ? "FLOP/s" : "B/s   "));
        if (roofline != NULL) (void)fprintf(to, " %8.1f %%", 100.0 * least_seconds(roofline, row) / row->seconds);
    }
    (void)fputc('\n', to);
}

static void print_products(const weft_roofline *roofline, int64_t steps, FILE *to) {
    char rate[SCALED];
    (void)fprintf(to, "\n%-8s %10s %10s %10s %8s %11s %16s\n", "matmul", "m", "n", "k", "a step", "best ms", "rate");
    for (int32_t i = 0; i < roofline->n_rows; i++) {
        const weft_roofline_row *row = &roofline->rows[i];
        (void)fprintf(to, "%c%c       %10lld %10lld %10lld %8.4g %11.3f %16s\n", row->shape.transpose_a ? 'T' : 'N',
                      row->shape.transpose_b ? 'T' : 'N', (long long)row->shape.m, (long long)row->shape.n,
                      (long long)row->shape.k, (double)row->calls / (double)steps, 1e3 * row->seconds,
                      scaled(rate, row->flops / row->seconds, "FLOP/s"));
    }
}

void weft_profile_print(const weft_profile_report *self, FILE *to) {
    const weft_profile_step *step = weft_profile_median(self->profile);
    print_head(self, step, to);
    if (self->roofline != NULL) print_roofline_head(self->roofline, step, to);
    (void)fprintf(to, "\n%-26s %6s %11s %8s %15s %17s%s\n", "in the median step", "calls", "ms", "share", "work",
                  "rate", self->roofline != NULL ? "  of bound" : "");
    for (int32_t i = 0; i < step->n_rows; i++) print_row(&step->rows[i], step, self->roofline, to);
    if (self->roofline != NULL && self->roofline->n_rows > 0)
        print_products(self->roofline, self->profile->n_steps, to);
}

/* ---- JSON object ---- */

static json_t *device_object(const weft_device_info *device) {
    return json_pack("{s:s, s:s, s:s, s:i}", "name", device->name, "isa", device->isa, "backend", device->backend,
                     "threads", (int)device->threads);
}

static json_t *start_object(const weft_arrival *start) {
    return json_pack("{s:f, s:f, s:I, s:I}", "seconds", start->seconds, "load_seconds", start->load_seconds,
                     "weight_pages", (json_int_t)start->pages, "weight_pages_absent", (json_int_t)start->absent);
}

static json_t *memory_object(const weft_profile_report *self) {
    const weft_plan_bytes *bytes = &self->session->engine->plan.bytes;
    json_t *object =
        json_pack("{s:I, s:I}", "resident_peak", (json_int_t)self->resident_peak, "planned", (json_int_t)bytes->total);
    for (int i = 0; i < WEFT_N_MEMORY_CATEGORIES; i++)
        (void)json_object_set_new(object, weft_memory_category_name(i), json_integer(bytes->category[i]));
    return object;
}

static json_t *seconds_array(const weft_profile *profile) {
    json_t *array = json_array();
    for (int64_t i = 0; i < profile->n_steps; i++)
        (void)json_array_append_new(array, json_real(profile->steps[i].seconds));
    return array;
}

static json_t *rows_array(const weft_profile_step *step) {
    json_t *array = json_array();
    for (int32_t i = 0; i < step->n_rows; i++) {
        const weft_profile_row *row = &step->rows[i];
        (void)json_array_append_new(array, json_pack("{s:s, s:s, s:I, s:f, s:f, s:f, s:b}", "operation", row->operation,
                                                     "part", row->part, "calls", (json_int_t)row->calls, "seconds",
                                                     row->seconds, "flops", row->flops, "bytes", row->bytes,
                                                     "recompute", (int)row->recompute));
    }
    return array;
}

static json_t *roofline_object(const weft_roofline *roofline, int64_t steps) {
    json_t *array = json_array();
    for (int32_t i = 0; i < roofline->n_rows; i++) {
        const weft_roofline_row *row = &roofline->rows[i];
        (void)json_array_append_new(
            array, json_pack("{s:s, s:s, s:I, s:I, s:I, s:b, s:b, s:f, s:f, s:f}", "operation", row->operation, "part",
                             row->part, "m", (json_int_t)row->shape.m, "n", (json_int_t)row->shape.n, "k",
                             (json_int_t)row->shape.k, "transpose_a", (int)row->shape.transpose_a, "transpose_b",
                             (int)row->shape.transpose_b, "calls_per_step", (double)row->calls / (double)steps, "flops",
                             row->flops, "seconds", row->seconds));
    }
    return json_pack("{s:f, s:f, s:f, s:o}", "peak_flops_per_second", roofline->peak, "bytes_per_second",
                     roofline->bandwidth, "flops_per_second", roofline->products, "products", array);
}

/* Returns null for a loss that overflowed fp16, which JSON cannot represent. */
static json_t *loss_json(const weft_step_result *step) {
    const double loss = step->n_targets > 0 ? step->loss_sum / (double)step->n_targets : 0.0;
    return isfinite(loss) ? json_real(loss) : json_null();
}

weft_status weft_profile_print_json(const weft_profile_report *self, FILE *to, weft_error *err) {
    const weft_profile_step *step = weft_profile_median(self->profile);
    const int64_t steps = self->profile->n_steps;
    const weft_step_result *last = &self->profile->steps[steps - 1].result;
    json_t *object = json_pack("{s:o, s:o, s:o, s:f, s:I, s:I, s:o, s:f, s:f, s:o, s:o}", "device",
                               device_object(&self->session->engine->device_info), "start", start_object(self->start),
                               "step_seconds", seconds_array(self->profile), "median_seconds", step->seconds, "places",
                               (json_int_t)step->result.n_places, "targets", (json_int_t)step->result.n_targets, "loss",
                               loss_json(last), "flops", step->flops, "recompute_flops", step->recompute_flops,
                               "memory", memory_object(self), "operators", rows_array(step));
    if (object == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory to print the profile");
    if (self->roofline != NULL) (void)json_object_set_new(object, "roofline", roofline_object(self->roofline, steps));
    (void)json_dumpf(object, to, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    (void)fputc('\n', to);
    json_decref(object);
    return WEFT_OK;
}
