/* host/tools/check/gradient_check.c: checks on reference runs: gradient by finite differences, causal mask, history.
 *
 * Along a unit vector v the loss L has the slope g v, if g is its gradient. With the central difference
 *
 *     D(h) = (L(x + h v) - L(x - h v)) / 2h = slope + c h^2 + O(h^4)
 *
 * Richardson's extrapolation R(h) = (4 D(h/2) - D(h)) / 3 micro-batches O(h^4). Three widths result in two
 * extrapolations, R(h) and R(h/2). For a smooth loss the error of R(h/2) is a fifteenth of their difference. The bound
 * is four times that, which also covers one or two kinks in the interval.
 *
 * The second error is rounding: L is a sum of fp32 numbers, and a difference of two is divided by a small h. Its size
 * is measured by second differences at a distance so small that L's own curvature, about 2^-20 of its effect at h, is
 * negligible (Moré and Wild, "Estimating computational noise", 2011). It is at least the last bit of L. R(h/2) weighs
 * four losses by 16/3h and 4/3h, 40/3h in total, so 32/h of the noise is a bound. The gradient is fp32, summed over
 * positions and elements: 2^-13 of its norm. */
#include "tools/check/reference_run.h"

#include "plugin/enter.h"
#include "tools/check/rule.h"

#include <math.h>
#include <stdlib.h>
#include <weft/model.h>
#include <weft/random.h>

static const weft_model_plugin *model;
static const weft_ops *given;

static weft_value custom(weft_graph *g, const weft_custom_op *op, const weft_value *inputs, int32_t n_inputs,
                         int64_t width, const void *args, size_t n) {
    const weft_value one = given->custom(g, op, inputs, n_inputs, width, args, n);
    const weft_value two = given->custom(g, op, inputs, n_inputs, width, args, n);
    const weft_value most = given->scale(g, one, 0.75);
    const weft_value rest = given->scale(g, two, 0.25);
    return given->add(g, most, rest);
}

static weft_value forward(const weft_model *made, uint32_t segment, weft_graph *g, const weft_ops *ops,
                          weft_value carry) {
    static weft_ops accumulate_shim;
    given = ops;
    accumulate_shim = *ops;
    accumulate_shim.custom = custom;
    return model->forward(made, segment, g, &accumulate_shim, carry);
}

const weft_loaded *weft_accumulate_shim(const weft_loaded *loaded) {
    static weft_model_plugin table;
    static weft_plugin plugin;
    static weft_loaded accumulate_shim;
    if (accumulate_shim.plugin != NULL) return &accumulate_shim;
    model = weft_loaded_table(loaded, model);
    (void)weft_struct_take(&table, sizeof table, model);
    table.forward = forward;
    plugin = *loaded->plugin;
    plugin.table = &table;
    accumulate_shim = *loaded;
    accumulate_shim.plugin = &plugin;
    weft_plugin_own(&accumulate_shim);
    return &accumulate_shim;
}

/* The loss is a weighted sum over positions. A weight of zero removes a position's loss, so the rest shows whether
 * other positions changed. A matmul may sum in another order when its rows move: about 64 roundings of 2^-24, of
 * numbers about as large as the loss, are 2^-18 of it. */

#define ROUNDING 0x1p-18

static bool is_same(double a, double b) {
    return fabs(a - b) <= ROUNDING * (fabs(a) + fabs(b));
}

/* ---- another id at a position ---- */

/* Group of positions that must not depend on position (row, at). */
typedef enum sort { EVERYONE, EARLIER, OTHER_DOCUMENT, OTHER_ROW, SORTS } sort;

static sort sort_of(const weft_reference_micro_batch *micro_batch, int32_t length, int32_t row, int32_t at, int32_t i) {
    const int32_t place = i % length, changed = row * length + at;
    if (i / length != row) return OTHER_ROW;
    if (micro_batch->starts[i] != micro_batch->starts[changed]) return place < at ? EARLIER : OTHER_DOCUMENT;
    return place < at ? EARLIER : SORTS; /* depends on it */
}

