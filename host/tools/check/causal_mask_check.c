/* host/tools/check/causal_mask_check.c: see causal_mask_check.h.
 *
 * The loss is a sum over places, each times its target's weight. So a weight of zero takes a place's loss out of it,
 * and what is left shows whether others have changed. A product may be summed in another order where its rows lie
 * elsewhere: some 64 roundings of 2^-24 each, of numbers that are about as large as the loss, are 2^-18 of it. */
#include "tools/check/causal_mask_check.h"

#include <math.h>
#include <stdlib.h>

#define ROUNDING 0x1p-18

static bool is_same(double a, double b) {
    return fabs(a - b) <= ROUNDING * (fabs(a) + fabs(b));
}

/* ---- another id at a place ---- */

/* Who is looked at: places that may not see place (row, at). */
typedef enum sort { EVERYONE, EARLIER, OTHER_DOCUMENT, OTHER_ROW, SORTS } sort;

static sort sort_of(const weft_reference_micro_batch *micro_batch, int32_t length, int32_t row, int32_t at, int32_t i) {
    const int32_t place = i % length, changed = row * length + at;
    if (i / length != row) return OTHER_ROW;
    if (micro_batch->starts[i] != micro_batch->starts[changed]) return place < at ? EARLIER : OTHER_DOCUMENT;
    return place < at ? EARLIER : SORTS; /* which sees it */
}

/* The micro-batch with the losses of one sort alone; how many places have one. */
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

static weft_status judge_place(weft_reference_run *played, const weft_reference_micro_batch *micro_batch, int32_t row,
                               int32_t at, weft_error *err) {
    static const char *const names[SORTS] = {"others", "places before it", "the row's other document", "other rows"};
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
            return weft_error_set(err, WEFT_E_PLUGIN,
                                  "another id at place %d of row %d changes the loss of %s by %.3g: a place sees "
                                  "itself and what stands before it in its document, and nothing else",
                                  at, row, names[who], by);
    }
    return weft_error_set(err, WEFT_E_PLUGIN,
                          "another id at place %d of row %d changes the loss of places that may not see it", at, row);
}

/* ---- rows in another order ---- */

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

static weft_status judge_row(weft_reference_run *played, const weft_reference_micro_batch *micro_batch, int32_t row,
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
            return weft_error_set(
                err, WEFT_E_PLUGIN,
                "the same row has the loss %.9g as row %d of its micro-batch and %.9g as row %d: what it "
                "computes depends on where a row stands, or on its neighbours",
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
            status = judge_place(played, &micro_batch, row, at, err);
        if (status == WEFT_OK) status = judge_row(played, &micro_batch, row, err);
    }
    return status;
}

/* ---- what was computed before ---- */

typedef struct result {
    double loss;
    float **gradients; /* [n_parameters]; NULL: not trained */
} result;

static void result_free(result *self, const weft_reference_run *played) {
    for (int32_t p = 0; self->gradients != NULL && p < played->declared->n_parameters; p++) free(self->gradients[p]);
    free((void *)self->gradients);
    self->gradients = NULL;
}

/* After a backward. To be freed, also after a failure. */
static weft_status take_result(result *out, const weft_reference_run *played, weft_error *err) {
    const weft_declared *declared = played->declared;
    weft_status status = WEFT_OK;
    *out = (result){played->loss_sum, calloc((size_t)declared->n_parameters + 1, sizeof(float *))};
    if (out->gradients == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for gradients");
    for (int32_t p = 0; p < declared->n_parameters && status == WEFT_OK; p++) {
        if (!weft_reference_run_trains(played, p)) continue;
        out->gradients[p] = calloc((size_t)declared->parameters[p].numel + 1, sizeof(float));
        status = out->gradients[p] == NULL ? weft_error_set(err, WEFT_E_MEMORY, "no memory for a gradient")
                                           : weft_reference_run_gradient(played, p, out->gradients[p], err);
    }
    return status;
}

static weft_status compare_results(const weft_reference_run *played, const result *a, const result *b, const char *when,
                                   weft_error *err) {
    const weft_declared *declared = played->declared;
    if (memcmp(&a->loss, &b->loss, sizeof a->loss) != 0)
        return weft_error_set(err, WEFT_E_PLUGIN, "the same micro-batch has the loss %.17g, and %.17g %s", a->loss,
                              b->loss, when);
    for (int32_t p = 0; p < declared->n_parameters; p++)
        if (a->gradients[p] != NULL &&
            memcmp(a->gradients[p], b->gradients[p], (size_t)declared->parameters[p].numel * sizeof(float)) != 0)
            return weft_error_set(err, WEFT_E_PLUGIN, "the same micro-batch gives %s other gradients %s",
                                  declared->parameters[p].name, when);
    return WEFT_OK;
}

static weft_status run(weft_reference_run *played, const weft_reference_micro_batch *micro_batch, weft_error *err) {
    const weft_status status = weft_reference_run_forward(played, micro_batch, err);
    return status == WEFT_OK ? weft_reference_run_backward(played, err) : status;
}

/* Another micro-batch's forward in between, and its backward first or last, as pipelines have it. */
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
        status = compare_results(played, &first, &around,
                                 "where another micro-batch's forward lies before its backward", err);
    result_free(&first, played);
    result_free(&again, played);
    result_free(&around, played);
    return status;
}
