/* host/run/validate_micro_batch.c: see validate_micro_batch.h. A row is looked at in loops without a branch, which
 * compilers vectorise; only in a row that has something wrong the first such place is looked for. */
#include "run/validate_micro_batch.h"

#include <float.h>

weft_micro_batch_bounds weft_micro_batch_bounds_of(const weft_plan *plan) {
    const weft_micro_batch_bounds out = {plan->declared->info.vocab_size, weft_plan_table_rows(&plan->spec),
                                         plan->spec.lengths, plan->spec.n_lengths};
    return out;
}

static const char *split_name(int32_t split) {
    return split == WEFT_SPLIT_TRAIN ? "training" : split == WEFT_SPLIT_VALIDATION ? "validation" : "all";
}

weft_status weft_micro_batch_validate_shape(const weft_micro_batch *micro_batch,
                                            const weft_micro_batch_request *request,
                                            const weft_micro_batch_bounds *bounds, weft_error *err) {
    const long long row = (long long)request->first_row;
    int32_t i = 0;
    if (micro_batch->rows != request->rows)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "it gives a micro-batch of %d rows where %d from row %lld of split %s on "
                              "were asked for",
                              (int)micro_batch->rows, (int)request->rows, row, split_name(request->split));
    while (i < bounds->n_lengths && bounds->lengths[i] != micro_batch->length) i++;
    if (i == bounds->n_lengths)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "it gives a micro-batch of length %d at row %lld of split %s, which its "
                              "info did not declare",
                              (int)micro_batch->length, row, split_name(request->split));
    if (micro_batch->n_targets < 0 || micro_batch->n_targets > (int64_t)micro_batch->rows * micro_batch->length)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "it gives a micro-batch of %d rows of %d places at row %lld of split %s, "
                              "with %lld targets: 0 to %lld have room",
                              (int)micro_batch->rows, (int)micro_batch->length, row, split_name(request->split),
                              (long long)micro_batch->n_targets, (long long)micro_batch->rows * micro_batch->length);
    return WEFT_OK;
}

static bool is_in_place(const weft_micro_batch *micro_batch, const weft_micro_batch *asked) {
    return micro_batch->ids == asked->ids && micro_batch->targets == asked->targets &&
           micro_batch->weights == asked->weights && micro_batch->starts == asked->starts &&
           micro_batch->positions == asked->positions;
}

/* The arrays of a row. */
typedef struct row {
    const int32_t *ids, *targets, *starts, *positions;
    const float *weights;
} row;

static row row_of(const weft_micro_batch *micro_batch, int32_t r) {
    const int64_t at = (int64_t)r * micro_batch->length;
    const row out = {micro_batch->ids + at, micro_batch->targets + at, micro_batch->starts + at,
                     micro_batch->positions + at, micro_batch->weights + at};
    return out;
}

static uint32_t outside(const int32_t *values, int32_t n, uint32_t bound) {
    uint32_t bad = 0;
    for (int32_t t = 0; t < n; t++) bad |= (uint32_t)values[t] >= bound;
    return bad;
}

/* Weights that are no numbers of 0 or more; *targets: how many are not 0. */
static uint32_t misweighted(const float *weights, int32_t n, int64_t *targets) {
    uint32_t bad = 0;
    int32_t found = 0;
    for (int32_t t = 0; t < n; t++) {
        bad |= (uint32_t) !(weights[t] >= 0.0f && weights[t] <= FLT_MAX); /* NaN is neither */
        found += weights[t] != 0.0f;
    }
    *targets += found;
    return bad;
}

static bool begins_badly(const int32_t *starts, int32_t t) {
    return starts[t] != t && (t == 0 || starts[t] != starts[t - 1]);
}

static uint32_t misplaced(const int32_t *starts, int32_t n) {
    uint32_t bad = n > 0 && starts[0] != 0;
    for (int32_t t = 1; t < n; t++) bad |= (uint32_t)((starts[t] != t) & (starts[t] != starts[t - 1]));
    return bad;
}