/* Copies the micro-batch with the loss weights of one group only. Returns the number of positions with a loss. */
static int32_t look_at(weft_reference_micro_batch *out, const weft_reference_micro_batch *micro_batch, int32_t length,
                       int32_t row, int32_t at, sort who) {
    int32_t n = 0;
    *out = *micro_batch;
    for (int32_t i = 0; i < WEFT_PLAY_ROWS * length; i++) {
        const sort is = sort_of(micro_batch, length, row, at, i);
        if (is == SORTS || (who != EVERYONE && is != who)) out->weights[i] = 0;
        else n++;
    }
    return n;
}

static weft_status compare(bool *same, weft_reference_run *played, const weft_reference_micro_batch *looked,
                           int32_t changed, double *by, weft_error *err) {
    weft_reference_micro_batch other = *looked;
    double before = 0, after = 0;
    weft_status status = weft_reference_run_loss(played, looked, &before, err);
    other.ids[changed] = (int32_t)((other.ids[changed] + 1) % played->declared->info.vocab_size);
    if (status == WEFT_OK) status = weft_reference_run_loss(played, &other, &after, err);
    *same = is_same(before, after);
    *by = after - before;
    return status;
}

static weft_status check_place(weft_reference_run *played, const weft_reference_micro_batch *micro_batch, int32_t row,
                               int32_t at, weft_error *err) {
    static const char *const names[SORTS] = {"others", "positions before it", "the sequence's other document",
                                             "other sequences"};
    bool same = true;
    double by = 0;
    for (sort who = EVERYONE; who < SORTS; who++) {
        weft_reference_micro_batch looked;
        weft_status status = WEFT_OK;
        if (look_at(&looked, micro_batch, played->length, row, at, who) == 0) continue;
        status = compare(&same, played, &looked, row * played->length + at, &by, err);
        if (status != WEFT_OK) return status;
        if (who == EVERYONE && same) return WEFT_OK;
        if (who != EVERYONE && !same)
            return WEFT_BROKEN(err,
                               "another id at position %d of sequence %d changes the loss of %s by %.3g: a position "
                               "may depend only on itself and earlier positions of its document",
                               at, row, names[who], by);
    }
    return weft_error_set(
        err, WEFT_E_PLUGIN,
        "another id at position %d of sequence %d changes the loss of positions that may not depend on it", at, row);
}

/* ---- reordered sequences ---- */

static void turn(weft_reference_micro_batch *out, const weft_reference_micro_batch *micro_batch, int32_t length,
                 int32_t by) {
    for (int32_t i = 0; i < WEFT_PLAY_ROWS * length; i++) {
        const int32_t from = (i + by * length) % (WEFT_PLAY_ROWS * length);
        out->ids[i] = micro_batch->ids[from];
        out->targets[i] = micro_batch->targets[from];
        out->weights[i] = micro_batch->weights[from];
        out->starts[i] = micro_batch->starts[from];
        out->positions[i] = micro_batch->positions[from];
    }
}

static weft_status check_row(weft_reference_run *played, const weft_reference_micro_batch *micro_batch, int32_t row,
                             weft_error *err) {
    weft_reference_micro_batch alone = *micro_batch, turned = {0};
    double here = 0;
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < WEFT_PLAY_ROWS * played->length; i++)
        if (i / played->length != row) alone.weights[i] = 0;
    status = weft_reference_run_loss(played, &alone, &here, err);
    for (int32_t by = 1; by < WEFT_PLAY_ROWS && status == WEFT_OK; by++) {
        const int32_t to = (row + WEFT_PLAY_ROWS - by) % WEFT_PLAY_ROWS;
        double there = 0;
        turn(&turned, &alone, played->length, by);
        status = weft_reference_run_loss(played, &turned, &there, err);
        if (status == WEFT_OK && !is_same(here, there))
            return WEFT_BROKEN(err,
                               "the same sequence has the loss %.9g as sequence %d of its micro-batch and %.9g as "
                               "sequence %d: the result depends on the index of a sequence, or on other sequences",
                               here, row, there, to);
    }
    return status;
}

