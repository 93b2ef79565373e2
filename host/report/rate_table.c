/* host/report/rate_table.c: see rate_table.h. */
#include "report/rate_table.h"

#include "base/text.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

/* ---- output ---- */

static json_t *work_array(const weft_work *work) {
    return json_pack("[f, f]", work->alone, work->together);
}

static json_t *segments_array(const weft_rates *rates) {
    json_t *segments = json_array();
    for (int32_t s = 0; s < rates->n_segments; s++) {
        const weft_segment_rate *segment = &rates->segments[s];
        (void)json_array_append_new(segments, json_pack("{s:s, s:o, s:o}", "name", segment->name, "forward",
                                                        work_array(&segment->forward), "backward",
                                                        work_array(&segment->backward)));
    }
    return segments;
}

static json_t *elements_object(const weft_rates *rates) {
    json_t *elements = json_object();
    for (int32_t kind = 0; kind < WEFT_N_RATES; kind++)
        (void)json_object_set_new(elements, weft_rate_name(kind), work_array(&rates->elements[kind]));
    return elements;
}

/* Returns pairs of bytes and seconds. */
static json_t *exchanges_object(const weft_rates *rates) {
    json_t *exchanges = json_object();
    for (int32_t kind = 0; kind < WEFT_N_RATE_EXCHANGES && rates->ranks > 1; kind++) {
        json_t *sizes = json_array();
        for (int32_t i = 0; i < WEFT_RATE_SIZES; i++)
            (void)json_array_append_new(sizes, json_pack("[f, f]", rates->bytes[i], rates->exchanges[kind][i]));
        (void)json_object_set_new(exchanges, weft_rate_exchange_name(kind), sizes);
    }
    return exchanges;
}

json_t *weft_rates_object(const weft_rates *rates) {
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:s, s:s, s:s, s:s, s:b, s:b, s:o, s:o, s:o}", "ranks",
                     (int)rates->ranks, "ranks_per_node", (int)rates->ranks_per_node, "processors",
                     (int)rates->processors, "threads", (int)rates->threads, "rows", (int)rates->rows, "places",
                     (int)rates->places, "device", rates->device, "comm", rates->comm, "precision", rates->precision,
                     "optimizer", rates->optimizer, "trainable", rates->trainable, "own_progress",
                     (int)rates->own_progress, "own_processors", (int)rates->own_processors, "segments",
                     segments_array(rates), "seconds_per_element", elements_object(rates), "exchanges",
                     exchanges_object(rates));
}

/* ---- input ---- */

static bool read_pair(double *a, double *b, const json_t *pair) {
    const json_t *x = json_array_get(pair, 0), *y = json_array_get(pair, 1);
    if (json_array_size(pair) != 2 || !json_is_number(x) || !json_is_number(y)) return false;
    *a = json_number_value(x);
    *b = json_number_value(y);
    return isfinite(*a) && isfinite(*b) && *a >= 0.0 && *b >= 0.0;
}

static bool read_work(weft_work *out, const json_t *in) {
    return read_pair(&out->alone, &out->together, in);
}

static bool read_int(int32_t *out, const json_t *in, const char *name, int32_t least) {
    const json_t *value = json_object_get(in, name);
    const json_int_t n = json_is_integer(value) ? json_integer_value(value) : -1;
    if (n < least || n > INT32_MAX) return false;
    *out = (int32_t)n;
    return true;
}

static bool read_text(char *out, size_t size, const json_t *in, const char *name) {
    const char *text = json_string_value(json_object_get(in, name));
    if (text == NULL || strlen(text) >= size) return false;
    memcpy(out, text, strlen(text) + 1);
    return true;
}

static bool read_segments(weft_rates *out, const json_t *in) {
    const json_t *list = json_object_get(in, "segments");
    out->n_segments = (int32_t)json_array_size(list);
    out->segments = calloc((size_t)out->n_segments + 1, sizeof *out->segments);
    for (int32_t s = 0; out->segments != NULL && s < out->n_segments; s++) {
        const json_t *one = json_array_get(list, (size_t)s);
        weft_segment_rate *segment = &out->segments[s];
        if (!read_text(segment->name, sizeof segment->name, one, "name") ||
            !read_work(&segment->forward, json_object_get(one, "forward")) ||
            !read_work(&segment->backward, json_object_get(one, "backward")))
            return false;
    }
    return out->segments != NULL && out->n_segments > 0;
}

static bool read_exchanges(weft_rates *out, const json_t *in) {
    const json_t *exchanges = json_object_get(in, "exchanges");
    for (int32_t kind = 0; kind < WEFT_N_RATE_EXCHANGES && out->ranks > 1; kind++) {
        const json_t *sizes = json_object_get(exchanges, weft_rate_exchange_name(kind));
        if (json_array_size(sizes) != WEFT_RATE_SIZES) return false;
        for (int32_t i = 0; i < WEFT_RATE_SIZES; i++)
            if (!read_pair(&out->bytes[i], &out->exchanges[kind][i], json_array_get(sizes, (size_t)i)) ||
                (i > 0 && out->bytes[i] <= out->bytes[i - 1]))
                return false;
    }
    return true;
}