/* The first wrong thing of a row. */
static weft_status name_place(const row *of, int32_t n, const char *where, const weft_micro_batch_bounds *bounds,
                              weft_error *err) {
    for (int32_t t = 0; t < n; t++) {
        if ((uint32_t)of->ids[t] >= (uint32_t)bounds->vocabulary)
            return weft_error_set(err, WEFT_E_PLUGIN, "%s, place %d: its id is %d, and the model has 0 to %lld", where,
                                  (int)t, (int)of->ids[t], (long long)bounds->vocabulary - 1);
        if ((uint32_t)of->targets[t] >= (uint32_t)bounds->vocabulary)
            return weft_error_set(err, WEFT_E_PLUGIN, "%s, place %d: its target is %d, and the model has 0 to %lld",
                                  where, (int)t, (int)of->targets[t], (long long)bounds->vocabulary - 1);
        if (!(of->weights[t] >= 0.0f && of->weights[t] <= FLT_MAX))
            return weft_error_set(err, WEFT_E_PLUGIN,
                                  "%s, place %d: its weight is %g: a finite number of 0 or more is "
                                  "one",
                                  where, (int)t, (double)of->weights[t]);
        if (begins_badly(of->starts, t))
            return weft_error_set(err, WEFT_E_PLUGIN,
                                  "%s, place %d: its start is %d: it is the place itself, or the "
                                  "start of the place before",
                                  where, (int)t, (int)of->starts[t]);
        if ((uint32_t)of->positions[t] >= (uint32_t)bounds->positions)
            return weft_error_set(err, WEFT_E_PLUGIN,
                                  "%s, place %d: its position is %d: 0 to %lld have a place in the "
                                  "model's tables",
                                  where, (int)t, (int)of->positions[t], (long long)bounds->positions - 1);
    }
    return weft_error_set(err, WEFT_E_HOST, "%s is wrong nowhere", where);
}

static weft_status judge_row(const weft_micro_batch *micro_batch, int32_t r, int64_t *targets,
                             const weft_micro_batch_request *request, const weft_micro_batch_bounds *bounds,
                             weft_error *err) {
    const row of = row_of(micro_batch, r);
    const int32_t n = micro_batch->length;
    char where[80];
    uint32_t bad = outside(of.ids, n, (uint32_t)bounds->vocabulary);
    bad |= outside(of.targets, n, (uint32_t)bounds->vocabulary);
    bad |= outside(of.positions, n, (uint32_t)bounds->positions);
    bad |= misplaced(of.starts, n);
    bad |= misweighted(of.weights, n, targets);
    if (bad == 0) return WEFT_OK;
    (void)snprintf(where, sizeof where, "row %llu of split %s", (unsigned long long)request->first_row + (unsigned)r,
                   split_name(request->split));
    return name_place(&of, n, where, bounds, err);
}

weft_status weft_micro_batch_validate(const weft_micro_batch *micro_batch, const weft_micro_batch *asked,
                                      const weft_micro_batch_request *request, const weft_micro_batch_bounds *bounds,
                                      weft_error *err) {
    int64_t targets = 0;
    weft_status status = WEFT_OK;
    if (!is_in_place(micro_batch, asked))
        return weft_error_set(err, WEFT_E_PLUGIN, "its micro-batch moved the arrays that it was given to fill");
    status = weft_micro_batch_validate_shape(micro_batch, request, bounds, err);
    for (int32_t r = 0; r < micro_batch->rows && status == WEFT_OK; r++)
        status = judge_row(micro_batch, r, &targets, request, bounds, err);
    if (status != WEFT_OK || targets == micro_batch->n_targets) return status;
    return weft_error_set(err, WEFT_E_PLUGIN,
                          "it says that its micro-batch at row %llu of split %s has %lld targets, and %lld "
                          "of its weights are not 0",
                          (unsigned long long)request->first_row, split_name(request->split),
                          (long long)micro_batch->n_targets, (long long)targets);
}