weft_status weft_causal_mask_check(weft_reference_run *played, weft_error *err) {
    weft_reference_micro_batch micro_batch;
    weft_status status = WEFT_OK;
    weft_reference_run_draw(played, 0, &micro_batch);
    for (int32_t row = 0; row < WEFT_PLAY_ROWS && status == WEFT_OK; row++) {
        for (int32_t at = 0; at < played->length && status == WEFT_OK; at++)
            status = check_place(played, &micro_batch, row, at, err);
        if (status == WEFT_OK) status = check_row(played, &micro_batch, row, err);
    }
    return status;
}

/* ---- history ---- */

typedef struct result {
    double loss;
    float **gradients; /* [n_parameters]; NULL: not trained */
} result;

static void result_free(result *self, const weft_reference_run *played) {
    for (int32_t p = 0; self->gradients != NULL && p < played->declared->n_parameters; p++) free(self->gradients[p]);
    free((void *)self->gradients);
    self->gradients = NULL;
}

/* Reads the results of a backward. Free it also after a failure. */
static weft_status take_result(result *out, const weft_reference_run *played, weft_error *err) {
    const weft_declared *declared = played->declared;
    weft_status status = WEFT_OK;
    *out = (result){played->loss_sum, weft_alloc(declared->n_parameters, sizeof(float *))};
    for (int32_t p = 0; p < declared->n_parameters && status == WEFT_OK; p++) {
        if (!weft_reference_run_trains(played, p)) continue;
        out->gradients[p] = weft_alloc(declared->parameters[p].numel, sizeof(float));
        status = weft_reference_run_gradient(played, p, out->gradients[p], err);
    }
    return status;
}

static weft_status compare_results(const weft_reference_run *played, const result *a, const result *b, const char *when,
                                   weft_error *err) {
    const weft_declared *declared = played->declared;
    if (memcmp(&a->loss, &b->loss, sizeof a->loss) != 0)
        return WEFT_BROKEN(err, "the same micro-batch has the loss %.17g, and %.17g %s", a->loss, b->loss, when);
    for (int32_t p = 0; p < declared->n_parameters; p++)
        if (a->gradients[p] != NULL &&
            memcmp(a->gradients[p], b->gradients[p], (size_t)declared->parameters[p].numel * sizeof(float)) != 0)
            return WEFT_BROKEN(err, "the same micro-batch has different gradients of %s %s",
                               declared->parameters[p].name, when);
    return WEFT_OK;
}

static weft_status run(weft_reference_run *played, const weft_reference_micro_batch *micro_batch, weft_error *err) {
    const weft_status status = weft_reference_run_forward(played, micro_batch, err);
    return status == WEFT_OK ? weft_reference_run_backward(played, err) : status;
}

/* Interleaves another micro-batch's forward and backward, in either order, as pipelines do. */
static weft_status run_around(weft_reference_run *played, weft_reference_run *beside,
                              const weft_reference_micro_batch micro_batches[2], weft_error *err) {
    weft_status status = weft_reference_run_forward(played, &micro_batches[0], err);
    if (status == WEFT_OK) status = weft_reference_run_forward(beside, &micro_batches[1], err);
    if (status == WEFT_OK) status = weft_reference_run_backward(played, err);
    return status == WEFT_OK ? weft_reference_run_backward(beside, err) : status;
}