static bool read_rates(weft_rates *out, const json_t *in) {
    const json_t *elements = json_object_get(in, "seconds_per_element");
    const char *trainable = json_string_value(json_object_get(in, "trainable"));
    if (trainable != NULL) out->trainable = strdup(trainable);
    for (int32_t kind = 0; kind < WEFT_N_RATES; kind++)
        if (!read_work(&out->elements[kind], json_object_get(elements, weft_rate_name(kind)))) return false;
    out->own_progress = json_is_true(json_object_get(in, "own_progress"));
    out->own_processors = json_is_true(json_object_get(in, "own_processors"));
    return out->trainable != NULL && read_int(&out->ranks, in, "ranks", 1) &&
           read_int(&out->ranks_per_node, in, "ranks_per_node", 1) && read_int(&out->processors, in, "processors", 1) &&
           read_int(&out->threads, in, "threads", 0) && read_int(&out->rows, in, "rows", 1) &&
           read_int(&out->places, in, "places", 1) && read_text(out->device, sizeof out->device, in, "device") &&
           read_text(out->comm, sizeof out->comm, in, "comm") &&
           read_text(out->precision, sizeof out->precision, in, "precision") &&
           read_text(out->optimizer, sizeof out->optimizer, in, "optimizer") && read_segments(out, in) &&
           read_exchanges(out, in);
}

static const char *where_it_computes(bool own_processors) {
    return own_processors ? "by itself" : "on the machine's processors";
}

/* Checks that the rates match this engine's trainable parameters, optimizer and threads. */
static weft_status judge_training(const weft_rates *rates, const char *path, const weft_engine *engine,
                                  weft_error *err) {
    const char *optimizer = weft_run_id(engine->plan.run, WEFT_PART_OPTIMIZER),
               *trainable = engine->plan.run->settings.train.trainable;
    if (strcmp(rates->optimizer, optimizer) != 0 || strcmp(rates->trainable, trainable) != 0)
        return weft_error_set(err, WEFT_E_USER,
                              "%s has the rates of optimizer %s and trainable = %s, and this run has %s and %s: "
                              "measure it with weft plan --time --json",
                              path, rates->optimizer, rates->trainable, optimizer, trainable);
    if (rates->own_processors != weft_rates_own_processors(engine))
        return weft_error_set(err, WEFT_E_USER,
                              "%s has the rates of a device that computes %s (%s), and this run's computes %s (%s): "
                              "measure it with weft plan --time --json",
                              path, where_it_computes(rates->own_processors), rates->device,
                              where_it_computes(!rates->own_processors), engine->device_info.name);
    if (rates->threads != engine->device_info.threads)
        return weft_error_set(err, WEFT_E_USER,
                              "%s has the rates of ranks with [device] threads = %d, and this run's have %d: measure "
                              "them with weft plan --time --json, or say the number in the configuration",
                              path, (int)rates->threads, (int)engine->device_info.threads);
    return WEFT_OK;
}

/* Checks that the rates match this engine's model, micro-batch and precision, and include collectives if it needs them.
 */
static weft_status judge_rates(const weft_rates *rates, const char *path, const weft_engine *engine, weft_error *err) {
    const weft_strategy_job *job = &engine->plan.train.job->spec.view;
    const int32_t places = engine->plan.spec.lengths[engine->plan.spec.n_lengths - 1];
    bool same = rates->n_segments == job->n_segments;
    for (int32_t s = 0; s < job->n_segments && same; s++)
        same = strcmp(rates->segments[s].name, job->segments[s].name) == 0;
    if (!same)
        return weft_error_set(err, WEFT_E_USER,
                              "%s has the rates of a model with other segments: measure this one with weft plan --time "
                              "--json",
                              path);
    if (rates->rows != engine->plan.spec.rows || rates->places != places ||
        strcmp(rates->precision, weft_dtype_name(engine->plan.dtype)) != 0)
        return weft_error_set(
            err, WEFT_E_USER,
            "%s has the rates of micro-batches of %d x %d places in %s, and this run's have %d x %d in %s: "
            "measure it with weft plan --time --json",
            path, (int)rates->rows, (int)rates->places, rates->precision, (int)engine->plan.spec.rows, (int)places,
            weft_dtype_name(engine->plan.dtype));
    if (job->world > 1 && rates->ranks == 1)
        return weft_error_set(err, WEFT_E_USER,
                              "%s has the rates of one rank, and no exchange was measured: measure 2 ranks or more "
                              "with weft plan --ranks 2 --time --json",
                              path);
    return judge_training(rates, path, engine, err);
}

weft_status weft_rates_read(weft_rates *out, const char *path, const weft_engine *engine, weft_error *err) {
    json_t *file = NULL;
    weft_error why = WEFT_ERROR_INIT;
    weft_status status = weft_json_read(&file, path, 0, &why);
    memset(out, 0, sizeof *out);
    if (status != WEFT_OK)
        return weft_error_set(err, WEFT_E_USER, "--rates %s: give the output of weft plan --time --json", why.text);
    if (!read_rates(out, json_object_get(file, "rates")))
        status = weft_error_set(err, WEFT_E_USER,
                                "--rates %s has no complete `rates`: give the output of weft plan --time --json", path);
    json_decref(file);
    return status == WEFT_OK ? judge_rates(out, path, engine, err) : status;
}
