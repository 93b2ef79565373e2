/* host/tools/check/gradient_check.c: see gradient_check.h.
 *
 * Along a unit vector v the loss L has the slope g v, if g is its gradient. With the central difference
 *
 *     D(h) = (L(x + h v) - L(x - h v)) / 2h = slope + c h^2 + O(h^4)
 *
 * Richardson's extrapolation R(h) = (4 D(h/2) - D(h)) / 3 micro-batches O(h^4). Of three widths come two of them,
 * R(h) and R(h/2): where the loss is smooth the second is off by a fifteenth of what lies between them, so four
 * times that bounds it, also where a kink or two lie on the way. The other error is rounding: L is a sum of fp32
 * numbers, and a difference of two divided by a small h. How much L moves by rounding alone is measured, by second
 * differences so close by that L's own curvature, some 2^-20 of what it is at h, is nothing (Moré and Wild,
 * "Estimating computational noise", 2011), and is never taken for less than the last bit of L. R(h/2) weighs four
 * losses by 16/3h and 4/3h in all, 40/3h: 32/h of the noise bounds that. The gradient itself is fp32, summed over
 * places and elements: 2^-13 of its norm. */
#include "tools/check/gradient_check.h"

#include <math.h>
#include <stdlib.h>
#include <weft/random.h>

enum { WIDTHS = 3, DIRECTIONS = 3, TRIES = 3, SEED = 8502 };

typedef struct line {
    weft_reference_run *played;
    const weft_reference_micro_batch *micro_batch;
    int32_t parameter;
    int64_t n;
    const float *gradient;
    double *direction; /* [n] of norm 1 */
    float *moved;      /* [n] */
    double middle;     /* the loss where nothing is moved */
} line;

static double norm(const float *values, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)values[i] * (double)values[i];
    return sqrt(sum);
}

/* The loss `step` further. *slope gains what the gradient says of the move as it was rounded. */
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

/* D(h) less what the gradient says. */
static weft_status difference(line *l, double h, double *out, weft_error *err) {
    double up = 0, down = 0, said_up = 0, said_down = 0;
    weft_status status = loss_at(l, h, &up, &said_up, err);
    if (status == WEFT_OK) status = loss_at(l, -h, &down, &said_down, err);
    *out = (up - down - (said_up - said_down)) / (2 * h);
    return status;
}

/* By how much rounding moves the loss. */
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
    return weft_error_set(err, WEFT_E_PLUGIN,
                          "the gradient of %s is not the slope of the loss: along one direction it is off by %.3g, "
                          "where steps and rounding explain %.3g; its norm is %.3g%s%s",
                          l->played->declared->parameters[l->parameter].name, off, bound, said,
                          own == NULL ? "" : "; look at the backward of custom operators, as ", own == NULL ? "" : own);
}

/* *bends: what the loss does between the widths leaves too much open, so narrower ones may tell more. */
static weft_status judge_width(line *l, double h, bool *bends, weft_error *err) {
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

/* At first elements move by some 64th of what they are. */
static weft_status judge_direction(line *l, weft_error *err) {
    double h = fmax(norm(l->played->values[l->parameter], l->n), 0x1p-6) / 64;
    bool bends = true;
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < TRIES && bends && status == WEFT_OK; i++) {
        status = judge_width(l, h, &bends, err);
        h /= 8;
    }
    return status;
}

/* Number 0 is the gradient's own, if it has one. */
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

static weft_status judge_parameter(line *l, weft_error *err) {
    weft_status status = WEFT_OK;
    if (!isfinite(norm(l->gradient, l->n)))
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "the gradient of %s has elements that are no number: backward does not write all of it, "
                              "or reads what forward has not written",
                              l->played->declared->parameters[l->parameter].name);
    for (int32_t d = 0; d < DIRECTIONS && status == WEFT_OK; d++) {
        choose_direction(l, d);
        status = judge_direction(l, err);
    }
    if (status == WEFT_OK)
        status = weft_reference_run_put(l->played, l->parameter, l->played->values[l->parameter], err);
    return status;
}

/* Of one micro-batch, as the last backward has left them. */
static weft_status judge_parameters(weft_reference_run *played, const weft_reference_micro_batch *micro_batch,
                                    float **gradients, weft_error *err) {
    const weft_declared *declared = played->declared;
    const double loss = played->loss_sum;
    weft_status status = WEFT_OK;
    for (int32_t p = declared->n_parameters - 1; p >= 0 && status == WEFT_OK;
         p--) { /* what lies near a mistake first */
        const int64_t n = declared->parameters[p].numel;
        line l = {.played = played,
                  .micro_batch = micro_batch,
                  .parameter = p,
                  .n = n,
                  .gradient = gradients[p],
                  .middle = loss};
        if (gradients[p] == NULL) continue;
        l.direction = calloc((size_t)n + 1, sizeof *l.direction);
        l.moved = calloc((size_t)n + 1, sizeof *l.moved);
        status = l.direction == NULL || l.moved == NULL ? weft_error_set(err, WEFT_E_MEMORY, "no memory for a gradient")
                                                        : judge_parameter(&l, err);
        free(l.direction);
        free(l.moved);
    }
    return status;
}

static weft_status read_gradients(const weft_reference_run *played, float **gradients, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t p = 0; p < played->declared->n_parameters && status == WEFT_OK; p++) {
        if (!weft_reference_run_trains(played, p)) continue;
        gradients[p] = calloc((size_t)played->declared->parameters[p].numel + 1, sizeof(float));
        status = gradients[p] == NULL ? weft_error_set(err, WEFT_E_MEMORY, "no memory for a gradient")
                                      : weft_reference_run_gradient(played, p, gradients[p], err);
    }
    return status;
}

weft_status weft_gradient_check(weft_reference_run *played, weft_error *err) {
    const int32_t n = played->declared->n_parameters;
    float **gradients = calloc((size_t)n + 1, sizeof(float *));
    weft_reference_micro_batch micro_batch;
    weft_status status = gradients == NULL ? weft_error_set(err, WEFT_E_MEMORY, "no memory for gradients") : WEFT_OK;
    weft_reference_run_draw(played, 0, &micro_batch);
    if (status == WEFT_OK) status = weft_reference_run_forward(played, &micro_batch, err);
    if (status == WEFT_OK) status = weft_reference_run_backward(played, err);
    if (status == WEFT_OK && !isfinite(played->loss_sum))
        status = weft_error_set(err, WEFT_E_PLUGIN, "the loss is no number");
    if (status == WEFT_OK) status = read_gradients(played, gradients, err);
    if (status == WEFT_OK) status = judge_parameters(played, &micro_batch, gradients, err);
    for (int32_t p = 0; p < n && gradients != NULL; p++) free(gradients[p]);
    free((void *)gradients);
    return status;
}