weft_status weft_causal_mask_check_history(weft_reference_run *played, weft_reference_run *beside, weft_error *err) {
    weft_reference_micro_batch micro_batches[2];
    result first = {0}, again = {0}, around = {0};
    weft_status status = WEFT_OK;
    weft_reference_run_draw(played, 0, &micro_batches[0]);
    weft_reference_run_draw(played, 1, &micro_batches[1]);
    status = run(played, &micro_batches[0], err);
    if (status == WEFT_OK) status = take_result(&first, played, err);
    if (status == WEFT_OK) status = run(played, &micro_batches[1], err);
    if (status == WEFT_OK) status = run(played, &micro_batches[0], err);
    if (status == WEFT_OK) status = take_result(&again, played, err);
    if (status == WEFT_OK) status = compare_results(played, &first, &again, "after another micro-batch", err);
    if (status == WEFT_OK) status = run_around(played, beside, micro_batches, err);
    if (status == WEFT_OK) status = take_result(&around, played, err);
    if (status == WEFT_OK)
        status =
            compare_results(played, &first, &around, "if another micro-batch's forward runs before its backward", err);
    result_free(&first, played);
    result_free(&again, played);
    result_free(&around, played);
    return status;
}

/* ---- in another shape ---- */

/* The micro-batch of `small`: the begin of the last row of `all`, whose other losses are taken out. */
static void cut_out(weft_reference_micro_batch *part, weft_reference_micro_batch *all, const weft_reference_run *small,
                    const weft_reference_run *large) {
    const int32_t from = (large->rows - 1) * large->length, n = small->length;
    memset(part, 0, sizeof *part);
    memcpy(part->ids, all->ids + from, (size_t)n * sizeof *part->ids);
    memcpy(part->targets, all->targets + from, (size_t)n * sizeof *part->targets);
    memcpy(part->weights, all->weights + from, (size_t)n * sizeof *part->weights);
    memcpy(part->starts, all->starts + from, (size_t)n * sizeof *part->starts);
    memcpy(part->positions, all->positions + from, (size_t)n * sizeof *part->positions);
    for (int32_t i = 0; i < large->rows * large->length; i++)
        if (i < from || i >= from + n) all->weights[i] = 0;
}

static double largest(const weft_reference_run *played, const result *of) {
    double most = 0;
    for (int32_t p = 0; p < played->declared->n_parameters; p++)
        for (int64_t i = 0; of->gradients[p] != NULL && i < played->declared->parameters[p].numel; i++)
            most = fmax(most, fabs((double)of->gradients[p][i]));
    return most;
}

/* As far as rounding lets them be: sums have other terms of zero, and are added in another order. */
static weft_status compare_shapes(const weft_reference_run *small, const result *a, const weft_reference_run *large,
                                  const result *b, weft_error *err) {
    const double most = 0x1p-15 * largest(small, a);
    char shapes[160];
    (void)snprintf(shapes, sizeof shapes,
                   "in a micro-batch of %d x %d, and of %d x %d after it: the plugin keeps the first shape",
                   small->rows, small->length, large->rows, large->length);
    if (!is_same(a->loss, b->loss))
        return WEFT_BROKEN(err, "the same positions of a sequence have the loss %.9g and %.9g %s", a->loss, b->loss,
                           shapes);
    for (int32_t p = 0; p < small->declared->n_parameters; p++)
        for (int64_t i = 0; a->gradients[p] != NULL && i < small->declared->parameters[p].numel; i++)
            if (!(fabs((double)a->gradients[p][i] - (double)b->gradients[p][i]) <= most))
                return WEFT_BROKEN(err, "the same positions have for %s the gradients %.9g and %.9g %s",
                                   small->declared->parameters[p].name, (double)a->gradients[p][i],
                                   (double)b->gradients[p][i], shapes);
    return WEFT_OK;
}

