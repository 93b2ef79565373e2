/* norm.c: norms of rows and their backward. Rows are independent, except for the gradients of gain and bias, which are
 * sums over rows (row_sums.c). */
#include "row_sums.h"

/* Operands of both directions; NULL where absent. */
typedef struct norm {
    const weft_norm *args;
    const cpu_cells *cells;
    bool layer;
    int from_one;  /* 1: the gain is the stored value plus one */
    int64_t bytes; /* per element of x, y, dy and dx */
    const float *gain, *bias;
    float *rstd, *mean;
    const void *x, *residual, *dy;
    void *y, *sum, *dx;
    float *dgain, *dbias, *gain_runs, *bias_runs;
} norm;

int64_t cpu_norm_backward_workspace(const weft_device *device, const weft_norm *args) {
    (void)device;
    return runs_bytes(args->rows, args->width) * (args->form == WEFT_NORM_LAYER ? 2 : 1);
}

static void norm_check_form(operands *c, int32_t form) {
    if (c->status != WEFT_OK || form == WEFT_NORM_RMS || form == WEFT_NORM_LAYER) return;
    c->status = weft_error_set(c->err, WEFT_E_UNSUPPORTED,
                               "%s on device cpu: form %d is not known; RMSNorm (0) and LayerNorm (1) are.", c->kernel,
                               form);
}

static norm norm_look_up(const weft_device *device, const weft_norm *args, operands *c) {
    norm o = {.args = args, .cells = cpu_cells_of(device, args->dtype)};
    o.bytes = operands_dtype(c, "dtype", args->dtype);
    norm_check_form(c, args->form);
    operands_size(c, "rows", args->rows, 0);
    operands_size(c, "width", args->width, 1);
    o.layer = args->form == WEFT_NORM_LAYER;
    o.from_one = args->gain_from_one != 0;
    o.x = operands_need(c, args->x, "x", args->rows, args->width, o.bytes);
    o.gain = operands_need(c, args->gain, "gain", args->width, 1, 4);
    o.rstd = operands_may(c, args->rstd, "rstd", args->rows, 1, 4);
    if (o.layer) o.mean = operands_may(c, args->mean, "mean", args->rows, 1, 4);
    return o;
}

/* ---- forward ---- */

static void norm_row(const norm *o, int64_t r) {
    const int64_t width = o->args->width, at = r * width;
    const void *x = cpu_from(o->x, at, o->bytes);
    void *y = cpu_at(o->y, at, o->bytes), *sum = cpu_at(o->sum, at, o->bytes);
    float mean = 0, factor = 0;
    if (sum != NULL) {
        o->cells->add(sum, x, cpu_from(o->residual, at, o->bytes), width);
        x = sum;
    }
    factor = o->layer ? o->cells->layer_row[o->from_one](y, x, o->gain, o->bias, width, o->args->eps, &mean)
                      : o->cells->rms_row[o->from_one](y, x, o->gain, width, o->args->eps);
    if (o->rstd != NULL) o->rstd[r] = factor;
    if (o->mean != NULL) o->mean[r] = mean;
}

CPU_KERNEL(norm, weft_norm) {
    operands c = OPERANDS("norm", weft_norm, args, err);
    norm o;
    (void)s;
    if (c.status != WEFT_OK) return c.status;
    o = norm_look_up(device, args, &c);
    if (o.layer) o.bias = operands_need(&c, args->bias, "bias", args->width, 1, 4);
    o.y = operands_need(&c, args->y, "y", args->rows, args->width, o.bytes);
    o.residual = operands_may(&c, args->residual, "residual", args->rows, args->width, o.bytes);
    if (o.residual != NULL) o.sum = operands_need(&c, args->sum, "sum", args->rows, args->width, o.bytes);
    if (c.status != WEFT_OK) return c.status;
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t r = 0; r < args->rows; r++) norm_row(&o, r);
    return WEFT_OK;
}

/* ---- backward ---- */

static void norm_row_backward(const norm *o, int64_t r, float *dgain, float *dbias) {
    const int64_t width = o->args->width, at = r * width;
    const void *dy = cpu_from(o->dy, at, o->bytes), *x = cpu_from(o->x, at, o->bytes);
    const bool kept = o->rstd != NULL && (!o->layer || o->mean != NULL);
    const float factor = kept ? o->rstd[r] : -1.0f;
    void *dx = cpu_at(o->dx, at, o->bytes);
    if (o->layer)
        o->cells->layer_row_backward[o->from_one](dx, dgain, dbias, dy, x, o->gain, factor, kept ? o->mean[r] : 0,
                                                  width, o->args->eps, o->args->accumulate_dx);
    else
        o->cells->rms_row_backward[o->from_one](dx, dgain, dy, x, o->gain, factor, width, o->args->eps,
                                                o->args->accumulate_dx);
}

/* Processes the rows of run i; its sums have their own part of the workspace. */
static void norm_run_backward(const norm *o, int64_t i) {
    const int64_t rows = o->args->rows, n = runs_of(rows), end = cpu_cut(rows, n, i + 1);
    float *dgain = o->dgain == NULL ? NULL : runs_begin(o->gain_runs, o->args->width, i);
    float *dbias = o->dbias == NULL ? NULL : runs_begin(o->bias_runs, o->args->width, i);
    int64_t r = 0;
    for (r = cpu_cut(rows, n, i); r < end; r++) norm_row_backward(o, r, dgain, dbias);
}

CPU_KERNEL(norm_backward, weft_norm) {
    operands c = OPERANDS("norm_backward", weft_norm, args, err);
    norm o;
    (void)s;
    if (c.status != WEFT_OK) return c.status;
    o = norm_look_up(device, args, &c);
    o.dy = operands_need(&c, args->dy, "dy", args->rows, args->width, o.bytes);
    o.dx = operands_may(&c, args->dx, "dx", args->rows, args->width, o.bytes);
    o.dgain = operands_may(&c, args->dgain, "dgain", args->width, 1, 4);
    if (o.layer) o.dbias = operands_may(&c, args->dbias, "dbias", args->width, 1, 4);
    o.gain_runs = operands_need_workspace(&c, args->workspace, cpu_norm_backward_workspace(device, args));
    if (c.status != WEFT_OK) return c.status;
    o.bias_runs = cpu_at(o.gain_runs, runs_bytes(args->rows, args->width), 1);
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t i = 0; i < runs_of(args->rows); i++) norm_run_backward(&o, i);
    if (o.dgain != NULL) runs_add(device, o.dgain, o.gain_runs, args->rows, args->width, args->accumulate_dgain != 0);
    if (o.dbias != NULL) runs_add(device, o.dbias, o.bias_runs, args->rows, args->width, args->accumulate_dbias != 0);
    return WEFT_OK;
}
