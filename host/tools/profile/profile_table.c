/* host/tools/profile/profile_table.c: see profile_table.h. */
#include "tools/profile/profile_table.h"

#include "base/units.h"
#include "report/device_line.h"

#include <jansson.h>
#include <math.h>

static int64_t extreme(const weft_profile *profile, bool largest) {
    int64_t at = 0;
    for (int64_t i = 1; i < weft_profile_count(profile); i++) {
        const bool more = weft_profile_at(profile, i)->seconds > weft_profile_at(profile, at)->seconds;
        if (more == largest) at = i;
    }
    return at;
}

/* ---- the table ---- */

static void print_start(const weft_arrival *start, FILE *to) {
    char a[WEFT_UNIT_SIZE], b[WEFT_UNIT_SIZE];
    (void)fprintf(to, "start      %.2f ms until the weights were in place, %.2f ms of them loading",
                  1e3 * start->seconds, 1e3 * start->load_seconds);
    if (start->pages > 0)
        (void)fprintf(to, "; %s of their %s pages were absent then", weft_unit_count(a, start->absent),
                      weft_unit_count(b, start->pages));
    (void)fputc('\n', to);
}

static void print_head(const weft_profile_report *self, const weft_profile_step *step, FILE *to) {
    const weft_engine *engine = self->session->engine;
    char a[WEFT_UNIT_SIZE], b[WEFT_UNIT_SIZE];
    weft_device_line_print(&engine->device_info, to);
    print_start(self->start, to);
    (void)fprintf(to, "step       %.2f ms, the median of %lld steps of %.2f to %.2f ms\n", 1e3 * step->seconds,
                  (long long)weft_profile_count(self->profile),
                  1e3 * weft_profile_at(self->profile, extreme(self->profile, false))->seconds,
                  1e3 * weft_profile_at(self->profile, extreme(self->profile, true))->seconds);
    (void)fprintf(to, "speed      %.1f places/s, %.1f targets/s\n", (double)step->result.n_places / step->seconds,
                  (double)step->result.n_targets / step->seconds);
    (void)fprintf(to, "memory     %s were the process's peak, %s are planned\n",
                  weft_unit_bytes(a, self->resident_peak), weft_unit_bytes(b, engine->plan.bytes.total));
    (void)fprintf(to, "matrix     %.3f GFLOP a step, %.2f GFLOP/s", 1e-9 * step->flops,
                  1e-9 * step->flops / step->seconds);
    if (step->recompute_flops > 0.0)
        (void)fprintf(to, "; %.3f GFLOP more are recomputed", 1e-9 * step->recompute_flops);
    (void)fputc('\n', to);
}

static void print_roofline_head(const weft_roofline *roofline, const weft_profile_step *step, FILE *to) {
    if (roofline->products > 0.0)
        (void)fprintf(
            to, "roofline       %.2f GFLOP/s by the matrix library at this step's products; the step reaches %.1f %%\n",
            1e-9 * roofline->products, 100.0 * step->flops / step->seconds / roofline->products);
    (void)fprintf(to, "machine    %.2f GFLOP/s out of registers, %.2f GB/s of memory\n", 1e-9 * roofline->peak,
                  1e-9 * roofline->bandwidth);
}

static void print_row(const weft_profile_row *row, const weft_profile_step *step, const weft_roofline *roofline,
                      FILE *to) {
    const bool matrix = row->flops > 0.0;
    const double work = matrix ? row->flops : row->bytes;
    const double top = roofline == NULL ? 0.0 : weft_roofline_of(roofline, row);
    char name[64];
    (void)snprintf(name, sizeof name, "%s %s", row->operation, row->part);
    (void)fprintf(to, "%-26s %6lld %11.3f %6.1f %%", name, (long long)row->calls, 1e3 * row->seconds,
                  100.0 * row->seconds / step->seconds);
    if (work > 0.0 && row->seconds > 0.0) {
        (void)fprintf(to, " %12.4f %-5s %9.2f %s", 1e-9 * work, matrix ? "GFLOP" : "GB", 1e-9 * work / row->seconds,
                      matrix ? "GFLOP/s" : "GB/s   ");
        if (top > 0.0) (void)fprintf(to, " %6.1f %%", 100.0 * work / row->seconds / top);
    }
    (void)fputc('\n', to);
}

static void print_products(const weft_roofline *roofline, int64_t steps, FILE *to) {
    (void)fprintf(to, "\n%-8s %10s %10s %10s %8s %11s %13s\n", "product", "m", "n", "k", "a step", "best ms",
                  "GFLOP/s");
    for (int32_t i = 0; i < roofline->n_rows; i++) {
        const weft_roofline_row *row = &roofline->rows[i];
        (void)fprintf(to, "%c%c       %10lld %10lld %10lld %8.4g %11.3f %13.2f\n", row->shape.transpose_a ? 'T' : 'N',
                      row->shape.transpose_b ? 'T' : 'N', (long long)row->shape.m, (long long)row->shape.n,
                      (long long)row->shape.k, (double)row->calls / (double)steps, 1e3 * row->seconds,
                      1e-9 * row->flops / row->seconds);
    }
}

void weft_profile_print(const weft_profile_report *self, FILE *to) {
    const weft_profile_step *step = weft_profile_median(self->profile);
    print_head(self, step, to);
    if (self->roofline != NULL) print_roofline_head(self->roofline, step, to);
    (void)fprintf(to, "\n%-26s %6s %11s %8s %18s %17s%s\n", "in the median step", "calls", "ms", "share", "work",
                  "rate", self->roofline != NULL ? "  of roofline" : "");
    for (int32_t i = 0; i < step->n_rows; i++) print_row(&step->rows[i], step, self->roofline, to);
    if (self->roofline != NULL) print_products(self->roofline, weft_profile_count(self->profile), to);
}

/* ---- the object ---- */

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
    for (int64_t i = 0; i < weft_profile_count(profile); i++)
        (void)json_array_append_new(array, json_real(weft_profile_at(profile, i)->seconds));
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
    return json_pack("{s:f, s:f, s:f, s:o}", "register_flops_per_second", roofline->peak, "bytes_per_second",
                     roofline->bandwidth, "flops_per_second", roofline->products, "products", array);
}

/* A loss that overflowed fp16 is no number of JSON. */
static json_t *loss_json(const weft_step_result *step) {
    const double loss = step->n_targets > 0 ? step->loss_sum / (double)step->n_targets : 0.0;
    return isfinite(loss) ? json_real(loss) : json_null();
}

weft_status weft_profile_print_json(const weft_profile_report *self, FILE *to, weft_error *err) {
    const weft_profile_step *step = weft_profile_median(self->profile);
    const int64_t steps = weft_profile_count(self->profile);
    const weft_step_result *last = &weft_profile_at(self->profile, steps - 1)->result;
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