weft_status weft_causal_mask_check_shapes(weft_reference_run *small, weft_reference_run *large, weft_error *err) {
    weft_reference_micro_batch part, all;
    result first = {0}, among = {0}, again = {0};
    weft_status status = WEFT_OK;
    weft_reference_run_draw(large, 0, &all);
    cut_out(&part, &all, small, large);
    status = run(small, &part, err);
    if (status == WEFT_OK) status = take_result(&first, small, err);
    if (status == WEFT_OK) status = run(large, &all, err);
    if (status == WEFT_OK) status = take_result(&among, large, err);
    if (status == WEFT_OK) status = compare_shapes(small, &first, large, &among, err);
    if (status == WEFT_OK) status = run(small, &part, err);
    if (status == WEFT_OK) status = take_result(&again, small, err);
    if (status == WEFT_OK) status = compare_results(small, &first, &again, "after one of another shape", err);
    result_free(&first, small);
    result_free(&among, large);
    result_free(&again, small);
    return status;
}

enum { WIDTHS = 3, DIRECTIONS = 3, TRIES = 3, SEED = 8502 };

typedef struct line {
    weft_reference_run *played;
    const weft_reference_micro_batch *micro_batch;
    int32_t parameter;
    int64_t n;
    const float *gradient;
    double *direction; /* [n], norm 1 */
    float *moved;      /* [n] */
    double middle;     /* loss at the unmodified values */
} line;

static double norm(const float *values, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)values[i] * (double)values[i];
    return sqrt(sum);
}

/* Computes the loss at distance `step`. Adds the gradient's prediction for the rounded move to *slope. */
static weft_status loss_at(line *l, double step, double *loss, double *slope, weft_error *err) {
    const float *from = l->played->values[l->parameter];
    weft_status status = WEFT_OK;
    for (int64_t i = 0; i < l->n; i++) {
        l->moved[i] = (float)((double)from[i] + step * l->direction[i]);
        *slope += ((double)l->moved[i] - (double)from[i]) * (double)l->gradient[i];
    }
    status = weft_reference_run_put(l->played, l->parameter, l->moved, err);
    return status == WEFT_OK ? weft_reference_run_loss(l->played, l->micro_batch, loss, err) : status;
}

/* Returns D(h) minus the slope predicted by the gradient. */
static weft_status difference(line *l, double h, double *out, weft_error *err) {
    double up = 0, down = 0, said_up = 0, said_down = 0;
    weft_status status = loss_at(l, h, &up, &said_up, err);
    if (status == WEFT_OK) status = loss_at(l, -h, &down, &said_down, err);
    *out = (up - down - (said_up - said_down)) / (2 * h);
    return status;
}

/* Measures the rounding noise of the loss. */
static weft_status measure_noise(line *l, double h, double *out, weft_error *err) {
    weft_status status = WEFT_OK;
    *out = fabs(l->middle) * 0x1p-24;
    for (int32_t i = 0; i < 2 && status == WEFT_OK; i++) {
        const double step = ldexp(h, -10 + i);
        double up = 0, down = 0, unused = 0;
        status = loss_at(l, step, &up, &unused, err);
        if (status == WEFT_OK) status = loss_at(l, -step, &down, &unused, err);
        *out = fmax(*out, fabs(up + down - 2 * l->middle));
    }
    return status;
}

static weft_status tell(const line *l, double off, double bound, weft_error *err) {
    const char *own = weft_reference_run_own_operator(l->played);
    const double said = norm(l->gradient, l->n);
    return WEFT_BROKEN(err,
                       "the gradient of %s is not the slope of the loss: along one direction it is off by %.3g, "
                       "where steps and rounding explain %.3g; its norm is %.3g%s%s",
                       l->played->declared->parameters[l->parameter].name, off, bound, said,
                       own == NULL ? "" : "; look at the backward of custom operators, as ", own == NULL ? "" : own);
}

/* Tests one width. *bends: the loss is not smooth enough between the widths, so narrower ones may be conclusive. */
static weft_status check_width(line *l, double h, bool *bends, weft_error *err) {
    const double size = norm(l->gradient, l->n);
    double at[WIDTHS] = {0}, noise = 0, off, between, bound;
    weft_status status = measure_noise(l, h, &noise, err);
    for (int32_t i = 0; i < WIDTHS && status == WEFT_OK; i++) status = difference(l, ldexp(h, -i), &at[i], err);
    off = fabs(4 * at[2] - at[1]) / 3;
    between = fabs((4 * at[1] - at[0]) / 3 - (4 * at[2] - at[1]) / 3);
    bound = 4 * between + 32 * noise / h + 0x1p-13 * size;
    *bends = 4 * between > fmax(0x1p-8 * size, 32 * noise / h);
    if (status == WEFT_OK && !(off <= bound)) status = tell(l, off, bound, err);
    return status;
}

/* Starts with moves of about a 64th of the elements' magnitude. */
static weft_status check_direction(line *l, weft_error *err) {
    double h = fmax(norm(l->played->values[l->parameter], l->n), 0x1p-6) / 64;
    bool bends = true;
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < TRIES && bends && status == WEFT_OK; i++) {
        status = check_width(l, h, &bends, err);
        h /= 8;
    }
    return status;
}

/* Chooses direction `number`; 0 is the gradient's own direction if it is not zero. */
static void choose_direction(line *l, int32_t number) {
    const double size = norm(l->gradient, l->n);
    double sum = 0;
    for (int64_t i = 0; i < l->n; i++) {
        const weft_random4 drawn =
            weft_random(SEED + (uint64_t)number, WEFT_RANDOM_SAMPLE, (uint64_t)l->parameter, (uint64_t)i);
        l->direction[i] = number == 0 && size > 0 ? (double)l->gradient[i]
                                                  : (double)weft_random_uniform(drawn.v[0]) - 0.5;
        sum += l->direction[i] * l->direction[i];
    }
    for (int64_t i = 0; i < l->n; i++) l->direction[i] /= sqrt(sum);
}

static weft_status check_parameter(line *l, weft_error *err) {
    weft_status status = WEFT_OK;
    if (!isfinite(norm(l->gradient, l->n)))
        return WEFT_BROKEN(err,
                           "the gradient of %s has elements that are not finite: backward does not write all of it, "
                           "or reads memory that forward has not written",
                           l->played->declared->parameters[l->parameter].name);
    for (int32_t d = 0; d < DIRECTIONS && status == WEFT_OK; d++) {
        choose_direction(l, d);
        status = check_direction(l, err);
    }
    if (status == WEFT_OK)
        status = weft_reference_run_put(l->played, l->parameter, l->played->values[l->parameter], err);
    return status;
}

/* Tests the parameters with the results of a backward, for one micro-batch. */
static weft_status check_parameters(weft_reference_run *played, const weft_reference_micro_batch *micro_batch,
                                    const result *of, weft_error *err) {
    const weft_declared *declared = played->declared;
    weft_status status = WEFT_OK;
    for (int32_t p = declared->n_parameters - 1; p >= 0 && status == WEFT_OK;
         p--) { /* parameters next to an error come first */
        const int64_t n = declared->parameters[p].numel;
        line l = {.played = played,
                  .micro_batch = micro_batch,
                  .parameter = p,
                  .n = n,
                  .gradient = of->gradients[p],
                  .middle = of->loss};
        if (of->gradients[p] == NULL) continue;
        l.direction = weft_alloc(n, sizeof *l.direction);
        l.moved = weft_alloc(n, sizeof *l.moved);
        status = check_parameter(&l, err);
        free(l.direction);
        free(l.moved);
    }
    return status;
}

weft_status weft_gradient_check(weft_reference_run *played, weft_error *err) {
    weft_reference_micro_batch micro_batch;
    result of = {0};
    weft_status status = WEFT_OK;
    weft_reference_run_draw(played, 0, &micro_batch);
    status = run(played, &micro_batch, err);
    if (status == WEFT_OK && !isfinite(played->loss_sum)) status = WEFT_BROKEN(err, "the loss is no number");
    if (status == WEFT_OK) status = take_result(&of, played, err);
    if (status == WEFT_OK) status = check_parameters(played, &micro_batch, &of, err);
    result_free(&of, played);
    return status;
}
